package pilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// Canary implements face.Engine.
func (p *Pilot) Canary(ctx context.Context, r face.CanaryRequest) ([]face.CanaryResult, error) {
	if id := gate.NoGate(r.Abort); id != "" && !r.Remove {
		return nil, fmt.Errorf("%w: no gate %s: there are G1 to G24", face.ErrRefused, id)
	}
	var list []face.CanaryResult
	var err error
	o := flip.MoveOptions{By: r.By, Reason: r.Reason}
	switch {
	case r.Consumer != "" && r.Remove:
		err = p.engine.EndCanary(ctx, r.Scope, r.Consumer, o)
		list = []face.CanaryResult{{Consumer: r.Consumer}}
	case r.Consumer != "":
		err = p.engine.Canary(ctx, r.Scope, r.Consumer, r.Abort, o)
		list = []face.CanaryResult{{Consumer: r.Consumer, Served: true}}
	case r.Remove:
		list, err = p.endAllCanaries(ctx, r.Scope, o)
	default:
		list, err = p.canaries(ctx, r, o)
	}
	if errors.Is(err, cutover.ErrNoStream) || errors.Is(err, cutover.ErrNoConsumer) {
		return nil, unknown(err)
	}
	if err != nil {
		return nil, refused(err)
	}
	return list, nil
}

// canaries serves all consumers of a stream that can be, or none: what has begun is given back when one cannot be
// taken.
func (p *Pilot) canaries(
	ctx context.Context, r face.CanaryRequest, o flip.MoveOptions,
) ([]face.CanaryResult, error) {
	v, err := p.engine.View(r.Scope)
	if err != nil {
		return nil, err
	}
	infos, err := v.Upstream.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(infos, func(a, b *server.ConsumerInfo) int { return cmp.Compare(a.Name, b.Name) })
	list := make([]face.CanaryResult, 0, len(infos))
	var begun, not []string
	for _, i := range infos {
		one := face.CanaryResult{Consumer: i.Name, Served: true}
		switch why := flip.NotServable(i); {
		case v.Canaries[i.Name]:
			one.Why = "it was before"
		case why != "":
			one.Served, one.Why = false, why
			not = append(not, i.Name+": "+why)
		default:
			if err := p.engine.Canary(ctx, r.Scope, i.Name, r.Abort, o); err != nil {
				return nil, p.giveBackAll(ctx, r.Scope, begun, i.Name, err)
			}
			begun = append(begun, i.Name)
		}
		list = append(list, one)
	}
	if len(begun) == 0 && len(v.Canaries) == 0 {
		return nil, fmt.Errorf("%w: %s has no consumer that can be served from here by itself: %s", face.ErrRefused,
			r.Scope, cmp.Or(strings.Join(not, "; "), "it has none at all"))
	}
	return list, nil
}

// giveBackAll gives those back that were taken before one could not be.
func (p *Pilot) giveBackAll(ctx context.Context, scope cutover.Scope, begun []string, failed string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime) // also if whoever asked is gone
	defer cancel()
	o := flip.MoveOptions{By: "gateway", Reason: "consumer " + failed + " could not be taken: all or none"}
	var left []string
	for _, consumer := range slices.Backward(begun) {
		err := p.engine.EndCanary(ctx, scope, consumer, o)
		for err != nil && ctx.Err() == nil { // what kept the one may have kept this one too, for a moment
			select {
			case <-ctx.Done():
			case <-time.After(lookPause):
				err = p.engine.EndCanary(ctx, scope, consumer, o)
			}
		}
		if err != nil {
			left = append(left, fmt.Sprintf("%s (%v)", consumer, err))
		}
	}
	if len(left) > 0 { // something has changed, so it is not refused
		return fmt.Errorf("consumer %s: %s; and these are served from here still: %s: ehdbctl canary rm", failed,
			why.Error(), strings.Join(left, ", "))
	}
	return fmt.Errorf("consumer %s, so none of %s is served from here: %w", failed, scope, why)
}

// endAllCanaries gives all consumers of a stream back.
func (p *Pilot) endAllCanaries(
	ctx context.Context, scope cutover.Scope, o flip.MoveOptions,
) (list []face.CanaryResult, err error) {
	all, err := p.engine.Canaries(scope)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no consumer of %s is served from here", face.ErrRefused, scope)
	}
	for _, c := range all {
		if failure := p.engine.EndCanary(ctx, scope, c.Consumer, o); failure != nil {
			err = errors.Join(err, fmt.Errorf("consumer %s is served from here still: %w", c.Consumer, failure))
			continue
		}
		list = append(list, face.CanaryResult{Consumer: c.Consumer})
	}
	return list, err
}

package pilot

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// drillTime bounds an exercise, drillExpiry is how long its outcome counts.
const (
	drillTime   = time.Minute
	drillExpiry = 24 * time.Hour
)

// Drill implements face.Engine.
func (p *Pilot) Drill(ctx context.Context, r face.DrillRequest) (*face.Drill, error) {
	if r.Kind != "flip-and-back" {
		return nil, fmt.Errorf("%w: drill %s: stop the process or the server by hand and look at the accounting; only "+
			"flip-and-back runs by itself", face.ErrUnsupported, r.Kind)
	}
	p.mu.Lock()
	for i := range p.drills {
		if p.drills[i].State == "running" {
			p.mu.Unlock()
			return nil, fmt.Errorf("%w: drill %d is running", face.ErrRefused, p.drills[i].ID)
		}
	}
	id := uint64(len(p.drills) + 1) //nolint:gosec // not negative
	d := face.Drill{ID: id, Kind: r.Kind, State: "running", Started: time.Now()}
	p.drills = append(p.drills, d)
	p.mu.Unlock()
	p.ended.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drillTime)
		defer cancel()
		result, err := p.flipAndBack(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		e := &p.drills[d.ID-1]
		e.Ended, e.Result, e.State = time.Now(), result, "passed"
		e.Expires = e.Ended.Add(drillExpiry)
		if err != nil {
			e.State, e.Result = "failed", err.Error()
		}
	})
	return &d, nil
}

// flipAndBack moves a stream of its own there and back, with messages before, between and after.
func (p *Pilot) flipAndBack(ctx context.Context) (result string, err error) {
	for account, c := range p.o.Conns {
		name := scratchPrefix + clean(p.o.Server) + "_DRILL"
		subject := "_EHDB.drill." + clean(p.o.Server)
		js, err := jetstream.New(c.NATS())
		if err != nil {
			return "", err
		}
		s, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{subject}})
		if err != nil {
			return "", err
		}
		defer func() {
			gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_ = js.DeleteStream(gone, name)
		}()
		scope := cutover.Scope{Account: account, Stream: name}
		out, err := p.rehearse(ctx, scope, s, subject, func() error {
			_, err := js.Publish(ctx, subject, []byte("there"))
			return err
		})
		if err != nil {
			return "", fmt.Errorf("%s: %w", account, err)
		}
		result += account + ": " + out + "; "
	}
	return result, nil
}

// rehearse moves one stream there and back.
func (p *Pilot) rehearse(
	ctx context.Context, scope cutover.Scope, s jetstream.Stream, subject string, there func() error,
) (string, error) {
	const each = 100
	for range each {
		if err := there(); err != nil {
			return "", err
		}
	}
	o := flip.MoveOptions{By: "drill", Retries: 3}
	if err := p.engine.Watch(ctx, scope, "drill"); err != nil {
		return "", err
	}
	flipped, err := p.engine.Flip(ctx, scope, o)
	if err != nil {
		return "", err
	}
	if err := p.publishHere(scope.Account, subject, each); err != nil {
		return "", err
	}
	v, err := p.engine.View(scope)
	if err != nil {
		return "", err
	}
	for last := uint64(0); last < flipped.Last+each; { // what was published is durable
		var moved <-chan struct{}
		if last, moved = v.Copy.Progress(); last < flipped.Last+each {
			select {
			case <-moved:
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
	}
	back, err := p.engine.Rollback(ctx, scope, o)
	if err != nil {
		return "", err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return "", err
	}
	if want := flipped.Last + each; info.State.LastSeq != want || info.State.Msgs < 2*each {
		return "", fmt.Errorf("the servers have %d messages up to %d, and should have %d",
			info.State.Msgs, info.State.LastSeq, want)
	}
	return fmt.Sprintf("held %v there and %v back, %d messages equal", flipped.Fence.Round(time.Millisecond),
		back.Fence.Round(time.Millisecond), info.State.Msgs), p.engine.Forget(ctx, scope, "drill")
}

// publishHere publishes on the gateway's own bus, as its clients do.
func (p *Pilot) publishHere(account, subject string, n int) error {
	session, err := p.o.Bus.Open(bus.KindService, bus.Identity{Account: account}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	for range n {
		session.Publish(&bus.Msg{Subject: []byte(subject), Data: []byte("here")})
		session.Flush()
	}
	return nil
}

package pilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

const (
	// drillTime bounds what is done ahead of an exercise's load, and what is waited for behind it.
	drillTime = time.Minute
	// tidyEvery is how often it is looked whether something of an exercise is left over.
	tidyEvery = 2 * time.Second
	// killPause lets the answer out before the process is killed.
	killPause = 200 * time.Millisecond
)

// singleServer is why nobody can step down.
const singleServer = "a single server without a cluster: no leader can step down"

// clustered tells whether a stream's servers are a cluster. A single server names itself, and no cluster.
func clustered(c *server.ClusterInfo) bool { return c != nil && c.Name != "" }

// drills are the exercises.
type drills struct {
	log    *drill.Log
	limits drill.Limits
	// op is held by what makes or removes an exercise's stream.
	op sync.Mutex
}

// open reads the evidence. That it is gone keeps no gateway from serving: the gates say so.
func (d *drills) open(o *Options) {
	d.limits = drill.DefaultLimits
	if o.Profile == gate.Drill {
		d.limits = drill.PatientLimits
	}
	var err error
	if d.log, err = drill.OpenLog(o.Dir); err != nil {
		o.Logger.Warn("The evidence of drills is not complete: {error}", slog.Any("error", err))
	}
}

// Drills implements face.Engine.
func (p *Pilot) Drills() []face.Drill {
	list, now := p.drills.log.List(), time.Now()
	for i := range list {
		list[i].Assess(now, drill.Image())
	}
	return append([]face.Drill{}, list...)
}

// drillFacts is the evidence of exercises.
func (p *Pilot) drillFacts(c *collector) {
	for kind, name := range map[string]string{
		drill.RestartWriter: gate.DrillWriterKill, drill.KillGateway: gate.DrillGatewayKill,
		drill.Partition: gate.DrillPartition, drill.Stepdown: gate.DrillStepdown, drill.FlipAndBack: gate.DrillFlipBack,
	} {
		d, ok := p.drills.log.Last(kind, drill.Image())
		if _, known := c.facts[name]; known || !ok || d.State == drill.NotApplicable { // that is looked at each time
			continue
		}
		d.Assess(c.now, drill.Image())
		f := gate.Fact{
			Value: gate.Yes(d.State == drill.Passed), N: 1, At: d.Ended, Source: fmt.Sprintf("drill %d", d.ID),
			Detail: d.Kind + ": " + d.Result, Lapsed: d.Lapsed,
		}
		if d.Lapsed != "" {
			f.Lapsed = fmt.Sprintf("drill %s does not count: %s; ehdbctl drill %s", d.Kind, d.Lapsed, d.Kind)
		}
		c.facts[name] = f
	}
}

// mayDrill is an error when an exercise is refused.
func (p *Pilot) mayDrill(kind, account string) error {
	switch {
	case p.o.Mode == ModeNATS:
		return fmt.Errorf("%w: in bus mode nats no stream is moved, and there is nothing to exercise", face.ErrRefused)
	case drill.Armed(kind) && !p.o.Faults.Allowed:
		return fmt.Errorf("%w: drill %s is not armed, since all clients feel it: set bus { drills: true } and start "+
			"the gateway anew, under a supervisor that starts it again when it is killed", face.ErrRefused, kind)
	case p.o.Conns[account] == nil:
		return fmt.Errorf("%w: the gateway has no login of its own in account %s: bus { accounts { %q { ... } } }",
			face.ErrRefused, account, account)
	}
	return nil
}

// ofLog gives errors of the log their status.
func ofLog(err error) error {
	switch {
	case errors.Is(err, drill.ErrRunning):
		return fmt.Errorf("%w: %w", face.ErrRefused, err)
	case errors.Is(err, drill.ErrNone):
		return unknown(err)
	}
	return err
}

// Drill implements face.Engine.
func (p *Pilot) Drill(_ context.Context, r face.DrillRequest) (*face.Drill, error) {
	if err := p.mayDrill(r.Kind, r.Scope.Account); err != nil {
		return nil, err
	}
	d, err := p.drills.log.Begin(drill.Drill{
		Kind: r.Kind, Scope: r.Scope, By: r.By, Reason: r.Reason, Version: p.o.Version, Image: drill.Image(),
		Load: cmp.Or(r.Load, drill.DefaultLoad),
	})
	if err != nil {
		return nil, ofLog(err)
	}
	p.ended.Go(func() {
		p.drills.op.Lock()
		defer p.drills.op.Unlock()
		ctx, cancel := context.WithTimeout(p.live, drillTime)
		defer cancel()
		state, result, err := p.prepareDrill(ctx, &d)
		if err != nil {
			state, result = drill.Failed, err.Error()
		}
		if state != drill.Running {
			p.keptDrill(p.drills.log.End(d.ID, state, result))
		}
	})
	return &d, nil
}

// keptDrill tells the operator's log that evidence could not be kept.
func (p *Pilot) keptDrill(d drill.Drill, err error) { //nolint:gocritic // as Log returns it
	if err != nil {
		p.o.Logger.Error("The outcome of a drill could not be kept: {error}", slog.Any("error", err))
		return
	}
	p.o.Logger.Info("Drill {id}, {kind}: {state}: {result}", slog.Uint64("id", d.ID), slog.String("kind", d.Kind),
		slog.String("state", string(d.State)), slog.String("result", d.Result))
}

// toldDrill makes events of what happens to exercises, and counts them.
func (p *Pilot) toldDrill(d drill.Drill) { //nolint:gocritic // as Log gives it
	what := "begins"
	if d.State != drill.Running {
		p.metrics.Drill(d.Kind, d.State)
		what = string(d.State) + ": " + d.Result
	}
	p.noteDrill(&d, what)
}

func (p *Pilot) noteDrill(d *drill.Drill, what string) {
	p.note(&flip.Entry{
		Scope: d.Scope, Event: flip.EventDrill, By: d.By, Reason: fmt.Sprintf("%s (%d) %s", d.Kind, d.ID, what),
	})
}

// stage is an error unless an exercise is at a step.
func stage(d *drill.Drill, want drill.Step) error {
	switch {
	case d.State != drill.Running:
		return fmt.Errorf("%w: drill %d has ended, %s: %s; for another: ehdbctl drill %s %s", face.ErrRefused, d.ID,
			d.State, d.Result, d.Kind, d.Scope.Flag())
	case d.Step != want:
		return fmt.Errorf("%w: drill %d is at step %q, and this is for step %q", face.ErrRefused, d.ID, d.Step, want)
	}
	return nil
}

// DrillFault implements face.Engine.
func (p *Pilot) DrillFault(ctx context.Context, r face.DrillFaultRequest) (*face.Drill, error) {
	d, err := p.drills.log.Get(r.ID)
	if err != nil {
		return nil, ofLog(err)
	}
	if err := p.mayDrill(d.Kind, d.Scope.Account); err != nil {
		return nil, err
	}
	if err := stage(&d, drill.Ready); err != nil {
		return nil, err
	}
	before, err := p.sight(ctx, scopeOf(&d))
	if err != nil {
		return nil, err
	}
	d, err = p.drills.log.Change(r.ID, func(d *drill.Drill) error {
		if err := stage(d, drill.Ready); err != nil {
			return err
		}
		d.Before, d.Fault, d.Step = before, &drill.Fault{At: time.Now().UTC()}, drill.Broken
		if d.Kind == drill.Partition {
			length := time.Duration(r.Seconds * float64(time.Second))
			d.Fault.Until = d.Fault.At.Add(cmp.Or(length, drill.DefaultCut))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.o.Logger.Warn("Drill {id}, {kind}, by {by}: the fault begins", slog.Uint64("id", d.ID),
		slog.String("kind", d.Kind), slog.String("by", r.By))
	p.noteDrill(&d, "the fault begins")
	fault := *d.Fault
	if err := p.breakDown(ctx, &d, &fault); err != nil {
		p.keptDrill(p.drills.log.End(d.ID, drill.Failed, "the fault could not be brought about: "+err.Error()))
		return nil, fmt.Errorf("the fault could not be brought about: %w", err)
	}
	d, err = p.drills.log.Change(r.ID, func(d *drill.Drill) error {
		d.Fault = &fault
		return nil
	})
	return &d, err
}

// DrillReport implements face.Engine.
func (p *Pilot) DrillReport(_ context.Context, r face.DrillReportRequest) (*face.Drill, error) {
	d, err := p.drills.log.Change(r.ID, func(d *drill.Drill) error {
		want := drill.Broken
		if r.Account.Error != "" { // given up, at whichever step
			want = d.Step
		}
		if err := stage(d, want); err != nil {
			return err
		}
		d.Account, d.Step = &r.Account, drill.Settling
		return nil
	})
	if err != nil {
		return nil, ofLog(err)
	}
	if r.Account.Error != "" { // given up
		d, err = p.drills.log.Close(d.ID, p.drills.limits)
		p.keptDrill(d, err)
		return &d, err
	}
	p.ended.Go(func() {
		ctx, cancel := context.WithTimeout(p.live, drillTime)
		defer cancel()
		after, err := p.settleDrill(ctx, &d)
		if err != nil {
			why := "the gateway could not see what has become of it: " + err.Error()
			p.keptDrill(p.drills.log.End(d.ID, drill.Failed, why))
			return
		}
		if _, err = p.drills.log.Change(d.ID, func(d *drill.Drill) error {
			d.After = after
			return nil
		}); err == nil {
			d, err = p.drills.log.Close(d.ID, p.drills.limits)
		}
		p.keptDrill(d, err)
	})
	return &d, nil
}

// tidyDrills ends exercises that have run for too long, and removes what ended ones leave behind.
func (p *Pilot) tidyDrills(ctx context.Context) {
	t := time.NewTicker(tidyEvery)
	defer t.Stop()
	said := ""
	for {
		err := p.drills.log.Overdue(time.Now())
		for _, d := range p.drills.log.List() {
			if d.State != drill.Running && !d.Tidied {
				err = errors.Join(err, p.tidyDrill(ctx, &d))
			}
		}
		if err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			p.o.Logger.Warn("The stream of a drill could not be removed yet: {error}", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

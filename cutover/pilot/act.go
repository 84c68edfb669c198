package pilot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

func refused(err error) error {
	if errors.Is(err, flip.ErrRefused) || errors.Is(err, flip.ErrBudget) || errors.Is(err, flip.ErrMoved) {
		return fmt.Errorf("%w: %w", face.ErrRefused, err)
	}
	return err
}

// Plan implements face.Engine.
func (p *Pilot) Plan(ctx context.Context, scope cutover.Scope, to string) (*face.Plan, error) {
	var plan *flip.Plan
	var err error
	if to == "nats" {
		plan, err = p.engine.PlanRollback(ctx, scope)
	} else {
		plan, err = p.engine.PlanFlip(ctx, scope)
	}
	if err != nil {
		return nil, unknown(err)
	}
	out := &face.Plan{
		Scope: plan.Scope, To: plan.To, Epoch: plan.Epoch, Steps: plan.Steps, Refusals: plan.Refusal, Undo: plan.Undo,
		Digest: plan.Digest,
	}
	if to != "nats" {
		r, err := p.Gates(ctx, scope, gate.Flip)
		if err != nil {
			return nil, err
		}
		out.Gates = r.Summary()
		if r.Verdict != gate.Go {
			out.Refusals = append(out.Refusals,
				"the gates say "+r.Summary()+", but for those that are done without (--force)")
		}
	}
	return out, nil
}

// Flip implements face.Engine.
func (p *Pilot) Flip(ctx context.Context, r face.FlipRequest) (*face.Move, error) {
	report, err := p.gates(ctx, r.Scope, gate.Flip, r.Force, r.Expect)
	if err != nil {
		return nil, err
	}
	if report.Verdict != gate.Go {
		return nil, fmt.Errorf("%w: %s: %s: ehdbctl gates %s says why, and --force G11=reason does without those that "+
			"are not about losing messages", face.ErrRefused, r.Scope, report.Summary(), r.Scope.Flag())
	}
	if r.Postpone {
		if done, err := p.postpone(ctx, r.Scope); done != nil || err != nil {
			return done, err
		}
	}
	m, err := p.engine.Flip(ctx, r.Scope, flip.MoveOptions{
		By: r.By, Reason: r.Reason, Fence: r.MaxFence, Retries: r.Retries, Expect: r.Expect,
	})
	p.fenced(r.Scope, "flip", err)
	if err != nil {
		return nil, refused(err)
	}
	if r.Test {
		return p.Rollback(ctx, face.RollbackRequest{Actor: r.Actor, Scope: r.Scope, MaxFence: r.MaxFence})
	}
	return moved(m), nil
}

// postpone waits for Release. A move that is not nil is the end of it.
func (p *Pilot) postpone(ctx context.Context, scope cutover.Scope) (*face.Move, error) {
	release := make(chan bool, 1)
	p.mu.Lock()
	if p.postponed[scope] != nil {
		p.mu.Unlock()
		return nil, fmt.Errorf("%w: a flip of %s is postponed already: ehdbctl flip go, or abort",
			face.ErrRefused, scope)
	}
	p.postponed[scope] = release
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.postponed, scope)
	}()
	select {
	case abort := <-release:
		if abort {
			return &face.Move{Scope: scope, To: "ehdb", State: "aborted", At: time.Now()}, nil
		}
		return nil, nil //nolint:nilnil // it goes on
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Release implements face.Engine.
//
//nolint:revive // abort is one of its two outcomes
func (p *Pilot) Release(_ context.Context, scope cutover.Scope, abort bool, _ string) (*face.Move, error) {
	p.mu.Lock()
	ch := p.postponed[scope]
	p.mu.Unlock()
	if ch == nil {
		return nil, fmt.Errorf("%w: no flip of %s is postponed", face.ErrUnknown, scope)
	}
	select {
	case ch <- abort:
	default:
		return nil, fmt.Errorf("%w: it was released already", face.ErrRefused)
	}
	state := "done"
	if abort {
		state = "aborted"
	}
	return &face.Move{Scope: scope, To: "ehdb", State: state, At: time.Now()}, nil
}

// Rollback implements face.Engine.
func (p *Pilot) Rollback(ctx context.Context, r face.RollbackRequest) (*face.Move, error) {
	if r.Emergency {
		bound, err := p.engine.RollbackBound(r.Scope)
		if err != nil {
			return nil, unknown(err)
		}
		if bound.Lost > r.MaxLoss {
			return nil, fmt.Errorf("%w: it would lose %d messages now, and %d were agreed to",
				face.ErrRefused, bound.Lost, r.MaxLoss)
		}
	}
	m, err := p.engine.Rollback(ctx, r.Scope, flip.MoveOptions{
		By: r.By, Reason: r.Reason, Fence: r.MaxFence, Retries: 3, Emergency: r.Emergency,
	})
	p.fenced(r.Scope, "rollback", err)
	if err != nil {
		return nil, refused(err)
	}
	return moved(m), nil
}

// maxFences is how many fences of a stream are remembered.
const maxFences = 50

// fenced remembers a time that a stream was held in vain. The others are in the journal.
func (p *Pilot) fenced(scope cutover.Scope, kind string, err error) {
	if err == nil || errors.Is(err, flip.ErrRefused) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.seen[scope]; s != nil {
		s.fences = append(s.fences, face.Fence{At: time.Now(), Kind: kind, Outcome: err.Error()})
		if len(s.fences) > maxFences {
			s.fences = s.fences[1:]
		}
	}
}

// fences returns the times that a stream was held, the oldest first: those of moves, also before a restart, and vain
// holds since. inVain is what fenced remembers.
func fences(journal []flip.Entry, scope cutover.Scope, inVain []face.Fence) []face.Fence {
	list := slices.Clone(inVain)
	for i := range journal {
		e := &journal[i]
		if e.Scope != scope || e.Event != flip.EventReleased || e.Move == nil {
			continue
		}
		kind := "flip"
		if e.Move.To == cutover.Standby {
			kind = "rollback"
		}
		list = append(list, face.Fence{At: e.Move.At, Kind: kind, Outcome: "done", Seconds: e.Move.Fence.Seconds()})
	}
	slices.SortStableFunc(list, func(a, b face.Fence) int { return a.At.Compare(b.At) })
	return list[max(0, len(list)-maxFences):]
}

func moved(m *flip.Move) *face.Move {
	out := &face.Move{
		Scope: m.Scope, To: "ehdb", State: "done", Epoch: m.Epoch, Last: m.Last, Fence: m.Fence.Seconds(),
		Attempts: m.Attempts, Consumers: m.Consumers, Inexact: m.Inexact, Lost: m.Lost, Duplicates: m.Duplicates,
		At: m.At, Undo: "ehdbctl rollback " + m.Scope.Flag(), Next: "ehdbctl status --watch " + m.Scope.Flag(),
	}
	if m.To == cutover.Standby {
		out.To, out.Undo = "nats", "ehdbctl flip "+m.Scope.Flag()
	}
	return out
}

// Complete implements face.Engine.
func (p *Pilot) Complete(ctx context.Context, r face.CompleteRequest) error {
	if !r.Understood {
		return fmt.Errorf("%w: the way back would be gone for good: say that you understand", face.ErrRefused)
	}
	report, err := p.Gates(ctx, r.Scope, gate.Complete)
	if err != nil {
		return err
	}
	if report.Verdict != gate.Go {
		return fmt.Errorf("%w: %s: %s", face.ErrRefused, r.Scope, report.Summary())
	}
	return refused(p.engine.Complete(ctx, r.Scope, flip.MoveOptions{By: r.By, Reason: r.Reason}))
}

// Shadow implements face.Engine.
func (p *Pilot) Shadow(ctx context.Context, r face.ShadowRequest) error {
	if r.Action == "start" {
		return p.engine.Watch(ctx, r.Scope, r.By)
	}
	v, err := p.engine.View(r.Scope)
	if err != nil {
		return unknown(err)
	}
	switch r.Action {
	case "stop":
		return refused(p.engine.Forget(ctx, r.Scope, r.By))
	case "reset":
		c, ok := v.Capture.(*capture.Capturer)
		if !ok || v.Phase != flip.PhaseShadow {
			return fmt.Errorf("%w: %s is in phase %s: only a shadow can be reset", face.ErrRefused, r.Scope, v.Phase)
		}
		if err := c.Reset(ctx); err != nil {
			return err
		}
		p.changed(r.Scope)
		return nil
	}
	return fmt.Errorf("%w: %q is not one of start, stop, reset", face.ErrRefused, r.Action)
}

// Canary implements face.Engine.
func (p *Pilot) Canary(ctx context.Context, r face.CanaryRequest) error {
	o := flip.MoveOptions{By: r.By, Reason: r.Reason}
	var err error
	if r.Remove {
		err = p.engine.EndCanary(ctx, r.Scope, r.Consumer, o)
	} else {
		if id := gate.NoGate(r.Abort); id != "" {
			return fmt.Errorf("%w: no gate %s: there are G1 to G24", face.ErrRefused, id)
		}
		err = p.engine.Canary(ctx, r.Scope, r.Consumer, r.Abort, o)
	}
	if errors.Is(err, cutover.ErrNoStream) || errors.Is(err, cutover.ErrNoConsumer) {
		return unknown(err)
	}
	return refused(err)
}

// Throttle implements face.Engine.
func (p *Pilot) Throttle(_ context.Context, reason, _ string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.throttle = reason
	return nil
}

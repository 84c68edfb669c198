package pilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/hook"
)

// refused makes an error of the engine behind which nothing has changed one that is answered so.
func refused(err error) error {
	if err == nil || errors.Is(err, face.ErrRefused) {
		return err
	}
	for _, is := range []error{flip.ErrRefused, flip.ErrEnded, flip.ErrBudget, flip.ErrMoved} {
		if errors.Is(err, is) {
			return refusedError{err}
		}
	}
	return err
}

// refusedError is an error that is face.ErrRefused.
type refusedError struct{ error }

func (e refusedError) Error() string {
	text, prefix := e.error.Error(), face.ErrRefused.Error()+": "
	if strings.HasPrefix(text, prefix) {
		return text
	}
	return prefix + text
}

func (refusedError) Is(target error) bool { return target == face.ErrRefused }
func (e refusedError) Unwrap() error      { return e.error }

// Plan implements face.Engine.
func (p *Pilot) Plan(ctx context.Context, r face.PlanRequest) (*face.Plan, error) {
	var plan *flip.Plan
	var err error
	before := hook.BeforeFlip
	if r.To == "nats" {
		before = hook.BeforeRollback
		plan, err = p.engine.PlanRollback(ctx, r.Scope)
	} else {
		plan, err = p.engine.PlanFlip(ctx, r.Scope, p.planned(r.NoReverse, p.observeFor(r.Observe)))
	}
	if err != nil {
		return nil, unknown(err)
	}
	out := &face.Plan{
		Scope: plan.Scope, To: plan.To, Epoch: plan.Epoch, Steps: plan.Steps, Refusals: plan.Refusal, Undo: plan.Undo,
		Digest: plan.Digest,
	}
	if slices.Contains(p.o.Hooks.Found(), before) {
		step := fmt.Sprintf("ask the hook %s, which may refuse; %v at most", before, p.o.Hooks.Timeout())
		out.Steps = append([]string{step}, out.Steps...)
	}
	if r.To == "nats" {
		return out, p.planBack(ctx, &r, out)
	}
	if err := p.allowed(r.Scope, "flip"); err != nil { // the gates would say what lacks, and not why
		out.Refusals, out.Gates = []string{unprefixed(err)}, "not asked"
		return out, nil
	}
	report, err := p.evaluate(ctx, r.Scope, &question{purpose: gate.Flip, noReverse: noReverse(r.NoReverse, "")})
	if err != nil {
		return nil, err
	}
	out.Gates = report.Summary()
	out.NotEnough = report.Verdict == gate.NotEnough && len(out.Refusals) == 0
	if report.Verdict != gate.Go {
		out.Refusals = append(out.Refusals,
			"the gates say "+report.Summary()+", but for those that are done without (--force)")
	}
	return out, nil
}

// observeFor is for how long a flip is observed, if that was asked for.
func (p *Pilot) observeFor(asked *time.Duration) time.Duration {
	if asked != nil {
		return *asked
	}
	return p.o.Observe
}

// planned are the options of a flip that its plan depends on.
func (p *Pilot) planned(noReverse bool, observe time.Duration) *flip.MoveOptions {
	return &flip.MoveOptions{NoReverse: noReverse, Observe: observe, Gates: p.o.ObserveGates}
}

// noReverse is why no way back is wanted; empty: one is.
func noReverse(asked bool, by string) string {
	switch {
	case !asked:
		return ""
	case by == "":
		return "--no-reverse-shadow"
	}
	return "--no-reverse-shadow, understood by " + by
}

// Flip implements face.Engine.
func (p *Pilot) Flip(ctx context.Context, r face.FlipRequest) (*face.Move, error) {
	if p.postponement(r.Scope) != nil {
		return nil, postponedAlready(r.Scope)
	}
	p.mu.Lock()
	if s := p.seen[r.Scope]; s != nil {
		s.gaveUp = ""
	}
	p.mu.Unlock()
	if r.Postpone || r.PostponeFile != "" {
		if err := p.cleared(ctx, &r); err != nil {
			return nil, err
		}
		return p.postpone(r)
	}
	var until time.Time
	if r.HoldWindow > 0 {
		until = time.Now().Add(r.HoldWindow)
	}
	return p.depart(ctx, r, until)
}

// cleared is why its phase, or the gates, do not let a flip pass.
func (p *Pilot) cleared(ctx context.Context, r *face.FlipRequest) error {
	if err := p.allowed(r.Scope, "flip"); err != nil {
		return err
	}
	report, err := p.evaluate(ctx, r.Scope, &question{
		purpose: gate.Flip, forced: r.Force, expect: r.Expect, noReverse: noReverse(r.NoReverse, r.By),
		observe: p.observeFor(r.Observe),
	})
	if err != nil {
		return err
	}
	if report.Verdict != gate.Go {
		return fmt.Errorf("%w: %s: %s: ehdbctl gates %s says why, and --force G11=reason does without those that "+
			"are not about losing messages", noGo(&report), r.Scope, report.Summary(), r.Scope.Flag())
	}
	return nil
}

// noGo is the error that a verdict is.
func noGo(r *gate.Report) error {
	if r.Verdict == gate.NotEnough {
		return face.ErrNotEnough
	}
	return face.ErrRefused
}

// depart asks the gates and the hook, and moves a stream here; attempts are made until a time, if there is one.
func (p *Pilot) depart(ctx context.Context, r face.FlipRequest, until time.Time) (*face.Move, error) {
	if err := p.cleared(ctx, &r); err != nil {
		return nil, err
	}
	o := flip.MoveOptions{
		By: r.By, Reason: r.Reason, Fence: r.MaxFence, Retries: r.Retries, Until: until, Expect: r.Expect,
		NoReverse: r.NoReverse, Observe: p.observeFor(r.Observe), Gates: p.o.ObserveGates,
		Without: slices.Collect(maps.Keys(r.Force)),
	}
	f := p.about(r.Scope, "flip", "ehdb", r.Actor)
	f.FenceMS, f.NoReverseShadow = fenceOf(r.MaxFence), r.NoReverse
	f.Forced, f.PostponeFile = pairs(r.Force), r.PostponeFile
	if plan, err := p.engine.PlanFlip(ctx, r.Scope, &o); err == nil {
		f.PlanDigest = plan.Digest
	}
	if err := p.consult(ctx, hook.BeforeFlip, r.Scope, f); err != nil {
		return nil, err
	}
	p.give(r.Scope, false)
	m, err := p.engine.Flip(ctx, r.Scope, o)
	p.fenced(r.Scope, "flip", err)
	p.outcome(r.Scope, f, m, err)
	if err != nil {
		return nil, refused(err)
	}
	if !r.Test {
		out := moved(m)
		if r.NoReverse {
			out.Undo += " --emergency"
		}
		return out, nil
	}
	back, err := p.Rollback(ctx, face.RollbackRequest{Actor: r.Actor, Scope: r.Scope, MaxFence: r.MaxFence})
	if err != nil { // not refused: something has changed
		return nil, errors.New("it was flipped, and is not given back: " + err.Error())
	}
	return back, nil
}

func fenceOf(most time.Duration) int64 { return cmp.Or(most, flip.DefaultFence).Milliseconds() }

// pairs are a map's entries, as name=value.
func pairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ", ")
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
	} else if err := p.allowed(r.Scope, "rollback"); err != nil {
		return nil, err
	}
	f := p.about(r.Scope, "rollback", "nats", r.Actor)
	f.FenceMS, f.Emergency = fenceOf(r.MaxFence), r.Emergency
	if r.Emergency { // nobody's word keeps anybody from it
		p.tell(hook.BeforeRollback, r.Scope, f)
	} else if err := p.consult(ctx, hook.BeforeRollback, r.Scope, f); err != nil {
		return nil, err
	}
	p.give(r.Scope, true) // else the bus mode might take it again at once
	m, err := p.engine.Rollback(ctx, r.Scope, flip.MoveOptions{
		By: r.By, Reason: r.Reason, Fence: r.MaxFence, Retries: 3, Emergency: r.Emergency,
	})
	p.fenced(r.Scope, "rollback", err)
	p.outcome(r.Scope, f, m, err)
	if err != nil {
		p.give(r.Scope, false)
		return nil, refused(err)
	}
	out := moved(m)
	if p.o.Mode == ModeEHDB {
		out.Next += "   # the bus mode is ehdb: the next start takes it again"
	}
	return out, nil
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
	if m.Leftover {
		out.Next = "ehdbctl shadow reset " + m.Scope.Flag()
	}
	return out
}

// Complete implements face.Engine.
func (p *Pilot) Complete(ctx context.Context, r face.CompleteRequest) error {
	if !r.Understood {
		return fmt.Errorf("%w: the way back would be gone for good: say that you understand", face.ErrRefused)
	}
	if err := p.allowed(r.Scope, "complete"); err != nil {
		return err
	}
	q := &question{
		purpose: gate.Complete, forced: r.Force, by: r.By, approver: r.Approver, credentials: r.Credentials,
	}
	report, err := p.evaluate(ctx, r.Scope, q)
	if err != nil {
		return err
	}
	if report.Verdict != gate.Go {
		why := "ehdbctl gates --for complete " + r.Scope.Flag() + " says why"
		if own := q.ownApproval(); own != "" { // the gates do not know who will ask
			why = own + "; of the other gates " + why
		}
		return fmt.Errorf("%w: %s: %s: %s", noGo(&report), r.Scope, report.Summary(), why)
	}
	r.Reason = strings.TrimPrefix(r.Reason+"; approved by "+q.approver+"; to be retired: "+r.Credentials, "; ")
	f := p.about(r.Scope, "complete", "ehdb", r.Actor)
	f.Forced = pairs(r.Force)
	if err := p.consult(ctx, hook.BeforeComplete, r.Scope, f); err != nil {
		return err
	}
	err = p.engine.Complete(ctx, r.Scope, flip.MoveOptions{By: r.By, Reason: r.Reason})
	p.outcome(r.Scope, f, nil, err)
	return refused(err)
}

// Shadow implements face.Engine.
func (p *Pilot) Shadow(ctx context.Context, r face.ShadowRequest) error {
	switch r.Action {
	case "start":
		if err := p.engine.Watch(ctx, r.Scope, r.By); err != nil {
			return err
		}
		if r.Rate == 0 {
			return p.limited(&r)
		}
		return p.fill(&r, nil)
	case "backfill":
		return p.fill(&r, nil)
	case "stop":
		if err := p.allowed(r.Scope, "shadow stop"); err != nil {
			return err
		}
		return refused(p.engine.Forget(ctx, r.Scope, r.By))
	case "reset":
		return p.fill(&r, func(c *capture.Capturer) error {
			err := refused(p.engine.Renew(ctx, r.Scope, c.Reset, flip.MoveOptions{By: r.By, Reason: r.Reason}))
			if err == nil {
				p.changed(r.Scope)
			}
			return err
		})
	}
	return fmt.Errorf("%w: %q is not one of start, stop, reset, backfill", face.ErrRefused, r.Action)
}

// fill gives what copies a shadow its pace, and does something to it, if do is not nil.
func (p *Pilot) fill(r *face.ShadowRequest, do func(*capture.Capturer) error) error {
	v, err := p.engine.View(r.Scope)
	if err != nil {
		return unknown(err)
	}
	c, ok := v.Capture.(*capture.Capturer)
	if !ok || v.Phase != flip.PhaseShadow {
		return fmt.Errorf("%w: %s is in phase %s: only a shadow is filled, or reset", face.ErrRefused, r.Scope, v.Phase)
	}
	if err := p.limited(r); err != nil {
		return err
	}
	if r.Rate > 0 || r.Action == "backfill" {
		c.SetRate(int(r.Rate))
	}
	if do == nil {
		return nil
	}
	return do(c)
}

// limited sets the loads that were given with a copy.
func (p *Pilot) limited(r *face.ShadowRequest) error {
	if !r.Given() {
		return nil
	}
	return p.limit(r.Scope, &r.Limits, r.Actor)
}

// Pause implements face.Engine.
func (p *Pilot) Pause(_ context.Context, r face.PauseRequest) error {
	do := p.engine.Pause
	if r.End {
		do = p.engine.Resume
	}
	err := do(r.Scope, flip.MoveOptions{By: r.By, Reason: r.Reason})
	if errors.Is(err, cutover.ErrNoStream) {
		return unknown(err)
	}
	p.wake()
	return refused(err)
}

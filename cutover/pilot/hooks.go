package pilot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/hook"
)

// maxTold is how many hooks may wait to be told something.
const maxTold = 64

// told is something that a hook is to be told.
type told struct {
	scope cutover.Scope
	facts hook.Facts
}

// about are the facts about a verb on a stream.
func (p *Pilot) about(scope cutover.Scope, verb, to string, by face.Actor) *hook.Facts {
	f := &hook.Facts{
		Server: p.o.Server, Scope: scope.String(), Account: scope.Account, Stream: scope.Stream, Verb: verb, To: to,
		By: by.By, Reason: by.Reason,
	}
	if st, err := p.engine.Status(scope); err == nil {
		f.Epoch = st.Epoch
	}
	return f
}

// consult asks the hook of an event, which may refuse: face.ErrRefused. It is done before anything is held.
func (p *Pilot) consult(ctx context.Context, e hook.Event, scope cutover.Scope, f *hook.Facts) error {
	f.Event = e
	ran, err := p.o.Hooks.Run(ctx, f)
	if !ran {
		return nil
	}
	var no *hook.Error
	switch {
	case err == nil:
		p.ran(scope, f, nil)
		return nil
	case errors.As(err, &no):
		p.metrics.Hook(e, result(no))
		p.note(&flip.Entry{Scope: scope, Event: flip.EventVeto, By: f.By, Reason: no.Error(), Plan: f.PlanDigest})
		return fmt.Errorf("%w: %s: %w", face.ErrRefused, scope, no)
	}
	return err // who asks has gone
}

// tell has the hook of an event run, behind those that were to be told something before. Nobody waits for it.
func (p *Pilot) tell(e hook.Event, scope cutover.Scope, f *hook.Facts) {
	if !slices.Contains(p.o.Hooks.Found(), e) {
		return
	}
	t := told{scope, *f}
	t.facts.Event = e
	select {
	case p.telling <- t:
	default:
		p.ran(scope, &t.facts, fmt.Errorf("%d hooks wait to be run: it was left out", maxTold))
	}
}

// outcome tells what a move came to.
func (p *Pilot) outcome(scope cutover.Scope, f *hook.Facts, m *flip.Move, err error) {
	if f.Verb != "complete" {
		var held time.Duration
		if m != nil {
			held = m.Fence
		}
		p.done.Note(f.To, held, err)
	}
	if err != nil {
		f.Error = err.Error()
		p.tell(hook.Failure, scope, f)
		return
	}
	if m != nil {
		f.Epoch, f.LastSeq, f.Attempts, f.FenceMS = m.Epoch, m.Last, m.Attempts, m.Fence.Milliseconds()
		f.Lost, f.Duplicates = m.Lost, m.Duplicates
	}
	p.tell(hook.Success, scope, f)
}

// tellAll runs the hooks that are told something, one after the other, until ctx ends.
func (p *Pilot) tellAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case t := <-p.telling:
			if ran, err := p.o.Hooks.Run(ctx, &t.facts); ran {
				p.ran(t.scope, &t.facts, err)
			}
		}
	}
}

// untold says what nobody was told, at the end.
func (p *Pilot) untold() {
	for {
		select {
		case t := <-p.telling:
			p.o.Logger.Warn("Hook {hook} of {stream} was not run: the gateway stops",
				slog.String("hook", string(t.facts.Event)), slog.String("stream", t.scope.String()))
		default:
			return
		}
	}
}

// ran keeps what became of a hook that could not refuse, or has not.
func (p *Pilot) ran(scope cutover.Scope, f *hook.Facts, err error) {
	how := "passed"
	if err != nil {
		how = result(err)
		p.o.Logger.Warn("Hook {hook} of {stream}: {error}", slog.String("hook", string(f.Event)),
			slog.String("stream", scope.String()), slog.Any("error", err))
	}
	p.metrics.Hook(f.Event, how)
	text := string(f.Event) + " " + how
	if err != nil {
		text += ": " + err.Error()
	}
	p.note(&flip.Entry{Scope: scope, Event: flip.EventHook, By: f.By, Reason: text})
}

// result is what a run that failed counts as.
func result(err error) string {
	if no := (*hook.Error)(nil); errors.As(err, &no) && no.Refused {
		return "refused"
	}
	return "failed"
}

// note puts something into the journal that decides nothing.
func (p *Pilot) note(e *flip.Entry) {
	if err := p.engine.Note(e); err != nil {
		p.o.Logger.Error("The journal cannot be written: {error}", slog.Any("error", err))
	}
	p.wake()
}

// hooksState is what is known of the hooks.
func (p *Pilot) hooksState() face.Hooks {
	h := p.o.Hooks
	out := face.Hooks{Dir: h.Dir(), Timeout: h.Timeout().Seconds()}
	if out.Dir == "" {
		return out
	}
	for _, e := range h.Found() {
		out.Found = append(out.Found, string(e))
	}
	out.Problems = h.Problems()
	return out
}

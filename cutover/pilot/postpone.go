package pilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/hook"
)

// A flip that is postponed waits in the gateway, not in the program that asked for it: for a word (Release), or until a
// file is gone. Then the gates are asked again. It ends with the gateway, and after its window.

const (
	defaultHold  = time.Hour              // how long it waits, if nothing is said
	postponeLook = 200 * time.Millisecond // how often it is looked for the file
)

// errAborted says that somebody has ended a postponed flip.
var errAborted = errors.New("it was aborted: nothing has changed")

// pending is a flip that is postponed.
type pending struct {
	req          face.FlipRequest
	since, until time.Time
	goOn         chan struct{} // holds one
	abort        context.CancelCauseFunc
	done         chan struct{} // closed when it has ended; then the following are what it came to
	move         *face.Move
	err          error

	waits    string // what for; guarded by Pilot.mu
	released string // who has let it go on; guarded by Pilot.mu
}

// postpone lets a flip wait.
func (p *Pilot) postpone(r face.FlipRequest) (*face.Move, error) {
	if err := mustBeThere(r.PostponeFile); err != nil {
		return nil, err
	}
	ctx, abort := context.WithCancelCause(p.live)
	w := &pending{
		req: r, since: time.Now(), goOn: make(chan struct{}, 1), abort: abort, done: make(chan struct{}),
		waits: waitsFor(r.PostponeFile, nil),
	}
	w.until = w.since.Add(cmp.Or(r.HoldWindow, defaultHold))
	p.mu.Lock()
	if p.postponed[r.Scope] != nil {
		p.mu.Unlock()
		abort(nil)
		return nil, postponedAlready(r.Scope)
	}
	p.postponed[r.Scope] = w
	p.mu.Unlock()
	p.note(&flip.Entry{
		Scope: r.Scope, Event: flip.EventPostponed, By: r.By, Reason: r.Reason, Plan: r.Expect,
	})
	f := p.about(r.Scope, "flip", "ehdb", r.Actor)
	f.PlanDigest, f.PostponeFile, f.Until = r.Expect, r.PostponeFile, w.until.UTC().Format(time.RFC3339)
	p.tell(hook.BeginPostponed, r.Scope, f)
	p.ended.Go(func() { p.await(ctx, w) })
	return &face.Move{
		Scope: r.Scope, To: "ehdb", State: "postponed", At: w.since,
		Undo: "ehdbctl flip abort " + r.Scope.Flag(), Next: "ehdbctl flip go " + r.Scope.Flag(),
	}, nil
}

// waitsFor is what a postponed flip waits for; looked is why its file cannot be looked at.
func waitsFor(file string, looked error) string {
	switch {
	case looked != nil:
		return "the file that postpones it to be looked at: " + looked.Error()
	case file != "":
		return "the file " + file + " to go"
	}
	return "ehdbctl flip go, or abort"
}

func postponedAlready(scope cutover.Scope) error {
	return fmt.Errorf("%w: a flip of %s is postponed: ehdbctl flip go, or abort", face.ErrRefused, scope)
}

// mustBeThere is an error if a flip is to wait for a file to go that is not there: with a name that is not right it
// would begin at once.
func mustBeThere(file string) error {
	if file == "" {
		return nil
	}
	there, err := exists(file)
	switch {
	case err != nil:
		return fmt.Errorf("%w: the file that is to postpone the flip cannot be looked at: %w", face.ErrRefused, err)
	case !there:
		return fmt.Errorf("%w: there is no file %s on the gateway's machine that could postpone the flip: make it "+
			"first", face.ErrRefused, file)
	}
	return nil
}

func exists(file string) (bool, error) {
	_, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// await waits until a postponed flip may go on, and lets it.
func (p *Pilot) await(ctx context.Context, w *pending) {
	defer w.abort(nil)
	r := w.req
	err := p.waitFor(ctx, w)
	if err == nil {
		r = p.letGo(w)
		var until time.Time // the hour that it may wait by default is not for attempts
		if r.HoldWindow > 0 {
			until = w.until
		}
		w.move, err = p.depart(ctx, r, until)
	} else {
		f := p.about(r.Scope, "flip", "ehdb", r.Actor)
		p.outcome(r.Scope, f, nil, err)
	}
	if err != nil && p.live.Err() != nil {
		err = errors.New("the gateway stops: nothing has changed")
	}
	if err != nil {
		p.note(&flip.Entry{Scope: r.Scope, Event: flip.EventAbort, By: r.By, Reason: "postponed: " + err.Error()})
	}
	if w.err = err; errors.Is(err, errAborted) {
		w.move, w.err = &face.Move{Scope: r.Scope, To: "ehdb", State: "aborted", At: time.Now()}, nil
	}
	p.mu.Lock()
	delete(p.postponed, r.Scope)
	if s := p.seen[r.Scope]; s != nil && w.err != nil {
		s.gaveUp = "a postponed flip: " + w.err.Error()
	}
	p.mu.Unlock()
	close(w.done)
	p.wake()
}

// waitFor waits until a postponed flip may go on; an error says why it may not.
func (p *Pilot) waitFor(ctx context.Context, w *pending) error {
	look, end := time.NewTicker(postponeLook), time.NewTimer(time.Until(w.until))
	defer look.Stop()
	defer end.Stop()
	for {
		select {
		case <-w.goOn:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end.C:
			return fmt.Errorf("%w: it waited for its whole hold window, %v, for %s", face.ErrRefused,
				w.until.Sub(w.since).Round(time.Second), w.waits)
		case <-look.C:
		}
		if w.req.PostponeFile == "" {
			continue
		}
		there, err := exists(w.req.PostponeFile)
		if err == nil && !there {
			return nil
		}
		p.mu.Lock()
		w.waits = waitsFor(w.req.PostponeFile, err) // not known is not gone
		p.mu.Unlock()
	}
}

// letGo is the request of a flip that goes on.
func (p *Pilot) letGo(w *pending) face.FlipRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.waits = "its turn: it goes on"
	r := w.req
	if w.released != "" {
		r.Reason += " (released by " + w.released + ")"
	}
	return r
}

// Release implements face.Engine.
//
//nolint:revive // abort is one of its two outcomes
func (p *Pilot) Release(ctx context.Context, scope cutover.Scope, abort bool, by string) (*face.Move, error) {
	p.mu.Lock()
	w := p.postponed[scope]
	if w != nil && !abort {
		w.released = by
	}
	p.mu.Unlock()
	if w == nil {
		return nil, fmt.Errorf("%w: no flip of %s is postponed", face.ErrUnknown, scope)
	}
	if abort {
		w.abort(errAborted)
	} else {
		select {
		case w.goOn <- struct{}{}:
		default: // it goes on already
		}
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if abort && w.err == nil && w.move.State == "done" {
		return nil, fmt.Errorf("%w: it was too late, the gateway has %s: ehdbctl rollback %s", face.ErrRefused, scope,
			scope.Flag())
	}
	return w.move, w.err
}

// postponement is how a postponed flip is shown; nil: there is none.
func (p *Pilot) postponement(scope cutover.Scope) *face.Postponed {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.postponed[scope]
	if w == nil {
		return nil
	}
	return &face.Postponed{
		Since: w.since, Until: w.until, By: w.req.By, Reason: w.req.Reason, File: w.req.PostponeFile, Waits: w.waits,
	}
}

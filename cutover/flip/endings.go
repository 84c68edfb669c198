package flip

import (
	"context"
	"errors"
	"fmt"

	"github.com/noetl/ehdb-gateway/cutover"
)

// inPhase returns a stream, which is not moved until release. An ErrRefused says what to do first if its phase is
// another.
func (e *Engine) inPhase(name cutover.Scope, want Phase, first string) (s *stream, release func(), err error) {
	if s, err = e.find(name); err != nil {
		return nil, nil, err
	}
	s.op.Lock()
	e.mu.Lock()
	phase := s.phase
	e.mu.Unlock()
	if phase != want {
		s.op.Unlock()
		return nil, nil, fmt.Errorf("%w: %s is in phase %s: %s", ErrRefused, name, phase, first)
	}
	return s, s.op.Unlock, nil
}

// Complete gives up the way back of a stream. It cannot be undone.
func (e *Engine) Complete(ctx context.Context, name cutover.Scope, o MoveOptions) error {
	s, release, err := e.inPhase(name, PhaseEHDB, "flip it first")
	if err != nil {
		return err
	}
	defer release()
	if f := e.o.Refuse; f != nil {
		if list := f(ctx, name, cutover.Authority); len(list) > 0 {
			return fmt.Errorf("%w: %s: %v", ErrRefused, name, list)
		}
	}
	if err := e.record(&Entry{Scope: name, Event: EventComplete, By: o.By, Reason: o.Reason}); err != nil {
		return err
	}
	e.observed(s, nil)
	e.unserve(s)
	if err := e.enter(s, PhaseComplete); err != nil {
		return err
	}
	e.serve(s)
	return nil
}

// Forget ends the watch of a stream whose servers have the say, and deletes its copy.
func (e *Engine) Forget(ctx context.Context, name cutover.Scope, by string) error {
	s, release, err := e.inPhase(name, PhaseShadow, "roll it back first")
	if err != nil {
		return err
	}
	defer release()
	if err := e.endCanaries(ctx, s, MoveOptions{By: by, Reason: "the stream is not watched any more"}); err != nil {
		return err
	}
	s.cap.stop()
	e.unstraddle(s)
	if err := e.record(&Entry{Scope: name, Event: EventForget, By: by}); err != nil {
		return err
	}
	e.mu.Lock()
	delete(e.streams, name)
	delete(e.paused, name)
	e.dismissed[name] = true
	e.mu.Unlock()
	defer e.changed(name)
	return errors.Join(e.route(), s.copy.Delete(ctx))
}

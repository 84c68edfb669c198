package flip

import (
	"cmp"
	"fmt"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Copying can be paused, of one stream or of all of them; it is in the journal, so a restart does not end it. The
// servers keep what is not copied meanwhile, as long as their limits let them. Streams that forget what is acknowledged
// are copied on: their acks wait for the copy, so a pause would hold them. So are those with canaries, which are served
// from the copy.

// pausesOf is what the journal says about pauses.
func pausesOf(of map[cutover.Scope]*standing) map[cutover.Scope]string {
	out := make(map[cutover.Scope]string)
	for name, st := range of {
		if st.paused != "" {
			out[name] = st.paused
		}
	}
	return out
}

// Pause stops copying a stream for a reason, o.Reason; of all streams if name is none.
func (e *Engine) Pause(name cutover.Scope, o MoveOptions) error {
	if o.Reason == "" {
		return fmt.Errorf("%w: a pause without a reason: the status has to name one", ErrRefused)
	}
	if name != (cutover.Scope{}) {
		if err := e.pauseRefused(name); err != nil {
			return err
		}
	}
	if err := e.record(&Entry{Scope: name, Event: EventPause, By: o.By, Reason: o.Reason}); err != nil {
		return err
	}
	e.setPause(name, o.Reason)
	return nil
}

func (e *Engine) pauseRefused(name cutover.Scope) error {
	s, err := e.find(name)
	if err != nil {
		return err
	}
	e.mu.Lock()
	phase, canaries := s.phase, len(s.canaries)
	e.mu.Unlock()
	switch {
	case phase != PhaseShadow:
		return fmt.Errorf("%w: %s is in phase %s: what is copied then keeps the way back, and is not paused",
			ErrRefused, name, phase)
	case s.forgets.Load():
		return fmt.Errorf("%w: %s forgets what is acknowledged, so acks wait until the copy has the message: a "+
			"pause would hold clients; ehdbctl shadow stop ends the copy", ErrRefused, name)
	case canaries > 0:
		return fmt.Errorf("%w: %d consumers of %s are served from its copy, and would get nothing: ehdbctl canary "+
			"rm first", ErrRefused, canaries, name)
	}
	return nil
}

// Resume ends the pause of a stream; without one, that of all streams, after which those of single ones go on.
func (e *Engine) Resume(name cutover.Scope, o MoveOptions) error {
	e.mu.Lock()
	paused, all := e.paused[name], e.paused[cutover.Scope{}]
	e.mu.Unlock()
	switch {
	case paused != "":
	case all != "":
		return fmt.Errorf("%w: %s is not paused by itself, but with all streams (%s): ehdbctl resume", ErrRefused,
			name, all)
	default:
		return fmt.Errorf("%w: copying is not paused", ErrRefused)
	}
	if err := e.record(&Entry{Scope: name, Event: EventResume, By: o.By, Reason: o.Reason}); err != nil {
		return err
	}
	e.setPause(name, "")
	return nil
}

func (e *Engine) setPause(name cutover.Scope, reason string) {
	e.mu.Lock()
	if e.paused[name] = reason; reason == "" {
		delete(e.paused, name)
	}
	list := make([]*stream, 0, len(e.streams))
	for _, s := range e.streams {
		list = append(list, s)
	}
	e.mu.Unlock()
	for _, s := range list {
		e.applyPause(s)
	}
}

// PausedAll is why nothing is copied; empty: something may be.
func (e *Engine) PausedAll() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.paused[cutover.Scope{}]
}

// Paused is why a stream is not copied; empty: it is.
func (e *Engine) Paused(name cutover.Scope) string {
	s, err := e.find(name)
	if err != nil {
		return ""
	}
	return e.pausing(s)
}

func (e *Engine) pausing(s *stream) string {
	if s.forgets.Load() {
		return ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(s.canaries) > 0 {
		return ""
	}
	return cmp.Or(e.paused[s.name], e.paused[cutover.Scope{}])
}

// applyPause makes the copying of a stream stop, or go on.
func (e *Engine) applyPause(s *stream) {
	if c := s.cap.get(); c != nil {
		c.Pause(e.pausing(s))
	}
}

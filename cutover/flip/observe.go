package flip

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Observation is the time behind a flip in which it is taken back if something is wrong. The journal keeps it, so a
// restart goes on with it. Who looks, and what is wrong, is not decided here.
type Observation struct {
	Since, Until time.Time
	Gates        []string // that take it back when they fail
	// Kept is why a rollback that was due did not take place, the last time; empty: none was due.
	Kept string
}

// Over reports whether nothing is left to be observed.
func (o *Observation) Over(now time.Time) bool { return !now.Before(o.Until) }

// ReverseBound is how old a message may be that the servers lack before an observed flip is taken back.
const ReverseBound = 5 * time.Second

// observeStep is what a plan says of the observation.
func (o *MoveOptions) observeStep() string {
	what := "publishes are not acknowledged, or a consumer with work and takers is delivered nothing"
	if len(o.Gates) > 0 {
		what = strings.Join(o.Gates, ", ") + " fail, " + what
	}
	switch {
	case o.Observe <= 0:
		return "do not observe it: nothing is taken back by itself"
	case o.NoReverse:
		return fmt.Sprintf("observe it for %v: say so if %s; it cannot be taken back", o.Observe, what)
	}
	return fmt.Sprintf("observe it for %v: rolled back by itself, without a loss, if %s, or the servers lack what is "+
		"older than %v, twice in a row", o.Observe, what, ReverseBound)
}

// watched are the gates that count: those that the flip was done without do not.
func (o *MoveOptions) watched() []string {
	return slices.DeleteFunc(slices.Clone(o.Gates), func(id string) bool { return slices.Contains(o.Without, id) })
}

// observed begins or ends the observation of a stream; nil ends it.
func (e *Engine) observed(s *stream, o *Observation) {
	e.mu.Lock()
	s.observed = o
	e.mu.Unlock()
	e.o.Relay.Observe(s.notes, o != nil)
}

// Observation returns that of a stream; false: there is none. One that has ended without a fault is none, one behind
// which a rollback was due stays until there was one, or somebody has accepted the flip.
func (e *Engine) Observation(name cutover.Scope) (Observation, bool) {
	s, err := e.find(name)
	if err != nil {
		return Observation{}, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.observed == nil {
		return Observation{}, false
	}
	return *s.observed, true
}

// Accept ends the observation of a stream: it stays here.
func (e *Engine) Accept(name cutover.Scope, o MoveOptions) error {
	s, release, err := e.hold(name)
	if err != nil {
		return err
	}
	defer release()
	if _, is := e.Observation(name); !is {
		return fmt.Errorf("%w: no flip of %s is under observation", ErrRefused, name)
	}
	if err := e.record(&Entry{Scope: name, Event: EventAccepted, By: o.By, Reason: o.Reason}); err != nil {
		return err
	}
	e.observed(s, nil)
	e.changed(name)
	return nil
}

// Keep notes why an observed flip is not taken back though it should be. The same reason is noted once: news tells
// whether it was, first whether it was the first.
func (e *Engine) Keep(name cutover.Scope, due, why string) (news, first bool, err error) {
	s, err := e.find(name)
	if err != nil {
		return false, false, err
	}
	e.mu.Lock()
	o := s.observed
	e.mu.Unlock()
	if o == nil || o.Kept == why {
		return false, false, nil
	}
	if err := e.record(&Entry{Scope: name, Event: EventKept, By: "gateway", Reason: due, Kept: why}); err != nil {
		return false, false, err
	}
	next := *o
	next.Kept = why
	e.mu.Lock()
	if s.observed == o {
		s.observed = &next
	}
	e.mu.Unlock()
	e.changed(name)
	return true, o.Kept == "", nil
}

// observation is that of a standing, nil if there is none.
func (s *standing) observation() *Observation {
	if s.until.IsZero() || !s.here || s.complete {
		return nil
	}
	return &Observation{Since: s.since, Until: s.until, Gates: s.gates, Kept: s.kept}
}

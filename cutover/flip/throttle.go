package flip

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
)

// What is behind can be held back, of one stream or of all of them: by somebody's word (Throttle), or by itself above a
// load (SetLimits), which others measure. Both are in the journal, so a restart does not end them. What is new is
// copied on. Streams that forget what is acknowledged, and those with canaries, are never held back, as with a pause.

// Throttled is that copying is slowed down.
type Throttled struct {
	Reason, By string
	Since      time.Time
}

// Limits are the loads that copying gives way to, and at which it stops, in words that others read. Both empty: none.
type Limits struct {
	Max      string    `json:"max_load,omitempty"`
	Critical string    `json:"critical_load,omitempty"`
	By       string    `json:"-"`
	Reason   string    `json:"-"`
	Since    time.Time `json:"-"`
}

// none reports whether there are none.
func (l *Limits) none() bool { return l == nil || l.Max == "" && l.Critical == "" }

// throttle replays what the journal says about the speed of copying.
func (s *standing) throttle(e *Entry) {
	switch e.Event { //nolint:exhaustive // the others say nothing of it
	case EventThrottle:
		s.throttled = &Throttled{Reason: e.Reason, By: e.By, Since: e.Time}
	case EventUnthrottle:
		s.throttled = nil
	case EventLimits:
		if s.limits = nil; !e.Limits.none() {
			l := *e.Limits
			l.By, l.Reason, l.Since = e.By, e.Reason, e.Time
			s.limits = &l
		}
	}
}

// speeds is what the journal says about the speed of copying.
func speeds(of map[cutover.Scope]*standing) (map[cutover.Scope]Throttled, map[cutover.Scope]Limits) {
	throttled, limits := make(map[cutover.Scope]Throttled), make(map[cutover.Scope]Limits)
	for name, st := range of {
		if st.throttled != nil {
			throttled[name] = *st.throttled
		}
		if st.limits != nil {
			limits[name] = *st.limits
		}
	}
	return throttled, limits
}

// Throttle slows copying a stream down for a reason, o.Reason; all streams if name is none.
func (e *Engine) Throttle(name cutover.Scope, o MoveOptions) error {
	if o.Reason == "" {
		return fmt.Errorf("%w: a throttle without a reason: the status has to name one", ErrRefused)
	}
	if err := e.watched(name); err != nil {
		return err
	}
	entry := &Entry{Scope: name, Event: EventThrottle, By: o.By, Reason: o.Reason}
	if err := e.record(entry); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.throttled[name] = Throttled{Reason: o.Reason, By: o.By, Since: entry.Time}
	return nil
}

// Unthrottle ends that; what is slowed down with all streams is so on.
func (e *Engine) Unthrottle(name cutover.Scope, o MoveOptions) error {
	e.mu.Lock()
	_, is := e.throttled[name]
	all := e.throttled[cutover.Scope{}].Reason
	e.mu.Unlock()
	switch {
	case is:
	case all != "":
		return fmt.Errorf("%w: %s is not throttled by itself, but with all streams (%s): ehdbctl throttle off",
			ErrRefused, name, all)
	default:
		return fmt.Errorf("%w: copying is not throttled by anybody (a load that it gives way to is lifted with "+
			"--max-load off)", ErrRefused)
	}
	if err := e.record(&Entry{Scope: name, Event: EventUnthrottle, By: o.By, Reason: o.Reason}); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.throttled, name)
	return nil
}

// SetLimits sets the loads that copying a stream gives way to, of all streams if name is none. l.By and l.Reason are
// kept with them.
func (e *Engine) SetLimits(name cutover.Scope, l Limits) error {
	if err := e.watched(name); err != nil {
		return err
	}
	entry := &Entry{Scope: name, Event: EventLimits, By: l.By, Reason: l.Reason, Limits: &l}
	if err := e.record(entry); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.Since = entry.Time; l.none() {
		delete(e.limits, name)
		return nil
	}
	e.limits[name] = l
	return nil
}

// watched is an error if a stream is named that is not under watch.
func (e *Engine) watched(name cutover.Scope) error {
	if name == (cutover.Scope{}) {
		return nil
	}
	_, err := e.find(name)
	return err
}

// Limits are the loads that copying gives way to, by stream; none: of all.
func (e *Engine) Limits() map[cutover.Scope]Limits {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.limits)
}

// Throttled is why somebody has slowed down copying a stream, by itself or with all; of all streams if name is none. It
// has no Reason if nobody has.
func (e *Engine) Throttled(name cutover.Scope) Throttled {
	e.mu.Lock()
	defer e.mu.Unlock()
	return cmp.Or(e.throttled[name], e.throttled[cutover.Scope{}])
}

// Slowed reports whether a stream is paused, and whether it is throttled, by itself and not with all.
func (e *Engine) Slowed(name cutover.Scope) (paused, throttled bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, throttled = e.throttled[name]
	return e.paused[name] != "", throttled
}

// MayWait reports whether copying what is behind of a stream may be held back: clients do not wait for it.
func (e *Engine) MayWait(name cutover.Scope) bool {
	s, err := e.find(name)
	if err != nil {
		return true
	}
	if s.forgets.Load() {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(s.canaries) == 0
}

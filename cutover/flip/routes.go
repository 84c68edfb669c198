package flip

import (
	"slices"
	"time"

	"github.com/noetl/ehdb-gateway/cutover/relay"
)

// subjects are the filters that the stream stores. Engine.mu is held.
func (s *stream) subjects() []string {
	if len(s.config.Subjects) == 0 && s.config.Mirror == nil {
		return []string{s.name.Stream}
	}
	return s.config.Subjects
}

// setDeliver notes where the consumers of a stream push to, and reports whether that is elsewhere now.
func (s *stream) setDeliver(e *Engine) (moved bool) {
	list, err := s.copy.Consumers()
	if err != nil {
		return false
	}
	var out []string
	for i := range list {
		if d := list[i].Config.DeliverSubject; d != "" {
			out = append(out, d)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	moved = !slices.Equal(s.deliver, out)
	s.deliver = out
	return moved
}

// route makes the relay decide by the phases as they are.
func (e *Engine) route() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var routes []relay.Route
	for _, s := range e.streams {
		r := relay.Route{Scope: s.notes, Subjects: s.subjects()}
		switch {
		case s.phase == PhaseFlipping && s.cut:
			r.State = relay.HeldHere
		case s.phase == PhaseFlipping, s.phase == PhaseShadow && s.held:
			r.State = relay.Held
		case s.phase == PhaseShadow:
			r.State, r.Consumers = relay.Upstream, s.served()
		case s.phase == PhaseRollingBack:
			r.State, r.Deliver = relay.HeldHere, s.deliver
		case s.phase == PhaseEHDB, s.phase == PhaseComplete:
			r.State, r.Deliver = relay.Here, s.deliver
		}
		routes = append(routes, r)
	}
	t, err := relay.NewTable(e.epoch, routes, e.marked)
	if err != nil {
		return err
	}
	e.o.Relay.Use(t)
	return nil
}

// enter puts a stream into a phase, at once for all messages to come.
func (e *Engine) enter(s *stream, p Phase) error {
	e.mu.Lock()
	s.phase, s.since = p, time.Now()
	e.mu.Unlock()
	return e.route()
}

// served is where the consumers are that are served from here by themselves; nil: there are none. Engine.mu is held.
func (s *stream) served() map[string]relay.State {
	if len(s.canaries) == 0 {
		return nil
	}
	out := make(map[string]relay.State, len(s.canaries))
	for name, c := range s.canaries {
		out[name] = c.state
	}
	return out
}

package pilot

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// gateEvery is how often the gates of one stream are computed for the metrics: of one after the other, since it asks
// the servers.
const gateEvery = 2 * time.Second

// watchGates computes the gates of each stream in turn, until ctx ends.
func (p *Pilot) watchGates(ctx context.Context) {
	t := time.NewTicker(gateEvery)
	defer t.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		list := p.engine.Streams()
		p.mu.Lock()
		maps.DeleteFunc(p.gates, func(s cutover.Scope, _ *gate.Report) bool { return !slices.Contains(list, s) })
		p.mu.Unlock()
		if len(list) == 0 {
			continue
		}
		scope := list[turn%len(list)]
		if r, err := p.Gates(ctx, scope, gate.Flip); err == nil {
			p.mu.Lock()
			p.gates[scope] = &r
			p.mu.Unlock()
		}
	}
}

// Moved are the series about moves.
func (p *Pilot) Moved() prometheus.Collector { return p.done }

// Standing is how the streams stand, for metrics: the servers are not asked.
func (p *Pilot) Standing() face.Standing {
	var out face.Standing
	for _, account := range slices.Sorted(maps.Keys(p.o.Conns)) {
		if b, ok := p.lastAround(account); ok {
			out.Bypass = append(out.Bypass, b)
		}
	}
	for _, scope := range p.engine.Streams() {
		st, err := p.engine.Status(scope)
		if err != nil {
			continue
		}
		s := face.StreamState{Scope: scope}
		phase(&s, st.Phase)
		if list, err := p.engine.Canaries(scope); err == nil && len(list) > 0 && s.Phase == face.PhaseShadow {
			s.Phase = face.PhaseCanary
		}
		one := face.StreamStanding{Scope: scope, Phase: s.Phase, Reverse: reverseState(st)}
		one.Back.Lossless, one.Back.Lost = st.Rollback.Lossless, st.Rollback.Lost
		one.Strays, _ = p.strays.found(scope)
		p.mu.Lock()
		one.Gates = p.gates[scope]
		p.mu.Unlock()
		out.Epoch = st.Epoch
		out.Streams = append(out.Streams, one)
	}
	return out
}

// reverseState is how the chain does; nil: there is none.
func reverseState(st *flip.Status) *face.ReverseState {
	r := st.Reverse
	if r == nil {
		return nil
	}
	out := &face.ReverseState{Last: r.Position, Lag: st.Here - min(st.Here, r.Position)}
	if out.Lag > 0 {
		out.Age = time.Since(r.Since).Seconds()
	}
	if r.Err != nil {
		out.Error = r.Err.Error()
	}
	return out
}

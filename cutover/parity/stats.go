package parity

import (
	"maps"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Stats is what is counted, for metrics. Counters only grow while the process lives.
type Stats struct {
	ControlsOK bool
	Ticks      uint64 // runs of the controls
	// Controls has every control by its name, also those that never ran.
	Controls map[string]ControlCount
	Streams  []StreamStats
	Known    int
	Findings int
	Dropped  uint64 // findings for which there was no room
}

// ControlCount is how often a control did what it had to do, and how often not.
type ControlCount struct{ Expected, Unexpected uint64 }

// StreamStats are the counters of one stream.
type StreamStats struct {
	Status   Status
	Compared uint64
	Outcomes map[string]uint64 // by outcome, of every comparison
	Diverged map[State]uint64  // sequences by the state in which they were first seen
	Healed   uint64
	Pending  uint64 // sequences that were met too young, each time they were
}

// Outcomes returns all outcomes of a comparison.
func Outcomes() []string {
	return []string{
		"match", "divergent", "not_comparable", "pending_mirror", "suspended", "authoritative_empty", "error",
	}
}

// ControlNames returns all controls, in order.
func ControlNames() []string {
	var out []string
	for _, c := range controls() {
		out = append(out, c.name)
	}
	return append(out, "stranded")
}

// Stats returns what is counted.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	out := Stats{ControlsOK: e.selfTest.OK, Ticks: e.ticks, Controls: map[string]ControlCount{}}
	for _, name := range ControlNames() {
		out.Controls[name] = ControlCount{
			Expected:   e.controls[controlResult{name, true}],
			Unexpected: e.controls[controlResult{name, false}],
		}
	}
	e.mu.Unlock()
	for _, w := range e.all() {
		out.Streams = append(out.Streams, w.stats(w.s.Scope))
	}
	out.Known = len(e.known.all())
	e.store.mu.Lock()
	out.Findings, out.Dropped = len(e.store.byPlace), e.store.dropped
	e.store.mu.Unlock()
	return out
}

func (w *watch) stats(scope cutover.Scope) StreamStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := StreamStats{
		Status: w.last, Compared: w.total.compared, Outcomes: maps.Clone(w.total.outcomes),
		Diverged: maps.Clone(w.total.diverged), Healed: w.total.healed, Pending: w.total.pending,
	}
	s.Status.Scope = scope
	return s
}

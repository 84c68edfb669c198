package face

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/hook"
)

// MoveMetrics are the series about hooks, canaries and observed flips. Safe for concurrent use.
type MoveMetrics struct{ hooks, aborts, observed *prometheus.CounterVec }

// What the observation behind a flip came to.
const (
	ObservedAccepted   = "accepted"    // nothing was wrong, or somebody has said so
	ObservedRolledBack = "rolled_back" // something was wrong, and the servers have the say again
	ObservedRefused    = "refused"     // something was wrong, and it could not be rolled back
)

// HookResults are what a run of a hook comes to.
var HookResults = []string{"passed", "refused", "failed"}

// NewMoveMetrics returns the series, those of hooks at 0.
func NewMoveMetrics() *MoveMetrics {
	m := &MoveMetrics{
		prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ehdb_cutover_hooks_total",
			Help: "Runs of the operator's hooks, by what they came to; failed: it could not be run, or not in time.",
		}, []string{"hook", "result"}),
		prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ehdb_canary_aborts_total",
			Help: "Times that a consumer was given back to the servers because a gate of --auto-abort-on failed.",
		}, []string{"account", "stream", "consumer"}),
		prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ehdb_flip_observed_total",
			Help: "Flips that were observed, by what that came to; refused: one that was to be rolled back by itself " +
				"and could not be.",
		}, []string{"account", "stream", "outcome"}),
	}
	for _, e := range hook.Events() {
		for _, result := range HookResults {
			m.hooks.WithLabelValues(string(e), result)
		}
	}
	return m
}

// Hook counts a run.
func (m *MoveMetrics) Hook(e hook.Event, result string) {
	m.hooks.WithLabelValues(string(e), result).Inc()
}

// Watched makes the series of a canary be there, at 0: one that begins at 1 has never risen.
func (m *MoveMetrics) Watched(s cutover.Scope, consumer string) {
	m.aborts.WithLabelValues(s.Account, s.Stream, consumer)
}

// Flippable makes the series of a stream's observed flips be there, at 0.
func (m *MoveMetrics) Flippable(s cutover.Scope) {
	for _, outcome := range []string{ObservedAccepted, ObservedRolledBack, ObservedRefused} {
		m.observed.WithLabelValues(s.Account, s.Stream, outcome)
	}
}

// Observed counts what the observation of a flip came to.
func (m *MoveMetrics) Observed(s cutover.Scope, outcome string) {
	m.observed.WithLabelValues(s.Account, s.Stream, outcome).Inc()
}

// Aborted counts a canary that was ended by itself.
func (m *MoveMetrics) Aborted(s cutover.Scope, consumer string) {
	m.aborts.WithLabelValues(s.Account, s.Stream, consumer).Inc()
}

// Describe implements prometheus.Collector.
func (m *MoveMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.hooks.Describe(ch)
	m.aborts.Describe(ch)
	m.observed.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *MoveMetrics) Collect(ch chan<- prometheus.Metric) {
	m.hooks.Collect(ch)
	m.aborts.Collect(ch)
	m.observed.Collect(ch)
}

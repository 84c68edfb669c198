package face

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/hook"
)

// MoveMetrics are the series about hooks, canaries, observed flips and drills. Safe for concurrent use.
type MoveMetrics struct {
	hooks, aborts, observed, drills *prometheus.CounterVec
	passed                          func(kind string) time.Time
}

// What the observation behind a flip came to.
const (
	ObservedAccepted   = "accepted"    // nothing was wrong, or somebody has said so
	ObservedRolledBack = "rolled_back" // something was wrong, and the servers have the say again
	ObservedRefused    = "refused"     // something was wrong, and it could not be rolled back
)

// HookResults are what a run of a hook comes to.
var HookResults = []string{"passed", "refused", "failed"}

// DrillOutcomes are what a drill comes to.
var DrillOutcomes = []drill.State{drill.Passed, drill.Failed, drill.NotApplicable}

var drillAge = gauge("ehdb_cutover_drill_pass_age_seconds",
	"Time since a drill was passed last with this image; -1: it was not.", "drill")

// NewMoveMetrics returns the series, those of hooks and drills at 0. passed tells when a drill was passed last by the
// running program; zero: never.
func NewMoveMetrics(passed func(kind string) time.Time) *MoveMetrics {
	m := &MoveMetrics{
		passed: passed,
		hooks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ehdb_cutover_hooks_total",
			Help: "Runs of the operator's hooks, by what they came to; failed: it could not be run, or not in time.",
		}, []string{"hook", "result"}),
		aborts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ehdb_canary_aborts_total",
			Help: "Times that a consumer was given back to the servers because a gate of --auto-abort-on failed.",
		}, []string{"account", "stream", "consumer"}),
		observed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ehdb_flip_observed_total",
			Help: "Flips that were observed, by what that came to; refused: one that was to be rolled back by itself " +
				"and could not be.",
		}, []string{"account", "stream", "outcome"}),
		drills: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ehdb_cutover_drills_total", Help: "Drills that have ended, by what they came to.",
		}, []string{"drill", "outcome"}),
	}
	for _, kind := range drill.Kinds {
		for _, o := range DrillOutcomes {
			m.drills.WithLabelValues(kind, string(o))
		}
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

// Drill counts a drill that has ended.
func (m *MoveMetrics) Drill(kind string, outcome drill.State) {
	m.drills.WithLabelValues(kind, string(outcome)).Inc()
}

// Describe implements prometheus.Collector.
func (m *MoveMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.hooks.Describe(ch)
	m.aborts.Describe(ch)
	m.observed.Describe(ch)
	m.drills.Describe(ch)
	ch <- drillAge.desc
}

// Collect implements prometheus.Collector.
func (m *MoveMetrics) Collect(ch chan<- prometheus.Metric) {
	m.hooks.Collect(ch)
	m.aborts.Collect(ch)
	m.observed.Collect(ch)
	m.drills.Collect(ch)
	for _, kind := range drill.Kinds {
		age := -1.0
		if at := m.passed(kind); !at.IsZero() {
			age = time.Since(at).Seconds()
		}
		ch <- prometheus.MustNewConstMetric(drillAge.desc, drillAge.kind, age, kind)
	}
}

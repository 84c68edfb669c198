package face

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Moved are the series about flips and rollbacks that were made. Safe for concurrent use.
type Moved struct {
	moves *prometheus.CounterVec
	held  *prometheus.HistogramVec
}

// NewMoved returns the series, at 0.
func NewMoved() *Moved {
	m := &Moved{
		prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ehdb_cutover_moves_total",
			Help: "Flips (to ehdb) and rollbacks (to nats) that were begun, by what they came to.",
		}, []string{"to", "result"}),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ehdb_cutover_fence_seconds", Help: "How long a stream was held by a move that was done.",
			Buckets: []float64{.01, .05, .1, .25, .3, .4, .5, .75, 1, 1.5, 3},
		}, []string{"to"}),
	}
	for _, to := range []string{"ehdb", "nats"} {
		m.held.WithLabelValues(to)
		for _, result := range []string{"done", "failed"} {
			m.moves.WithLabelValues(to, result)
		}
	}
	return m
}

// Note counts a move, to ehdb or nats, and how long the stream was held; failed is why it was not done.
func (m *Moved) Note(to string, held time.Duration, failed error) {
	if failed != nil {
		m.moves.WithLabelValues(to, "failed").Inc()
		return
	}
	m.moves.WithLabelValues(to, "done").Inc()
	m.held.WithLabelValues(to).Observe(held.Seconds())
}

// Describe implements prometheus.Collector.
func (m *Moved) Describe(ch chan<- *prometheus.Desc) {
	m.moves.Describe(ch)
	m.held.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Moved) Collect(ch chan<- prometheus.Metric) {
	m.moves.Collect(ch)
	m.held.Collect(ch)
}

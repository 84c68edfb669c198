package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Mirror is a stream of the NATS servers that is copied here.
type Mirror struct {
	Account, Stream string
	State           string
	Lag             uint64            // sequences that the copy is behind
	Queue           uint64            // records that are read and not durable here
	Running         bool              // something copies
	Paused          bool              // the operator has paused it
	Records         map[string]uint64 // by what became of them, also those at 0
}

// Mirrors is the collector of what is copied.
type Mirrors struct {
	list func() []Mirror
	lag  prometheus.Histogram
}

// NewMirrors makes the collector, which asks list at each scrape.
func NewMirrors(list func() []Mirror) *Mirrors {
	return &Mirrors{list: list, lag: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "ehdb_gw_mirror_lag_seconds",
		Help:    "How old the first record of a batch was when it was durable here.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 20), //nolint:mnd // 1 ms to 9 minutes
	})}
}

// Copied takes how old a batch was when it was durable here.
func (m *Mirrors) Copied(lag time.Duration) { m.lag.Observe(lag.Seconds()) }

// Describe implements prometheus.Collector. Sending nothing makes it an unchecked one: streams come and go.
func (m *Mirrors) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *Mirrors) Collect(ch chan<- prometheus.Metric) {
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	pending := desc("ehdb_gw_mirror_pending_events", "Sequences that the copy of a stream is behind.",
		"account", "stream")
	depth := desc("ehdb_gw_mirror_queue_depth", "Records that are read and not durable here.",
		"account", "stream")
	running := desc("ehdb_gw_mirror_async_enabled", "1 while something copies the stream, else 0.", "account", "stream")
	paused := desc("ehdb_gw_mirror_paused", "1 while the operator has paused the copy (ehdbctl pause), else 0.",
		"account", "stream")
	state := desc("ehdb_gw_mirror_state", "Always 1; the label says what the copy is at.",
		"account", "stream", "state")
	records := desc("ehdb_gw_mirror_queue_total", "Records by what became of them.",
		"account", "stream", "outcome")
	for _, s := range m.list() {
		on, held := 0.0, 0.0
		if s.Running {
			on = 1
		}
		if s.Paused {
			held = 1
		}
		ch <- prometheus.MustNewConstMetric(pending, gauge, float64(s.Lag), s.Account, s.Stream)
		ch <- prometheus.MustNewConstMetric(depth, gauge, float64(s.Queue), s.Account, s.Stream)
		ch <- prometheus.MustNewConstMetric(running, gauge, on, s.Account, s.Stream)
		ch <- prometheus.MustNewConstMetric(paused, gauge, held, s.Account, s.Stream)
		ch <- prometheus.MustNewConstMetric(state, gauge, 1, s.Account, s.Stream, s.State)
		for outcome, n := range s.Records {
			ch <- prometheus.MustNewConstMetric(records, counter, float64(n), s.Account, s.Stream, outcome)
		}
	}
	m.lag.Collect(ch)
}

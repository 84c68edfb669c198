package face

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// Metrics returns the series of the comparison. Each is there from the start, at 0 for streams that are compared: one
// that is absent reads like one that is well.
func Metrics(e *parity.Engine) prometheus.Collector { return &collector{e: e, now: time.Now} }

type collector struct {
	e   *parity.Engine
	now func() time.Time
}

// Describe implements prometheus.Collector: the series are not known before there are streams.
func (*collector) Describe(chan<- *prometheus.Desc) {}

type series struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) series {
	return series{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) series {
	return series{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

var (
	controlTotal = counter("ehdb_crossstore_control_total",
		"Controls of the comparison that were run, by whether they were as expected.", "control", "result")
	controlsOK = gauge("ehdb_crossstore_controls_ok",
		"1 if all controls of the comparison were as expected the last time, else 0.")
	findingsNow     = gauge("ehdb_crossstore_findings", "Findings that are kept.")
	findingsDropped = counter("ehdb_crossstore_findings_dropped_total", "Findings for which there was no room.")
	apiTotal        = counter("ehdb_crossstore_api_total",
		"Answers of the JetStream API that were compared, by outcome; ignored counts differences that are let pass.",
		"outcome")
	knownNow = gauge("ehdb_crossstore_known_divergences", "Divergences that are listed as known.")

	parityTotal = counter("ehdb_crossstore_parity_total", "Comparisons by outcome.", "account", "stream", "outcome")
	divergence  = counter("ehdb_crossstore_divergence_total",
		"Sequences found to differ, by the state in which they were first seen.", "account", "stream", "kind", "state")
	compared = counter("ehdb_crossstore_events_compared_total", "Sequences compared.", "account", "stream")
	pending  = counter("ehdb_crossstore_pending_total",
		"Sequences met that were younger than the window, each time they were.", "account", "stream")
	healed = counter("ehdb_crossstore_healed_total", "Sequences found to differ that are equal now.", "account",
		"stream")
	sequences = gauge("ehdb_crossstore_sequences",
		"Sequences by state, as of the last comparison.", "account", "stream", "state")
	examined  = gauge("ehdb_crossstore_examined", "Sequences examined; the states add up to it.", "account", "stream")
	accounted = gauge("ehdb_crossstore_accounted_for",
		"1 if the states add up to what was examined, else 0.", "account", "stream")
	digestEqual = gauge("ehdb_crossstore_digest_equal",
		"1 if the digests of both sides are equal, else 0.", "account", "stream")
	unacknowledged = gauge("ehdb_crossstore_unacknowledged",
		"Records that no noted acknowledgement tells of.", "account", "stream")
	age = gauge("ehdb_crossstore_age_seconds",
		"Time since the last comparison that worked; -1 before the first.", "account", "stream")
	tolerance = gauge("ehdb_crossstore_parity_lag_tolerance_seconds",
		"The window: what is younger is not compared yet.", "account", "stream")
	lag = gauge("ehdb_crossstore_parity_lag_seconds",
		"Time until the copy had a record durably, of the last 4,096.", "account", "stream", "quantile")
	lagCount = counter("ehdb_crossstore_parity_lag_observations_total", "Measurements of that.", "account", "stream")

	stranded = gauge("ehdb_delivery_stranded",
		"Messages that a consumer moved past and was never offered.", "account", "stream", "consumer", "side")
	drift = gauge("ehdb_delivery_drift",
		"Stored messages that a consumer wants, less acknowledged, held and pending ones.",
		"account", "stream", "consumer", "side")
	unseen = gauge("ehdb_delivery_unseen",
		"1 if nobody knows what the consumer was offered, else 0.", "account", "stream", "consumer", "side")
)

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	st := c.e.Stats()
	send := func(s series, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, v, labels...)
	}
	for name, n := range st.Controls {
		send(controlTotal, float64(n.Expected), name, "expected")
		send(controlTotal, float64(n.Unexpected), name, "unexpected")
	}
	send(controlsOK, gate.Yes(st.ControlsOK))
	send(findingsNow, float64(st.Findings))
	send(findingsDropped, float64(st.Dropped))
	send(knownNow, float64(st.Known))
	api := c.e.API().Stats()
	send(apiTotal, float64(api.Equal), "equal")
	send(apiTotal, float64(api.Differ), "differ")
	send(apiTotal, float64(api.Ignored), "ignored")
	for i := range st.Streams {
		c.stream(&st.Streams[i], send)
	}
}

func (c *collector) stream(s *parity.StreamStats, send func(series, float64, ...string)) {
	account, name, st := s.Status.Scope.Account, s.Status.Scope.Stream, &s.Status
	for _, outcome := range parity.Outcomes() {
		send(parityTotal, float64(s.Outcomes[outcome]), account, name, outcome)
	}
	for _, state := range parity.States() {
		send(sequences, float64(st.Counts.By[state]), account, name, state.String())
		if state.Diverged() {
			send(divergence, float64(s.Diverged[state]), account, name, state.Kind(), state.String())
		}
	}
	send(compared, float64(s.Compared), account, name)
	send(pending, float64(s.Pending), account, name)
	send(healed, float64(s.Healed), account, name)
	send(examined, float64(st.Counts.Examined), account, name)
	send(accounted, gate.Yes(st.Counts.Accounted()), account, name)
	send(digestEqual, gate.Yes(st.Digest.Equal), account, name)
	send(unacknowledged, float64(st.Unacknowledged), account, name)
	send(tolerance, st.Window, account, name)
	send(lag, st.Lag.P50, account, name, "0.5")
	send(lag, st.Lag.P99, account, name, "0.99")
	send(lagCount, float64(st.Lag.N), account, name)
	old := -1.0
	if !st.At.IsZero() {
		old = c.now().Sub(st.At).Seconds()
	}
	send(age, old, account, name)
	for i := range st.Consumers {
		r := &st.Consumers[i]
		labels := []string{account, name, r.Consumer, r.Side}
		send(stranded, float64(r.Stranded), labels...)
		send(drift, float64(r.Drift), labels...)
		send(unseen, gate.Yes(!r.Known), labels...)
	}
}

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Upstream is what a server counts that passes its clients on to NATS servers.
type Upstream struct {
	Connections          uint64 // clients that are connected upstream now
	BytesIn, BytesOut    uint64 // from and to the servers
	Refused, Lost, Stale uint64
	Servers              []UpstreamServer

	Outage                     bool   // none can be reached, and clients are served from here alone
	Alone                      uint64 // so many
	Remembered                 uint64 // logins that could be
	Unremembered, RefusedAlone uint64 // clients that could not, and messages that were for what is not served from here
}

// UpstreamServer is one of the servers.
type UpstreamServer struct {
	Name            string
	Dials, Failures uint64
	Reachable       bool // the last attempt succeeded
}

// upstreamTimes are the histograms of a server with others upstream.
type upstreamTimes struct{ dial, rtt prometheus.Histogram }

func newUpstreamTimes() upstreamTimes {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16), //nolint:mnd // 0.1 ms to 3 s
		})
	}
	return upstreamTimes{
		dial: histogram("ehdb_upstream_dial_seconds", "Time to connect to a server upstream, up to its INFO."),
		rtt:  histogram("ehdb_upstream_rtt_seconds", "Time a server upstream took to answer a PING of the gateway's."),
	}
}

// UpstreamDialed takes an attempt to connect that succeeded.
func (m *Metrics) UpstreamDialed(took time.Duration) { m.upstream.dial.Observe(took.Seconds()) }

// UpstreamRoundTrip takes the time of a PING and its answer.
func (m *Metrics) UpstreamRoundTrip(took time.Duration) { m.upstream.rtt.Observe(took.Seconds()) }

// upstream sends what is counted about the servers upstream.
func (c *collector) upstream(ch chan<- prometheus.Metric) {
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	u := c.s.Upstream()
	send(ch, []value{
		{"ehdb_upstream_connections", "Clients that are connected to a server upstream.", u.Connections, gauge},
		{
			"ehdb_upstream_refused_total", "Clients turned away because no server upstream could be reached.",
			u.Refused, counter,
		},
		{"ehdb_upstream_lost_total", "Clients closed because their connection upstream ended.", u.Lost, counter},
		{
			"ehdb_upstream_stale_total", "Clients closed because their server upstream did not answer any more.",
			u.Stale, counter,
		},
	})
	c.outage(ch, &u)
	bytes := desc("ehdb_upstream_bytes_total", "Bytes passed on.", "direction")
	ch <- prometheus.MustNewConstMetric(bytes, counter, float64(u.BytesIn), "in")
	ch <- prometheus.MustNewConstMetric(bytes, counter, float64(u.BytesOut), "out")
	dials := desc("ehdb_upstream_dials_total", "Attempts to connect to a server upstream.", "server")
	failures := desc("ehdb_upstream_dial_failures_total", "Attempts that failed.", "server")
	up := desc("ehdb_upstream_reachable", "1 if the last attempt to connect to the server succeeded, else 0.", "server")
	for _, s := range u.Servers {
		reachable := 0.0
		if s.Reachable {
			reachable = 1
		}
		ch <- prometheus.MustNewConstMetric(dials, counter, float64(s.Dials), s.Name)
		ch <- prometheus.MustNewConstMetric(failures, counter, float64(s.Failures), s.Name)
		ch <- prometheus.MustNewConstMetric(up, gauge, reachable, s.Name)
	}
}

// outage sends what is counted about clients that are served from here alone.
func (c *collector) outage(ch chan<- prometheus.Metric, u *Upstream) {
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	active := uint64(0)
	if u.Outage {
		active = 1
	}
	send(ch, []value{
		{
			"ehdb_outage_active", "1 while no server upstream can be reached and clients are served from here alone.",
			active, gauge,
		},
		{"ehdb_outage_clients", "Clients that are served from here alone.", u.Alone, gauge},
		{"ehdb_outage_logins", "Logins that are remembered, for such a time.", u.Remembered, gauge},
		{
			"ehdb_outage_unknown_logins_total",
			"Clients turned away meanwhile: their login was not remembered, or nothing of their account is here.",
			u.Unremembered, counter,
		},
		{
			"ehdb_outage_refused_messages_total",
			"Messages refused meanwhile, since what they were for is served by the servers.", u.RefusedAlone, counter,
		},
	})
}

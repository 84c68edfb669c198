package face

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// Standing is how the streams stand, as far as it is known without asking the servers.
type Standing struct {
	Epoch   uint64
	Bypass  []BypassState // by account, where it is known
	Streams []StreamStanding
}

// StreamStanding is how one stream stands.
type StreamStanding struct {
	Scope   cutover.Scope
	Phase   Phase
	Back    RollbackCard
	Reverse *ReverseState // nil: there is no chain
	Strays  uint64        // messages that came around the gateway
	Gates   *gate.Report  // as they were computed last; nil: not yet
}

// Phases returns all, in order.
func Phases() []Phase {
	return []Phase{PhaseNATS, PhaseShadow, PhaseCanary, PhaseEHDB, PhaseComplete}
}

// StandingMetrics returns the series of how the streams stand. ask must be quick.
func StandingMetrics(ask func() Standing) prometheus.Collector {
	return &standingCollector{ask, time.Now}
}

type standingCollector struct {
	ask func() Standing
	now func() time.Time
}

// Describe implements prometheus.Collector: the series are not known before there are streams.
func (*standingCollector) Describe(chan<- *prometheus.Desc) {}

var (
	epochNow = gauge("ehdb_cutover_epoch", "How often the say about a stream has changed.")
	phaseNow = gauge("ehdb_cutover_phase", "1 for the phase that the stream is in, else 0.",
		"account", "stream", "phase")
	lossless = gauge("ehdb_cutover_rollback_lossless",
		"1 if a rollback now would lose nothing, else 0. Of streams that are served from here.", "account", "stream")
	wouldLose = gauge("ehdb_cutover_rollback_lost_messages",
		"Messages that an emergency rollback now would lose at most.", "account", "stream")
	reverseLag = gauge("ehdb_cutover_reverse_lag_messages",
		"Messages that are here and that the servers lack.", "account", "stream")
	reverseAge = gauge("ehdb_cutover_reverse_lag_seconds",
		"Since when the chain to the servers stands still while they lack messages; 0: they lack none.",
		"account", "stream")
	strays = gauge("ehdb_cutover_strays",
		"Messages of the servers' stream that no publish through the gateway accounts for.", "account", "stream")
	bypassNow = gauge("ehdb_cutover_bypass_connections",
		"Connections to the servers that do not come by the gateway, when it was looked last.", "account")
	gateNow = gauge("ehdb_cutover_gate",
		"A gate of a flip when it was computed last: 0 PASS or NOT_APPLICABLE, 1 PENDING, 2 UNKNOWN, 3 FAIL.",
		"account", "stream", "gate")
	gatesAge = gauge("ehdb_cutover_gates_age_seconds", "Time since the gates were computed last; -1 before the first.",
		"account", "stream")
)

// severity are the values of ehdb_cutover_gate.
var severity = map[gate.State]float64{gate.Pending: 1, gate.Unknown: 2, gate.Fail: 3} //nolint:mnd // a scale

// Collect implements prometheus.Collector.
func (c *standingCollector) Collect(ch chan<- prometheus.Metric) {
	st := c.ask()
	send := func(s series, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, v, labels...)
	}
	send(epochNow, float64(st.Epoch))
	for i := range st.Bypass {
		if b := &st.Bypass[i]; b.Unknown == "" {
			send(bypassNow, float64(len(b.Around)), b.Account)
		}
	}
	for i := range st.Streams {
		s := &st.Streams[i]
		account, stream := s.Scope.Account, s.Scope.Stream
		for _, p := range Phases() {
			send(phaseNow, gate.Yes(p == s.Phase), account, stream, string(p))
		}
		send(strays, float64(s.Strays), account, stream)
		if s.Phase == PhaseEHDB {
			send(lossless, gate.Yes(s.Back.Lossless), account, stream)
			send(wouldLose, float64(s.Back.Lost), account, stream)
		}
		if r := s.Reverse; r != nil {
			send(reverseLag, float64(r.Lag), account, stream)
			send(reverseAge, r.Age, account, stream)
		}
		old := -1.0
		if s.Gates != nil {
			old = c.now().Sub(s.Gates.At).Seconds()
			for k := range s.Gates.Gates {
				send(gateNow, severity[s.Gates.Gates[k].State], account, stream, s.Gates.Gates[k].ID)
			}
		}
		send(gatesAge, old, account, stream)
	}
}

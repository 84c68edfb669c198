package face

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// How the streams stand is in the metrics: what would be lost, who goes around, and each gate.
func TestStandingMetrics(t *testing.T) {
	at := time.Unix(1000, 0)
	c := &standingCollector{now: func() time.Time { return at.Add(3 * time.Second) }, ask: func() Standing {
		return Standing{
			Epoch: 4,
			Bypass: []BypassState{
				{Account: "$G", Around: make([]Connection, 2)}, {Account: "B", Unknown: "the servers are away"},
			},
			Streams: []StreamStanding{
				{
					Scope: cutover.Scope{Account: "$G", Stream: "S"}, Phase: PhaseEHDB, Back: RollbackCard{Lost: 7},
					Reverse: &ReverseState{Lag: 7, Age: 31},
				},
				{
					Scope: cutover.Scope{Account: "$G", Stream: "T"}, Phase: PhaseShadow, Strays: 1,
					Gates: &gate.Report{At: at, Gates: []gate.Result{
						{ID: "G1", State: gate.Pass},
						{ID: "G8", State: gate.Fail},
						{ID: "G9", State: gate.Unknown},
						{ID: "G14", State: gate.Pending},
						{ID: "G19", State: gate.NotApplicable},
					}},
				},
			},
		}
	}}
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	const s, u = `{account="$G",stream="S"} `, `{account="$G",stream="T"} `
	of := func(id string) string { return `gate{account="$G",gate="` + id + `",stream="T"} ` }
	for _, want := range []string{
		"epoch 4", "rollback_lossless" + s + "0", "rollback_lost_messages" + s + "7", "reverse_lag_messages" + s + "7",
		"reverse_lag_seconds" + s + "31", `bypass_connections{account="$G"} 2`, "strays" + s + "0", "strays" + u + "1",
		"gates_age_seconds" + s + "-1", "gates_age_seconds" + u + "3", of("G1") + "0", of("G14") + "1", of("G19") + "0",
		of("G8") + "3", of("G9") + "2", `phase{account="$G",phase="ehdb",stream="S"} 1`,
		`phase{account="$G",phase="shadow",stream="S"} 0`, `phase{account="$G",phase="complete",stream="T"} 0`,
	} {
		if !strings.Contains(w.Body.String(), "\nehdb_cutover_"+want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
	for _, absent := range []string{`account="B"`, "rollback_lossless" + u, "reverse_lag_messages" + u} {
		if strings.Contains(w.Body.String(), absent) {
			t.Errorf("%s is not known, and there", absent)
		}
	}
	m := NewMoved()
	m.Note("ehdb", 250*time.Millisecond, nil)
	m.Note("nats", 0, errors.New("the budget ran out"))
	for labels, want := range map[[2]string]float64{
		{"ehdb", "done"}: 1, {"ehdb", "failed"}: 0, {"nats", "done"}: 0, {"nats", "failed"}: 1,
	} {
		if got := testutil.ToFloat64(m.moves.WithLabelValues(labels[0], labels[1])); got != want {
			t.Errorf("%v: %v, want %v", labels, got, want)
		}
	}
}

package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMirrors(t *testing.T) {
	m := NewMirrors(func() []Mirror {
		return []Mirror{{
			Account: "$G", Stream: "S", State: "live", Lag: 3, Queue: 2, Running: true, Paused: true,
			Records: map[string]uint64{"drained": 7, "queue_full_inline": 0},
		}}
	})
	m.Copied(3 * time.Millisecond)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	const want = `
# HELP ehdb_gw_mirror_paused 1 while the operator has paused the copy (ehdbctl pause), else 0.
# TYPE ehdb_gw_mirror_paused gauge
ehdb_gw_mirror_paused{account="$G",stream="S"} 1
# HELP ehdb_gw_mirror_pending_events Sequences that the copy of a stream is behind.
# TYPE ehdb_gw_mirror_pending_events gauge
ehdb_gw_mirror_pending_events{account="$G",stream="S"} 3
# HELP ehdb_gw_mirror_queue_total Records by what became of them.
# TYPE ehdb_gw_mirror_queue_total counter
ehdb_gw_mirror_queue_total{account="$G",outcome="drained",stream="S"} 7
ehdb_gw_mirror_queue_total{account="$G",outcome="queue_full_inline",stream="S"} 0
`
	err := testutil.GatherAndCompare(reg, strings.NewReader(want), "ehdb_gw_mirror_pending_events", "ehdb_gw_mirror_queue_total",
		"ehdb_gw_mirror_paused")
	if err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 8 {
		t.Errorf("%d series, %v", n, err)
	}
}

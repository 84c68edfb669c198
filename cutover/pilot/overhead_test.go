package pilot_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/pilot"
)

// How long publishes take is shown with how many were timed and how busy both sides were, and what the gateway adds is
// measured by the way through it.
func TestLatencyIsShown(t *testing.T) {
	var front atomic.Value
	front.Store("nats://127.0.0.1:1")
	began := time.Now()
	r := newRig(t, func(o *pilot.Options) {
		o.Front = func() string { return front.Load().(string) }
		o.Used = func() pilot.Use { // half of two cores
			return pilot.Use{CPU: time.Since(began), Syncing: time.Since(began) / 4, Cores: 2}
		}
	})
	name := r.stream(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 1)
	rows := func() map[string]face.Latency {
		out := map[string]face.Latency{}
		for _, l := range r.state(name).Latency {
			out[l.Kind+" "+l.Side] = l
		}
		return out
	}
	until(t, "publishes are timed", func() bool { return rows()["publish_ack ehdb"].Utilisation > 0 })
	for _, side := range []string{"nats", "ehdb"} {
		l := rows()["publish_ack "+side]
		if l.N < 20 || l.P50 <= 0 || l.P99 < l.P50 || side == "ehdb" && (l.Utilisation < 0.49 || l.Utilisation > 0.51) {
			t.Errorf("%s: %+v", side, l)
		}
	}
	if err := r.pilot.MeasureOverhead(t.Context()); err == nil {
		t.Error("there is nobody at that port")
	}
	if l, is := rows()["gateway overhead"]; is {
		t.Errorf("it was not measured: %+v", l)
	}
	front.Store(r.gw.ClientURL())
	check(t, r.pilot.MeasureOverhead(t.Context()))
	r.slow.Store(int64(0))
	if l := rows()["gateway overhead"]; l.N != 40 || l.P99 < l.P50 || l.P99 > 1 {
		t.Errorf("%+v", l)
	}
}

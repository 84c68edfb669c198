package pilot_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
)

func limits(most, critical string) face.Limits { return face.Limits{Max: &most, Critical: &critical} }

var ann = face.Actor{By: "ann", Reason: "night"}

// Above a load copying what is behind and comparing all of it wait, say so, and go on by themselves; at a critical load
// copying is paused until somebody resumes.
func TestCopyingGivesWayToLoad(t *testing.T) {
	r := newRig(t, nil)
	ctx := t.Context()
	name := r.stream(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 50)
	until(t, "it is copied", func() bool { return r.state(name).EHDB.Last == 50 })
	check(t, r.pilot.Throttle(ctx, face.ThrottleRequest{Actor: ann, Limits: limits("pubp99=100ms", "pubp50=10s"), Scope: name}))
	until(t, "the load is measured", func() bool {
		l := r.state(name).Copy.Load
		return l != nil && l.Measured["pubp99"] > 0 && l.Over == "" && l.By == "ann" && l.Max == "pubp99=100ms"
	})
	if why := r.state(name).Copy.Throttled; why != "" {
		t.Fatalf("throttled: %s", why)
	}
	runs := func() (waits, state string) {
		list, err := r.pilot.Parity().Runs(name)
		if err != nil || len(list) == 0 {
			return "", "" // it is compared some time behind the start
		}
		last := list[len(list)-1]
		return last.Waits, last.State
	}
	until(t, "all was compared", func() bool { _, state := runs(); return state == "done" })

	r.slow.Store(int64(200 * time.Millisecond))
	until(t, "it gives way", func() bool {
		return strings.Contains(r.state(name).Copy.Throttled, "is above 100ms (--max-load set by ann: night)")
	})
	if e := r.event("give_way"); !strings.HasPrefix(e, "$G/S | gateway | pubp99 ") {
		t.Error(e)
	}
	check(t, r.pilot.Parity().Full(name))
	until(t, "the comparison waits", func() bool { waits, _ := runs(); return strings.Contains(waits, "is above 100ms") })
	check(t, r.pilot.Shadow(ctx, face.ShadowRequest{Actor: ann, Scope: name, Action: "reset"}))
	time.Sleep(time.Second)
	if st := r.state(name); st.EHDB.Last != 0 || st.Copy.LagMessages == 0 {
		t.Errorf("it was copied: %+v", st.Copy)
	}

	r.slow.Store(0)
	until(t, "it goes on", func() bool { st := r.state(name); return st.EHDB.Last == 50 && st.Copy.Throttled == "" })
	if e := r.event("go_on"); !strings.Contains(e, "set by ann: night") {
		t.Error(e)
	}
	until(t, "the comparison goes on", func() bool { _, state := runs(); return state == "done" })

	check(t, r.pilot.Throttle(ctx, face.ThrottleRequest{Actor: ann, Limits: limits("", "pubp50=100ms")}))
	r.slow.Store(int64(200 * time.Millisecond))
	until(t, "it stops", func() bool { return strings.HasPrefix(r.state(name).Copy.Paused, "critical load: pubp50 ") })
	if e := r.event("pause"); !strings.Contains(e, "| gateway | critical load: ") || !strings.Contains(e, "(--critical-load set by ann") {
		t.Error(e)
	}
	r.slow.Store(0)
	time.Sleep(1500 * time.Millisecond)
	if st, err := r.pilot.Status(ctx); err != nil || st.Paused == "" || st.Load == nil || st.Load.Critical != "pubp50=100ms" {
		t.Errorf("%+v %v", st, err)
	}
	check(t, r.pilot.Pause(ctx, face.PauseRequest{Actor: ann, End: true}))
	r.publish("s", 1)
	until(t, "it is copied on", func() bool { return r.state(name).EHDB.Last == 51 })
	off := ""
	check(t, r.pilot.Throttle(ctx, face.ThrottleRequest{Actor: ann, Limits: face.Limits{Max: &off, Critical: &off}}))
	if st, err := r.pilot.Status(ctx); err != nil || st.Load != nil {
		t.Errorf("%+v %v", st.Load, err)
	}
}

// A throttle is of one stream or of all, is an event with who and why, holds back no stream whose acks wait for the
// copy, and is there behind a restart, as limits are.
func TestThrottle(t *testing.T) {
	r := newRig(t, nil)
	ctx := t.Context()
	name := r.stream(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 1)
	queue := r.stream(jetstream.StreamConfig{Name: "Q", Subjects: []string{"q"}, Retention: jetstream.WorkQueuePolicy}, 1)
	throttle := func(scope cutover.Scope, by, reason string) error {
		return r.pilot.Throttle(ctx, face.ThrottleRequest{Actor: face.Actor{By: by, Reason: reason}, Scope: scope})
	}
	if err := throttle(name, "ann", ""); !errors.Is(err, face.ErrRefused) || !strings.Contains(err.Error(), "--max-load off") {
		t.Error(err)
	}
	if err := throttle(cutover.Scope{Account: "$G", Stream: "NONE"}, "ann", "x"); !errors.Is(err, face.ErrUnknown) {
		t.Error(err)
	}
	check(t, throttle(name, "ann", "backup"))
	check(t, r.pilot.Throttle(ctx, face.ThrottleRequest{Actor: ann, Limits: limits("lag=5s", ""), Scope: name}))
	low := "lag=1s" // what is set already counts
	err := r.pilot.Throttle(ctx, face.ThrottleRequest{Actor: ann, Limits: face.Limits{Critical: &low}, Scope: name})
	if !errors.Is(err, face.ErrRefused) || !strings.Contains(err.Error(), "lag=1s is below max_load lag=5s") {
		t.Error(err)
	}
	want := func(stream, all, held string) {
		t.Helper()
		st, err := r.pilot.Status(ctx)
		check(t, err)
		if st.Throttle != all || r.state(name).Copy.Throttled != stream || r.state(queue).Copy.Throttled != held {
			t.Errorf("%q, %q, %q", st.Throttle, r.state(name).Copy.Throttled, r.state(queue).Copy.Throttled)
		}
	}
	want("backup (ann)", "", "")
	if e := r.event("throttle"); e != "$G/S | ann | backup | what is behind is held back" {
		t.Error(e)
	}
	check(t, throttle(cutover.Scope{}, "bob", "lunch"))
	want("backup (ann)", "lunch (bob)", "")
	r.pilot.Close()
	r.again()
	want("backup (ann)", "lunch (bob)", "")
	if l := r.state(name).Copy.Load; l == nil || l.Max != "lag=5s" || l.By != "ann" || l.Reason != "night" {
		t.Errorf("%+v", l)
	}
	check(t, throttle(name, "ann", ""))
	want("lunch (bob)", "lunch (bob)", "")
	if err := throttle(name, "ann", ""); !errors.Is(err, face.ErrRefused) || !strings.Contains(err.Error(), "with all streams (lunch)") {
		t.Error(err)
	}
	check(t, throttle(cutover.Scope{}, "ann", ""))
	want("", "", "")
	if e := r.event("throttle_off"); !strings.Contains(e, "| ann |") {
		t.Error(e)
	}
}

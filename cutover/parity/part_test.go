package parity

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
)

// A comparison of a part looks at that part alone, says which it was, and is not taken for one of all; what it finds
// calls for one of all, and until that is done not everything is compared.
func TestParts(t *testing.T) {
	w := newWhole(t, testWindow)
	ctx, scope := t.Context(), cutover.Scope{Account: "$G", Stream: "S"}
	publish := func(n int) {
		t.Helper()
		for i := range n {
			if i%1000 == 0 {
				<-w.js.PublishAsyncComplete() // more than 4,000 at a time are refused
			}
			if _, err := w.js.PublishAsync("s", []byte("data")); err != nil {
				t.Fatal(err)
			}
		}
		<-w.js.PublishAsyncComplete()
	}
	_, to := w.shadow(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	publish(10 * LeafSize)
	time.Sleep(50 * time.Millisecond)
	noon := time.Now()
	publish(100)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if last, _ := to.Progress(); last == 10*LeafSize+100 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it is not copied")
		}
	}
	copied := newLens(to)
	cfg := to.Config()
	err := w.e.Attach(Stream{Scope: scope, NATS: w.conn.Stream("S"), EHDB: copied, Config: &cfg})
	if err != nil {
		t.Fatal(err)
	}
	// run is the last comparison when it has ended, and how all of it stands.
	run := func(id uint64) (Run, Status) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			w.e.Tick(ctx)
			list, err := w.e.Runs(scope)
			if err != nil {
				t.Fatal(err)
			}
			if r := list[len(list)-1]; r.ID >= id && r.State != "running" {
				st, _ := w.e.Status(scope)
				return r, st
			}
		}
		t.Fatal("it did not end")
		return Run{}, Status{}
	}
	first, st := run(1)
	if first.Part != nil || st.Complete.IsZero() {
		t.Fatalf("%+v", first)
	}
	whole := st.Complete

	for _, bad := range []float64{0, -1, 101} {
		if w.e.Sample(scope, time.Time{}, bad) == nil {
			t.Error(bad)
		}
	}
	if err := w.e.Sample(scope, noon, 0); err != nil {
		t.Fatal(err)
	}
	r, st := run(2)
	if r.Part == nil || r.Part.First != 10*LeafSize+1 || r.Through != 10*LeafSize+100 || r.Counts.By[Match] != 100 || r.Counts.Examined != 100 {
		t.Errorf("%+v %+v", r, r.Part)
	}
	if !st.Complete.Equal(whole) || !strings.Contains(r.Part.String(), "1 of 11 blocks") {
		t.Errorf("%v, before %v: %s", st.Complete, whole, r.Part)
	}

	// What is damaged behind the back of the comparison is found by a sample with its block in it, and by no other.
	copied.do(func() {
		copied.other[5*LeafSize+7] = &cutover.Record{Seq: 5*LeafSize + 7, Time: 1, Subject: []byte("s"), Data: []byte("other")}
	})
	for id, found := uint64(3), false; !found; id++ {
		if id > 3+10 {
			t.Fatal("no sample has met it: each is to be another choice")
		}
		if err := w.e.Sample(scope, time.Time{}, 10); err != nil {
			t.Fatal(err)
		}
		r, st = run(id)
		found = r.Counts.Diverged() > 0
		if r.Part == nil || r.Part.Blocks < 1 || r.Part.Blocks > 2 || r.Counts.Examined > 2*LeafSize {
			t.Fatalf("%+v %+v", r, r.Part)
		}
		if found != st.Complete.IsZero() {
			t.Fatalf("found: %v, and all was compared at %v", found, st.Complete)
		}
	}
	r, st = run(r.ID + 1)
	if r.Part != nil || r.Counts.By[Mismatch] != 1 || st.Counts.By[Mismatch] != 1 || st.Complete.IsZero() {
		t.Errorf("%+v %s", r, fmt.Sprint(st.Counts.Map()))
	}
}

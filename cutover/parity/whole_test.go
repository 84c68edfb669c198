package parity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/origin"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// whole is a nats-server, JetStream here, the gateway's connection to that server, and an engine that compares the two.
type whole struct {
	t    *testing.T
	js   jetstream.JetStream
	conn *origin.Conn
	svc  *jetstreamapi.Service
	e    *Engine
}

func newWhole(t *testing.T, window time.Duration) *whole {
	t.Helper()
	js, nc := natsServer(t, jetstream.StreamConfig{})
	conn, err := origin.Dial(origin.Options{
		Account: "$G", URLs: []string{nc.ConnectedUrl()}, ServerName: "gw", Timeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	svc := jetstreamapi.New(jetstreamapi.Options{
		Bus: bus.NewRouter(), Storage: storage.Options{Dir: "data", FS: vfs.NewMem(), SegmentSize: 8 << 20}, ServerName: "gw",
		Logger: slog.New(slog.DiscardHandler),
	})
	if err := svc.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := svc.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &whole{t: t, js: js, conn: conn, svc: svc, e: newEngineWindow(t, nil, window)}
}

// shadow captures and compares a stream.
func (w *whole) shadow(cfg jetstream.StreamConfig) (*capture.Capturer, cutover.Copy) {
	w.t.Helper()
	scope := cutover.Scope{Account: "$G", Stream: cfg.Name}
	if _, err := w.js.CreateOrUpdateStream(w.t.Context(), cfg); err != nil {
		w.t.Fatal(err)
	}
	from := w.conn.Stream(cfg.Name)
	c := capture.New(capture.Options{
		Scope: scope, From: from, To: w.svc.Cutover(), Reconcile: 100 * time.Millisecond,
		Copied: func(lag time.Duration, _ int) { w.e.ObserveLag(scope, lag) },
	})
	c.Start()
	w.t.Cleanup(c.Stop)
	var to cutover.Copy
	for end := time.Now().Add(20 * time.Second); to == nil; time.Sleep(10 * time.Millisecond) {
		var err error
		if to, err = w.svc.Cutover().Stream("$G", cfg.Name); err != nil {
			if to = nil; time.Now().After(end) || !errors.Is(err, cutover.ErrNoStream) {
				w.t.Fatal(err)
			}
		}
	}
	info, err := from.Info(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	err = w.e.Attach(Stream{
		Scope: scope, NATS: from, EHDB: to, Config: &info.Config, Repair: StandbyRepairer{to},
		RemovedByHand: func() bool { return true },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return c, to
}

// With real parts on both sides, streams of all kinds and everything that removes messages, there are no findings.
func TestNothingInjectedBetweenRealParts(t *testing.T) {
	w := newWhole(t, 4*time.Second)
	names := []string{"S", "KV_b", "WORK"}
	w.shadow(jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, MaxMsgs: 200})
	w.shadow(
		jetstream.StreamConfig{Name: "KV_b", Subjects: []string{"$KV.b.>"}, MaxMsgsPerSubject: 1, AllowRollup: true},
	)
	w.shadow(jetstream.StreamConfig{Name: "WORK", Subjects: []string{"w.>"}, Retention: jetstream.WorkQueuePolicy})
	worker, err := w.js.CreateConsumer(t.Context(), "WORK", jetstream.ConsumerConfig{Durable: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	consuming, err := worker.Consume(func(m jetstream.Msg) {
		if m.Data()[0]%3 > 0 { // some stay
			_ = m.Ack()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer consuming.Stop()
	s, err := w.js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	kv, err := w.js.Stream(t.Context(), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { w.e.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	var deleted uint64
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) {
		for _, subject := range []string{"s.a", fmt.Sprintf("$KV.b.%d", rand.IntN(20)), "w.x"} {
			m := &nats.Msg{
				Subject: subject,
				Data:    fmt.Append(nil, rand.Uint64()),
				Header:  nats.Header{"Kind": {"test"}},
			}
			ack, err := w.js.PublishMsg(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			switch n := rand.IntN(20); {
			case n == 0 && subject == "s.a":
				deleted++
				if err := s.DeleteMsg(t.Context(), ack.Sequence); err != nil {
					t.Fatal(err)
				}
			case n == 0 && subject != "w.x":
				if err := kv.Purge(t.Context(), jetstream.WithPurgeSubject(subject)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, name := range names {
		st := w.settled(cutover.Scope{Account: "$G", Stream: name})
		if st.Counts.Diverged() > 0 || !st.Digest.Equal || st.Counts.By[NotComparable] > 0 || st.Lag.N == 0 ||
			st.Counts.By[Match] == 0 {
			t.Errorf("%s: %+v", name, st)
		}
		t.Logf("%s: %v, lag %+v", name, st.Counts.Map(), st.Lag)
	}
	if list, _ := w.e.Findings(Query{Healed: true}); len(list) > 0 {
		t.Fatalf("%d findings, the first %+v", len(list), list[0])
	}
}

// settled waits until nothing of a stream is pending.
func (w *whole) settled(scope cutover.Scope) (st Status) {
	w.t.Helper()
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var err error
		if st, err = w.e.Status(scope); err != nil {
			w.t.Fatal(err)
		}
		if st.Counts.Examined > 0 && st.Counts.By[Pending] == 0 {
			return st
		}
		if time.Now().After(end) {
			w.t.Fatalf("%s does not settle: %+v", scope, st)
		}
	}
}

// What is really wrong in the log here, durably, is found and named, and what is behind it in the log is not. Only what
// the standby takes is repaired: it says that it has to be filled anew, and once it was everything is equal.
func TestFaultsInTheLog(t *testing.T) {
	w := newWhole(t, testWindow)
	c, to := w.shadow(jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	first := publish(t, w.js, nil, 20)
	tickUntil(t, w.e, "copied", func(st Status) bool { return st.Counts.By[Match] == first })
	c.Stop()
	last := publish(t, w.js, nil, 10)
	var good []cutover.Record
	from := w.conn.Stream("S")
	if err := from.Read(t.Context(), first+1, func(r *cutover.Record, err error) bool {
		good = append(good, cloneRecord(r))
		return err == nil
	}); err != nil {
		t.Fatal(err)
	}
	bad := make([]cutover.Record, 0, len(good))
	for i := range good {
		bad = append(bad, cloneRecord(&good[i]))
	}
	bad[1].Data = append(bad[1].Data, '!')                                                     // altered
	bad[3].Subject, bad[3].Header, bad[3].Data = good[4].Subject, good[4].Header, good[4].Data // swapped with
	bad[4].Subject, bad[4].Header, bad[4].Data = good[3].Subject, good[3].Header, good[3].Data
	spurious, again := cloneRecord(&good[9]), cloneRecord(&good[9])
	spurious.Seq, spurious.Data = last+1, []byte("never published")
	again.Seq = last + 2
	bad = append(slices.Delete(bad, 6, 7), spurious, again) // one is dropped
	if n, _, err := to.Apply(bad); n != len(bad) || err != nil {
		t.Fatal(n, err)
	}
	if err := to.Durable(t.Context(), last+2); err != nil {
		t.Fatal(err)
	}
	want := map[State]uint64{Mismatch: 1, Reordered: 2, Missing: 1, Extra: 1, Duplicate: 1}
	st := tickUntil(t, w.e, "all of it", func(st Status) bool {
		for s, n := range want {
			if st.Counts.By[s] != n {
				return false
			}
		}
		return true
	})
	if st.Counts.Diverged() != 6 || st.Counts.By[Match] != last-4 || st.Digest.Equal {
		t.Fatalf("%+v", st)
	}
	r, err := w.e.Repair(t.Context(), testScope, []uint64{first + 2})
	if err != nil || r.Outcome != "refused" || r.Content != 0 {
		t.Fatalf("%+v %v", r, err)
	}
	r, err = w.e.Repair(t.Context(), testScope, []uint64{last + 1, last + 2})
	if err != nil || r.Outcome != "repaired" || r.Removed != 2 {
		t.Fatalf("%+v %v", r, err)
	}
	tickUntil(t, w.e, "those at the end are gone", func(st Status) bool { return st.Counts.Diverged() == 4 })

	if err := w.svc.Cutover().Scopes(); err[testScope] != cutover.Standby {
		t.Fatal("the copy is no standby")
	}
	if err := c.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Start()
	refilled := func() bool {
		to, err := w.svc.Cutover().Stream("$G", "S")
		if err != nil {
			return false
		}
		seq, _ := to.Progress()
		if seq != last {
			return false
		}
		info, err := from.Info(t.Context())
		return err == nil && w.e.Attach(Stream{Scope: testScope, NATS: from, EHDB: to, Config: &info.Config}) == nil
	}
	for end := time.Now().Add(20 * time.Second); !refilled(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the copy is not filled anew")
		}
	}
	tickUntil(t, w.e, "equal", func(st Status) bool {
		return st.Counts.By[Match] == last && st.Counts.Examined == last && st.Digest.Equal
	})
	if st, err := w.e.Verify(t.Context(), testScope, last); err != nil || st.Outcome != "match" {
		t.Fatalf("%+v %v", st, err)
	}
}

package stream_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// reader is a consumer that wants a filter and remembers what it acknowledged.
type reader struct {
	filter string

	mu    sync.Mutex
	acked map[uint64]bool
	woken uint64
	last  uint64
	trims int
}

func (r *reader) Wants(key []byte) bool { return subjects.Match(r.filter, key) }

func (r *reader) Done(seq uint64, _ []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked[seq]
}

func (r *reader) Delivered() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func (r *reader) ack(s *stream.Stream, seqs ...uint64) {
	for _, seq := range seqs {
		r.note(seq)
		s.Acked(r, seq)
	}
}

func (r *reader) note(seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.acked == nil {
		r.acked = make(map[uint64]bool)
	}
	r.acked[seq] = true
	r.last = max(r.last, seq)
}

// Trimmed implements stream.Trimmer.
func (r *reader) Trimmed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trims++
}

func (r *reader) wake(visible uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.woken = max(r.woken, visible)
}

func (r *reader) wokenTo() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.woken
}

func left(t *testing.T, w *ours) []uint64 {
	t.Helper()
	w.state(t) // what was done is visible after that
	var seqs []uint64
	for seq := uint64(0); ; {
		r, err := w.stream.Log().Next(seq, nil)
		if err != nil {
			return seqs
		}
		seqs = append(seqs, r.Seq)
		seq = r.Seq + 1
	}
}

func wantLeft(t *testing.T, w *ours, want ...uint64) {
	t.Helper()
	got := left(t, w)
	if len(got) != len(want) {
		t.Fatalf("messages left: %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("messages left: %v, want %v", got, want)
		}
	}
}

func retained(t *testing.T, policy server.RetentionPolicy) *ours {
	t.Helper()
	w := newOurs(t)
	cfg := server.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Retention: policy, Storage: server.FileStorage}
	if err := w.create(t, cfg); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestInterest(t *testing.T) {
	w := retained(t, server.InterestPolicy)
	all, some := &reader{filter: "s.>"}, &reader{filter: "s.a"}
	w.stream.Attach(all, all.wake)
	detach := w.stream.Attach(some, nil)
	for _, subject := range []string{"s.a", "s.b", "s.a", "s.b"} {
		w.publish(t, subject, nil, "x")
	}
	wantLeft(t, w, 1, 2, 3, 4)
	all.ack(w.stream, 2)
	wantLeft(t, w, 1, 3, 4) // nobody else wants s.b
	all.ack(w.stream, 1)
	wantLeft(t, w, 1, 3, 4)
	some.ack(w.stream, 1)
	wantLeft(t, w, 3, 4)
	all.ack(w.stream, 3)
	wantLeft(t, w, 3, 4)
	detach()
	wantLeft(t, w, 3, 4)
	w.stream.DropUnneeded()
	wantLeft(t, w, 4) // it was the last to need 3
	if got := all.wokenTo(); got != 4 {
		t.Errorf("woken to %d, want 4", got)
	}
	if st := w.state(t); st.Consumers != 1 || st.LastSeq != 4 || st.FirstSeq != 4 {
		t.Errorf("state %+v", st)
	}
}

func TestInterestLastConsumerGone(t *testing.T) {
	w := retained(t, server.InterestPolicy)
	one := &reader{filter: "s.a"}
	detach := w.stream.Attach(one, nil)
	w.publish(t, "s.a", nil, "x")
	w.publish(t, "s.b", nil, "nobody wants it")
	wantLeft(t, w, 1)
	detach()
	wantLeft(t, w, 1)
	w.stream.DropUnneeded()
	wantLeft(t, w)
	if st := w.state(t); st.LastSeq != 2 || st.FirstSeq != 3 {
		t.Errorf("state %+v", st)
	}
}

func TestShutdownKeeps(t *testing.T) {
	w := retained(t, server.InterestPolicy)
	detach := w.stream.Attach(&reader{filter: ">"}, nil)
	w.publish(t, "s.a", nil, "x")
	log := w.stream.Log()
	detach()
	w.stream.Stop()
	if st := log.State(); st.Messages != 1 {
		t.Errorf("%d messages left, want 1", st.Messages)
	}
}

func TestWorkQueue(t *testing.T) {
	w := retained(t, server.WorkQueuePolicy)
	a, b := &reader{filter: "s.a"}, &reader{filter: "s.b"}
	detach := w.stream.Attach(a, nil)
	w.stream.Attach(b, nil)
	for _, subject := range []string{"s.a", "s.b", "s.a", "s.c"} {
		w.publish(t, subject, nil, "x")
	}
	a.ack(w.stream, 1)
	b.ack(w.stream, 2, 2)
	wantLeft(t, w, 3, 4)
	detach()
	w.stream.DropUnneeded()
	wantLeft(t, w, 3, 4) // the next consumer gets them
	w.stream.Acked(b, 99)
}

func TestReconcile(t *testing.T) {
	for name, policy := range map[string]server.RetentionPolicy{"interest": server.InterestPolicy, "work queue": server.WorkQueuePolicy} {
		t.Run(name, func(t *testing.T) {
			w := retained(t, policy)
			a := &reader{filter: "s.a"}
			w.stream.Attach(a, nil)
			for range 300 {
				w.publish(t, "s.a", nil, "x")
			}
			for seq := range uint64(250) {
				if seq%2 == 1 {
					a.note(seq) // acknowledged, but the stream was never told
				}
			}
			w.stream.Reconcile()
			if got := len(left(t, w)); got != 300-125 {
				t.Errorf("%d messages left, want 175", got)
			}
		})
	}
}

func TestConsumersAreToldOfRemovals(t *testing.T) {
	w := retained(t, server.LimitsPolicy)
	a := &reader{filter: "s.a"}
	w.stream.Attach(a, nil)
	told := func(what string, want int) {
		t.Helper()
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.trims != want {
			t.Errorf("%s: told %d times, want %d", what, a.trims, want)
		}
	}
	w.publish(t, "s.a", nil, "x")
	w.publish(t, "s.a", nil, "x")
	told("publish", 0)
	if err := w.deleteMsg(t, 1, true); err != nil {
		t.Fatal(err)
	}
	told("delete", 1)
	if _, err := w.purge(t, server.JSApiStreamPurgeRequest{}); err != nil {
		t.Fatal(err)
	}
	told("purge", 2)
}

// TestRecovering publishes while the consumers of a stream are still being brought back.
func TestRecovering(t *testing.T) {
	w := newOurs(t)
	w.tweak = func(o *stream.Options) { o.Recovering = true }
	cfg := server.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Retention: server.InterestPolicy, Storage: server.FileStorage}
	if err := w.create(t, cfg); err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"s.a", "s.b", "s.a"} {
		w.publish(t, subject, nil, "x")
	}
	wantLeft(t, w, 1, 2, 3)
	a := &reader{filter: "s.a"}
	w.stream.Attach(a, nil)
	w.stream.Reconcile()
	wantLeft(t, w, 1, 3)
	w.publish(t, "s.b", nil, "x")
	wantLeft(t, w, 1, 3)
}

func TestUpdateToInterest(t *testing.T) {
	w := retained(t, server.LimitsPolicy)
	a := &reader{filter: "s.a"}
	w.stream.Attach(a, nil)
	for _, subject := range []string{"s.a", "s.b", "s.a"} {
		w.publish(t, subject, nil, "x")
	}
	a.note(1)
	cfg := w.stream.Config()
	cfg.Retention = server.InterestPolicy
	if err := w.update(t, cfg); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, w, 3)
}

// reopened closes the store and opens the stream again from disk.
func reopened(t *testing.T, dir string, store **storage.Store, w *ours, id storage.LogID) {
	t.Helper()
	cfg := w.stream.Config()
	w.stream.Stop()
	if err := (*store).Close(); err != nil {
		t.Fatal(err)
	}
	*store = openStore(t, dir)
	w.store = *store
	spec := stream.LogSpec("$G", &cfg)
	log, err := w.store.OpenLog(id, spec)
	if err != nil {
		t.Fatal(err)
	}
	w.start(t, cfg, log)
}

func TestRestart(t *testing.T) {
	dir := t.TempDir()
	w := newOurs(t)
	store := openStore(t, dir)
	w.store = store
	t.Cleanup(func() {
		w.stream.Stop()
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := server.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, Storage: server.FileStorage, MaxMsgs: 4, AllowMsgTTL: true, Duplicates: time.Minute,
	}
	if err := w.create(t, cfg); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		w.publish(t, "s.x", block("Nats-Msg-Id", id), "x")
	}
	w.publish(t, "s.x", block("Nats-TTL", "1", "Nats-Msg-Id", "f"), "short")
	before := stateLine(w.state(t))
	reopened(t, dir, &store, w, w.stream.Log().ID())
	if after := stateLine(w.state(t)); after != before {
		t.Errorf("state %s, before it was %s", after, before)
	}
	if got := w.publish(t, "s.x", block("Nats-Msg-Id", "d"), "x"); canonical(got) != canonical(`{"stream":"S","seq":4,"duplicate":true}`) {
		t.Errorf("got %s, want the duplicate of 4", got)
	}
	if got := w.publish(t, "s.x", block("Nats-Expected-Last-Msg-Id", "f"), "x"); canonical(got) != `{"seq":7,"stream":"S"}` {
		t.Errorf("got %s, want it stored at 7", got)
	}
	waitFor(t, "the TTL to pass", func() bool { return len(left(t, w)) == 3 })
	wantLeft(t, w, 4, 5, 7)
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestManyPushedOutAtOnce: what a lower limit on bytes pushes out is a handful of records in the log, and not one for each
// message; and no message more goes than must.
func TestManyPushedOutAtOnce(t *testing.T) {
	const n, keep = 500, 20
	w := retained(t, server.LimitsPolicy)
	for range n {
		w.publish(t, "s.a", nil, "x")
	}
	head := func() (sum uint64) {
		for _, s := range w.store.Stats().Shards {
			sum += s.Head
		}
		return sum
	}
	st := w.stream.Log().State()
	before, cfg := head(), w.stream.Config()
	cfg.MaxBytes = int64(st.Bytes/n*keep) + 1
	if err := w.update(t, cfg); err != nil {
		t.Fatal(err)
	}
	if st := w.stream.Log().State(); st.Messages != keep || st.LastSeq != n {
		t.Errorf("%d messages are left, the last is %d; want %d, %d", st.Messages, st.LastSeq, keep, n)
	}
	if records := head() - before; records > 10 {
		t.Errorf("it took %d records in the log to push out %d messages", records, n-keep)
	}
}

// TestLimitCutShort: a limit for each subject that a crash kept from being applied is applied after the start, to what
// is sealed too.
func TestLimitCutShort(t *testing.T) {
	dir := t.TempDir()
	w := newOurs(t)
	opened := func() *storage.Store {
		st, err := storage.Open(t.Context(), storage.Options{Dir: dir, Seal: true, SealMaxAge: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	w.store = opened()
	if err := w.create(t, server.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, Storage: server.FileStorage, MaxMsgsPer: 3,
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		w.publish(t, fmt.Sprint("s.", i%2), nil, "x")
	}
	cfg, id := w.stream.Config(), w.stream.Log().ID()
	w.stream.Stop()
	if err := w.store.Close(); err != nil { // seals
		t.Fatal(err)
	}
	cfg.MaxMsgsPer = 1 // in the catalog, and no more
	w.store = opened()
	defer w.store.Close()
	log, err := w.store.OpenLog(id, stream.LogSpec("$G", &cfg))
	if err != nil {
		t.Fatal(err)
	}
	w.start(t, cfg, log)
	defer w.stream.Stop()
	waitFor(t, "the limit to be applied", func() bool { return len(left(t, w)) == 2 })
	wantLeft(t, w, 5, 6)
}

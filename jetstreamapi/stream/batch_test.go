package stream_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// batched makes the messages of an atomic batch.
func batched(id string, subjects ...string) (list []publication) {
	for i, s := range subjects {
		p := publication{subject: s, data: id, header: []string{"Nats-Batch-Id", id, "Nats-Batch-Sequence", fmt.Sprint(i + 1)}}
		if i == len(subjects)-1 {
			p.header = append(p.header, "Nats-Batch-Commit", "1")
		}
		list = append(list, p)
	}
	return list
}

// TestWholeAfterACrash loses power at each operation on the disk. What is there afterwards is a whole number of atomic
// batches, not less than were acknowledged.
func TestWholeAfterACrash(t *testing.T) {
	disk := vfs.NewMem()
	type crash struct {
		disk  *vfs.Mem
		acked int
	}
	var (
		mu      sync.Mutex
		crashes []crash
		acked   int
	)
	fault := vfs.NewFault(disk, func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind == vfs.OpSync || op.Kind == vfs.OpWrite {
			for seed, keep := range []float64{0, 0.5, 1} {
				crashes = append(crashes, crash{disk.CrashClone(vfs.CrashOptions{Seed: uint64(seed), Keep: keep}), acked})
			}
		}
		return nil
	})
	store, err := storage.Open(context.Background(), storage.Options{Dir: "/data", FS: fault, SegmentSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	router := bus.NewRouter()
	w := &ours{store: store, router: router, client: newClient(t, router)}
	if err := w.create(t, server.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, Storage: server.FileStorage, AllowAtomicPublish: true, AllowRollup: true,
	}); err != nil {
		t.Fatal(err)
	}
	const n = 8
	for i := range n {
		list := batched(fmt.Sprint(i), append(slices.Repeat([]string{"s.a"}, ofBatch), "s.c")...)
		w.send(list...)
		w.answers(t, len(list))
		mu.Lock()
		acked++
		mu.Unlock()
	}
	seen := map[int]bool{}
	for i, c := range crashes {
		seen[checkCrash(t, i, c.disk, c.acked)] = true
	}
	if len(seen) < n {
		t.Errorf("%d crashes came after %d numbers of batches", len(crashes), len(seen))
	}
}

// ofBatch is how many messages of subject s.a come before the one of s.c in each batch: so many that the log would not
// wait for all of them, were they not one group.
const ofBatch = 500

// checkCrash looks at what a crash has left and returns how many batches are there.
func checkCrash(t *testing.T, i int, disk *vfs.Mem, acked int) int {
	t.Helper()
	store, err := storage.Open(context.Background(), storage.Options{Dir: "/data", FS: disk, SegmentSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	var log *storage.Log
	store.EachLog(func(id storage.LogID, _ string, state bool) {
		if !state {
			if log, err = store.OpenLog(id, storage.LogSpec{}); err != nil {
				t.Fatal(err)
			}
		}
	})
	if log == nil {
		return 0
	}
	a := log.Key([]byte("s.a")).Count
	c := log.Key([]byte("s.c")).Count
	if a != ofBatch*c || int(c) < acked {
		t.Fatalf("crash %d, with %d batches acknowledged, left %d and %d of their messages", i, acked, a, c)
	}
	return int(c)
}

// TestStagedBytes: what is staged in memory is bounded.
func TestStagedBytes(t *testing.T) {
	router := bus.NewRouter()
	w := &ours{store: memoryStore(t), router: router, client: newClient(t, router)}
	w.tweak = func(o *stream.Options) {
		o.Batches = &stream.Batches{Limits: server.JSLimitOpts{MaxBatchTimeout: time.Hour}}
	}
	if err := w.create(t, server.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, Storage: server.MemoryStorage, AllowAtomicPublish: true,
	}); err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("x", 8<<20)
	stage := func(id string, seq int) string {
		w.send(publication{subject: "s.a", data: big, header: []string{
			"Nats-Batch-Id", id, "Nats-Batch-Sequence", fmt.Sprint(seq),
		}})
		if body := w.raw(t); body != "" {
			return answerText(body)
		}
		return ""
	}
	for seq := 1; seq <= 5; seq++ {
		if got := stage("a", seq); got != "" {
			t.Fatalf("message %d: %q", seq, got)
		}
	}
	if got := stage("a", 6); !strings.HasPrefix(got, "10199 atomic publish batch is too large: 50331648 bytes") {
		t.Errorf("a batch of 48 MiB: %q", got)
	}
	if got := stage("a", 7); !strings.HasPrefix(got, "10176 ") {
		t.Errorf("the batch goes on: %q", got)
	}
	var refused string
	for i := 0; i < 20 && refused == ""; i++ {
		refused = stage(fmt.Sprint(i), 1)
		if i == 14 && refused != "" {
			t.Errorf("%d batches of 8 MiB: %q", i+1, refused)
		}
	}
	if !strings.HasPrefix(refused, "10210 ") {
		t.Errorf("batches of 128 MiB in all: %q", refused)
	}
	w.send(publication{subject: "s.a", data: "x", header: []string{
		"Nats-Batch-Id", "3", "Nats-Batch-Sequence", "2", "Nats-Batch-Commit", "1",
	}})
	if got := w.answers(t, 1)[0]; !strings.HasPrefix(got, "ack 2") {
		t.Errorf("a commit: %q", got)
	}
	if got := stage("again", 1); got != "" {
		t.Errorf("there is room again: %q", got)
	}
}

func memoryStore(t *testing.T) *storage.Store {
	t.Helper()
	store, err := storage.Open(context.Background(), storage.Options{Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// TestFlowAckWaitsForTheDisk: a fast batch's acks are about what is durable.
func TestFlowAckWaitsForTheDisk(t *testing.T) {
	w, fs := onDisk(t, server.StreamConfig{AllowBatchPublish: true})
	if _, err := w.client.session.Subscribe("2", "_INBOX.c.>", ""); err != nil {
		t.Fatal(err)
	}
	w.client.session.Unsubscribe("1", 0)
	release := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	t.Cleanup(letGo)
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			<-release
		}
		return nil
	})
	for i, op := range []int{0, 1, 2} {
		m := bus.Msg{
			Subject: []byte("s.a"), Reply: fmt.Appendf(nil, "_INBOX.c.id.1.fail.%d.%d.$FI", i+1, op), Data: []byte("x"),
		}
		w.client.session.Publish(&m)
	}
	w.client.session.Flush()
	if got := w.raw(t); got != `{"type":"ack","seq":0,"msgs":1}` {
		t.Errorf("got %s", got)
	}
	select {
	case a := <-w.client.answers:
		t.Fatalf("answered before it was durable: %s", a)
	case <-time.After(100 * time.Millisecond):
	}
	letGo()
	for _, want := range []string{
		`{"type":"ack","seq":1,"msgs":1}`, `{"type":"ack","seq":2,"msgs":1}`, `{"stream":"S","seq":3,"batch":"id","count":3}`,
	} {
		if got := w.raw(t); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// raw returns the body of the next answer.
func (w *ours) raw(t *testing.T) string {
	t.Helper()
	select {
	case a := <-w.client.answers:
		_, body, _ := strings.Cut(a, " ")
		return body
	case <-time.After(patience):
		t.Fatal("no answer")
		return ""
	}
}

// TestAddLetters: letters are stored with what commit adds, all or none, within the limits.
func TestAddLetters(t *testing.T) {
	w, _ := onDisk(t, server.StreamConfig{MaxMsgs: 3, Discard: server.DiscardNew})
	state, err := w.store.CreateStateLog(0, "state", false)
	if err != nil {
		t.Fatal(err)
	}
	letters := []stream.Letter{{Subject: []byte("other.a"), Data: []byte("1")}, {Subject: []byte("other.b")}}
	add := func() error {
		done := make(chan error, 1)
		err := w.stream.AddLetters(letters, func(group *storage.Batch) error {
			group.Change(state, []byte("x"))
			return group.Commit(func(err error) { done <- err })
		})
		if err != nil {
			return err
		}
		return <-done
	}
	if err := add(); err != nil {
		t.Fatal(err)
	}
	if err := add(); err == nil || !strings.Contains(err.Error(), "maximum messages exceeded") {
		t.Errorf("a full stream: %v", err)
	}
	if n, _ := state.Changes(); n != 1 || w.stream.State(false, "").Msgs != 2 {
		t.Errorf("%d changes, %+v", n, w.stream.State(false, ""))
	}
	w.stream.Stop()
	if err := add(); err == nil {
		t.Error("a stopped stream takes letters")
	}
}

package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/bus/bustest"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// onDisk is a stream on a disk whose operations a hook can hold up or fail.
func onDisk(t *testing.T, cfg server.StreamConfig) (*ours, *vfs.Fault) {
	t.Helper()
	fs := vfs.NewFault(vfs.NewMem(), nil)
	store, err := storage.Open(context.Background(), storage.Options{Dir: "/data", FS: fs, SegmentSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		fs.SetHook(nil)
		_ = store.Close() // it may have failed, on purpose
	})
	router := bus.NewRouter()
	w := &ours{store: store, router: router, client: newClient(t, router)}
	cfg.Name, cfg.Subjects, cfg.Storage = "S", []string{"s.>"}, server.FileStorage
	if err := w.create(t, cfg); err != nil {
		t.Fatal(err)
	}
	return w, fs
}

// send publishes a batch without waiting; answers come in order on the client's channel.
func (w *ours) send(pubs ...publication) {
	for i, p := range pubs {
		m := bus.Msg{
			Subject: []byte(p.subject), Reply: fmt.Appendf(nil, "_INBOX.c.b%d", i), Header: block(p.header...), Data: []byte(p.data),
		}
		w.client.session.Publish(&m)
	}
	w.client.session.Flush()
}

func (w *ours) answers(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for range n {
		select {
		case a := <-w.client.answers:
			_, body, _ := strings.Cut(a, " ")
			out = append(out, answerText(body))
		case <-time.After(patience):
			t.Fatalf("%d answers of %d: %q", len(out), n, out)
		}
	}
	return out
}

func TestAnswersWaitForTheDisk(t *testing.T) {
	w, fs := onDisk(t, server.StreamConfig{MaxMsgs: 3, Discard: server.DiscardNew})
	w.publish(t, "s.a", block("Nats-Msg-Id", "old"), "x")
	w.state(t)
	release := make(chan struct{})
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			<-release
		}
		return nil
	})
	w.send(publication{subject: "s.a", data: "x", header: []string{"Nats-Expected-Stream", "other"}}) // waits for nothing
	if got := w.answers(t, 1)[0]; got != "10060 expected stream does not match" {
		t.Errorf("got %q", got)
	}
	w.send(publication{subject: "s.a", header: []string{"Nats-Msg-Id", "old"}}) // durable long ago
	if got := w.answers(t, 1)[0]; got != "duplicate 1" {
		t.Errorf("got %q", got)
	}
	w.send(
		publication{subject: "s.a", data: "x", header: []string{"Nats-Msg-Id", "new"}},
		publication{subject: "s.a", data: "x", header: []string{"Nats-Msg-Id", "new"}},
		publication{subject: "s.a", data: "x", header: []string{"Nats-Expected-Last-Sequence", "1"}},
		publication{subject: "s.a", data: "x", header: []string{"Nats-Expected-Last-Subject-Sequence", "1"}},
		publication{subject: "s.a", data: "x", header: []string{"Nats-Expected-Last-Msg-Id", "old"}},
		publication{subject: "s.a", data: "x"},
		publication{subject: "s.a", data: "x"},
	)
	select {
	case a := <-w.client.answers:
		t.Fatalf("answered before it was durable: %s", a)
	case <-time.After(100 * time.Millisecond):
	}
	if st := w.stream.State(true, ">"); st.LastSeq != 1 || st.Msgs != 1 {
		t.Errorf("the state shows what is not durable: %s", stateLine(st))
	}
	close(release)
	want := []string{
		"ack 2", "duplicate 2", "10071 wrong last sequence: 2", "10071 wrong last sequence: 2",
		"10070 wrong last msg ID: new", "ack 3", "10077 maximum messages exceeded",
	}
	if got := w.answers(t, len(want)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDiskFails(t *testing.T) {
	w, fs := onDisk(t, server.StreamConfig{})
	w.publish(t, "s.a", nil, "x")
	fs.SetHook(vfs.FailKind(errors.New("the disk is gone"), vfs.OpSync))
	w.send(publication{subject: "s.a", header: []string{"Nats-Msg-Id", "a"}}, publication{subject: "s.b"})
	for _, got := range w.answers(t, 2) {
		if !strings.HasPrefix(got, "10077 ") || !strings.Contains(got, "the disk is gone") {
			t.Errorf("got %q", got)
		}
	}
	fs.SetHook(nil)
	w.send(publication{subject: "s.a"}, publication{subject: "s.a", header: []string{"Nats-Expected-Last-Sequence", "7"}})
	for _, got := range w.answers(t, 2) {
		if !strings.HasPrefix(got, "10077 ") && !strings.HasPrefix(got, "10071 ") {
			t.Errorf("got %q", got)
		}
	}
	if n := w.stream.Counters().Refused[10077]; n == 0 {
		t.Error("the refusal was not counted")
	}
}

func TestQueueFull(t *testing.T) {
	fs := vfs.NewFault(vfs.NewMem(), nil)
	store, err := storage.Open(context.Background(), storage.Options{Dir: "/data", FS: fs, SegmentSize: 1 << 20, QueueBytes: 8 << 10})
	if err != nil {
		t.Fatal(err)
	}
	router := bus.NewRouter()
	w := &ours{store: store, router: router, client: newClient(t, router)}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := server.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Storage: server.FileStorage, MaxMsgsPer: 1}
	if err := w.create(t, cfg); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			<-release
		}
		return nil
	})
	const n = 100
	pubs := make([]publication, n)
	for i := range pubs {
		pubs[i] = publication{subject: "s.a", data: strings.Repeat("x", 1000)}
	}
	w.send(pubs...)
	if w.store.Stall() == nil {
		t.Error("producers are not asked to pause")
	}
	close(release)
	acks, busy := 0, 0
	for _, got := range w.answers(t, n) {
		switch {
		case strings.HasPrefix(got, "ack "):
			acks++
		case got == "10167 too many requests":
			busy++
		default:
			t.Errorf("got %q", got)
		}
	}
	if acks == 0 || busy == 0 {
		t.Errorf("%d acks, %d refused for want of room", acks, busy)
	}
	w.publish(t, "s.a", nil, "x")
	waitFor(t, "the limit to hold again", func() bool { return w.state(t).Msgs == 1 })
}

func TestStopAnswers(t *testing.T) {
	w, fs := onDisk(t, server.StreamConfig{})
	release := make(chan struct{})
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			<-release
		}
		return nil
	})
	w.send(publication{subject: "s.a"}, publication{subject: "s.b"})
	stopped := make(chan struct{})
	go func() { w.stream.Stop(); close(stopped) }()
	close(release)
	if got := fmt.Sprint(w.answers(t, 2)); got != "[ack 1 ack 2]" {
		t.Errorf("got %s", got)
	}
	wait(t, stopped)
	if w.router.HasInterest("$G", "s.a") {
		t.Error("a stopped stream still listens")
	}
}

// What a publisher hands over after the stream stopped, having found it before, is refused and not left unanswered.
func TestLatePublishIsRefused(t *testing.T) {
	w, _ := onDisk(t, server.StreamConfig{})
	w.stream.Stop()
	for range 3 {
		w.stream.Deliver([]bus.Delivery{{Msg: bus.Msg{Subject: []byte("s.a"), Reply: []byte("_INBOX.c.b0")}}})
	}
	for _, a := range w.answers(t, 3) {
		if !strings.Contains(a, "10077") {
			t.Errorf("got %s", a)
		}
	}
}

func TestNoAnswerWhereNoneIsWanted(t *testing.T) {
	w := newOurs(t)
	if err := w.create(t, server.StreamConfig{Name: "S", Subjects: []string{"s.>"}, NoAck: true}); err != nil {
		t.Fatal(err)
	}
	var sink bustest.Sink
	session, err := w.router.Open(bus.KindClient, bus.Identity{}, &sink)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if _, err := session.Subscribe("1", "_INBOX.>", ""); err != nil {
		t.Fatal(err)
	}
	w.send(publication{subject: "s.a"}, publication{subject: "s.a", header: []string{"Nats-Expected-Last-Sequence", "9"}})
	w.state(t)
	w.stream.Stop()
	if got := sink.Received(); len(got) != 0 {
		t.Errorf("a no_ack stream answers: %v", got)
	}
}

// account is a limit in bytes.
type account struct {
	mu         sync.Mutex
	used, most int64
}

func (a *account) reserve(n int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used+n > a.most {
		return errors.New("full")
	}
	a.used += n
	return nil
}

func (a *account) release(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= n
}

func (a *account) now() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

func TestAccountLimit(t *testing.T) {
	a := &account{most: 200}
	w := newOurs(t)
	w.tweak = func(o *stream.Options) { o.Reserve, o.Release = a.reserve, a.release }
	cfg := server.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Storage: server.FileStorage, MaxMsgs: 4, AllowRollup: true}
	if err := w.create(t, cfg); err != nil {
		t.Fatal(err)
	}
	pub := func(data string, header ...string) string {
		return answerText(w.publish(t, "s.a", block(header...), data))
	}
	for i := range 4 {
		pub(strings.Repeat("x", i))
	}
	if got := pub(strings.Repeat("x", 100)); got != "10002 resource limits exceeded for account" {
		t.Errorf("got %q", got)
	}
	for range 3 {
		pub("12345")
	}
	if st := w.state(t); a.now() != int64(st.Bytes) {
		t.Errorf("reserved %d for %d bytes", a.now(), st.Bytes)
	}
	pub("r", "Nats-Rollup", "all")
	if _, err := w.purge(t, server.JSApiStreamPurgeRequest{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	pub("x")
	if err := w.deleteMsg(t, 8, true); err != nil {
		t.Fatal(err)
	}
	if st := w.state(t); a.now() != int64(st.Bytes) || st.Msgs != 1 {
		t.Errorf("reserved %d for %d bytes of %d messages", a.now(), st.Bytes, st.Msgs)
	}
}

// TestManyPublishers publishes from many sessions while the stream is purged, changed and looked at: every message is
// answered once, and the sequences are those from 1 to the number of messages.
func TestManyPublishers(t *testing.T) {
	w := newOurs(t)
	cfg := server.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Storage: server.FileStorage, MaxMsgs: 500, MaxMsgsPer: 20}
	if err := w.create(t, cfg); err != nil {
		t.Fatal(err)
	}
	const publishers, batches, size = 8, 40, 25
	seen := map[string]int{}
	var work sync.WaitGroup
	for p := range publishers {
		session, err := w.router.Open(bus.KindClient, bus.Identity{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(session.Close)
		work.Go(func() {
			for b := range batches {
				for i := range size {
					m := bus.Msg{
						Subject: fmt.Appendf(nil, "s.%d", i), Reply: []byte("_INBOX.c.x"), Data: []byte("data"),
						Header: block("Nats-Msg-Id", fmt.Sprint(p, b, i)),
					}
					session.Publish(&m)
				}
				if stall := session.Flush(); stall != nil {
					<-stall
				}
			}
		})
	}
	stop := make(chan struct{})
	var meddlers sync.WaitGroup
	meddle := func(f func()) {
		meddlers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	meddle(func() { w.purge(t, server.JSApiStreamPurgeRequest{Subject: "s.1"}) })
	meddle(func() { w.state(t) })
	meddle(func() {
		detach := w.stream.Attach(&reader{filter: ">"}, func(uint64) {})
		next := w.stream.Config()
		next.MaxMsgs = 1000 - next.MaxMsgs
		if err := w.update(t, next); err != nil {
			t.Error(err)
		}
		detach()
	})
	total := publishers * batches * size
	for range total {
		select {
		case a := <-w.client.answers:
			_, body, _ := strings.Cut(a, " ")
			seen[answerText(body)]++
		case <-time.After(patience):
			t.Fatalf("%d answers of %d", len(seen), total)
		}
	}
	work.Wait()
	close(stop)
	meddlers.Wait()
	for seq := 1; seq <= total; seq++ {
		if seen[fmt.Sprintf("ack %d", seq)] != 1 {
			t.Fatalf("sequence %d was acknowledged %d times", seq, seen[fmt.Sprintf("ack %d", seq)])
		}
	}
	if st := w.state(t); st.LastSeq != uint64(total) || st.Msgs > 1000 {
		t.Errorf("state %s", stateLine(st))
	}
}

// TestSubjectLimitWithoutRoom lowers the limit for each subject while the log takes nothing more: once it does, all
// subjects keep to the limit, also those that get no message.
func TestSubjectLimitWithoutRoom(t *testing.T) {
	const subjects, each = 2000, 3
	fs := vfs.NewFault(vfs.NewMem(), nil)
	store, err := storage.Open(context.Background(), storage.Options{Dir: "/data", FS: fs, SegmentSize: 1 << 20, QueueBytes: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	router := bus.NewRouter()
	w := &ours{store: store, router: router, client: newClient(t, router)}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := server.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Storage: server.FileStorage}
	if err := w.create(t, cfg); err != nil {
		t.Fatal(err)
	}
	for i := range subjects * each {
		w.publish(t, fmt.Sprintf("s.%d", i%subjects), nil, "x")
	}
	release := make(chan struct{})
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			<-release
		}
		return nil
	})
	cfg.MaxMsgsPer = 1
	if err := w.stream.Update(cfg); err != nil {
		t.Fatal(err)
	}
	head := w.stream.Log().State().Messages
	close(release)
	if head == subjects {
		t.Fatal("the log had room for all: nothing was shown")
	}
	waitFor(t, "each subject to have one message", func() bool { return w.state(t).Msgs == subjects })
}

package consumer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/bus/bustest"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// epoch is when the virtual time of the machine tests begins.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// harness drives a machine over a real log and a real bus, with virtual time. After every step it loads the state anew
// from what the machine asked to be made durable and compares.
type harness struct {
	t       testing.TB
	log     *storage.Log
	bus     *bus.Router
	client  bus.Session
	m       *machine
	now     int64
	seq     uint64
	changes [][]byte // the checkpoint and the changes since
	acks    map[uint64]AckID
	steps   int
}

// newLog returns a log in a store in memory.
func newLog(tb testing.TB) *storage.Log {
	tb.Helper()
	st, err := storage.Open(context.Background(), storage.Options{Shards: 1})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = st.Close() })
	return addLog(tb, st)
}

func addLog(tb testing.TB, st *storage.Store) *storage.Log {
	tb.Helper()
	log, err := st.CreateLog(storage.LogSpec{Shards: []storage.ShardID{0}, Name: "S"})
	if err != nil {
		tb.Fatal(err)
	}
	return log
}

func newHarness(tb testing.TB, log *storage.Log) *harness {
	tb.Helper()
	h := &harness{t: tb, log: log, bus: bus.NewRouter(), now: epoch, acks: map[uint64]AckID{}}
	var err error
	if h.client, err = h.bus.Open(bus.KindClient, bus.Identity{Account: account}, new(bustest.Sink)); err != nil {
		tb.Fatal(err)
	}
	return h
}

func (h *harness) put(subject, data string) uint64 {
	h.t.Helper()
	h.seq++
	rec := storage.Record{Seq: h.seq, Time: h.now, Key: []byte(subject), Data: []byte(data)}
	h.settled(h.log.Append(&rec, nil))
	return h.seq
}

func (h *harness) remove(seq uint64) {
	h.t.Helper()
	_, err := h.log.Delete([]uint64{seq}, false, nil)
	h.settled(err)
}

// purge removes what is below seq.
func (h *harness) purge(seq uint64) {
	h.t.Helper()
	_, err := h.log.Purge(nil, seq, 0, nil)
	h.settled(err)
}

// settled waits until everything appended is visible.
func (h *harness) settled(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
	done := make(chan error, 1)
	h.log.Sync(func(err error) { done <- err })
	if err := <-done; err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) listen(subject string) {
	h.t.Helper()
	if _, err := h.client.Subscribe(subject, subject, ""); err != nil {
		h.t.Fatal(err)
	}
}

// create makes the machine from a configuration, as New does.
func (h *harness) create(cfg server.ConsumerConfig) *server.ApiError {
	h.t.Helper()
	stream := server.StreamConfig{Name: "S", Subjects: []string{"a.>"}, Replicas: 1}
	if err := Complete(&cfg, &stream, Limits{}, false); err != nil {
		return err
	}
	set := newSettings("S", "C", cfg, 1000, 0)
	filters, err := compileFilters(filterSubjects(&cfg))
	if err != nil {
		h.t.Fatal(err)
	}
	s := SelectStart(h.log, &cfg, 0, filters)
	h.m = newMachine(set, 1)
	h.m.led, h.m.skip.loaded, h.m.resume = newLedger(s.Seq), s.Skip, s.Cursor
	h.open(h.m, filters)
	h.changes = [][]byte{h.m.checkpoint(nil)}
	h.m.interest(h.now)
	return nil
}

func (h *harness) open(m *machine, filters filterSet) {
	m.w = &logWorld{
		Cursor: h.log.NewCursor(max(m.resume, m.led.last.stream+1), filters), log: h.log, bus: h.bus, account: account,
		filters: func(filterSet) {},
	}
	m.start(h.now, h.log.Visible())
}

// step runs fn as an event, then what time and messages permit, and returns what the machine asks for.
func (h *harness) step(fn func(m *machine)) *outbox {
	h.t.Helper()
	out := new(outbox)
	h.m.out = out
	h.m.begin(h.now)
	if fn != nil {
		fn(h.m)
	}
	h.m.tick(h.now)
	for h.m.deliver(h.now, 3) { // small, so that the end of a batch is tested too
	}
	out.delta = h.m.log.swap(nil)
	for i := range out.sends {
		if s := &out.sends[i]; s.seq != 0 {
			h.acks[s.seq] = ackID(h.t, s.reply)
		}
	}
	h.persist(out.delta)
	return out
}

func (h *harness) persist(delta []byte) {
	h.t.Helper()
	if len(delta) > 0 {
		h.changes = append(h.changes, delta)
	}
	if h.steps++; h.steps%7 == 0 {
		h.changes = [][]byte{h.m.checkpoint(nil)}
		if h.steps%2 == 0 {
			h.changes[0] = h.transfer()
		}
	}
	again := h.reload()
	if got, want := again.dump(), h.m.dump(); got != want {
		h.t.Fatalf("the state loaded again differs\n got %s\nwant %s", got, want)
	}
	if got, want := again.numPending(), h.m.numPending(); got != want {
		h.t.Fatalf("loaded again, %d messages are pending; want %d", got, want)
	}
}

// transfer returns a checkpoint made from the state as it is handed to others.
func (h *harness) transfer() []byte {
	h.t.Helper()
	s := h.m.state()
	m, err := machineOf(&s)
	if err != nil {
		h.t.Fatalf("a state of a consumer is refused: %v\n%+v", err, s)
	}
	return m.checkpointAt(nil, s.Next)
}

// reload makes a machine from what was persisted.
func (h *harness) reload() *machine {
	h.t.Helper()
	m := newMachine(h.m.set, 1)
	for i, c := range h.changes {
		err := m.replay(c)
		if i == 0 {
			m = newMachine(h.m.set, 1)
			err = m.restore(c)
		}
		if err != nil {
			h.t.Fatalf("entry %d: %v", i, err)
		}
	}
	if m.clamp(h.log.Visible()) {
		h.t.Fatal("the state is ahead of the log")
	}
	filters, err := compileFilters(filterSubjects(&m.set.cfg))
	if err != nil {
		h.t.Fatal(err)
	}
	h.open(m, filters)
	m.expireEntries(h.now)
	return m
}

// dump shows what of the state has to survive.
func (m *machine) dump() string {
	var b strings.Builder
	l := m.led
	fmt.Fprintf(&b, "last=%d/%d floor=%d/%d", l.last.consumer, l.last.stream, l.floor.consumer, l.floor.stream)
	for e := l.head; e != nil; e = e.next {
		fmt.Fprintf(&b, " [%d/%d x%d sent=%s", e.dseq, e.sseq, e.count, since(e.sent))
		switch {
		case e.queued:
			b.WriteString(" queued")
		case e.parked:
			b.WriteString(" parked")
		case e.due == never:
			b.WriteString(" never")
		default:
			fmt.Fprintf(&b, " due=%s", since(e.due))
		}
		b.WriteString("]")
	}
	for _, seq := range slices.Sorted(mapKeys(l.exhausted)) {
		fmt.Fprintf(&b, " exhausted=%d(x%d)", seq, l.exhausted[seq])
	}
	if seqs := m.skip.seqs(); len(seqs) > 0 {
		fmt.Fprintf(&b, " skip=%v", seqs)
	}
	fmt.Fprintf(&b, " redelivered=%d", l.redelivered)
	return b.String()
}

func mapKeys(m map[uint64]uint64) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func since(t int64) string { return time.Duration(t - epoch).String() }

// print shows an outbox as a client would see it.
func (o *outbox) print() string {
	var b strings.Builder
	for i := range o.sends {
		b.WriteString(o.sends[i].print())
	}
	for _, r := range o.confirms {
		fmt.Fprintf(&b, "confirm %s\n", r)
	}
	for _, d := range o.dead {
		fmt.Fprintf(&b, "dead %d x%d %s %q\n", d.seq, d.count, d.why, d.text)
	}
	if len(o.acked) > 0 {
		fmt.Fprintf(&b, "acked %v\n", o.acked)
	}
	for i := range o.events {
		b.WriteString(o.events[i].print())
	}
	if o.inactive {
		b.WriteString("inactive\n")
	}
	return b.String()
}

func (s *send) print() string {
	header := strings.ReplaceAll(strings.TrimSuffix(string(s.header), "\r\n\r\n"), "\r\n", "; ")
	if s.seq == 0 {
		reply := ""
		if len(s.reply) > 0 {
			reply = " reply=" + string(s.reply)
		}
		return fmt.Sprintf("%s <- %s%s\n", s.to, header, reply)
	}
	a, ok := jsapi.ParseAckSubject(s.reply)
	if !ok {
		return fmt.Sprintf("bad reply %q\n", s.reply)
	}
	if header != "" {
		header = " {" + header + "}"
	}
	if len(s.data) > 40 {
		s.data = fmt.Appendf(nil, "(%d bytes)", len(s.data))
	}
	return fmt.Sprintf("%s <- %s %q%s seq=%d dseq=%d count=%d pending=%d\n",
		s.to, s.subject, s.data, header, a.StreamSeq, a.ConsumerSeq, a.Delivered, a.Pending)
}

func (e *event) print() string {
	names := map[eventKind]string{
		eventMaxDeliver: "max_deliver", eventNak: "nak", eventTerm: "terminated", eventAckSample: "ack_sample",
		eventPause: "pause", eventPinned: "pinned", eventUnpinned: "unpinned",
	}
	switch e.kind {
	case eventPause:
		return fmt.Sprintf("event pause paused=%v\n", e.paused)
	case eventPinned, eventUnpinned:
		return fmt.Sprintf("event %s group=%s %s\n", names[e.kind], e.group, e.reason)
	case eventAckSample:
		return fmt.Sprintf("event ack_sample seq=%d dseq=%d count=%d delay=%s\n", e.sseq, e.dseq, e.count,
			time.Duration(e.delay))
	case eventMaxDeliver, eventNak, eventTerm:
	}
	return strings.TrimRight(fmt.Sprintf("event %s seq=%d dseq=%d count=%d %s", names[e.kind], e.sseq, e.dseq, e.count,
		e.reason), " ") + "\n"
}

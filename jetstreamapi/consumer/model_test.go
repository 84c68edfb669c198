package consumer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// model is what a consumer must have done, told by nothing but what went in and what a client saw.
type model struct {
	*harness
	stored    map[uint64]bool   // live and matching
	given     map[uint64]uint64 // deliveries of each message since the last reset
	settled   map[uint64]bool   // acknowledged, terminated, or given up for lost
	exhausted map[uint64]bool
	dseq      uint64
	highest   uint64 // stream sequence of the newest first delivery
	wants     map[string]int
	max       int
	hands     *hands // nil: there are no keys
}

// newModel makes a consumer on a log into which the messages before were put.
func newModel(tb testing.TB, log *storage.Log, cfg server.ConsumerConfig, before ...string) *model {
	tb.Helper()
	m := &model{
		harness: newHarness(tb, log), stored: map[uint64]bool{}, given: map[uint64]uint64{}, settled: map[uint64]bool{},
		exhausted: map[uint64]bool{}, wants: map[string]int{},
	}
	last := map[string]uint64{}
	for _, subject := range before {
		seq := m.put(subject, "data")
		if cfg.DeliverPolicy == server.DeliverLastPerSubject {
			delete(m.stored, last[subject])
		}
		last[subject] = seq
		m.stored[seq] = matches(&cfg, subject)
	}
	maps.DeleteFunc(m.stored, func(_ uint64, matches bool) bool { return !matches })
	if err := m.create(cfg); err != nil {
		tb.Fatal(err)
	}
	m.max = m.m.set.maxPending
	return m
}

// apply runs a step and checks everything the client may rely on.
func (m *model) apply(what string, event func(*machine)) {
	m.t.Helper()
	out := m.step(event)
	for _, seq := range out.acked {
		m.settled[seq] = true
		delete(m.exhausted, seq)
	}
	for i := range out.events {
		switch e := &out.events[i]; e.kind {
		case eventMaxDeliver:
			m.exhausted[e.sseq] = true
			if got, limit := m.given[e.sseq], m.m.set.maxDeliver; got != limit {
				m.t.Fatalf("%s: message %d given up after %d deliveries, not %d", what, e.sseq, got, limit)
			}
		case eventTerm:
			m.settled[e.sseq] = true
		case eventNak, eventAckSample, eventPause, eventPinned, eventUnpinned:
		}
	}
	for i := range out.sends { // a step delivers last
		m.sent(what, &out.sends[i])
	}
	m.check(what)
	if why := m.stalled(); why != "" {
		m.t.Fatalf("%s: %s\n%s", what, why, m.state())
	}
}

func (m *model) sent(what string, s *send) {
	m.t.Helper()
	if s.seq == 0 {
		return
	}
	a, _ := jsapi.ParseAckSubject(s.reply)
	m.dseq++
	m.given[s.seq]++
	switch {
	case !m.stored[s.seq]:
		m.t.Fatalf("%s: message %d was delivered; it is not there, or does not match", what, s.seq)
	case a.ConsumerSeq != m.dseq:
		m.t.Fatalf("%s: consumer sequence %d, want %d", what, a.ConsumerSeq, m.dseq)
	case a.Delivered != m.given[s.seq]:
		m.t.Fatalf("%s: message %d says delivery %d, it is %d", what, s.seq, a.Delivered, m.given[s.seq])
	case m.settled[s.seq] || m.exhausted[s.seq]:
		m.t.Fatalf("%s: message %d was delivered although it was done", what, s.seq)
	case a.Delivered == 1 && s.seq <= m.highest && m.hands == nil:
		m.t.Fatalf("%s: message %d was delivered after %d", what, s.seq, m.highest)
	}
	if a.Delivered == 1 {
		m.highest = s.seq
	}
	if want := m.undelivered(); a.Pending != want {
		m.t.Fatalf("%s: message %d says %d are pending, it is %d\n%s", what, s.seq, a.Pending, want, m.state())
	}
	to := string(s.to)
	if m.wants[to]--; m.wants[to] < 0 {
		m.t.Fatalf("%s: %s got more than it asked for", what, to)
	}
	if m.hands != nil {
		m.handed(what, s)
	}
}

// undelivered returns how many messages are still to be delivered for the first time.
func (m *model) undelivered() (n uint64) {
	for seq := range m.stored {
		if m.given[seq] == 0 {
			n++
		}
	}
	return n
}

// checkPending is for the moments between steps too.
func (m *model) checkPending(what string) {
	m.t.Helper()
	if got, want := m.m.numPending(), m.undelivered(); got != want {
		m.t.Fatalf("%s: num_pending is %d, want %d\n%s", what, got, want, m.state())
	}
}

func (m *model) check(what string) {
	m.t.Helper()
	m.checkPending(what)
	outstanding := 0
	for seq := range m.given {
		if !m.settled[seq] && !m.exhausted[seq] {
			outstanding++
		}
	}
	switch {
	case m.m.led.outstanding() != outstanding:
		m.t.Fatalf("%s: num_ack_pending is %d, want %d\n%s", what, m.m.led.outstanding(), outstanding, m.state())
	case m.max > 0 && outstanding > m.max:
		m.t.Fatalf("%s: %d outstanding, at most %d may be", what, outstanding, m.max)
	case len(m.m.led.exhausted) != len(m.exhausted):
		m.t.Fatalf("%s: %d exhausted, want %d", what, len(m.m.led.exhausted), len(m.exhausted))
	}
	for seq := range m.stored {
		done := m.settled[seq] && !m.exhausted[seq]
		if got := m.m.led.done(seq); got != done && m.given[seq] > 0 {
			m.t.Fatalf("%s: Done(%d) is %v, want %v\n%s", what, seq, got, done, m.state())
		}
	}
}

// stalled reports what should have been delivered and was not: the detector for consumers that hang.
func (m *model) stalled() string {
	mm := m.m
	if mm.closed != nil || m.now < mm.set.pause {
		return ""
	}
	if m.hands != nil {
		return m.stalledKey()
	}
	var who *waiting
	for w := mm.wait.head; w != nil; w = w.next {
		if mm.w.Interest(w.reply) && !w.expired(m.now) {
			who = w
		}
	}
	switch {
	case who == nil:
		return ""
	case mm.led.queued > 0:
		return fmt.Sprintf("%s waits and %d messages are to be delivered again", who.reply, mm.led.queued)
	case mm.numPending() > 0 && (mm.set.maxPending <= 0 || mm.led.len() < mm.set.maxPending):
		return fmt.Sprintf("%s waits and %d messages are pending", who.reply, mm.numPending())
	}
	for e := mm.led.head; e != nil; e = e.next {
		if e.due <= m.now {
			return fmt.Sprintf("message %d was due %s ago", e.sseq, time.Duration(m.now-e.due))
		}
	}
	return ""
}

// TestModel runs random histories of a pull consumer against the model.
func TestModel(t *testing.T) {
	st, err := storage.Open(context.Background(), storage.Options{Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	rapid.Check(t, func(rt *rapid.T) {
		log := addLog(t, st)
		defer func() { _ = st.DropLog(log.ID(), nil) }()
		cfg := server.ConsumerConfig{
			Durable: "C", AckPolicy: server.AckExplicit, AckWait: 10 * time.Second, MaxWaiting: 4,
			MaxDeliver:    rapid.SampledFrom([]int{-1, 1, 2, 4}).Draw(rt, "max_deliver"),
			MaxAckPending: rapid.SampledFrom([]int{-1, 1, 3, 10}).Draw(rt, "max_ack_pending"),
			FilterSubject: rapid.SampledFrom([]string{"", "a.x", "a.*"}).Draw(rt, "filter"),
		}
		if rapid.Bool().Draw(rt, "backoff") && cfg.MaxDeliver != 1 {
			cfg.BackOff = []time.Duration{2 * time.Second, 7 * time.Second}
		}
		before := rapid.SliceOfN(rapid.SampledFrom([]string{"a.x", "a.y", "a.z", "b"}), 0, 8).Draw(rt, "before")
		if rapid.Bool().Draw(rt, "last_per_subject") {
			cfg.DeliverPolicy = server.DeliverLastPerSubject
			cfg.FilterSubject = cmp.Or(cfg.FilterSubject, ">") // it has to have one
		}
		m := newModel(asTB{t, rt}, log, cfg, before...)
		rt.Repeat(map[string]func(*rapid.T){
			"put":     m.doPut,
			"delete":  m.doDelete,
			"purge":   m.doPurge,
			"pull":    m.doPull,
			"listen":  m.doListen,
			"ack":     m.doAck,
			"tick":    m.doTick,
			"pause":   m.doPause,
			"limit":   m.doLimit,
			"reset":   m.doReset,
			"restart": m.doRestart,
		})
	})
}

// asTB lets helpers that take a testing.TB fail a property, so that rapid can shrink it.
type asTB struct {
	testing.TB
	rt *rapid.T
}

func (a asTB) Helper()                      {}
func (a asTB) Fatal(args ...any)            { a.rt.Fatal(args...) }
func (a asTB) Fatalf(f string, args ...any) { a.rt.Fatalf(f, args...) }

func matches(cfg *server.ConsumerConfig, subject string) bool {
	f := cfg.FilterSubject
	return f == "" || f == ">" || f == "a.*" && subject != "b" || f == subject
}

func (m *model) doPut(t *rapid.T) {
	subject := rapid.SampledFrom([]string{"a.x", "a.y"}).Draw(t, "subject")
	for range rapid.IntRange(1, 5).Draw(t, "n") {
		seq := m.put(subject, "data")
		if matches(&m.m.set.cfg, subject) {
			m.stored[seq] = true
		}
	}
	m.apply("put", nil)
}

func (m *model) doDelete(t *rapid.T) {
	if len(m.stored) == 0 {
		t.Skip()
	}
	seq := rapid.SampledFrom(slices.Sorted(maps.Keys(m.stored))).Draw(t, "seq")
	m.remove(seq)
	m.gone(seq)
	m.checkPending("before the step after a delete")
	m.apply("delete", func(mm *machine) { mm.prune(m.now) })
}

// gone takes note that a message left the log.
func (m *model) gone(seq uint64) {
	delete(m.stored, seq)
	if m.given[seq] > 0 {
		delete(m.exhausted, seq)
		m.settled[seq] = true
	}
}

func (m *model) doPurge(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "seldom") != 0 {
		t.Skip()
	}
	upTo := rapid.Uint64Range(1, m.seq+1).Draw(t, "seq") // exclusive
	m.purge(upTo)
	for seq := range maps.Clone(m.stored) {
		if seq < upTo {
			m.gone(seq)
		}
	}
	m.checkPending("before the step after a purge")
	m.apply("purge", func(mm *machine) { mm.prune(m.now) })
}

var inboxes = []string{"in0", "in1", "in2"}

func (m *model) doPull(t *rapid.T) {
	inbox := rapid.SampledFrom(inboxes).Draw(t, "inbox")
	batch := rapid.IntRange(1, 6).Draw(t, "batch")
	body := fmt.Sprintf(`{"batch":%d,"expires":%d,"no_wait":%v,"max_bytes":%d}`, batch,
		rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "expires"), rapid.Bool().Draw(t, "no_wait"),
		rapid.SampledFrom([]int{0, 0, 40, 200}).Draw(t, "max_bytes"))
	m.wants[inbox] += batch
	m.apply("pull "+inbox+" "+body, func(mm *machine) { mm.pull(m.now, []byte(inbox), []byte(body)) })
}

func (m *model) doListen(t *rapid.T) {
	inbox := rapid.SampledFrom(inboxes).Draw(t, "inbox")
	if m.bus.HasInterest(account, inbox) {
		m.client.Unsubscribe(inbox, 0)
	} else {
		m.listen(inbox)
	}
	m.apply("listen", nil)
}

func (m *model) doAck(t *rapid.T) {
	if len(m.acks) == 0 {
		t.Skip()
	}
	seq := rapid.SampledFrom(slices.Sorted(maps.Keys(m.acks))).Draw(t, "seq")
	body := rapid.SampledFrom([]string{
		"", "+ACK", "-NAK", "-NAK 3s", `-NAK {"delay":500000000}`, "+WPI", "+TERM", "+TERM why", "+NXT", "junk",
	}).Draw(t, "body")
	id := m.acks[seq]
	kind, arg := jsapi.ParseAckBody([]byte(body))
	reply := []byte(nil)
	if kind == jsapi.AckNext && rapid.Bool().Draw(t, "reply") {
		reply = []byte("in0")
		m.wants["in0"]++
	}
	m.apply(fmt.Sprintf("ack %d %s", seq, body), func(mm *machine) { mm.ack(m.now, &id, kind, arg, reply) })
}

func (m *model) doTick(t *rapid.T) {
	m.now += int64(rapid.SampledFrom([]time.Duration{
		time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, time.Minute,
	}).Draw(t, "time"))
	m.apply("tick", nil)
}

func (m *model) doPause(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{0, time.Second, 20 * time.Second}).Draw(t, "pause")
	m.apply("pause", func(mm *machine) { mm.pause(m.now, m.now+int64(d)) })
}

func (m *model) doLimit(t *rapid.T) {
	cfg := m.m.set.cfg
	if cfg.MaxAckPending <= 0 {
		t.Skip()
	}
	cfg.MaxAckPending = max(cfg.MaxAckPending, 0) + rapid.IntRange(1, 3).Draw(t, "more")
	m.max = cfg.MaxAckPending
	m.apply("limit", func(mm *machine) {
		if err := mm.update(m.now, newSettings("S", "C", cfg, 1000, 0)); err != nil {
			m.t.Fatal(err)
		}
	})
}

func (m *model) doReset(t *rapid.T) {
	if m.seq == 0 || m.m.set.cfg.DeliverPolicy != server.DeliverAll || rapid.IntRange(0, 4).Draw(t, "seldom") != 0 {
		t.Skip()
	}
	seq := rapid.Uint64Range(1, m.seq).Draw(t, "seq")
	clear(m.given)
	clear(m.settled)
	clear(m.exhausted)
	clear(m.acks)
	if m.hands != nil {
		clear(m.hands.held)
		clear(m.hands.delayed)
		clear(m.hands.ids)
	}
	m.dseq, m.highest = 0, seq-1
	for s := range m.stored {
		if s < seq { // before the start: done
			m.given[s], m.settled[s] = 1, true
		}
	}
	m.apply("reset", func(mm *machine) {
		if _, err := mm.reset(seq, 0); err != nil {
			m.t.Fatal(err)
		}
	})
}

// doRestart goes on with a machine loaded from what was made durable.
func (m *model) doRestart(*rapid.T) {
	m.m = m.reload()
	clear(m.wants)
	m.apply("restart", nil)
}

// TestStallDetector shows that the detector of the model test fires when a consumer hangs, in each way it looks for.
func TestStallDetector(t *testing.T) {
	log := newLog(t)
	m := newModel(t, log, server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit, AckWait: 10 * time.Second})
	m.listen("in0")
	pull := func() { m.m.pull(m.now, []byte("in0"), []byte(`{"batch":1,"expires":60000000000}`)) }
	pull()
	if why := m.stalled(); why != "" {
		t.Fatalf("nothing to deliver, yet: %s", why)
	}
	m.put("a.x", "data")
	if m.stalled() == "" { // the machine was not run
		t.Error("a pending message that is not delivered was not seen")
	}
	m.step(nil)
	pull()
	if why := m.stalled(); why != "" {
		t.Fatalf("the message was delivered, yet: %s", why)
	}
	m.now += int64(11 * time.Second)
	if m.stalled() == "" {
		t.Error("a message that is due and not delivered again was not seen")
	}
	m.m.led.queue(m.m.led.head)
	if m.stalled() == "" {
		t.Error("a message that is queued and not delivered again was not seen")
	}
	m.m.set.pause = m.now + 1
	if why := m.stalled(); why != "" {
		t.Errorf("a paused consumer does not hang, yet: %s", why)
	}
}

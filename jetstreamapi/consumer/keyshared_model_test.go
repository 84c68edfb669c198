package consumer

import (
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

// hands is who must have what, told by nothing but what went in and what workers saw.
type hands struct {
	key     map[uint64]string // of each message
	held    map[uint64]*hand  // delivered, not given back; over when its time is
	delayed map[uint64]int64  // given back, not to come before
	ids     map[uint64][]AckID
	ahead   int
}

type hand struct {
	worker string
	until  int64
	before bool // from before a restart: who has it is not known any more
}

// holder returns who has seq now; nil: nobody.
func (m *model) holder(seq uint64) *hand {
	h := m.hands.held[seq]
	if h == nil || m.now >= h.until || m.settled[seq] || m.exhausted[seq] || !m.stored[seq] {
		return nil
	}
	return h
}

// open reports whether seq is still to be worked on.
func (m *model) open(seq uint64) bool { return m.stored[seq] && !m.settled[seq] && !m.exhausted[seq] }

// mayHave returns why worker must not be given seq now; empty: it may.
func (m *model) mayHave(worker string, seq uint64) string {
	for s, key := range m.hands.key {
		if key != m.hands.key[seq] || s == seq || !m.open(s) {
			continue
		}
		switch h := m.holder(s); {
		case h != nil && h.worker != worker:
			return fmt.Sprintf("%s has %d of the same key", h.worker, s)
		case h == nil && s < seq:
			return fmt.Sprintf("%d of the same key comes first", s)
		}
	}
	return ""
}

// handed checks a delivery.
func (m *model) handed(what string, s *send) {
	m.t.Helper()
	worker := string(s.to)
	if m.holder(s.seq) != nil {
		m.t.Fatalf("%s: %d went to %s while %s has it\n%s", what, s.seq, worker, m.hands.held[s.seq].worker, m.state())
	}
	if why := m.mayHave(worker, s.seq); why != "" {
		m.t.Fatalf("%s: %d went to %s: %s\n%s", what, s.seq, worker, why, m.state())
	}
	if m.now < m.hands.delayed[s.seq] {
		m.t.Fatalf("%s: %d came before its delay was over", what, s.seq)
	}
	delete(m.hands.delayed, s.seq)
	m.hands.held[s.seq] = &hand{worker: worker, until: m.m.set.dueAfter(m.now, m.given[s.seq])}
	m.hands.ids[s.seq] = append(m.hands.ids[s.seq], ackID(m.t, s.reply))
}

// stalledKey reports what should have been delivered and was not.
func (m *model) stalledKey() string {
	mm := m.m
	isFull := mm.set.maxPending > 0 && mm.led.outstanding() >= mm.set.maxPending
	seqs := slices.Sorted(maps.Keys(m.stored))
	for w := mm.wait.head; w != nil; w = w.next {
		if !mm.w.Interest(w.reply) || w.expired(m.now) {
			continue
		}
		ahead := 0
		for _, seq := range seqs {
			if !m.open(seq) {
				continue
			}
			isNew := m.given[seq] == 0
			if isNew {
				ahead++
			}
			switch {
			case m.holder(seq) != nil, m.now < m.hands.delayed[seq], isNew && (isFull || ahead > m.hands.ahead):
			case m.heldBefore(seq), m.mayHave(w.reply, seq) != "":
			default:
				return fmt.Sprintf("%s waits and may have %d", w.reply, seq)
			}
		}
	}
	return ""
}

// heldBefore reports whether something of the key is in hand since before a restart.
func (m *model) heldBefore(seq uint64) bool {
	for s, key := range m.hands.key {
		if h := m.holder(s); h != nil && h.before && key == m.hands.key[seq] {
			return true
		}
	}
	return false
}

var keyedSubjects = []string{"a.x", "a.y", "a.z", "a.u.1", "a.u.2"}

// TestModelKeyShared runs random histories of a consumer with keys: workers come and go, acknowledge, give back and let
// messages run out of time, the server starts anew. At every moment each key is in one worker's hands and in order, what
// can be delivered is, and in the end everything was.
func TestModelKeyShared(t *testing.T) {
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
			MaxDeliver:    rapid.SampledFrom([]int{-1, -1, 1, 3}).Draw(rt, "max_deliver"),
			MaxAckPending: rapid.SampledFrom([]int{1, 3, 10, 100}).Draw(rt, "max_ack_pending"),
			FilterSubject: rapid.SampledFrom([]string{"", "a.x", "a.*"}).Draw(rt, "filter"),
			HeadersOnly:   rapid.Bool().Draw(rt, "headers_only"),
			Metadata:      map[string]string{KeyKeyShared: "subject:2"},
		}
		if rapid.Bool().Draw(rt, "backoff") && cfg.MaxDeliver != 1 {
			cfg.BackOff = []time.Duration{2 * time.Second, 7 * time.Second}
		}
		m := newModel(asTB{t, rt}, log, cfg)
		m.hands = &hands{
			key: map[uint64]string{}, held: map[uint64]*hand{}, delayed: map[uint64]int64{}, ids: map[uint64][]AckID{},
			ahead: rapid.SampledFrom([]int{1, 2, 8, 100}).Draw(rt, "ahead"),
		}
		m.m.led.keys.ahead = m.hands.ahead
		rt.Repeat(map[string]func(*rapid.T){
			"put":     m.doPutKeyed,
			"delete":  m.doDelete,
			"purge":   m.doPurge,
			"pull":    m.doPull,
			"pull2":   m.doPull,
			"listen":  m.doListen,
			"ack":     m.doAckKeyed,
			"ack2":    m.doAckKeyed,
			"tick":    m.doTick,
			"pause":   m.doPause,
			"limit":   m.doLimit,
			"reset":   m.doReset,
			"restart": m.doRestartKeyed,
		})
		m.drain()
	})
}

func (m *model) doPutKeyed(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "n") {
		subject := rapid.SampledFrom(keyedSubjects).Draw(t, "subject")
		seq := m.put(subject, "data")
		if f := m.m.set.cfg.FilterSubject; f == "" || f == subject || f == "a.*" && len(subject) == 3 {
			m.stored[seq] = true
			m.hands.key[seq] = subject[2:3]
		}
	}
	m.apply("put", nil)
}

func (m *model) doAckKeyed(t *rapid.T) {
	if len(m.hands.ids) == 0 {
		t.Skip()
	}
	seq := rapid.SampledFrom(slices.Sorted(maps.Keys(m.hands.ids))).Draw(t, "seq")
	ids := m.hands.ids[seq]
	id := ids[len(ids)-1]
	if rapid.IntRange(0, 3).Draw(t, "stale") == 0 {
		id = rapid.SampledFrom(ids).Draw(t, "id")
	}
	body := rapid.SampledFrom([]string{
		"", "+ACK", "-NAK", "-NAK 3s", `-NAK {"delay":500000000}`, "+WPI", "+TERM", "+NXT", "junk",
	}).Draw(t, "body")
	kind, arg := jsapi.ParseAckBody([]byte(body))
	if h := m.holder(seq); h != nil && id.Delivered == m.given[seq] {
		switch kind {
		case jsapi.AckNak:
			delete(m.hands.held, seq)
			if d, ok, _ := jsapi.ParseNakDelay(arg); ok {
				m.hands.delayed[seq] = m.now + int64(d)
			}
		case jsapi.AckProgress:
			h.until = m.m.set.dueAfter(m.now, m.given[seq])
		case jsapi.AckUnknown, jsapi.AckDone, jsapi.AckNext, jsapi.AckTerm:
		}
	}
	m.apply(fmt.Sprintf("ack %d %s", seq, body), func(mm *machine) { mm.ack(m.now, &id, kind, arg, nil) })
}

func (m *model) doRestartKeyed(t *rapid.T) {
	for seq, h := range m.hands.held {
		if m.holder(seq) != nil {
			h.before = true
		}
	}
	m.m = m.reload()
	m.m.led.keys.ahead = m.hands.ahead
	clear(m.wants)
	m.apply("restart", nil)
}

// drain works on everything that is left: nothing may stay behind.
func (m *model) drain() {
	m.t.Helper()
	for _, in := range inboxes {
		if !m.bus.HasInterest(account, in) {
			m.listen(in)
		}
	}
	m.apply("resume", func(mm *machine) { mm.pause(m.now, 0) })
	for round := 0; ; round++ {
		left := 0
		for seq := range m.stored {
			if !m.open(seq) {
				continue
			}
			left++
			if h := m.holder(seq); h != nil {
				id := m.hands.ids[seq][len(m.hands.ids[seq])-1]
				m.apply("drain: ack", func(mm *machine) { mm.ack(m.now, &id, jsapi.AckDone, nil, nil) })
			}
		}
		if left == 0 {
			break
		}
		if round > 10*int(m.seq)+100 {
			m.t.Fatalf("%d messages are never delivered\n%s", left, m.state())
		}
		in := inboxes[round%len(inboxes)]
		m.wants[in] += 2
		m.apply("drain: pull", func(mm *machine) { mm.pull(m.now, []byte(in), []byte(`{"batch":2,"expires":1000000000}`)) })
		m.now += int64(2 * time.Second)
		m.apply("drain: tick", nil)
	}
	if n := m.m.numPending(); n != 0 || m.m.led.len() != 0 {
		m.t.Fatalf("at the end %d are pending and %d outstanding", n, m.m.led.len())
	}
	if k := m.m.led.keys; len(k.keys) != 0 || len(k.workers) != 0 || k.free != (readyKeys{}) || m.m.led.parked != 0 {
		m.t.Fatalf("at the end the consumer still knows of keys: %+v", k)
	}
}

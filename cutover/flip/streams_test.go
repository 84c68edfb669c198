package flip_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// streamKind is a kind of stream, with what clients do to it before it moves, on each side, and what holds in the end.
type streamKind struct {
	name   string
	slow   bool // among the slow tests alone
	config jetstream.StreamConfig
	fill   func(k *ride)            // before it is watched
	work   func(k *ride, round int) // on each side, from round 0 on
}

// put publishes n messages.
func (k *ride) put(n int, tail, data string, opts ...jetstream.PublishOpt) {
	k.Helper()
	for range n {
		k.publish(tail, data, opts...)
	}
}

func (k *ride) purge(opts ...jetstream.StreamPurgeOpt) {
	k.Helper()
	check(k, k.stream.Purge(k.Context(), opts...))
}

func (k *ride) remove(seq uint64) {
	k.Helper()
	check(k, k.stream.DeleteMsg(k.Context(), seq))
}

// image is the stream as somebody reads it: last sequence, and of each message sequence, subject, headers and payload.
func (k *ride) image(nc *nats.Conn) []string {
	k.Helper()
	js, err := jetstream.New(nc)
	check(k, err)
	s, err := js.Stream(k.Context(), k.name.Stream)
	check(k, err)
	info, err := s.Info(k.Context())
	check(k, err)
	out := []string{fmt.Sprintf("%d messages, last %d", info.State.Msgs, info.State.LastSeq)}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		m, err := s.GetMsg(k.Context(), seq)
		if err != nil {
			continue
		}
		h := m.Header
		var fields []string
		for name, values := range h {
			if !strings.HasPrefix(name, "Nats-Expected-") && name != "Ehdb-Origin" && name != "Nats-TTL" {
				fields = append(fields, fmt.Sprint(name, len(strings.Join(values, ","))))
			}
			if name == "Ehdb-Origin" && nc != k.r.conn {
				k.Errorf("a client of the gateway sees the mark of the chain at %d", seq)
			}
		}
		slices.Sort(fields)
		out = append(out, fmt.Sprintf("%d %s %v %d %.20s", m.Sequence, m.Subject, fields, len(m.Data), m.Data))
	}
	return out
}

// alike requires that the servers and the gateway's clients come to see the same stream.
func (k *ride) alike() {
	k.Helper()
	var here, there []string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if here, there = k.image(k.nc), k.image(k.r.conn); slices.Equal(here, there) {
			return
		}
	}
	k.Errorf("clients of the gateway see\n%s\nthose of the servers\n%s", strings.Join(here[:min(len(here), 25)], "\n"), strings.Join(there[:min(len(there), 25)], "\n"))
}

func streamKinds() []streamKind {
	const keep = 10
	big := strings.Repeat("x", 1<<20-200)
	huge := make(nats.Header)
	for i := range 60 {
		huge.Set(fmt.Sprintf("X-%d", i), strings.Repeat("h", 1000))
	}
	header := func(k *ride, h nats.Header, size int) {
		m := nats.NewMsg(k.subject("a"))
		m.Header, m.Data = h, bytes.Repeat([]byte("d"), size)
		if _, err := k.js.PublishMsg(k.Context(), m); err != nil {
			k.Errorf("publish: %v", err)
		}
	}
	return []streamKind{
		{name: "empty", slow: true, work: func(*ride, int) {}},
		{name: "empty then used", work: func(k *ride, round int) {
			if round > 0 {
				k.put(2, "a", "x")
			}
		}},
		{name: "empty from 1000", config: jetstream.StreamConfig{FirstSeq: 1000}, work: func(k *ride, round int) {
			if round == 1 {
				k.put(2, "a", "x")
			}
		}},
		{name: "purged to empty", slow: true, fill: func(k *ride) { k.put(5, "a", "x"); k.purge() }, work: func(*ride, int) {}},
		{name: "purged here", work: func(k *ride, round int) {
			k.put(3, "a", "x")
			if round == 1 {
				k.purge()
			}
		}},
		{name: "deleted tail", fill: func(k *ride) { k.put(5, "a", "x"); k.remove(4); k.remove(5) }, work: func(*ride, int) {}},
		{name: "deleted tail here", work: func(k *ride, _ int) {
			k.put(3, "a", "x")
			k.remove(k.publish("a", "y"))
		}},
		{name: "memory", config: jetstream.StreamConfig{Storage: jetstream.MemoryStorage}, work: func(k *ride, _ int) { k.put(5, "a", "x") }},
		{name: "discard new", config: jetstream.StreamConfig{MaxMsgs: 5, Discard: jetstream.DiscardNew}, work: func(k *ride, _ int) {
			k.purge()
			k.put(5, "a", "x")
			if _, err := k.js.Publish(k.Context(), k.subject("a"), nil); err == nil {
				k.Error("a full stream has taken a message")
			}
		}},
		{
			name: "discard new per subject", config: jetstream.StreamConfig{MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true},
			work: func(k *ride, round int) {
				k.purge(jetstream.WithPurgeSubject(k.subject("a")))
				k.put(1, "a", fmt.Sprint(round))
				if _, err := k.js.Publish(k.Context(), k.subject("a"), nil); err == nil {
					k.Error("a full subject has taken a message")
				}
			},
		},
		{name: "few per subject", config: jetstream.StreamConfig{MaxMsgsPerSubject: 1}, work: func(k *ride, _ int) {
			k.put(20, "a", "x")
			k.put(3, "b", "x")
		}},
		{name: "few per subject deny delete", config: jetstream.StreamConfig{MaxMsgsPerSubject: 1, DenyDelete: true, AllowRollup: true}, work: func(k *ride, _ int) {
			k.put(20, "a", "x")
			k.put(3, "b", "x")
		}},
		{name: "few messages", config: jetstream.StreamConfig{MaxMsgs: keep}, work: func(k *ride, _ int) { k.put(25, "a", "x") }},
		{name: "few bytes", config: jetstream.StreamConfig{MaxBytes: 2000}, work: func(k *ride, _ int) { k.put(50, "a", "x") }},
		{name: "few bytes discard new", config: jetstream.StreamConfig{MaxBytes: 2000, Discard: jetstream.DiscardNew}, work: func(k *ride, _ int) {
			k.purge()
			for range 100 {
				if _, err := k.js.Publish(k.Context(), k.subject("a"), nil); err != nil {
					return
				}
			}
		}},
		{name: "short lived", config: jetstream.StreamConfig{MaxAge: time.Second}, work: func(k *ride, _ int) {
			k.put(5, "a", "x")
			time.Sleep(300 * time.Millisecond)
		}},
		{name: "small messages", config: jetstream.StreamConfig{MaxMsgSize: 10}, work: func(k *ride, _ int) { k.put(3, "a", "0123456789") }},
		{name: "rollup", config: jetstream.StreamConfig{AllowRollup: true}, work: func(k *ride, round int) {
			k.put(5, "a", "x")
			k.put(5, "b", "x")
			h := nats.Header{}
			h.Set("Nats-Rollup", []string{"sub", "all"}[round%2])
			header(k, h, 3)
			k.put(2, "b", "x")
		}},
		{name: "time to live", slow: true, config: jetstream.StreamConfig{AllowMsgTTL: true}, work: func(k *ride, _ int) {
			k.put(3, "a", "x", jetstream.WithMsgTTL(time.Second))
			k.put(3, "b", "x", jetstream.WithMsgTTL(time.Minute))
			time.Sleep(1500 * time.Millisecond)
		}},
		{name: "delete markers", slow: true, config: jetstream.StreamConfig{AllowMsgTTL: true, SubjectDeleteMarkerTTL: time.Minute, AllowRollup: true}, work: func(k *ride, round int) {
			k.put(1, fmt.Sprint("a", round), "x", jetstream.WithMsgTTL(time.Second))
			time.Sleep(2 * time.Second)
			k.put(1, fmt.Sprint("b", round), "x")
		}},
		{name: "delete markers that are due", slow: true, config: jetstream.StreamConfig{AllowMsgTTL: true, SubjectDeleteMarkerTTL: time.Minute, AllowRollup: true}, work: func(k *ride, round int) {
			if round > 0 {
				time.Sleep(2500 * time.Millisecond)
			}
			for i := range 20 {
				k.put(1, fmt.Sprint("a", round, "-", i), "x", jetstream.WithMsgTTL(2*time.Second))
			}
		}},
		{name: "deny delete in a hurry", slow: true, config: jetstream.StreamConfig{MaxMsgsPerSubject: 1, DenyDelete: true, AllowRollup: true}, work: func(k *ride, _ int) {
			for i := range 500 {
				if _, err := k.old.PublishAsync(k.subject("a"), fmt.Append(nil, i)); err != nil {
					k.Errorf("publish: %v", err)
				}
			}
			<-k.old.PublishAsyncComplete()
			k.put(1, "b", "x")
		}},
		{name: "expectations", config: jetstream.StreamConfig{MaxMsgsPerSubject: 5}, work: func(k *ride, _ int) {
			k.purge(jetstream.WithPurgeSubject(k.subject("a")))
			seq := k.publish("a", "1", jetstream.WithExpectLastSequencePerSubject(0))
			seq = k.publish("a", "2", jetstream.WithExpectLastSequencePerSubject(seq))
			k.publish("a", "3", jetstream.WithExpectLastSequence(seq))
		}},
		{name: "direct", config: jetstream.StreamConfig{AllowDirect: true}, work: func(k *ride, _ int) {
			seq := k.publish("a", "x")
			if m, err := k.stream.GetLastMsgForSubject(k.Context(), k.subject("a")); err != nil || m.Sequence != seq {
				k.Errorf("last of a: %v, %v, want %d", m, err, seq)
			}
		}},
		{name: "large messages", work: func(k *ride, _ int) { k.put(2, "a", big); header(k, nil, 1<<20) }},
		{name: "large headers", work: func(k *ride, _ int) { header(k, huge, 100) }},
		{name: "large headers and messages", work: func(k *ride, _ int) { header(k, huge, 1<<20-64<<10) }},
		{name: "message ids", config: jetstream.StreamConfig{Duplicates: time.Minute}, work: func(k *ride, round int) {
			for r := range round + 1 {
				ack, err := k.js.Publish(k.Context(), k.subject("a"), nil, jetstream.WithMsgID(fmt.Sprint(r)))
				if err != nil || ack.Duplicate != (r < round) {
					k.Errorf("round %d, id %d: %+v, %v", round, r, ack, err)
				}
			}
		}},
	}
}

// TestStreamsOfEveryKind moves streams of all kinds: both sides have the same messages, whoever has the say.
func TestStreamsOfEveryKind(t *testing.T) {
	r := newRig(t)
	var all sync.WaitGroup
	defer all.Wait()
	for _, kind := range streamKinds() {
		if kind.slow && os.Getenv("EHDB_SLOW") == "" {
			continue
		}
		body := func(t *testing.T) {
			t.Helper()
			k := r.newRide(t, kind.config)
			if kind.fill != nil {
				kind.fill(k)
			}
			k.watch()
			for round := range 4 {
				kind.work(k, round)
				if round < 3 {
					k.move()
				}
			}
			k.move()
			k.alike()
		}
		all.Go(func() { t.Run(kind.name, body) })
	}
}

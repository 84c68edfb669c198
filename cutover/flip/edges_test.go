package flip_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestBacklogWithoutAcks: what consumers that take no acks have not delivered yet is there for them behind each move, also
// where the servers remove what nobody waits for.
func TestBacklogWithoutAcks(t *testing.T) {
	r := newRig(t)
	cases := map[string]func(k *ride){
		"pull": func(k *ride) {
			c := k.consumer(jetstream.ConsumerConfig{Durable: "none", AckPolicy: jetstream.AckNonePolicy})
			k.watch()
			want := uint64(1)
			for range 3 {
				k.put(5, "a", "x")
				_, seqs := k.fetch(c, 2)
				for _, seq := range seqs {
					if seq != want {
						k.Fatalf("came %d, not %d", seq, want)
					}
					want++
				}
				k.move()
			}
			_, seqs := k.fetch(c, 9)
			if len(seqs) != 9 || seqs[0] != want {
				k.Errorf("came %v of 9 from %d on", seqs, want)
			}
		},
		"two": func(k *ride) {
			c := k.consumer(jetstream.ConsumerConfig{Durable: "none", AckPolicy: jetstream.AckNonePolicy})
			d := k.consumer(jetstream.ConsumerConfig{Durable: "other", AckPolicy: jetstream.AckNonePolicy})
			k.watch()
			k.put(5, "a", "x")
			k.move()
			k.put(5, "a", "x")
			k.move()
			for _, c := range []jetstream.Consumer{c, d} {
				if _, seqs := k.fetch(c, 10); len(seqs) != 10 {
					k.Errorf("came %v of 10", seqs)
				}
			}
		},
		"push": func(k *ride) {
			inbox := nats.NewInbox()
			_, err := k.old.AddConsumer(k.name.Stream, &nats.ConsumerConfig{Durable: "push", AckPolicy: nats.AckNonePolicy, DeliverSubject: inbox})
			check(k, err)
			k.watch()
			k.put(5, "a", "x")
			k.move()
			k.put(5, "a", "x")
			k.move()
			k.put(1, "a", "x")
			sub, err := k.nc.SubscribeSync(inbox)
			check(k, err)
			for i := range 11 {
				m, err := sub.NextMsg(2 * time.Second)
				if err != nil {
					k.Fatalf("%d of 11 came: %v", i, err)
				}
				md, err := m.Metadata()
				check(k, err)
				if md.Sequence.Stream != uint64(i+1) {
					k.Errorf("came %d, not %d", md.Sequence.Stream, i+1)
				}
			}
		},
	}
	made := func(policy jetstream.AckPolicy) func(k *ride) {
		return func(k *ride) { // where it is made and has a backlog at once
			k.watch()
			k.move()
			c := k.consumer(jetstream.ConsumerConfig{Durable: "made", AckPolicy: policy})
			k.put(10, "a", "x")
			k.move()
			if _, seqs := k.fetch(c, 10); len(seqs) != 10 {
				k.Errorf("came %v of 10", seqs)
			}
		}
	}
	cases["made here"], cases["made here with acks"] = made(jetstream.AckNonePolicy), made(jetstream.AckExplicitPolicy)
	var all sync.WaitGroup
	defer all.Wait()
	for name, body := range cases {
		all.Go(func() {
			t.Run(name, func(t *testing.T) {
				body(r.newRide(t, jetstream.StreamConfig{Retention: jetstream.InterestPolicy}))
			})
		})
	}
}

// TestEdgesOfStreams moves streams that take no more, or may not be changed.
func TestEdgesOfStreams(t *testing.T) {
	r := newRig(t)
	deny := jetstream.StreamConfig{DenyDelete: true, DenyPurge: true, Discard: jetstream.DiscardNew}
	full := func(k *ride) {
		for i := 0; ; i++ {
			if _, err := k.js.Publish(k.Context(), k.subject("a"), []byte(strings.Repeat("x", 100))); err != nil {
				if _, told := errors.AsType[*jetstream.APIError](err); !told {
					k.Errorf("publish: %v", err)
				}
				return
			}
			if i > 200 {
				k.Fatal("it is never full")
			}
		}
	}
	cases := []struct {
		name   string
		config func(c *jetstream.StreamConfig)
		work   func(k *ride, round int)
	}{
		{"max msgs", func(c *jetstream.StreamConfig) { c.MaxMsgs = 20 }, func(k *ride, round int) {
			if round == 0 {
				k.put(10, "a", "x")
			} else {
				full(k)
			}
		}},
		{"max bytes", func(c *jetstream.StreamConfig) { c.MaxBytes = 5000 }, func(k *ride, round int) {
			if round == 0 {
				k.put(10, "a", "x")
			} else {
				full(k)
			}
		}},
		{"full before", func(c *jetstream.StreamConfig) { c.MaxBytes = 5000 }, func(k *ride, _ int) { full(k) }},
		{"sealed here", func(*jetstream.StreamConfig) {}, func(k *ride, round int) {
			if round == 0 {
				k.put(10, "a", "x")
			}
			if round == 3 {
				k.put(10, "a", "x")
				k.seal()
			}
		}},
		{"max age there", func(c *jetstream.StreamConfig) { c.MaxAge = 2 * time.Second }, func(k *ride, _ int) {
			k.put(5, "a", "x")
			time.Sleep(1900 * time.Millisecond)
		}},
	}
	var all sync.WaitGroup
	defer all.Wait()
	for _, c := range cases {
		all.Go(func() {
			t.Run(c.name, func(t *testing.T) {
				cfg := deny
				c.config(&cfg)
				k := r.newRide(t, cfg)
				k.watch()
				for round := range 4 {
					c.work(k, round)
					if round < 3 {
						k.move()
					}
				}
				k.move()
				k.alike()
			})
		})
	}
}

// seal makes the stream one that nobody changes any more.
func (k *ride) seal() {
	k.Helper()
	cfg := k.stream.CachedInfo().Config
	cfg.Sealed = true
	_, err := k.js.UpdateStream(k.Context(), cfg)
	check(k, err)
}

// TestAckFloorBeyondWhatIsOutstanding: behind a purge of a subject nats-server's ack floor, as a consumer sequence, may be
// beyond messages that are outstanding.
func TestAckFloorBeyondWhatIsOutstanding(t *testing.T) {
	r := newRig(t)
	k := r.newRide(t, jetstream.StreamConfig{})
	k.watch()
	c := k.consumer(jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute})
	k.put(1, "a", "x")
	k.put(2, "b", "x")
	list, _ := k.fetch(c, 3)
	k.purge(jetstream.WithPurgeSubject(k.subject("b")))
	k.move()
	if n, floor := k.outstanding(c); n != 1 || floor != 0 {
		t.Errorf("%d outstanding, floor %d", n, floor)
	}
	k.move()
	k.ack(list[0], 1)
	k.put(1, "a", "x")
	if _, seqs := k.fetch(c, 1); len(seqs) != 1 || seqs[0] != 4 {
		t.Errorf("came %v", seqs)
	}
	k.move()
}

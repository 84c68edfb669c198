package flip_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// fetch takes n messages and returns them with their stream sequences.
func (k *ride) fetch(c jetstream.Consumer, n int) (list []jetstream.Msg, seqs []uint64) {
	k.Helper()
	b, err := c.Fetch(n, jetstream.FetchMaxWait(5*time.Second))
	check(k, err)
	for m := range b.Messages() {
		seq := k.took(m)
		list, seqs = append(list, m), append(seqs, seq)
	}
	if err := b.Error(); err != nil {
		k.Errorf("a fetch was told: %v", err)
	}
	return list, seqs
}

// nothing requires that a consumer has nothing to give for a while.
func (k *ride) nothing(c jetstream.Consumer, wait time.Duration) {
	k.Helper()
	if m, err := c.Next(jetstream.FetchMaxWait(wait)); err == nil {
		md, _ := m.Metadata()
		k.Errorf("%d came: %+v", md.Sequence.Stream, md.Sequence)
	}
}

// outstanding is how many messages have no ack, on the side that has the say.
func (k *ride) outstanding(c jetstream.Consumer) (pending int, floor uint64) {
	k.Helper()
	info, err := c.Info(k.Context())
	check(k, err)
	return info.NumAckPending, info.AckFloor.Stream
}

// diverge has messages delivered here so often that the consumer sequences here are far beyond those of the servers.
func (k *ride) diverge(c jetstream.Consumer) {
	k.Helper()
	for range 5 {
		list, _ := k.fetch(c, 3)
		for _, m := range list {
			check(k, m.Nak())
		}
		check(k, k.nc.Flush())
	}
}

// TestAcksOfWhatClientsHold has clients say of messages that were delivered on one side, after the stream has moved, all
// that can be said of them.
func TestAcksOfWhatClientsHold(t *testing.T) {
	r := newRig(t)
	begin := func(t *testing.T, policy jetstream.AckPolicy) (*ride, jetstream.Consumer) {
		t.Helper()
		k := r.newRide(t, jetstream.StreamConfig{})
		k.watch()
		c := k.consumer(jetstream.ConsumerConfig{Durable: "C", AckPolicy: policy, AckWait: 30 * time.Second})
		k.put(3, "a", "x")
		k.move()
		k.diverge(c)
		return k, c
	}
	cases := map[string]func(t *testing.T){
		"all": func(t *testing.T) {
			t.Helper()
			k, c := begin(t, jetstream.AckAllPolicy)
			k.put(5, "a", "x")
			list, seqs := k.fetch(c, 8)
			slices.SortFunc(list, func(a, b jetstream.Msg) int { return int(seqOf(a)) - int(seqOf(b)) })
			slices.Sort(seqs)
			if !slices.Equal(seqs, []uint64{1, 2, 3, 4, 5, 6, 7, 8}) {
				t.Fatalf("came %v", seqs)
			}
			k.move()
			for i, m := range list[:6] { // each counts for those up to it, and for no more
				if i%2 == 0 {
					continue
				}
				k.ack(m, seqOf(m))
				if n, floor := k.outstanding(c); n != 7-i || floor != uint64(i+1) {
					t.Errorf("behind the ack of %d: %d outstanding, floor %d", i+1, n, floor)
				}
			}
			k.put(2, "a", "x")
			more, seqs := k.fetch(c, 2)
			if !slices.Equal(seqs, []uint64{9, 10}) {
				t.Fatalf("came %v", seqs)
			}
			k.ack(more[0], 9)
			k.move()
			k.ack(more[1], 10)
			if n, floor := k.outstanding(c); n != 0 || floor != 10 {
				t.Errorf("in the end: %d outstanding, floor %d", n, floor)
			}
			k.move()
			k.nothing(c, 200*time.Millisecond)
		},
		"refused": func(t *testing.T) {
			t.Helper()
			k, c := begin(t, jetstream.AckExplicitPolicy)
			list, _ := k.fetch(c, 3)
			k.move()
			check(t, list[0].Nak())
			again, seqs := k.fetch(c, 1)
			if len(seqs) != 1 || seqs[0] != seqOf(list[0]) {
				t.Fatalf("came %v, %d was refused", seqs, seqOf(list[0]))
			}
			check(t, again[0].Nak()) // of the servers' own delivery
			again, _ = k.fetch(c, 1)
			k.ack(again[0], seqOf(again[0]))
			k.ack(list[1], seqOf(list[1]))
			check(t, list[2].TermWithReason("enough"))
			until(t, "nothing is outstanding", func() bool { n, _ := k.outstanding(c); return n == 0 })
			k.move()
			k.nothing(c, 200*time.Millisecond)
		},
		"refused for a while": func(t *testing.T) {
			t.Helper()
			k, c := begin(t, jetstream.AckExplicitPolicy)
			list, _ := k.fetch(c, 3)
			k.move()
			since := time.Now()
			check(t, list[0].NakWithDelay(2*time.Second))
			k.ack(list[1], seqOf(list[1]))
			check(t, list[2].InProgress())
			k.move()
			again, _ := k.fetch(c, 1)
			if took := time.Since(since); len(again) != 1 || seqOf(again[0]) != seqOf(list[0]) || took < 1900*time.Millisecond {
				t.Errorf("%d came after %v", len(again), took)
			}
			k.ack(again[0], seqOf(again[0]))
			k.ack(list[2], seqOf(list[2]))
		},
		"refused for a while before": func(t *testing.T) {
			t.Helper()
			k, c := begin(t, jetstream.AckExplicitPolicy)
			list, _ := k.fetch(c, 3)
			since := time.Now()
			check(t, list[0].NakWithDelay(3*time.Second))
			check(t, k.nc.Flush())
			k.move()
			again, _ := k.fetch(c, 1)
			took := time.Since(since)
			if len(again) != 1 || seqOf(again[0]) != seqOf(list[0]) || took < 2900*time.Millisecond || took > 8*time.Second {
				t.Errorf("%d came after %v", len(again), took)
			}
		},
		"delivered too often": func(t *testing.T) {
			t.Helper()
			k := r.newRide(t, jetstream.StreamConfig{})
			k.watch()
			c := k.consumer(jetstream.ConsumerConfig{
				Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 2, BackOff: []time.Duration{time.Second, time.Second},
			})
			advisories, err := k.nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES." + k.name.Stream + ".C")
			check(t, err)
			k.put(2, "a", "x")
			list, _ := k.fetch(c, 2)
			k.ack(list[1], 2)
			again, seqs := k.fetch(c, 1)
			if len(seqs) != 1 || seqs[0] != 1 {
				t.Fatalf("came %v", seqs)
			}
			k.nothing(c, 2*time.Second)
			if _, err := advisories.NextMsg(5 * time.Second); err != nil {
				t.Errorf("no advisory: %v", err)
			}
			k.move()
			k.nothing(c, 1500*time.Millisecond)
			k.put(1, "a", "x")
			list, seqs = k.fetch(c, 1)
			if len(seqs) != 1 || seqs[0] != 3 {
				t.Fatalf("came %v", seqs)
			}
			k.ack(list[0], 3)
			k.move()
			k.nothing(c, 1500*time.Millisecond)
			_ = again
		},
		"paused": func(t *testing.T) {
			t.Helper()
			k, c := begin(t, jetstream.AckExplicitPolicy)
			list, _ := k.fetch(c, 3)
			for _, m := range list {
				k.ack(m, seqOf(m))
			}
			k.put(1, "a", "x")
			for range 2 {
				_, err := k.stream.PauseConsumer(t.Context(), "C", time.Now().Add(time.Hour))
				check(t, err)
				time.Sleep(1200 * time.Millisecond) // the servers' is paused as well
				k.nothing(c, 200*time.Millisecond)
				_, err = k.stream.ResumeConsumer(t.Context(), "C")
				check(t, err)
				list, _ = k.fetch(c, 1)
				_, err = k.stream.PauseConsumer(t.Context(), "C", time.Now().Add(time.Hour))
				check(t, err)
				k.ack(list[0], seqOf(list[0]))
				k.put(1, "a", "x")
			}
			k.move()
			k.nothing(c, 300*time.Millisecond)
			_, err := k.stream.ResumeConsumer(t.Context(), "C")
			check(t, err)
			list, seqs := k.fetch(c, 1)
			if len(seqs) != 1 || seqs[0] != 6 {
				t.Errorf("came %v", seqs)
			}
			k.ack(list[0], seqOf(list[0]))
			k.move()
			k.nothing(c, 200*time.Millisecond)
		},
	}
	var all sync.WaitGroup
	defer all.Wait()
	for name, body := range cases {
		all.Go(func() { t.Run(name, body) })
	}
}

func seqOf(m jetstream.Msg) uint64 {
	md, err := m.Metadata()
	if err != nil {
		return 0
	}
	return md.Sequence.Stream
}

// TestConsumersThatRemove moves streams whose messages are removed by acks, with several consumers.
func TestConsumersThatRemove(t *testing.T) {
	r := newRig(t)
	var all sync.WaitGroup
	defer all.Wait()
	for _, retention := range []jetstream.RetentionPolicy{jetstream.WorkQueuePolicy, jetstream.InterestPolicy} {
		for _, none := range []bool{false, true} {
			if none && retention == jetstream.WorkQueuePolicy {
				continue
			}
			body := func(t *testing.T) {
				t.Helper()
				k := r.newRide(t, jetstream.StreamConfig{Retention: retention})
				k.watch()
				tails := []string{"a", "b.x", "c"}
				var rides []*ride
				for i, filter := range []string{"a", "b.*", "c"} {
					own := k.beside()
					cfg := jetstream.ConsumerConfig{
						Durable: fmt.Sprint("C", i), AckPolicy: jetstream.AckExplicitPolicy, AckWait: 20 * time.Second,
						FilterSubject: k.subject(filter),
					}
					if retention == jetstream.InterestPolicy && i > 0 {
						cfg.FilterSubject = k.subject(">")
					}
					work := own.acking
					if none && i == 2 {
						cfg.AckPolicy, work = jetstream.AckNonePolicy, noAcks(own)
					}
					own.consuming(own.consumer(cfg), work)
					rides = append(rides, own)
				}
				stop := k.load(3*time.Millisecond, tails...)
				k.thereAndBack(700 * time.Millisecond)
				k.move()
				stop()
				for i, own := range rides {
					own.finish(func(seq uint64, _ string) bool {
						return retention == jetstream.InterestPolicy && i > 0 || int(seq-1)%3 == i
					})
					orderedOnce(own)
				}
				until(t, "nothing is left", func() bool {
					info, err := k.stream.Info(t.Context())
					check(t, err)
					return info.State.Msgs == 0
				})
			}
			all.Go(func() { t.Run(fmt.Sprint(retention, none), body) })
		}
	}
}

package flip_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// consumerKind is a kind of consumer of a stream that moves under load.
type consumerKind struct {
	name  string
	begin func(k *ride)                      // makes the consumer and the clients at work
	want  func(seq uint64, data string) bool // which messages it gets; nil: all
	slow  bool                               // among the slow tests alone
	pause time.Duration                      // between two publishes; 0: 2 ms
	check func(k *ride)                      // what holds in the end, beside that nothing is lost or comes behind its ack
}

// consumer makes a consumer by way of the gateway.
func (k *ride) consumer(cfg jetstream.ConsumerConfig) jetstream.Consumer {
	k.Helper()
	c, err := k.stream.CreateConsumer(k.Context(), cfg)
	check(k, err)
	return c
}

// acking is what a client does that acknowledges each message.
func (k *ride) acking(m jetstream.Msg) {
	seq := k.took(m)
	k.ack(m, seq)
}

// pulling consumes with acks for each message.
func pulling(cfg jetstream.ConsumerConfig, opts ...jetstream.PullConsumeOpt) func(*ride) {
	return func(k *ride) { k.consuming(k.consumer(cfg), k.acking, opts...) }
}

// fetching fetches batch after batch with acks for each message.
func fetching(cfg jetstream.ConsumerConfig, fetch func(jetstream.Consumer) (jetstream.MessageBatch, error)) func(*ride) {
	return func(k *ride) {
		c := k.consumer(cfg)
		ctx, cancel := context.WithCancel(k.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				b, err := fetch(c)
				if err != nil {
					k.Errorf("fetch: %v", err)
					return
				}
				n := 0
				for m := range b.Messages() {
					n++
					k.acking(m)
				}
				if err := b.Error(); err != nil && ctx.Err() == nil {
					k.Errorf("a fetch was told: %v", err)
				}
				if n == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
		k.Cleanup(func() { cancel(); wg.Wait() })
	}
}

// pushed subscribes with the older client, which makes the consumer.
func pushed(group string, members int, opts ...nats.SubOpt) func(*ride) {
	return func(k *ride) {
		opts := append([]nats.SubOpt{nats.BindStream(k.name.Stream), nats.ManualAck()}, opts...)
		for range members {
			js, err := k.connect().JetStream()
			check(k, err)
			take := func(m *nats.Msg) {
				md, err := m.Metadata()
				if err != nil {
					k.Errorf("metadata of %s: %v", m.Reply, err)
					return
				}
				k.got(md.Sequence.Stream, md.NumDelivered)
				if err := m.AckSync(nats.AckWait(20 * time.Second)); err != nil && !errors.Is(err, nats.ErrMsgNotBound) &&
					k.Context().Err() == nil {
					k.Errorf("ack of %d: %v", md.Sequence.Stream, err)
				}
				k.over(md.Sequence.Stream)
			}
			if group != "" {
				_, err = js.QueueSubscribe(k.subject(">"), group, take, opts...)
			} else {
				_, err = js.Subscribe(k.subject(">"), take, opts...)
			}
			check(k, err)
		}
	}
}

// noAcks is for consumers that take none: what has come is done with.
func noAcks(k *ride) func(m jetstream.Msg) {
	return func(m jetstream.Msg) {
		seq := k.took(m)
		k.over(seq)
	}
}

// allAcks acknowledges every tenth message, and so those before it.
func allAcks(k *ride) func(m jetstream.Msg) {
	var open []uint64
	return func(m jetstream.Msg) {
		seq := k.took(m)
		if open = append(open, seq); len(open) < 10 {
			return
		}
		ctx, cancel := context.WithTimeout(k.Context(), 20*time.Second)
		defer cancel()
		if err := m.DoubleAck(ctx); err != nil && k.Context().Err() == nil {
			k.Errorf("ack of %d: %v", seq, err)
		}
		k.over(open...)
		open = nil
	}
}

func orderedOnce(k *ride) { k.once(); k.inOrder() }

func consumerKinds() []consumerKind {
	explicit := jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 20 * time.Second}
	with := func(f func(*jetstream.ConsumerConfig)) jetstream.ConsumerConfig {
		cfg := explicit
		f(&cfg)
		return cfg
	}
	return []consumerKind{
		{name: "pull explicit", begin: pulling(explicit), check: orderedOnce},
		{name: "pull heartbeat", begin: pulling(explicit, jetstream.PullExpiry(6*time.Second), jetstream.PullHeartbeat(2*time.Second)), check: orderedOnce},
		{name: "pull none", check: orderedOnce, begin: func(k *ride) {
			c := k.consumer(jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckNonePolicy})
			k.consuming(c, noAcks(k))
		}},
		{name: "pull all", check: orderedOnce, begin: func(k *ride) {
			c := k.consumer(with(func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }))
			k.consuming(c, allAcks(k))
		}, want: func(seq uint64, _ string) bool { return false }},
		{name: "fetch", check: orderedOnce, begin: fetching(explicit, func(c jetstream.Consumer) (jetstream.MessageBatch, error) {
			return c.Fetch(20, jetstream.FetchMaxWait(400*time.Millisecond))
		})},
		{name: "fetch heartbeat", check: orderedOnce, begin: fetching(explicit, func(c jetstream.Consumer) (jetstream.MessageBatch, error) {
			return c.Fetch(1000, jetstream.FetchMaxWait(6*time.Second), jetstream.FetchHeartbeat(2*time.Second))
		})},
		{name: "fetch no wait", check: orderedOnce, begin: fetching(explicit, func(c jetstream.Consumer) (jetstream.MessageBatch, error) {
			return c.FetchNoWait(20)
		})},
		{name: "fetch bytes", slow: true, check: orderedOnce, begin: fetching(explicit, func(c jetstream.Consumer) (jetstream.MessageBatch, error) {
			return c.FetchBytes(2000, jetstream.FetchMaxWait(500*time.Millisecond))
		})},
		{name: "ephemeral pull", check: orderedOnce, begin: pulling(jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckExplicitPolicy, InactiveThreshold: 2 * time.Second, AckWait: 20 * time.Second,
		})},
		{name: "headers only", slow: true, begin: pulling(with(func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true })), check: orderedOnce},
		{name: "filters", check: orderedOnce, begin: func(k *ride) {
			c := k.consumer(with(func(c *jetstream.ConsumerConfig) {
				c.FilterSubjects = []string{k.subject("a"), k.subject("b.*"), k.subject("never.>")}
			}))
			k.consuming(c, k.acking)
		}, want: func(seq uint64, _ string) bool { return seq%3 != 0 }},
		{name: "sampled", slow: true, begin: pulling(with(func(c *jetstream.ConsumerConfig) { c.SampleFrequency = "50%" })), check: orderedOnce},
		{name: "replay original", slow: true, begin: pulling(with(func(c *jetstream.ConsumerConfig) { c.ReplayPolicy = jetstream.ReplayOriginalPolicy })), check: orderedOnce},
		{name: "few outstanding", begin: pulling(with(func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 3 })), check: orderedOnce},
		{name: "few waiting", slow: true, check: orderedOnce, begin: fetching(with(func(c *jetstream.ConsumerConfig) { c.MaxWaiting = 1 }),
			func(c jetstream.Consumer) (jetstream.MessageBatch, error) {
				return c.Fetch(5, jetstream.FetchMaxWait(300*time.Millisecond))
			})},
		{name: "push", begin: pushed("", 1, nats.Durable("C"), nats.AckExplicit(), nats.AckWait(20*time.Second)), check: orderedOnce},
		{name: "push flow control", begin: pushed("", 1, nats.Durable("C"), nats.AckExplicit(), nats.EnableFlowControl(), nats.IdleHeartbeat(2*time.Second), nats.AckWait(20*time.Second)), check: orderedOnce},
		{name: "push ephemeral", begin: pushed("", 1, nats.AckExplicit(), nats.InactiveThreshold(2*time.Second), nats.AckWait(20*time.Second)), check: orderedOnce},
		{name: "push queue", begin: pushed("workers", 3, nats.Durable("C"), nats.AckExplicit(), nats.AckWait(20*time.Second)), check: (*ride).once},
		{name: "push rate limit", slow: true, begin: pushed("", 1, nats.Durable("C"), nats.AckExplicit(), nats.RateLimit(2<<20), nats.AckWait(20*time.Second)), check: orderedOnce},
		{name: "push few outstanding", begin: pushed("", 1, nats.Durable("C"), nats.AckExplicit(), nats.MaxAckPending(3), nats.AckWait(20*time.Second)), check: orderedOnce},
		{name: "push none", check: orderedOnce, begin: func(k *ride) {
			_, err := k.old.Subscribe(k.subject(">"), func(m *nats.Msg) {
				md, err := m.Metadata()
				if err != nil {
					k.Errorf("metadata of %s: %v", m.Reply, err)
					return
				}
				k.got(md.Sequence.Stream, md.NumDelivered)
				k.over(md.Sequence.Stream)
			}, nats.BindStream(k.name.Stream), nats.Durable("C"), nats.AckNone())
			check(k, err)
		}},
		{name: "push all", check: orderedOnce, begin: func(k *ride) {
			var open []uint64
			_, err := k.old.Subscribe(k.subject(">"), func(m *nats.Msg) {
				md, err := m.Metadata()
				if err != nil {
					k.Errorf("metadata of %s: %v", m.Reply, err)
					return
				}
				k.got(md.Sequence.Stream, md.NumDelivered)
				if open = append(open, md.Sequence.Stream); len(open) < 10 {
					return
				}
				if err := m.AckSync(nats.AckWait(20 * time.Second)); err != nil && k.Context().Err() == nil {
					k.Errorf("ack of %d: %v", md.Sequence.Stream, err)
				}
				k.over(open...)
				open = nil
			}, nats.BindStream(k.name.Stream), nats.Durable("C"), nats.AckAll(), nats.ManualAck(), nats.AckWait(20*time.Second))
			check(k, err)
		}, want: func(uint64, string) bool { return false }},
		{name: "overflow", check: orderedOnce, begin: func(k *ride) {
			c := k.consumer(with(func(c *jetstream.ConsumerConfig) {
				c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"g"}
			}))
			k.consuming(c, k.acking, jetstream.PullPriorityGroup("g"), jetstream.PullMinPending(1))
		}},
		{name: "prioritized", check: (*ride).once, begin: func(k *ride) {
			c := k.consumer(with(func(c *jetstream.ConsumerConfig) {
				c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyPrioritized, []string{"g"}
			}))
			k.consuming(c, k.acking, jetstream.PullPriorityGroup("g"), jetstream.PullPrioritized(0))
			k.consuming(c, k.acking, jetstream.PullPriorityGroup("g"), jetstream.PullPrioritized(1))
		}},
		{name: "pinned", check: (*ride).once, begin: func(k *ride) {
			c := k.consumer(with(func(c *jetstream.ConsumerConfig) {
				c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"g"}, 5*time.Second
			}))
			for range 2 {
				js, err := jetstream.New(k.connect())
				check(k, err)
				own, err := js.Consumer(k.Context(), k.name.Stream, c.CachedInfo().Name)
				check(k, err)
				k.consuming(own, k.acking, jetstream.PullPriorityGroup("g"))
			}
		}},
	}
}

// TestConsumersOfEveryKind moves streams that are published to, each with clients of one kind of consumer.
func TestConsumersOfEveryKind(t *testing.T) {
	r := newRig(t)
	var all sync.WaitGroup
	defer all.Wait()
	for _, kind := range consumerKinds() {
		if kind.slow && os.Getenv("EHDB_SLOW") == "" {
			continue
		}
		body := func(t *testing.T) {
			t.Helper()
			k := r.newRide(t, jetstream.StreamConfig{})
			k.watch()
			kind.begin(k)
			pause := kind.pause
			if pause == 0 {
				pause = 5 * time.Millisecond
			}
			stop := k.load(pause, "a", "b.x", "c")
			k.thereAndBack(700 * time.Millisecond)
			stop()
			k.finish(kind.want)
			if kind.check != nil {
				kind.check(k)
			}
			k.Logf("%d sent, %d came", len(k.sent), len(k.order))
		}
		all.Go(func() { t.Run(kind.name, body) })
	}
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	chaosTry   = 2 * time.Second // of a request
	chaosWait  = 4 * time.Second // the ack wait of all consumers
	chaosFetch = 500 * time.Millisecond
)

// employ makes the streams, by way of the gateway, and starts the programs.
func (c *chaos) employ() {
	c.t.Helper()
	c.js = c.jetStream()
	c.streams = map[string]*chaosStream{
		"ORDERS": newChaosStream("ORDERS", true, "W", "M", "PQ", "ordered"),
		"JOBS":   newChaosStream("JOBS", false, "W"),
		"EVENTS": newChaosStream("EVENTS", false, "A", "B"),
	}
	noErr(c.t, c.create(c.orders(0)))
	noErr(c.t, c.create(jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"JOBS.>"}, Retention: jetstream.WorkQueuePolicy}))
	noErr(c.t, c.create(jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"EVENTS.>"}, Retention: jetstream.InterestPolicy}))
	noErr(c.t, c.create(jetstream.StreamConfig{Name: "CAS", Subjects: []string{"CAS.>"}}))
	_, err := c.js.CreateKeyValue(c.ctx, jetstream.KeyValueConfig{Bucket: "V", History: 5})
	noErr(c.t, err)
	for stream, names := range map[string][]string{"ORDERS": {"W", "M"}, "JOBS": {"W"}, "EVENTS": {"A", "B"}} {
		for _, name := range names {
			_, err := c.js.CreateConsumer(c.ctx, stream, jetstream.ConsumerConfig{Durable: name, AckWait: chaosWait, MaxAckPending: 500})
			noErr(c.t, err)
		}
	}
	c.queueGroup()
	for name := range c.chaosScopes() {
		c.moving[name] = newLock()
	}
	for w := range 2 {
		c.publisher("ORDERS", fmt.Sprintf("p%d", w))
	}
	c.publisher("JOBS", "p5")
	c.publisher("EVENTS", "p6")
	c.burst("ORDERS", "a")
	for range 2 {
		c.worker("ORDERS", "W", 0)
		c.worker("JOBS", "W", 10)
		c.worker("EVENTS", "A", 20)
	}
	c.worker("EVENTS", "B", 0)
	c.iterator("ORDERS", "M")
	c.follower("ORDERS", "ordered")
	for w := range 3 {
		c.counter(w)
	}
	c.values()
	c.takers.Go(c.watch)
	for name := range c.chaosScopes() {
		until(c.t, name+" can be moved", time.Minute, func() error { return c.gates(name) })
	}
	c.note("it begins")
}

// chaosScopes are the streams that move.
func (c *chaos) chaosScopes() map[string]bool {
	return map[string]bool{"ORDERS": true, "JOBS": true, "EVENTS": true, "CAS": true, "KV_V": true}
}

// orders is the configuration of ORDERS behind the n-th change.
func (c *chaos) orders(n int) jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"ORDERS.>"}, Description: fmt.Sprint("change ", n)}
	if n%2 == 1 {
		cfg.Subjects = append(cfg.Subjects, "extra.>")
	}
	return cfg
}

func (c *chaos) create(cfg jetstream.StreamConfig) error {
	ctx, cancel := context.WithTimeout(c.ctx, 5*time.Second)
	defer cancel()
	_, err := c.js.CreateStream(ctx, cfg)
	return err
}

func (c *chaos) quitting() bool {
	select {
	case <-c.quit:
		return true
	case <-c.ctx.Done():
		return true
	default:
		return false
	}
}

// insist publishes a message until it is acknowledged, or the run ends.
func (c *chaos) insist(js jetstream.JetStream, s *chaosStream, subject, id string) {
	s.sending(id)
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(c.ctx, chaosTry)
		ack, err := js.Publish(ctx, subject, []byte(id), jetstream.WithMsgID(id))
		cancel()
		if err == nil {
			s.published(c, id, ack.Sequence)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// publisher publishes one message after the other.
func (c *chaos) publisher(stream, name string) {
	js, s := c.jetStream(), c.streams[stream]
	c.pubs.Go(func() {
		for i := 0; !c.quitting(); i++ {
			c.insist(js, s, stream+"."+name, fmt.Sprintf("%s-%d", name, i))
			time.Sleep(25 * time.Millisecond)
		}
	})
}

// burst publishes many at once without waiting, and what was not acknowledged once more.
func (c *chaos) burst(stream, name string) {
	nc := c.connect()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(chaosTry))
	noErr(c.t, err)
	s := c.streams[stream]
	c.pubs.Go(func() {
		for i := 0; !c.quitting(); {
			const many = 10
			futures, ids := make([]jetstream.PubAckFuture, many), make([]string, many)
			for k := range many {
				ids[k] = fmt.Sprintf("%s-%d", name, i)
				i++
				s.sending(ids[k])
				futures[k], _ = js.PublishAsync(stream+"."+name, []byte(ids[k]), jetstream.WithMsgID(ids[k]))
			}
			for k, f := range futures {
				if !c.settledAsync(f, s, ids[k]) {
					c.insist(js, s, stream+"."+name, ids[k])
				}
			}
			time.Sleep(400 * time.Millisecond)
		}
	})
}

func (c *chaos) settledAsync(f jetstream.PubAckFuture, s *chaosStream, id string) bool {
	if f == nil {
		return false
	}
	select {
	case ack := <-f.Ok():
		s.published(c, id, ack.Sequence)
		return true
	case <-f.Err():
	case <-time.After(2 * chaosTry):
	case <-c.ctx.Done():
	}
	return false
}

// worker takes one message at a time, so that what was sent before it was asked for is not taken for sent behind. Of a
// hundred it refuses so many, and forgets as many.
func (c *chaos) worker(stream, name string, refuse int) {
	nc := c.connect()
	js, err := jetstream.New(nc)
	noErr(c.t, err)
	s := c.streams[stream]
	s.readers[name].confirms = true
	c.takers.Go(func() {
		var cons jetstream.Consumer
		for c.ctx.Err() == nil {
			var err error
			if cons == nil {
				ctx, cancel := context.WithTimeout(c.ctx, chaosTry)
				cons, err = js.Consumer(ctx, stream, name)
				cancel()
			}
			if err == nil {
				err = c.fetch(nc, cons, s, name, refuse)
			}
			if err != nil {
				time.Sleep(50 * time.Millisecond)
			}
		}
	})
}

func (c *chaos) fetch(nc *nats.Conn, cons jetstream.Consumer, s *chaosStream, name string, refuse int) error {
	asked := time.Now()
	batch, err := cons.Fetch(1, jetstream.FetchMaxWait(chaosFetch))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		md, err := m.Metadata()
		if err != nil {
			return err
		}
		g := s.delivered(c, name, md.Sequence.Stream, string(m.Data()), asked)
		switch n := rand.IntN(100); {
		case n < refuse/2:
			_ = m.Nak()
		case n < refuse*3/4:
			_ = m.NakWithDelay(100 * time.Millisecond)
		case n < refuse: // forgotten
		default:
			c.confirm(nc, s, name, m.Reply(), g)
		}
	}
	return batch.Error()
}

// confirm acknowledges a delivery until that is confirmed: the ack may have counted though its answer was lost. A server
// that was killed may not know of the delivery any more, so it is not tried for ever.
func (c *chaos) confirm(nc *nats.Conn, s *chaosStream, name, reply string, g *chaosSight) {
	for end := time.Now().Add(2 * chaosWait); c.ctx.Err() == nil && time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(c.ctx, chaosTry)
		_, err := nc.RequestWithContext(ctx, reply, []byte("+ACK"))
		cancel()
		if err == nil {
			s.confirmed(name, g)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// iterator takes messages as most programs do, some ahead.
func (c *chaos) iterator(stream, name string) {
	js, s := c.jetStream(), c.streams[stream]
	c.takers.Go(func() {
		for c.ctx.Err() == nil {
			cons, err := js.Consumer(c.ctx, stream, name)
			if err != nil {
				time.Sleep(50 * time.Millisecond)
				continue
			}
			it, err := cons.Messages(jetstream.PullMaxMessages(30), jetstream.PullExpiry(3*time.Second))
			if err != nil {
				continue
			}
			stop := context.AfterFunc(c.ctx, it.Stop)
			for c.ctx.Err() == nil {
				m, err := it.Next()
				if errors.Is(err, jetstream.ErrMsgIteratorClosed) || errors.Is(err, jetstream.ErrConsumerDeleted) {
					break
				}
				if err != nil {
					continue
				}
				if md, err := m.Metadata(); err == nil {
					s.delivered(c, name, md.Sequence.Stream, string(m.Data()), time.Time{})
				}
				_ = m.Ack()
			}
			stop()
			it.Stop()
		}
	})
}

// follower reads a stream with an ordered consumer.
func (c *chaos) follower(stream, name string) {
	js, s := c.jetStream(), c.streams[stream]
	c.takers.Go(func() {
		for c.ctx.Err() == nil {
			s.mu.Lock()
			next := s.readers[name].last + 1
			s.mu.Unlock()
			ctx, cancel := context.WithTimeout(c.ctx, chaosTry)
			cons, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{
				DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next,
			})
			cancel()
			if err != nil {
				time.Sleep(50 * time.Millisecond)
				continue
			}
			cc, err := cons.Consume(func(m jetstream.Msg) {
				if md, err := m.Metadata(); err == nil {
					s.inOrder(c, name, md.Sequence.Stream, string(m.Data()))
				}
			})
			if err != nil {
				continue
			}
			select {
			case <-cc.Closed():
			case <-c.ctx.Done():
				cc.Stop()
				<-cc.Closed()
			}
		}
	})
}

// queueGroup makes the consumer that pushes to a queue group, and its members.
func (c *chaos) queueGroup() {
	const subject, group = "deliver.pq", "g"
	nc := c.connect()
	old, err := nc.JetStream()
	noErr(c.t, err)
	_, err = old.AddConsumer("ORDERS", &nats.ConsumerConfig{
		Durable: "PQ", DeliverSubject: subject, DeliverGroup: group, AckPolicy: nats.AckExplicitPolicy, AckWait: chaosWait,
	})
	noErr(c.t, err)
	s := c.streams["ORDERS"]
	for range 2 {
		_, err := c.connect().QueueSubscribe(subject, group, func(m *nats.Msg) {
			md, err := m.Metadata()
			if err != nil {
				return // of flow control
			}
			s.delivered(c, "PQ", md.Sequence.Stream, string(m.Data), time.Time{})
			_ = m.Ack()
		})
		noErr(c.t, err)
	}
}

// values puts ever larger numbers under a key, and reads it: never less than was acknowledged before the read began.
func (c *chaos) values() {
	writer, reader := c.jetStream(), c.jetStream()
	c.pubs.Go(func() {
		for i := 1; !c.quitting(); i++ {
			ctx, cancel := context.WithTimeout(c.ctx, chaosTry)
			kv, err := writer.KeyValue(ctx, "V")
			if err == nil {
				_, err = kv.PutString(ctx, "k", strconv.Itoa(i))
			}
			cancel()
			if err == nil {
				c.cas.value.Store(int64(i))
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	c.pubs.Go(func() {
		for !c.quitting() {
			floor := c.cas.value.Load()
			if n, err := c.value(reader); err == nil && n < floor {
				c.bad("key k of bucket V is %d, and %d was acknowledged before", n, floor)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}

func (c *chaos) value(js jetstream.JetStream) (int64, error) {
	ctx, cancel := context.WithTimeout(c.ctx, chaosTry)
	defer cancel()
	kv, err := js.KeyValue(ctx, "V")
	if err != nil {
		return 0, err
	}
	e, err := kv.Get(ctx, "k")
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(e.Value()), 10, 64)
}

package jetstreamapi

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/consumer"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// consumerEntry is one incarnation of a consumer: what the catalog says about it, and the running consumer. It is the
// bus.Sink of the consumer's own subjects.
type consumerEntry struct {
	stream  *streamEntry
	name    string
	created time.Time
	logID   storage.LogID
	memory  bool // its state is kept in RAM only: gone after a restart
	cfg     atomic.Pointer[server.ConsumerConfig]

	offline error // why it does not serve; nil while it does. Set before the entry is published

	state      *storage.StateLog // what the consumer remembers; nil while it is offline
	exact      bool              // on a standby: its state was imported as exact
	pin        consumer.Pin      // on a standby: whom the consumer was pinned to elsewhere
	consumer   *consumer.Consumer
	session    bus.Session
	detach     func()
	gone       atomic.Bool                           // deleted, or being so
	buryLogged atomic.Int64                          // last warning about dead letters, Unix nanoseconds
	keyBlocked bool                                  // at the last look of watchStalls
	durable    atomic.Pointer[server.ConsumerConfig] // the configuration that is in the catalog for good
}

// config returns the configuration; it must not be changed.
func (c *consumerEntry) config() *server.ConsumerConfig { return c.cfg.Load() }

// whenDurable returns done such that cfg then counts as being in the catalog.
func (c *consumerEntry) whenDurable(cfg *server.ConsumerConfig, done storage.Done) storage.Done {
	return func(err error) {
		if err == nil {
			c.durable.Store(cfg)
		}
		done(err)
	}
}

// logger returns the log with what the consumer is.
func (c *consumerEntry) logger() *slog.Logger {
	return c.stream.logger().With(slog.String("consumer", c.name))
}

// store is the store the consumer's state is in, nil while there is none.
func (c *consumerEntry) store() *storage.Store {
	if c.memory {
		return c.stream.acc.svc.mem
	}
	return c.stream.acc.svc.fileStore()
}

// start makes the running consumer over its state and opens it to clients. held is that of consumer.Options.
func (c *consumerEntry) start(state *storage.StateLog, held bool) error {
	c.state = state
	e := c.stream
	a := e.acc
	cfg := *c.config()
	var self atomic.Pointer[consumer.Consumer] // acks may come before New has returned
	o, err := consumer.New(consumer.Options{
		Account: a.name,
		Name:    c.name,
		Config:  cfg,
		Created: c.created,
		Stream:  e.asStream(),
		State:   state,
		Bus:     a.svc.opts.Bus,
		Sched:   a.svc.sched,
		Acked: func(seq uint64) {
			if o := self.Load(); o != nil && e.stream != nil && !consumer.Peeks(&cfg) {
				e.stream.Acked(o, seq)
			}
		},
		Took:     a.svc.opts.Acknowledged,
		Bury:     c.bury,
		Inactive: c.inactive,
		Advisory: a.adviseInDomain,
		Held:     held,
		Pin:      c.pin,
	})
	if err != nil {
		return fmt.Errorf("consumer %s of stream %s: %w", c.name, e.name, err)
	}
	self.Store(o)
	c.consumer = o
	if e.stream != nil {
		c.detach = e.stream.Attach(c.observer(), o.Wake)
	}
	o.Wake(e.log.Visible()) // what became visible before Attach woke nobody
	if err := c.open(); err != nil {
		c.stop(jsapi.StatusShutdown)
		return fmt.Errorf("consumer %s of stream %s: %w", c.name, e.name, err)
	}
	return nil
}

// statusEnded is the code of the status that waiting pull requests get when their consumer ends.
const statusEnded = 409

// The sids of a consumer's subscriptions start with what they are for.
const (
	sidNext  = "n"
	sidAck   = "a"
	sidFlow  = "f"
	sidReset = "r"
)

// open subscribes to the consumer's subjects.
func (c *consumerEntry) open() error {
	a, stream := c.stream.acc, c.stream.name
	s, err := a.svc.opts.Bus.Open(bus.KindService, bus.Identity{Account: a.name}, c)
	if err != nil {
		return err
	}
	c.session = s
	domain := a.svc.opts.Domain
	if err := subscribeBoth(s, sidNext, jsapi.NextSubject(stream, c.name), "", domain); err != nil {
		return err
	}
	if err := subscribeBoth(s, sidReset, jsapi.ResetSubject(stream, c.name), "", domain); err != nil {
		return err
	}
	cfg := c.config()
	if cfg.AckPolicy != server.AckNone && cfg.AckPolicy != server.AckFlowControl {
		if err := subscribeAll(s, sidAck, jsapi.AckFilters(stream, c.name)); err != nil {
			return err
		}
	}
	if cfg.FlowControl {
		return subscribeAll(s, sidFlow, jsapi.FlowFilters(stream, c.name))
	}
	return nil
}

func subscribeAll(s bus.Session, sid string, filters [2]string) error {
	for i, f := range filters {
		if _, err := s.Subscribe(fmt.Sprint(sid, i), f, ""); err != nil {
			return err
		}
	}
	return nil
}

// lateFor is how long an ended consumer still takes requests that were on their way to it.
const lateFor = time.Second

// stop ends the running consumer; waiting pull requests, and those that are on their way, are answered with the status.
// Its state stays.
func (c *consumerEntry) stop(status string) { c.end(statusEnded, status) }

// moved is stop for a consumer that another serves from now on. To a client its requests have run out of time: each
// says how much of it is left, and the client asks for as much again. Behind "Leadership Change" a client forgets what
// it has asked for, once for each request that waits, and is sent more than it has room for: that would come again only
// after its ack wait.
func (c *consumerEntry) moved() {
	c.end(timedOut, jsapi.StatusRequestTimeout)
}

const timedOut = 408

func (c *consumerEntry) end(code int, status string) {
	if c.session != nil {
		for _, s := range c.session.Subscriptions() {
			c.session.Unsubscribe(string(s.SID), 0)
		}
		time.AfterFunc(lateFor, c.session.Close)
	}
	if c.consumer == nil {
		return
	}
	c.consumer.Stop(code, status)
	if c.detach != nil {
		c.detach()
	}
}

// Deliver implements bus.Sink.
func (c *consumerEntry) Deliver(batch []bus.Delivery) <-chan struct{} {
	return c.DeliverFrom(bus.Identity{Account: c.stream.acc.name}, batch)
}

// DeliverFrom implements bus.OriginSink: it hands pull requests and acks to the consumer's mailbox. No lookup, no
// allocation.
func (c *consumerEntry) DeliverFrom(from bus.Identity, batch []bus.Delivery) <-chan struct{} {
	var stall <-chan struct{}
	for i := range batch {
		if ch := c.deliver(from, &batch[i]); ch != nil {
			stall = ch
		}
	}
	return stall
}

func (c *consumerEntry) deliver(from bus.Identity, d *bus.Delivery) <-chan struct{} {
	switch d.Sub.SID[0] {
	case sidAck[0]:
		a, _ := jsapi.ParseAckSubject(d.Msg.Subject) // of what cannot be read: zeros, which stand for no delivery
		id := consumer.AckID{
			Delivered: a.Delivered, StreamSeq: a.StreamSeq, ConsumerSeq: a.ConsumerSeq,
			Time: a.Time, Pending: a.Pending,
		}
		return c.consumer.Ack(id, d.Msg.Data, d.Msg.Reply)
	case sidNext[0]:
		return c.consumer.Pull(d.Msg.Reply, d.Msg.Header, d.Msg.Data)
	case sidFlow[0]:
		if _, _, token, ok := jsapi.ParseFlowControlSubject(d.Msg.Subject); ok {
			c.consumer.FlowControlAnswer(token, d.Msg.Header)
		}
	case sidReset[0]:
		a := c.stream.acc
		a.enqueue(a.writes, a.newRequest(from, &d.Msg), serveConsumerReset)
	}
	return nil
}

// inactive deletes the consumer because nobody used it for its inactive threshold.
func (c *consumerEntry) inactive() {
	a := c.stream.acc
	a.writes.pushAlways(func(*publisher) {
		if err := a.deleteConsumer(c, nil); err != nil {
			c.logger().Warn("an inactive consumer could not be deleted", slog.Any("error", err))
		}
	})
}

// info returns the consumer as the API shows it, without the server's version metadata.
func (c *consumerEntry) info() *server.ConsumerInfo { return c.shown(c.consumer.Info()) }

// initialInfo is the answer to a create request: as it was before the first delivery.
func (c *consumerEntry) initialInfo() *server.ConsumerInfo { return c.shown(c.consumer.InitialInfo()) }

func (c *consumerEntry) shown(i *server.ConsumerInfo) *server.ConsumerInfo {
	info := *i
	cfg := *c.config()
	info.Config = &cfg
	info.TimeStamp = time.Now().UTC()
	return &info
}

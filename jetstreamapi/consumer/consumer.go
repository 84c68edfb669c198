package consumer

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// Stream is what a consumer needs of its stream.
type Stream interface {
	Name() string
	Config() server.StreamConfig
	Log() *storage.Log
}

// Options make a Consumer.
type Options struct {
	Account string
	Name    string
	Config  server.ConsumerConfig // complete (see Complete)
	Created time.Time
	Stream  Stream
	State   *storage.StateLog // its own log, recovered by New
	Bus     bus.Bus
	Sched   *Scheduler
	// Acked tells the stream that the consumer is done with seq (acked or terminated). It is called under no lock of
	// the consumer. May be nil.
	Acked func(seq uint64)
	// Took is told how long messages were out before they were acknowledged. It must be quick. May be nil.
	Took func(time.Duration)
	// Bury stores dead letters in the stream that the configuration names: it adds them to a group and calls commit
	// with it, which commits. An error means that nothing was stored; it is tried again. May be nil: there is no such
	// stream.
	Bury func(letters []DeadLetterMsg, commit func(*storage.Batch) error) error
	// Inactive is called once when the consumer was unused for its inactive threshold; the owner then deletes it.
	Inactive func()
	// Advisory publishes a JetStream advisory or metric; it does not block. May be nil.
	Advisory func(subject string, event any)
	// Held keeps messages back until Release: nobody is sent any before being told that the consumer exists.
	Held bool
	// Pin is whom a consumer with priority policy pinned_client is pinned to already.
	Pin Pin
}

// Consumer is one consumer. Its methods may be called by anyone; they hand an event to its mailbox, or change the
// machine under its lock, and do not block on anything but that.
type Consumer struct {
	o    Options
	mail mailbox
	run  runState

	filters atomic.Pointer[filterSet]

	mu      sync.Mutex // guards what follows; never held while publishing or appending
	m       *machine
	world   *logWorld
	idle    outbox // what is asked for between two steps
	timer   alarm
	watch   func()               // ends the watch on the deliver subject; may be nil
	clamped bool                 // the recovered state was ahead of the log
	initial *server.ConsumerInfo // a new consumer as it was made; nil once it was asked for

	settled chan struct{} // closed once a consumer that has ended has nothing left to do, see Settle; may be nil

	keyed    bool         // it has keys, see keyshared.go
	outgoing []*heldSends // what waits to be durable, see hold.go

	store   persister
	pausing pauser
	held    atomic.Bool // until Release
}

// maxPayload is the burst of a rate limit on a stream without max_msg_size.
const maxPayload = 1 << 20

// New makes the consumer over its (new or recovered) state and starts it.
func New(o Options) (*Consumer, error) {
	c := &Consumer{o: o, keyed: keyRuleOf(&o.Config) != nil}
	c.store = persister{log: o.State, c: c}
	c.run.c, c.timer.c, c.pausing.c = c, c, c
	filters, err := compileFilters(filterSubjects(&o.Config))
	if err != nil {
		return nil, err
	}
	c.filters.Store(&filters)
	c.held.Store(o.Held)
	found, err := c.load(filters)
	if err != nil {
		return nil, fmt.Errorf("consumer %s > %s > %s: %w", o.Account, o.Stream.Name(), o.Name, err)
	}
	now := time.Now().UnixNano()
	c.mu.Lock()
	c.rewatch(now)
	c.m.adoptPin(now, &o.Pin)
	if !found {
		c.initial = c.info(time.Now())
	}
	c.mu.Unlock()
	c.run.schedule()
	return c, nil
}

// settings brings a configuration into the machine's form.
func (c *Consumer) settings(cfg server.ConsumerConfig) settings {
	burst := int64(maxPayload)
	if size := c.o.Stream.Config().MaxMsgSize; size > 0 {
		burst = int64(size)
	}
	jitter := int64(100*time.Millisecond) + rand.Int64N(int64(900*time.Millisecond))
	return newSettings(c.o.Stream.Name(), c.o.Name, cfg, burst, jitter)
}

// load makes the machine: from what is found in the state log, or, when that is empty, at the start the configuration
// asks for.
func (c *Consumer) load(filters filterSet) (found bool, err error) {
	log, set := c.o.Stream.Log(), c.settings(c.o.Config)
	m := newMachine(set, rand.Uint64())
	m.out = &c.idle
	err = c.o.State.Load(func(entry []byte, checkpoint bool) error {
		found = true
		if checkpoint {
			return m.restore(entry)
		}
		return m.replay(entry)
	})
	if err != nil {
		return false, err
	}
	if !found {
		s := SelectStart(log, &set.cfg, c.o.Stream.Config().MaxMsgsPer, filters)
		m.led, m.skip.loaded, m.resume = newLedger(s.Seq), s.Skip, s.Cursor
	}
	_, changed := c.o.State.Changes()
	c.store.since = int(changed)
	c.clamped = m.clamp(log.Visible())
	c.world = &logWorld{
		Cursor: log.NewCursor(max(m.resume, m.led.last.stream+1), filters), log: log,
		bus: c.o.Bus, account: c.o.Account,
		filters: func(f filterSet) { c.filters.Store(&f) },
	}
	m.w = c.world
	m.start(time.Now().UnixNano(), log.Visible())
	c.m = m
	if found && !c.clamped {
		return true, nil
	}
	return found, c.o.State.Checkpoint(m.checkpoint(nil), nil)
}

// rewatch looks for interest in the deliver subject from now on. c.mu is held.
func (c *Consumer) rewatch(now int64) {
	if c.watch != nil {
		c.watch()
		c.watch = nil
	}
	if !c.m.set.push || c.m.closed != nil {
		return
	}
	cfg := &c.m.set.cfg
	c.watch = c.o.Bus.WatchListeners(c.o.Account, cfg.DeliverSubject, cfg.DeliverGroup, func(bool) {
		c.post(letter{kind: mailInterest})
	})
	c.m.interest(now)
}

// post hands an event to the machine.
func (c *Consumer) post(l letter) <-chan struct{} {
	stall := c.mail.put(l)
	c.run.schedule()
	return stall
}

// Wants implements stream.Observer: whether the filters match key.
func (c *Consumer) Wants(key []byte) bool { return c.filters.Load().match(key) }

// Done implements stream.Observer: whether the consumer needs the message no more.
func (c *Consumer) Done(seq uint64, key []byte) bool { return !c.Wants(key) || c.m.led.done(seq) }

// Delivered returns the stream sequence of the newest delivery; 0 when there was none yet.
func (c *Consumer) Delivered() uint64 { return c.m.led.lastStream() }

// Release lets the deliveries of a consumer begin that was made with Held. To call it again does nothing.
func (c *Consumer) Release() {
	if c.held.Swap(false) {
		c.run.schedule()
	}
}

// Hold stops deliveries until Release. One that is on its way may still follow.
func (c *Consumer) Hold() { c.held.Store(true) }

// silent reports whether no message may be sent for now.
func (c *Consumer) silent() bool {
	return c.held.Load() || c.pausing.held.Load() || len(c.outgoing) >= heldMost
}

// Wake tells that the stream's visible position moved.
func (c *Consumer) Wake(uint64) {
	if c.run.hungry.Load() {
		c.run.schedule()
	}
}

// Trimmed tells that messages left the stream otherwise than by acks: those of them that are outstanding are given up.
// Without it that is noticed when they would be delivered again.
func (c *Consumer) Trimmed() { c.post(letter{kind: mailTrimmed}) }

// Pull is a request on $JS.API.CONSUMER.MSG.NEXT. The slices are borrowed. stall is nil or a channel to wait on.
func (c *Consumer) Pull(reply, header, body []byte) (stall <-chan struct{}) {
	if len(reply) == 0 {
		return nil // nobody to send anything to
	}
	l := letter{kind: mailPull, reply: reply, body: body}
	if len(header) > 0 && jsapi.APILevelTooHigh(header) {
		l.id.Delivered = 412
	}
	return c.post(l)
}

// Ack is a message on $JS.ACK for this consumer: the parsed subject, the body, and where to confirm (may be empty).
// The slices are borrowed.
func (c *Consumer) Ack(a AckID, body, reply []byte) (stall <-chan struct{}) {
	kind, arg := jsapi.ParseAckBody(body)
	return c.post(letter{kind: mailAck, ack: kind, id: a, reply: reply, body: arg})
}

// FlowControlReply is an answer on $JS.FC; token is the last part of its subject.
func (c *Consumer) FlowControlReply(token []byte) { c.FlowControlAnswer(token, nil) }

// FlowControlAnswer is FlowControlReply with the answer's header, which with ack policy flow_control says what was
// received. The slices are borrowed.
func (c *Consumer) FlowControlAnswer(token, header []byte) {
	c.post(letter{kind: mailAnswer, reply: token, body: header})
}

// Update changes the configuration (checked by CheckUpdate, completed). It has taken effect when Update returns; an
// error means that nothing changed.
func (c *Consumer) Update(cfg server.ConsumerConfig) error {
	set := c.settings(cfg)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().UnixNano()
	old := &c.m.set.cfg
	moved := cfg.DeliverSubject != old.DeliverSubject || cfg.DeliverGroup != old.DeliverGroup
	if err := c.m.update(now, set); err != nil {
		return err
	}
	if moved {
		c.rewatch(now)
	}
	c.run.schedule()
	return nil
}

// Pause sets pause_until (zero: resume).
func (c *Consumer) Pause(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := int64(0)
	c.m.set.cfg.PauseUntil = nil
	if !until.IsZero() {
		until = until.UTC()
		c.m.set.cfg.PauseUntil, at = &until, jsapi.UnixNano(until)
	}
	c.m.pause(time.Now().UnixNano(), at)
	c.run.schedule()
}

// Reset forgets every delivery and goes on at seq (0: after the ack floor). It returns the sequence it goes on at; the
// error is the reason for 10204.
func (c *Consumer) Reset(seq uint64) (uint64, error) {
	startSeq := uint64(0)
	if t := c.o.Config.OptStartTime; t != nil {
		startSeq = c.o.Stream.Log().SeqAtTime(jsapi.UnixNano(*t))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.prune(time.Now().UnixNano()) // the ack floor is past what left the log
	at, err := c.m.reset(seq, startSeq)
	c.run.schedule()
	return at, err
}

// Unpin takes the pin of a group from the client that has it. Whether there is one or not, an advisory tells of it.
func (c *Consumer) Unpin(group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const reason = "admin"
	if !c.m.unpin(reason) {
		c.m.out.events = append(c.m.out.events, event{kind: eventUnpinned, group: group, reason: reason})
	}
	c.run.schedule()
}

// Stop ends the consumer. Waiting pulls are answered with status (e.g. 409 "Consumer Deleted", 409 "Server
// Shutdown"), and so are those that come later. What was not persisted yet is appended by a worker, at the latest in
// Scheduler.Close.
func (c *Consumer) Stop(code int, status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.stop(code, status)
	c.rewatch(0)
	c.timer.stop()
	c.run.schedule()
}

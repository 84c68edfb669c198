package consumer

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// world is what the machine may look at: the log, from the consumer's cursor, and who listens. Asking changes nothing
// but the cursor.
type world interface {
	// Peek, Next, Pending, Position and Seek are storage.Cursor's.
	Peek() (storage.Record, error)
	Next() (storage.Record, error)
	Pending() uint64
	Position() uint64
	Seek(from uint64)
	// Get is storage.Log's.
	Get(seq uint64) (storage.Record, error)
	// Refilter replaces the cursor by one that starts at from and gives what matches one of filters (none: all).
	Refilter(from uint64, filters []string) error
	// Visible is storage.Log's.
	Visible() uint64
	// Exists reports whether the message at seq (not above Visible) is in the log, without reading it.
	Exists(seq uint64) bool
	// Removals returns a number that grows with every message that leaves the log.
	Removals() uint64
	// Interest reports whether somebody listens on subject.
	Interest(subject string) bool
}

// machine is the consumer without goroutines, files and clocks: events go in through its methods, what is to be done
// comes out in out. The caller makes sure that one method runs at a time, and passes the time in (Unix nanoseconds,
// never going back).
//
// Invariants after every step:
//   - at most max_ack_pending entries are outstanding (redeliveries add none)
//   - matching and stored == done + outstanding + exhausted + undelivered
//   - no message is due, permitted and asked for (the step would have sent it)
type machine struct {
	set  settings
	w    world
	out  *outbox
	led  *ledger
	wait waitQueue
	push pushState
	pin  pinState
	pace paceState
	life lifeState
	skip skipList
	log  changeLog

	resume uint64 // where the cursor was at the last checkpoint, while the state is loaded
	step   uint64 // counts steps, see waiting.checked
	random uint64
	closed *closing // not nil: the consumer has ended
	fault  error    // why reading failed, if it did at the last step
}

// newMachine returns a machine without state; see load and start.
func newMachine(set settings, random uint64) *machine {
	return &machine{set: set, led: newLedger(1), random: random, out: new(outbox)}
}

// start sets the machine going, once its state and its world are there. visible is the end of the log.
func (m *machine) start(now int64, visible uint64) {
	m.wait = waitQueue{max: m.set.cfg.MaxWaiting, byPriority: m.set.cfg.PriorityPolicy == server.PriorityPrioritized}
	m.push = newPush(now, &m.set)
	m.pace = paceState{replaying: m.set.cfg.ReplayPolicy == server.ReplayOriginal, replayEnd: visible}
	m.startTimers(now)
	m.trimSkip(0)
}

// closing is what waiting requests are told when the consumer ends.
type closing struct {
	code int
	text string
}

// lifeState is what the machine knows about being used.
type lifeState struct {
	used      int64  // last activity that counts for the inactive threshold
	check     int64  // when to look whether the consumer is unused; 0: not
	told      bool   // the owner was told
	pauseEnd  int64  // when the pause that was announced ends; 0: no pause
	sweep     int64  // when to look again whether inboxes are still listened on; 0: nobody waits
	retry     int64  // when to read again after a fault; 0: no fault
	prune     int64  // when to look whether outstanding messages left the log; 0: not
	removals  uint64 // world.Removals at the last look
	delivered int64  // time of the last delivery; 0: none
	acked     int64  // time of the last ack; 0: none
}

// skipList is what a consumer with deliver policy last_per_subject gives before it reads on from its cursor.
type skipList struct{ seqs []uint64 }

// sweepEvery is how often the inboxes of waiting requests are looked at when nothing else happens.
const sweepEvery = int64(2_000_000_000)

// pruneEvery is how often a consumer that is at max_ack_pending looks whether outstanding messages left the log.
const pruneEvery = int64(1_000_000_000)

// pruneLooks bounds the outstanding messages one look finds alive; those after them are noticed when they are due.
const pruneLooks = 4096

// faultRetry is the pause after a read that failed.
const faultRetry = int64(1_000_000_000)

// settings are the configuration in the form the machine uses.
type settings struct {
	cfg        server.ConsumerConfig
	ackPrefix  string
	fcPrefix   string
	push       bool
	maxDeliver uint64 // 0: no limit
	maxPending int    // <= 0: no limit
	pause      int64  // deliver nothing before; 0: no pause
	threshold  int64  // inactive threshold with its jitter; 0: none
	sample     int    // percent of acks that give a metric
	burst      int64  // bytes the rate limit lets through at once
}

func newSettings(stream, name string, cfg server.ConsumerConfig, burst, jitter int64) settings {
	s := settings{
		cfg:        cfg,
		ackPrefix:  jsapi.AckSubjectPrefix(stream, name),
		fcPrefix:   jsapi.FlowControlPrefix + stream + "." + name + ".",
		push:       cfg.DeliverSubject != "",
		maxDeliver: uint64(max(cfg.MaxDeliver, 0)), //nolint:gosec // not negative
		burst:      burst,
	}
	if cfg.AckPolicy != server.AckNone {
		s.maxPending = cfg.MaxAckPending
	}
	if cfg.PauseUntil != nil && !cfg.PauseUntil.IsZero() {
		s.pause = cfg.PauseUntil.UnixNano()
	}
	s.sample, _ = strconv.Atoi(strings.TrimSuffix(cfg.SampleFrequency, "%"))
	s.threshold = threshold(&cfg, jitter)
	return s
}

// threshold is the inactive threshold as NATS applies it: with jitter, but not for push consumers that set their own.
func threshold(cfg *server.ConsumerConfig, jitter int64) int64 {
	switch t := cfg.InactiveThreshold; {
	case t > 0 && cfg.DeliverSubject != "":
		return int64(t)
	case t > 0:
		return int64(t) + jitter
	case cfg.Durable == "":
		return int64(server.JsDeleteWaitTimeDefault) + jitter
	}
	return 0
}

// ackWait returns how long the delivery with that count may stay without an ack.
func (s *settings) ackWait(count uint64) int64 {
	if n := len(s.cfg.BackOff); n > 0 {
		return int64(s.cfg.BackOff[min(max(count, 1), uint64(n))-1])
	}
	if s.cfg.AckWait == 0 {
		return never
	}
	return int64(s.cfg.AckWait)
}

func (s *settings) dueAfter(now int64, count uint64) int64 {
	wait := s.ackWait(count)
	if wait >= never-now {
		return never
	}
	return now + wait
}

// standing is why a step of deliveries came to its end.
type standing uint8

const (
	ready   standing = iota // there is a message
	atEnd                   // no message yet
	full                    // max_ack_pending are outstanding
	noTaker                 // there is a message, but no request may have it now
	blocked                 // paused, nobody listens or asks, or waiting for flow control
	held                    // waiting for time to pass
	failed                  // the log cannot be read
)

// candidate is the next message, not yet taken.
type candidate struct {
	rec   storage.Record
	again *entry // the entry it is redelivered for; nil: a first delivery
	count uint64 // deliveries with this one
}

// deliver sends up to budget messages. more is true if it stopped because of budget alone.
func (m *machine) deliver(now int64, budget int) (more bool) {
	if m.closed != nil {
		return false
	}
	for range budget {
		if why := m.deliverOne(now); why != ready {
			m.settle(now, why)
			return false
		}
	}
	return budget > 0
}

// deliverOne sends the next message or says why not.
func (m *machine) deliverOne(now int64) standing {
	if m.isHeld(now) {
		return held
	}
	if m.isBlocked(now) {
		return blocked
	}
	c, why := m.next(now)
	if why != ready {
		return why
	}
	return m.offer(now, &c)
}

// isHeld reports whether deliveries wait for a time the machine set itself.
func (m *machine) isHeld(now int64) bool { return now < m.life.retry || now < m.pace.until }

func (m *machine) isBlocked(now int64) bool {
	if now < m.set.pause {
		return true
	}
	if m.set.push {
		return !m.push.active || m.push.stalled()
	}
	return m.wait.head == nil
}

// next finds the message to deliver: what is due again first, then what is new.
func (m *machine) next(now int64) (candidate, standing) {
	for e := m.led.rhead; e != nil; e = m.led.rhead {
		rec, err := m.w.Get(e.sseq)
		switch {
		case err == nil:
			return candidate{rec: rec, again: e, count: e.count + 1}, ready
		case errors.Is(err, storage.ErrNotFound):
			m.vanished(now, e)
		default:
			return candidate{}, m.failedRead(now, err)
		}
	}
	if m.set.maxPending > 0 && m.led.len() >= m.set.maxPending {
		return candidate{}, full
	}
	if len(m.skip.seqs) > 0 {
		if rec, err := m.w.Get(m.skip.seqs[0]); err == nil {
			m.trimSkip(1)
			return candidate{rec: rec, count: 1}, ready
		} else if !errors.Is(err, storage.ErrNotFound) {
			return candidate{}, m.failedRead(now, err)
		}
		m.trimSkip(0)
		return m.next(now)
	}
	rec, err := m.w.Peek()
	switch {
	case err == nil:
		return candidate{rec: rec, count: 1}, ready
	case errors.Is(err, storage.ErrEOF):
		return candidate{}, atEnd
	}
	return candidate{}, m.failedRead(now, err)
}

func (m *machine) failedRead(now int64, err error) standing {
	m.fault, m.life.retry = err, now+faultRetry
	return failed
}

// trimSkip drops messages from the skip list, at place at, that are no longer there, so that the number of pending
// messages a client sees with the last one is the truth: clients wait for it to become 0.
func (m *machine) trimSkip(at int) {
	gone := at
	for ; gone < len(m.skip.seqs); gone++ {
		if m.w.Exists(m.skip.seqs[gone]) {
			break
		}
	}
	if gone > at {
		m.skip.seqs = slices.Delete(m.skip.seqs, at, gone)
	}
}

// numPending returns how many matching messages were not delivered yet.
func (m *machine) numPending() uint64 { return uint64(len(m.skip.seqs)) + m.w.Pending() }

// position returns the stream sequence at which the consumer reads on: where nothing is pending, after the end.
func (m *machine) position() uint64 {
	if len(m.skip.seqs) > 0 {
		return m.skip.seqs[0]
	}
	visible := m.w.Visible() // before the question: what comes in between may be pending
	if m.w.Pending() == 0 {
		return max(m.w.Position(), visible+1)
	}
	return m.w.Position()
}

// offer gives c to whoever is to have it.
func (m *machine) offer(now int64, c *candidate) standing {
	mark := len(m.out.arena)
	msg := m.message(c)
	size := len(msg.subject) + len(msg.reply) + len(msg.header) + len(msg.data)
	if until := m.pace.delay(&m.set, now, c.rec.Seq, c.rec.Time, size); until > now {
		m.pace.until = until
		m.out.arena = m.out.arena[:mark]
		return held
	}
	var w *waiting
	if m.set.push {
		msg.to = m.push.to
	} else {
		if w = m.taker(now, size); w == nil {
			m.out.arena = m.out.arena[:mark]
			return noTaker
		}
		msg.to = w.to
		if m.set.cfg.PriorityPolicy == server.PriorityPinnedClient {
			at := len(m.out.arena)
			m.out.arena = jsapi.AppendHeader(m.out.arena, msg.header, server.JSPullRequestNatsPinId, m.pin.id)
			msg.header = m.out.cut(at)
		}
	}
	m.accept(now, c)
	m.out.sends = append(m.out.sends, msg)
	m.pace.sent(&m.set, now, c.rec.Time, size)
	if w == nil {
		m.pushed(now, &msg)
		return ready
	}
	m.pulled(now, w, size)
	return ready
}

// message builds what the client gets; the ack subject and a changed header go to the arena.
func (m *machine) message(c *candidate) send {
	pending := m.numPending()
	if c.again == nil {
		pending--
	}
	at := len(m.out.arena)
	m.out.arena = jsapi.AppendAckSubject(m.out.arena, m.set.ackPrefix, &jsapi.AckSubject{
		Delivered: c.count, StreamSeq: c.rec.Seq, ConsumerSeq: m.led.last.consumer + 1, Time: c.rec.Time,
		Pending: pending,
	})
	msg := send{
		subject: c.rec.Key, reply: m.out.cut(at), header: c.rec.Header, data: c.rec.Data, seq: c.rec.Seq,
	}
	if m.set.cfg.HeadersOnly {
		at = len(m.out.arena)
		m.out.arena = jsapi.AppendHeaderInt(m.out.arena, msg.header, server.JSMsgSize, int64(len(msg.data)))
		msg.header, msg.data = m.out.cut(at), nil
	}
	return msg
}

// accept takes c: it counts as delivered from here on.
func (m *machine) accept(now int64, c *candidate) {
	m.life.delivered = now
	if !m.set.push {
		m.life.used = now
	}
	if c.again != nil {
		m.log.redelivered(now, m.led.last.stream, c.rec.Seq, c.count)
		m.led.redeliver(c.again, now, m.set.dueAfter(now, c.count))
		return
	}
	if len(m.skip.seqs) > 0 {
		m.skip.seqs = m.skip.seqs[1:]
	} else {
		_, _ = m.w.Next() // what Peek gave
	}
	m.log.delivered(now, m.led.last.stream, c.rec.Seq)
	if m.set.cfg.AckPolicy == server.AckNone {
		m.led.passNoAck(c.rec.Seq)
		m.out.acked = append(m.out.acked, c.rec.Seq)
		return
	}
	m.led.add(c.rec.Seq, now, m.set.dueAfter(now, 1))
}

// settle is called when there is nothing more to send now.
func (m *machine) settle(now int64, why standing) {
	if m.pace.replaying && m.position() > m.pace.replayEnd {
		m.pace.replaying = false
	}
	switch why {
	case full:
		if m.life.prune == 0 {
			m.life.prune = now + pruneEvery
		}
	case atEnd, noTaker, blocked:
		m.fault, m.life.prune = nil, 0
		if m.wait.noWaits > 0 {
			m.processWaiting(now, true)
		}
	case ready, held, failed:
	}
}

// prune gives up what is outstanding or exhausted and no longer in the log.
func (m *machine) prune(now int64) {
	m.life.prune = 0
	if m.led.len() == 0 && len(m.led.exhausted) == 0 {
		return
	}
	removals := m.w.Removals()
	if removals == m.life.removals {
		return
	}
	m.life.removals = removals
	looks := pruneLooks
	for e := m.led.head; e != nil && looks > 0; looks-- {
		next := e.next
		if !m.w.Exists(e.sseq) {
			m.vanished(now, e)
			looks++
		}
		e = next
	}
	for seq := range m.led.exhausted {
		if !m.w.Exists(seq) {
			m.log.forgot(m.led.last.stream, seq)
			m.led.forget(seq)
		}
	}
}

// vanished deals with a message that is outstanding but no longer in the stream.
func (m *machine) vanished(now int64, e *entry) {
	m.out.events = append(m.out.events, event{
		kind: eventTerm, sseq: e.sseq, dseq: e.dseq, count: e.count, reason: reasonDeleted,
	})
	m.finish(now, e)
}

// reasonDeleted is the reason in the advisory about an outstanding message that left the stream.
const reasonDeleted = "Unacknowledged message was deleted"

// finish takes e out as acknowledged.
func (m *machine) finish(now int64, e *entry) {
	m.life.acked = now
	m.log.acked(m.led.last.stream, e.sseq)
	m.led.remove(e)
}

// hungry reports whether a new message in the log is of interest now.
func (m *machine) hungry(now int64) bool {
	if m.closed != nil || m.isHeld(now) || m.isBlocked(now) {
		return false
	}
	return m.set.maxPending <= 0 || m.led.len() < m.set.maxPending
}

// rand returns the next of a sequence of numbers that looks random (splitmix64).
func (m *machine) rand() uint64 {
	m.random += 0x9e3779b97f4a7c15
	z := m.random
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

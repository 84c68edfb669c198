package consumer

import (
	"errors"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// standing is why a step of deliveries came to its end.
type standing uint8

const (
	ready   standing = iota // there is a message
	atEnd                   // no message yet
	full                    // max_ack_pending are outstanding
	crowded                 // as many as may be parked are, see keyshared.go
	noTaker                 // there is a message, but no request may have it now
	blocked                 // paused, nobody listens or asks, or waiting for flow control
	held                    // waiting for time to pass
	failed                  // the log cannot be read
)

// candidate is the next message, not yet taken.
type candidate struct {
	rec    storage.Record
	again  *entry // the entry it is redelivered for; nil: a first delivery
	listed bool   // it comes from the skip list
	count  uint64 // deliveries with this one
	hash   uint64 // of its key, where there are keys
	key    *sharedKey
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
	if m.led.keys != nil {
		return m.deliverShared(now)
	}
	if m.set.cfg.PriorityPolicy == server.PriorityOverflow && now >= m.life.pruned+overflowPruneEvery {
		m.prune(now) // what left the log does not count for min_ack_pending
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
	if m.isFull() {
		return candidate{}, full
	}
	return m.nextNew(now)
}

// isFull reports whether as much is outstanding as may be.
func (m *machine) isFull() bool {
	return m.set.maxPending > 0 && m.led.outstanding() >= m.set.maxPending
}

// nextNew finds the next message that was not delivered yet.
func (m *machine) nextNew(now int64) (candidate, standing) {
	for seq, ok := m.skip.first(); ok; seq, ok = m.skip.first() {
		rec, err := m.w.Get(seq)
		switch {
		case err == nil:
			return candidate{rec: rec, listed: true, count: 1}, ready
		case !errors.Is(err, storage.ErrNotFound):
			return candidate{}, m.failedRead(now, err)
		}
		m.skip.pass(seq) // it left the log just now
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

// numPending returns how many matching messages were not delivered yet.
func (m *machine) numPending() uint64 { return m.numUnread() + m.numParked() }

// numUnread returns how many matching messages the consumer did not come to yet.
func (m *machine) numUnread() uint64 { return m.skip.len() + m.w.Pending() }

// pendingAfter returns what numPending is once c is taken. c may have left the log since it was read.
func (m *machine) pendingAfter(c *candidate) uint64 {
	switch {
	case c.again != nil && c.again.parked && m.parked.Has(c.rec.Seq):
		return m.numPending() - 1
	case c.again != nil:
		return m.numPending()
	case c.listed:
		return m.skip.lenAfter(c.rec.Seq) + m.w.Pending() + m.numParked()
	}
	return m.w.PendingAfter(c.rec.Seq) + m.numParked()
}

// position returns the stream sequence at which the consumer reads on: where nothing is pending, after the end.
func (m *machine) position() uint64 {
	if seq, ok := m.skip.first(); ok {
		return seq
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
		if w = m.takerOf(now, size, c); w == nil {
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
	m.handed(c, w)
	m.out.sends = append(m.out.sends, msg)
	m.pace.sent(&m.set, now, c.rec.Time, size)
	if w == nil {
		m.pushed(now, &msg)
		return ready
	}
	m.pulled(now, w, size)
	return ready
}

func (m *machine) takerOf(now int64, size int, c *candidate) *waiting {
	if m.led.keys != nil {
		return m.sharedTaker(now, size, c.key)
	}
	return m.taker(now, size)
}

// message builds what the client gets; the ack subject and a changed header go to the arena.
func (m *machine) message(c *candidate) send {
	at := len(m.out.arena)
	m.out.arena = jsapi.AppendAckSubject(m.out.arena, m.set.ackPrefix, &jsapi.AckSubject{
		Delivered: c.count, StreamSeq: c.rec.Seq, ConsumerSeq: m.led.last.consumer + 1, Time: c.rec.Time,
		Pending: m.pendingAfter(c),
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
	if c.count > 1 {
		m.life.again++
	}
	if !m.set.push {
		m.life.used = now
	}
	if c.again != nil {
		m.log.redelivered(now, m.led.last.stream, c.rec.Seq, c.count)
		if c.again.parked {
			m.parked.Remove(c.rec.Seq)
		}
		m.led.redeliver(c.again, now, m.set.dueAfter(now, c.count))
		return
	}
	m.pass(c)
	m.log.delivered(now, m.led.last.stream, c.rec.Seq)
	if m.set.cfg.AckPolicy == server.AckNone {
		m.led.passNoAck(c.rec.Seq)
		m.out.acked = append(m.out.acked, c.rec.Seq)
		return
	}
	m.led.add(c.rec.Seq, now, m.set.dueAfter(now, 1))
}

// pass leaves c, which is new, behind.
func (m *machine) pass(c *candidate) {
	if c.listed {
		m.skip.pass(c.rec.Seq)
	} else {
		m.w.Pass(c.rec.Seq)
	}
}

// settle is called when there is nothing more to send now.
func (m *machine) settle(now int64, why standing) {
	if m.pace.replaying && m.position() > m.pace.replayEnd {
		m.pace.replaying = false
	}
	switch why {
	case full, crowded:
		if m.life.prune == 0 {
			m.life.prune = now + pruneEvery
		}
		if why == crowded && m.wait.noWaits > 0 {
			m.processWaiting(now, true)
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
	m.life.removals, m.life.pruned = removals, now
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
			delete(m.graves.told, seq)
		}
	}
}

// vanished deals with a message that is outstanding but no longer in the stream.
func (m *machine) vanished(now int64, e *entry) {
	if e.parked {
		m.unpark(e)
		return
	}
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

package consumer

import (
	"strconv"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// AckID is what an ack subject says.
type AckID struct {
	Delivered   uint64 // delivery count
	StreamSeq   uint64
	ConsumerSeq uint64
	Time        int64 // Unix nanoseconds of the message
	Pending     uint64
}

// ack takes an acknowledgement of any kind. reply (may be empty) and arg are the machine's to keep.
func (m *machine) ack(now int64, a *AckID, kind jsapi.AckKind, arg, reply []byte) {
	if m.closed != nil || m.set.cfg.AckPolicy == server.AckNone || m.set.cfg.AckPolicy == server.AckFlowControl {
		m.refuseAck(reply)
		return
	}
	if m.set.cfg.InactiveThreshold > 0 {
		m.active(now)
	}
	if e := m.led.bySeq[a.StreamSeq]; e != nil && e.parked && kind != jsapi.AckNext {
		m.refuseAck(reply) // it was not delivered yet
		return
	}
	known := true
	switch kind {
	case jsapi.AckDone:
		known = m.acknowledgeSampled(now, a)
	case jsapi.AckNext:
		m.acknowledgeSampled(now, a)
		if len(reply) > 0 {
			m.pull(now, reply, arg)
		}
		return
	case jsapi.AckNak:
		m.nak(now, a, arg)
	case jsapi.AckProgress:
		m.progress(now, a)
	case jsapi.AckTerm:
		if known = m.terminate(now, a, arg); known {
			m.out.events = append(m.out.events, event{
				kind: eventTerm, sseq: a.StreamSeq, dseq: a.ConsumerSeq, count: a.Delivered, reason: string(arg),
			})
		}
	case jsapi.AckUnknown:
		if len(reply) > 0 {
			m.out.status(reply, 400, jsapi.StatusBadRequest+"unknown acknowledgement")
		}
		return
	}
	switch {
	case len(reply) == 0:
	case !known:
		m.refuseAck(reply)
	default:
		m.out.confirms = append(m.out.confirms, string(reply))
	}
}

// refuseAck answers an ack that means nothing here (nothing was delivered under that sequence, or the consumer takes no
// acks). NATS leaves such a sender to its timeout; this status is the one clients already take for "nobody is there".
func (m *machine) refuseAck(reply []byte) {
	if len(reply) > 0 {
		m.out.status(reply, 503, "")
	}
}

// acknowledgeSampled is acknowledge with the metric that sample_freq asks for.
func (m *machine) acknowledgeSampled(now int64, a *AckID) bool {
	if e := m.led.bySeq[a.StreamSeq]; e != nil && m.set.cfg.AckPolicy == server.AckExplicit {
		m.sample(now, a, e)
	}
	return m.acknowledge(now, a)
}

// acknowledge marks a message as done; false if it was never delivered.
func (m *machine) acknowledge(now int64, a *AckID) bool {
	e := m.led.bySeq[a.StreamSeq]
	if a.StreamSeq == 0 || a.StreamSeq > m.led.last.stream || e != nil && e.parked {
		return false
	}
	m.life.acked = now
	if e != nil && !e.waits() {
		m.out.took = append(m.out.took, now-e.lastSent())
	}
	if m.set.cfg.AckPolicy == server.AckAll {
		m.ackUpTo(seqPair{a.ConsumerSeq, a.StreamSeq})
		return true
	}
	if e != nil {
		m.log.acked(m.led.last.stream, e.sseq)
		m.led.remove(e)
	} else if m.led.forget(a.StreamSeq) {
		m.log.forgot(m.led.last.stream, a.StreamSeq)
	}
	// Told for an ack that comes twice too: the first may have been lost to the stream in a crash.
	m.out.acked = append(m.out.acked, a.StreamSeq)
	return true
}

// ackUpTo marks everything up to a message as done.
func (m *machine) ackUpTo(to seqPair) {
	if to.stream <= m.led.floor.stream {
		return
	}
	to.consumer = min(max(to.consumer, m.led.floor.consumer), m.led.last.consumer)
	m.log.ackedUpTo(m.led.last.stream, to)
	m.led.removeUpTo(to, func(seq uint64) { m.out.acked = append(m.out.acked, seq) })
}

// ackByAnswer acknowledges what the answer to a flow-control request says was received.
func (m *machine) ackByAnswer(now int64, header []byte) {
	sseq, err := strconv.ParseUint(string(jsapi.HeaderValue(header, server.JSLastStreamSeq)), 10, 64)
	if err != nil || sseq == 0 || sseq > m.led.last.stream {
		return
	}
	dseq, err := strconv.ParseUint(string(jsapi.HeaderValue(header, server.JSLastConsumerSeq)), 10, 64)
	if err != nil {
		dseq = 0
	}
	m.life.acked = now
	m.ackUpTo(seqPair{dseq, sseq})
}

// nak makes a message due again: at once, or after the delay in arg.
func (m *machine) nak(now int64, a *AckID, arg []byte) {
	e := m.led.bySeq[a.StreamSeq]
	if e == nil || a.ConsumerSeq <= m.led.floor.consumer || a.ConsumerSeq > m.led.last.consumer {
		return
	}
	if m.isStale(e, a) {
		return
	}
	if !m.w.Exists(e.sseq) {
		m.vanished(now, e)
		return
	}
	m.out.events = append(m.out.events, event{
		kind: eventNak, sseq: e.sseq, dseq: a.ConsumerSeq, count: a.Delivered,
	})
	delay, delayed, err := jsapi.ParseNakDelay(arg)
	switch {
	case err == nil && delayed:
		due := after(now, int64(max(delay, 0)))
		m.log.postponed(m.led.last.stream, e.sseq, due)
		m.postpone(e, due)
	case e.queued || m.exhausted(e):
	case m.set.nakBackoff:
		due := m.set.dueAfter(now, e.count)
		m.log.postponed(m.led.last.stream, e.sseq, due)
		m.postpone(e, due)
	default:
		m.log.queued(m.led.last.stream, e.sseq)
		m.led.queue(e)
	}
}

// isStale reports whether a worker says something about a delivery of e that is over, where that matters: with keys,
// the message may be in the hands of another one by now.
func (m *machine) isStale(e *entry, a *AckID) bool {
	return m.led.keys != nil && (e.waits() || a.Delivered < e.count)
}

func (m *machine) postpone(e *entry, due int64) {
	m.led.setDue(e, due)
	e.delayed = true
	m.led.keys.wait(e)
}

// progress starts the ack wait of a message again. It comes too late for one that is queued to be delivered again, as
// it does on nats-server.
func (m *machine) progress(now int64, a *AckID) {
	e := m.led.bySeq[a.StreamSeq]
	if e == nil || e.queued || m.isStale(e, a) {
		return
	}
	due := m.set.dueAfter(now, e.count)
	m.log.progressed(now, m.led.last.stream, e.sseq)
	e.sent, e.delayed = now, false
	m.led.setDue(e, due)
}

// exhausted reports whether e was delivered as often as permitted; it is then taken out and its loss announced.
func (m *machine) exhausted(e *entry) bool {
	if m.set.maxDeliver == 0 || e.count < m.set.maxDeliver {
		return false
	}
	m.out.events = append(m.out.events, event{kind: eventMaxDeliver, sseq: e.sseq, count: e.count})
	m.exhaust(e, dead{why: reasonMaxDeliver})
	return true
}

// exhaust takes e out as a message that is not delivered again, and buries it where that was asked for.
func (m *machine) exhaust(e *entry, d dead) {
	d.seq, d.count = e.sseq, e.count
	m.log.exhausted(m.led.last.stream, e.sseq)
	m.led.exhaust(e)
	if m.set.buries {
		m.out.dead = append(m.out.dead, d)
	}
}

func (m *machine) sample(now int64, a *AckID, e *entry) {
	if m.set.sample <= 0 || m.set.sample < 100 && m.rand()%100 >= uint64(m.set.sample) {
		return
	}
	m.out.events = append(m.out.events, event{
		kind: eventAckSample, sseq: a.StreamSeq, dseq: a.ConsumerSeq, count: a.Delivered, delay: now - e.sent,
	})
}

// active notes that somebody uses the consumer.
func (m *machine) active(now int64) {
	m.life.used = now
	if m.life.check != 0 {
		m.life.check = after(now, m.set.threshold)
	}
}

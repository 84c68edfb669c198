package consumer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats-server/v2/server"
)

// The state of a consumer is kept as a checkpoint and changes to it. A change is a row of operations:
//
//	op      fields (unsigned varints)      meaning
//	time    t                              the time (Unix nanoseconds) of the operations after it
//	deliver sseq-last                      first delivery of sseq; the consumer sequence goes up by one
//	again   last-sseq, count               delivery number count of an outstanding message; likewise
//	ack     last-sseq                      done
//	ackall  last-sseq, dseq                done with all up to sseq
//	due     last-sseq, t                   not to be delivered again before t
//	work    last-sseq                      the ack wait starts again
//	queue   last-sseq                      to be delivered again at once
//	exhaust last-sseq                      max_deliver reached
//	forget  last-sseq                      an exhausted message is done
//	reset   sseq                           nothing delivered; go on at sseq
//	undo    last-sseq                      the last delivery reached nobody and does not count
//	park    sseq-last                      passed over, to be delivered later
//	nothing                                no change (something waits for its being durable)
//
// last is the stream sequence of the newest delivery when the operation was written, so that most numbers take a byte.
const (
	opTime byte = iota + 1
	opDeliver
	opAgain
	opAck
	opAckAll
	opDue
	opWork
	opQueue
	opExhaust
	opForget
	opReset
	opNothing
	opUndo
	opPark
)

// stateVersion is the first byte of a checkpoint.
const stateVersion = 1

var errState = errors.New("consumer state is damaged")

// changeLog collects the operations of a step.
type changeLog struct {
	buf  []byte
	time int64 // of the last opTime in buf
}

// swap returns what was collected and goes on with the memory of spare.
func (l *changeLog) swap(spare []byte) []byte {
	buf := l.buf
	l.buf, l.time = spare[:0], 0
	return buf
}

func (l *changeLog) op(op byte, fields ...uint64) {
	l.buf = append(l.buf, op)
	for _, f := range fields {
		l.buf = binary.AppendUvarint(l.buf, f)
	}
}

func (l *changeLog) at(now int64) {
	if l.time != now {
		l.time = now
		l.op(opTime, uint64(now)) //nolint:gosec // a time since 1970
	}
}

func (l *changeLog) delivered(now int64, last, sseq uint64) {
	l.at(now)
	l.op(opDeliver, sseq-last)
}

func (l *changeLog) parked(now int64, last, sseq uint64) {
	l.at(now)
	l.op(opPark, sseq-last)
}

func (l *changeLog) redelivered(now int64, last, sseq, count uint64) {
	l.at(now)
	l.op(opAgain, last-sseq, count)
}

func (l *changeLog) progressed(now int64, last, sseq uint64) {
	l.at(now)
	l.op(opWork, last-sseq)
}

func (l *changeLog) postponed(last, sseq uint64, due int64) {
	l.op(opDue, last-sseq, uint64(due)) //nolint:gosec // a time since 1970
}

func (l *changeLog) acked(last, sseq uint64)           { l.op(opAck, last-sseq) }
func (l *changeLog) ackedUpTo(last uint64, to seqPair) { l.op(opAckAll, last-to.stream, to.consumer) }
func (l *changeLog) queued(last, sseq uint64)          { l.op(opQueue, last-sseq) }
func (l *changeLog) undone(last, sseq uint64)          { l.op(opUndo, last-sseq) }
func (l *changeLog) exhausted(last, sseq uint64)       { l.op(opExhaust, last-sseq) }
func (l *changeLog) forgot(last, sseq uint64)          { l.op(opForget, last-sseq) }
func (l *changeLog) resetTo(sseq uint64)               { l.op(opReset, sseq) }

// fields reads varints; the first that cannot be read makes all following ones fail.
type fields struct {
	b   []byte
	err error
}

func (f *fields) next() uint64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 {
		f.err = errState
		f.b = nil
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) op() byte {
	if len(f.b) == 0 {
		return 0
	}
	op := f.b[0]
	f.b = f.b[1:]
	return op
}

// replay applies a change that was read back.
func (m *machine) replay(change []byte) error {
	f := fields{b: change}
	now := int64(0)
	for len(f.b) > 0 {
		op := f.op()
		switch op {
		case opTime:
			now = int64(f.next()) //nolint:gosec // a time since 1970
		case opNothing:
		case opReset:
			m.resume = 0
			m.resetTo(max(f.next(), 1))
		case opDeliver:
			m.replayDelivery(now, m.led.last.stream+f.next())
		case opPark:
			if sseq := m.led.last.stream + f.next(); sseq > m.led.last.stream {
				m.skip.pass(sseq)
				m.led.park(sseq, now)
			}
		default:
			if err := m.replayOne(op, now, &f); err != nil {
				return err
			}
		}
		if f.err != nil {
			return f.err
		}
	}
	return nil
}

func (m *machine) replayDelivery(now int64, sseq uint64) {
	m.life.delivered = now
	m.skip.pass(sseq)
	switch {
	case sseq <= m.led.last.stream: // damaged, or an overflow: the bounds of the ledger come first
	case m.set.cfg.AckPolicy == server.AckNone:
		m.led.passNoAck(sseq)
	default:
		m.led.add(sseq, now, m.set.dueAfter(now, 1))
	}
}

// replayOne applies an operation about one outstanding message.
func (m *machine) replayOne(op byte, now int64, f *fields) error {
	back := f.next()
	if f.err != nil || back > m.led.last.stream {
		return errState
	}
	sseq := m.led.last.stream - back
	e := m.led.bySeq[sseq]
	switch op {
	case opAckAll:
		m.led.removeUpTo(seqPair{f.next(), sseq}, func(uint64) {})
		return f.err
	case opForget:
		m.led.forget(sseq)
		return nil
	}
	if e == nil {
		return fmt.Errorf("%w: operation %d on message %d, which is not outstanding", errState, op, sseq)
	}
	switch op {
	case opAgain:
		count := f.next()
		m.led.redeliver(e, now, m.set.dueAfter(now, e.count+1))
		e.count = max(e.count, count)
	case opAck:
		m.led.remove(e)
	case opDue:
		m.postpone(e, int64(f.next())) //nolint:gosec // a time since 1970
	case opWork:
		e.sent, e.delayed = now, false
		m.led.setDue(e, m.set.dueAfter(now, e.count))
	case opQueue:
		m.led.queue(e)
	case opUndo:
		if e.queued || e.count == 0 {
			return errState
		}
		m.led.undo(e)
	case opExhaust:
		m.led.exhaust(e)
	default:
		return fmt.Errorf("%w: unknown operation %d", errState, op)
	}
	return f.err
}

// checkpoint appends the whole state to dst.
func (m *machine) checkpoint(dst []byte) []byte { return m.checkpointAt(dst, m.w.Position()) }

// checkpointAt is checkpoint with the sequence the cursor is at.
func (m *machine) checkpointAt(dst []byte, position uint64) []byte {
	put := func(vs ...uint64) {
		for _, v := range vs {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	dst = append(dst, stateVersion)
	l := m.led
	put(l.last.consumer, l.last.stream, l.floor.consumer, l.floor.stream)
	put(uint64(m.life.delivered), uint64(m.life.acked)) //nolint:gosec // times since 1970
	put(position)
	skip := m.skip.seqs()
	put(uint64(len(skip)))
	put(skip...)
	put(uint64(len(l.exhausted)))
	for seq, count := range l.exhausted {
		put(seq, count)
	}
	put(uint64(l.len()))
	var prev seqPair
	for e := l.head; e != nil; e = e.next {
		flags := uint64(0)
		if e.delayed {
			flags |= 1
		}
		put(e.sseq-prev.stream, e.dseq-prev.consumer, e.count,
			uint64(e.first), uint64(e.sent), uint64(e.due), flags) //nolint:gosec // times since 1970
		prev = seqPair{e.dseq, e.sseq}
	}
	put(uint64(l.queued)) //nolint:gosec // a count
	for e := l.rhead; e != nil; e = e.rnext {
		put(e.sseq)
	}
	return dst
}

// restore loads a checkpoint over an empty state.
func (m *machine) restore(state []byte) error {
	if len(state) == 0 || state[0] != stateVersion {
		return fmt.Errorf("%w: unknown version", errState)
	}
	f := fields{b: state[1:]}
	m.led = newLedger(1)
	l := m.led
	l.last = seqPair{f.next(), f.next()}
	floor := seqPair{f.next(), f.next()}
	m.life.delivered, m.life.acked = int64(f.next()), int64(f.next()) //nolint:gosec // times since 1970
	m.resume = f.next()
	for n := f.count(); n > 0; n-- {
		m.skip.loaded = append(m.skip.loaded, f.next())
	}
	for n := f.count(); n > 0; n-- {
		seq := f.next()
		l.exhausted[seq] = f.next()
	}
	l.floor = floor
	if err := l.restore(&f); err != nil {
		return err
	}
	if len(f.b) != 0 || !slices.IsSorted(m.skip.loaded) || floor.stream > l.last.stream {
		return errState
	}
	return f.err
}

// count reads the length of a list, of which every member takes a byte at least.
func (f *fields) count() uint64 {
	n := f.next()
	if n > uint64(len(f.b)) {
		f.err, f.b = errState, nil
		return 0
	}
	return n
}

// restore reads the outstanding messages.
func (l *ledger) restore(f *fields) error {
	var prev seqPair
	for n := f.count(); n > 0; n-- {
		at := seqPair{stream: prev.stream + f.next()}
		at.consumer = prev.consumer + f.next()
		if f.err != nil || at.stream <= max(prev.stream, l.floor.stream) || at.stream > l.last.stream {
			return errState
		}
		e := l.insert(at.stream, at.consumer)
		e.count = f.next()
		e.first, e.sent, e.due = int64(f.next()), int64(f.next()), int64(f.next()) //nolint:gosec // times since 1970
		e.delayed = f.next() == 1
		if e.count > 1 {
			l.redelivered++
		}
		l.heap.push(e)
		prev = at
	}
	for n := f.count(); n > 0; n-- {
		e := l.bySeq[f.next()]
		if e == nil || e.queued {
			return errState
		}
		l.queue(e)
	}
	for e := l.head; e != nil; e = e.next {
		if e.count == 0 && !e.queued {
			l.setParked(e)
		}
	}
	return f.err
}

// clamp cuts the state back to what the log still has, after a log that lost its end: else the consumer would wait,
// dark, until the sequence it remembers comes again. It reports whether there was anything to cut.
func (m *machine) clamp(visible uint64) bool {
	l := m.led
	if m.set.cfg.DeliverPolicy == server.DeliverByStartSequence {
		visible = max(visible, m.set.cfg.OptStartSeq-1) // a start that was asked for before its time
	}
	m.resume = min(m.resume, visible+1)
	if l.last.stream <= visible {
		return false
	}
	for e := l.tail; e != nil && e.sseq > visible; e = l.tail {
		l.mu.Lock()
		l.drop(e)
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for seq := range l.exhausted {
		if seq > visible {
			delete(l.exhausted, seq)
		}
	}
	l.last.stream = visible
	if l.floor.stream > visible || l.head == nil {
		l.floor = l.last
	}
	m.skip.cut(visible)
	return true
}

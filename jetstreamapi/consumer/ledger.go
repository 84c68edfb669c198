package consumer

import "sync"

// never is a deadline that does not come.
const never = int64(1<<63 - 1)

// entry is one message that was delivered and not yet acknowledged.
type entry struct {
	sseq, dseq uint64 // stream sequence; consumer sequence of the first delivery
	count      uint64 // deliveries so far, from 1; 0: the first reached nobody
	first      int64  // when it was first delivered, Unix nanoseconds
	sent       int64  // when it was last delivered, or last reported in progress
	due        int64  // when it is to be delivered again
	delayed    bool   // due was asked for by a NAK: a change of ack_wait does not move it
	parked     bool   // passed over, not delivered yet; see keyshared.go

	key    *sharedKey // nil: there are no keys, or it is not known yet
	inHand bool       // counted so by key

	heapIndex    int    // in ledger.heap; -1: not there (it waits for redelivery, or never expires)
	prev, next   *entry // the order of first delivery, which is the order of sseq
	rprev, rnext *entry // the redelivery queue
	queued       bool   // in the redelivery queue
}

// waits reports whether e is to be delivered (again), now or later, and in nobody's hands.
func (e *entry) waits() bool { return e.parked || e.queued || e.delayed }

// lastSent is when e was last delivered; a report of progress after a first delivery does not count as one.
func (e *entry) lastSent() int64 {
	if e.count <= 1 {
		return e.first
	}
	return e.sent
}

// ledger is what a consumer owes: which messages were delivered, which of them are done.
//
// Invariants:
//   - every entry e has floor.stream < e.sseq <= last.stream
//   - the list from head is ascending in sseq, and in dseq but for those that were parked: they have the dseq of what
//     was delivered next
//   - an entry is in the heap (by due) or in the redelivery queue, never in both; a parked one is in neither
//
// The machine alone changes a ledger, and reads it without the lock; mu is for readers elsewhere (done), so every
// change to what they read is made under it.
type ledger struct {
	mu        sync.Mutex
	last      seqPair // of the newest delivery
	floor     seqPair // everything up to here is done
	bySeq     map[uint64]*entry
	exhausted map[uint64]uint64 // max_deliver reached, still in the stream: stream sequence -> deliveries

	head, tail   *entry
	heap         dueHeap
	rhead, rtail *entry
	queued       int // entries in the redelivery queue
	redelivered  int // entries with count > 1
	parked       int // entries that are parked
	keys         *keyIndex
	free         *entry
}

// seqPair is a position as a consumer counts it and as its stream does.
type seqPair struct{ consumer, stream uint64 }

func newLedger(start uint64) *ledger {
	l := &ledger{bySeq: map[uint64]*entry{}, exhausted: map[uint64]uint64{}}
	l.last.stream, l.floor.stream = start-1, start-1
	return l
}

// len returns how many messages are delivered, or parked, and not done.
func (l *ledger) len() int { return len(l.bySeq) }

// outstanding returns how many messages are delivered and not done.
func (l *ledger) outstanding() int { return len(l.bySeq) - l.parked }

// done reports whether the message at seq is needed no more. Any goroutine may ask.
func (l *ledger) done(seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, kept := l.exhausted[seq]; kept {
		return false
	}
	if seq <= l.floor.stream {
		return true
	}
	_, pending := l.bySeq[seq]
	return seq <= l.last.stream && !pending
}

// lastStream returns the stream sequence of the newest delivery. Any goroutine may ask.
func (l *ledger) lastStream() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.stream
}

// passNoAck records a delivery that needs no ack.
func (l *ledger) passNoAck(sseq uint64) {
	l.mu.Lock()
	l.last = seqPair{l.last.consumer + 1, sseq}
	l.floor = l.last
	l.mu.Unlock()
}

// add records a first delivery.
func (l *ledger) add(sseq uint64, now, due int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = seqPair{l.last.consumer + 1, sseq}
	e := l.insert(sseq, l.last.consumer)
	e.count, e.first, e.sent, e.due = 1, now, now, due
	l.heap.push(e)
}

// insert puts an empty entry at the end of the list.
func (l *ledger) insert(sseq, dseq uint64) *entry {
	e := l.free
	if e == nil {
		e = new(entry)
	} else {
		l.free = e.next
	}
	*e = entry{sseq: sseq, dseq: dseq, heapIndex: -1, prev: l.tail}
	if l.tail == nil {
		l.head = e
	} else {
		l.tail.next = e
	}
	l.tail = e
	l.bySeq[sseq] = e
	return e
}

// park records that the message at sseq was passed over.
func (l *ledger) park(sseq uint64, now int64) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last.stream = sseq
	e := l.insert(sseq, l.last.consumer+1)
	e.first, e.sent = now, now
	l.setParked(e)
	return e
}

// setParked makes an entry that is not queued and was never delivered a parked one.
func (l *ledger) setParked(e *entry) {
	l.heap.remove(e)
	e.parked, e.due = true, never
	l.parked++
}

// unparkAll makes what is parked deliverable without regard to keys.
func (l *ledger) unparkAll() {
	for e := l.head; e != nil && l.parked > 0; e = e.next {
		if e.parked {
			e.parked = false
			l.parked--
			l.queue(e)
		}
	}
}

// redeliver records one more delivery of e.
func (l *ledger) redeliver(e *entry, now, due int64) {
	l.unqueue(e)
	l.heap.remove(e) // while the state is loaded it is here: its expiry was not written
	if e.count == 1 {
		l.redelivered++
	}
	if e.parked {
		e.parked, e.first = false, now
		l.parked--
	}
	e.count++
	e.sent, e.due, e.delayed = now, due, false
	l.heap.push(e)
	l.mu.Lock()
	l.last.consumer++
	l.mu.Unlock()
}

// undo takes back the last delivery of e, which reached nobody: it does not count, and e is to be delivered again.
func (l *ledger) undo(e *entry) {
	if e.count == 2 {
		l.redelivered--
	}
	e.count--
	l.queue(e)
}

// setDue moves the time of e's next delivery.
func (l *ledger) setDue(e *entry, due int64) {
	e.due = due
	if e.queued {
		l.unqueue(e)
		l.heap.push(e)
		return
	}
	l.heap.fix(e)
}

// queue puts e at the end of the redelivery queue.
func (l *ledger) queue(e *entry) {
	if e.queued {
		return
	}
	l.heap.remove(e)
	l.queued++
	e.queued, e.rprev, e.rnext = true, l.rtail, nil
	if l.rtail == nil {
		l.rhead = e
	} else {
		l.rtail.rnext = e
	}
	l.rtail = e
	l.keys.wait(e)
}

func (l *ledger) unqueue(e *entry) {
	if !e.queued {
		return
	}
	if e.rprev == nil {
		l.rhead = e.rnext
	} else {
		e.rprev.rnext = e.rnext
	}
	if e.rnext == nil {
		l.rtail = e.rprev
	} else {
		e.rnext.rprev = e.rprev
	}
	l.queued--
	e.queued, e.rprev, e.rnext = false, nil, nil
}

// remove takes e out, done, and moves the floor. The entry is free afterwards.
func (l *ledger) remove(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasHead := e == l.head
	l.drop(e)
	switch {
	case l.head == nil:
		l.floor = l.last
	case wasHead:
		l.floor = seqPair{l.head.dseq - 1, l.head.sseq - 1}
	}
}

// removeUpTo takes out all entries up to sseq and moves the floor there; fn sees each entry before it goes.
func (l *ledger) removeUpTo(to seqPair, fn func(sseq uint64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.head; e != nil && e.sseq <= to.stream; e = l.head {
		fn(e.sseq)
		l.drop(e)
	}
	l.floor = to
}

// exhaust takes e out because it may not be delivered again; its message stays in the stream.
func (l *ledger) exhaust(e *entry) {
	l.mu.Lock()
	l.exhausted[e.sseq] = e.count
	l.mu.Unlock()
	l.remove(e)
}

// forget drops what is kept of an exhausted message.
func (l *ledger) forget(seq uint64) bool {
	if _, ok := l.exhausted[seq]; !ok {
		return false
	}
	l.mu.Lock()
	delete(l.exhausted, seq)
	l.mu.Unlock()
	return true
}

// drop unlinks e from everything.
func (l *ledger) drop(e *entry) {
	l.keys.drop(e)
	if e.parked {
		l.parked--
	}
	l.unqueue(e)
	l.heap.remove(e)
	if e.count > 1 {
		l.redelivered--
	}
	if e.prev == nil {
		l.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	delete(l.bySeq, e.sseq)
	*e = entry{next: l.free}
	l.free = e
}

// reset forgets all deliveries and starts again before start.
func (l *ledger) reset(start uint64) {
	fresh := newLedger(start)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.floor, l.bySeq, l.exhausted = fresh.last, fresh.floor, fresh.bySeq, fresh.exhausted
	l.head, l.tail, l.heap, l.rhead, l.rtail, l.queued, l.redelivered, l.free = nil, nil, nil, nil, nil, 0, 0, nil
	l.parked, l.keys = 0, l.keys.emptied()
}

// nextDue returns when the first entry is to be delivered again; 0 when none is.
func (l *ledger) nextDue() int64 {
	if len(l.heap) == 0 {
		return 0
	}
	return l.heap[0].due
}

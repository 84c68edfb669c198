package consumer

import "fmt"

// Bounds of one audit.
const (
	auditEntries = 10_000 // outstanding messages that are looked at one by one
	auditTries   = 3      // counts of what is pending, until one was not disturbed
)

// Audit counts anew what the consumer keeps count of: what is pending, from the log, and what is outstanding, from the
// ledger. The error says what was wrong; a wrong number of pending messages is right afterwards. Where so much happens
// that no count is undisturbed, nothing is said.
func (c *Consumer) Audit() error {
	c.mu.Lock()
	err := c.m.led.audit()
	c.mu.Unlock()
	if err != nil {
		return err
	}
	for range auditTries {
		if wrong, settled := c.auditPending(); settled {
			return wrong
		}
	}
	return nil
}

// unread is how far the consumer has read and what it believes is left.
type unread struct{ position, pending uint64 }

// unread is also what the consumer counts with; serves is false once it has ended. c.mu is held.
func (c *Consumer) unread() (u unread, filters *filterSet, serves bool) {
	if c.m.closed != nil {
		return unread{}, nil, false
	}
	return unread{c.m.w.Position(), c.m.w.Pending()}, c.filters.Load(), true
}

// auditPending counts what is pending, twice, without the lock. settled is false if the consumer or the log went on
// meanwhile.
func (c *Consumer) auditPending() (wrong error, settled bool) {
	c.mu.Lock()
	before, filters, serves := c.unread()
	c.mu.Unlock()
	if !serves {
		return nil, true
	}
	log := c.o.Stream.Log()
	counted := log.Count(before.position, *filters)
	if counted == before.pending {
		return nil, true
	}
	again := log.Count(before.position, *filters)
	c.mu.Lock()
	defer c.mu.Unlock()
	if after, same, _ := c.unread(); after != before || same != filters || again != counted {
		return nil, false
	}
	c.m.w.Seek(before.position) // which counts anew
	return fmt.Errorf("%d messages from %d on were taken for pending, there are %d",
		before.pending, before.position, counted), true
}

// audit checks the invariants of the ledger.
func (l *ledger) audit() error {
	if inHeap, all := len(l.heap), len(l.bySeq); inHeap+l.queued+l.parked > all {
		return fmt.Errorf("%d messages are outstanding, but %d wait for their time, %d are to be sent again, "+
			"%d wait for a key", all, inHeap, l.queued, l.parked)
	}
	if len(l.bySeq) > auditEntries {
		return nil
	}
	var found tally
	kept := tally{len(l.bySeq), l.queued, l.parked, l.redelivered}
	before := l.floor.stream
	for e := l.head; e != nil; e = e.next {
		switch {
		case e.sseq <= before || e.sseq > l.last.stream:
			return fmt.Errorf("message %d is outstanding between %d and %d", e.sseq, before, l.last.stream)
		case l.bySeq[e.sseq] != e:
			return fmt.Errorf("message %d is outstanding and not known", e.sseq)
		case e.queued && e.heapIndex >= 0, e.parked && (e.queued || e.heapIndex >= 0):
			return fmt.Errorf("message %d waits for two things at once", e.sseq)
		}
		before = e.sseq
		found.add(e)
	}
	if found != kept {
		return fmt.Errorf("counted %v, kept %v", found, kept)
	}
	return nil
}

// tally is how many messages are outstanding, and how many of them wait to be sent again, wait for a key, and were sent
// more than once.
type tally struct{ all, queued, parked, redelivered int }

func (t *tally) add(e *entry) {
	t.all++
	if e.queued {
		t.queued++
	}
	if e.parked {
		t.parked++
	}
	if e.count > 1 {
		t.redelivered++
	}
}

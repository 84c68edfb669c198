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
	return fmt.Errorf("%d messages from %d on were taken for pending, there are %d", before.pending, before.position, counted), true
}

// audit checks the invariants of the ledger.
func (l *ledger) audit() error {
	if inHeap, all := len(l.heap), len(l.bySeq); inHeap+l.queued+l.parked > all {
		return fmt.Errorf("%d messages are outstanding, but %d wait for their time, %d to be sent again and %d for their key",
			all, inHeap, l.queued, l.parked)
	}
	if len(l.bySeq) > auditEntries {
		return nil
	}
	var n, queued, parked, redelivered int
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
		n, queued, parked, redelivered = n+1, queued+one(e.queued), parked+one(e.parked), redelivered+one(e.count > 1)
	}
	if n != len(l.bySeq) || queued != l.queued || parked != l.parked || redelivered != l.redelivered {
		return fmt.Errorf("outstanding, to be sent again, waiting for a key, redelivered: counted %d %d %d %d, kept %d %d %d %d",
			n, queued, parked, redelivered, len(l.bySeq), l.queued, l.parked, l.redelivered)
	}
	return nil
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

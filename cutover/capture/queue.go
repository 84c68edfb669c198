package capture

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
)

// counts are the records that went each way. After any moment
//
//	enqueued + enqueued_after_wait == drained + returned + shutdown_abandoned + pending
//
// where pending is what the queue holds, or the writer has in its hands.
type counts struct {
	sync.Mutex
	Counts
}

// Counts are records by what became of them. Nothing is ever dropped: what is returned or abandoned is not durable
// here, and is read again from the authority.
type Counts struct {
	Enqueued          uint64 // there was room
	EnqueuedAfterWait uint64 // there was room after a moment
	QueueFullInline   uint64 // there was none: the reader wrote what waited, and these, itself
	QueueClosedInline uint64 // the queue was closed already, likewise
	Drained           uint64 // written from the queue, and durable
	Returned          uint64 // taken out of the queue unwritten, when copying was interrupted
	ShutdownAbandoned uint64 // likewise, when it was stopped and the time was over
	Pending           uint64
}

// add changes the counts.
func (c *counts) add(fn func(*Counts)) {
	c.Lock()
	defer c.Unlock()
	fn(&c.Counts)
}

// waitForRoom is how long the reader waits for room before it writes itself.
const waitForRoom = 100 * time.Millisecond

// queue holds records between reading and writing.
type queue struct {
	maxRecords, maxBytes int
	counts               *counts

	mu     sync.Mutex
	list   []cutover.Record // with slices of their own
	bytes  int
	closed bool
	filled chan struct{} // closed when something came or the queue was closed
	freed  chan struct{} // closed when something went
}

func newQueue(records, size int, c *counts) *queue {
	return &queue{
		maxRecords: records, maxBytes: size, counts: c, closed: true,
		filled: make(chan struct{}), freed: make(chan struct{}),
	}
}

func (q *queue) open() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = false
}

// close ends the queue: what is in it can be taken, nothing comes any more.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	signal(&q.filled)
}

// signal closes a channel for all who wait on it, and makes another.
func signal(ch *chan struct{}) {
	close(*ch)
	*ch = make(chan struct{})
}

// rung is where the records are counted that a rung took.
type rung func(*Counts) *uint64

func atOnce(c *Counts) *uint64    { return &c.Enqueued }
func afterWait(c *Counts) *uint64 { return &c.EnqueuedAfterWait }

// offer puts as many records of batch in the queue as fit, at least one into an empty one, and returns how many; freed
// is closed when there is more room.
func (q *queue) offer(batch []cutover.Record, rung rung) (n int, freed <-chan struct{}, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, nil, false
	}
	for n < len(batch) {
		size := sizeOf(&batch[n])
		if len(q.list) > 0 && (len(q.list) >= q.maxRecords || q.bytes+size > q.maxBytes) {
			break
		}
		q.list = append(q.list, cloned(&batch[n]))
		q.bytes += size
		n++
	}
	if n > 0 {
		signal(&q.filled)
		q.counts.add(func(c *Counts) {
			c.Pending += uint64(n) //nolint:gosec // a count
			*rung(c) += uint64(n)  //nolint:gosec // a count
		})
	}
	return n, q.freed, true
}

// put brings the records to the standby, by the first rung that takes them: the queue if there is room, or if there is
// after a moment, else inline, which writes everything that waits first.
func (q *queue) put(ctx context.Context, batch []cutover.Record, inline func([]cutover.Record) error) error {
	n, freed, open := q.offer(batch, atOnce)
	batch = batch[n:]
	limit := time.NewTimer(waitForRoom)
	defer limit.Stop()
	for over := false; open && len(batch) > 0 && !over; {
		select {
		case <-freed:
			n, freed, open = q.offer(batch, afterWait)
			batch = batch[n:]
		case <-limit.C:
			over = true
		case <-ctx.Done():
			return context.Cause(ctx) // what is left was counted nowhere, and is read again
		}
	}
	if len(batch) == 0 {
		return nil
	}
	if err := inline(batch); err != nil {
		return err
	}
	q.counts.add(func(c *Counts) {
		if open {
			c.QueueFullInline += uint64(len(batch))
		} else {
			c.QueueClosedInline += uint64(len(batch))
		}
	})
	return nil
}

// take returns up to a batch of records, in order. None: more is true if there may be some once filled is closed.
func (q *queue) take(records, size int) (batch []cutover.Record, filled <-chan struct{}, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, sum := 0, 0
	for n < len(q.list) && n < records && (n == 0 || sum+sizeOf(&q.list[n]) <= size) {
		sum += sizeOf(&q.list[n])
		n++
	}
	batch = q.list[:n:n]
	if q.list = q.list[n:]; len(q.list) == 0 {
		q.list = nil
	}
	q.bytes -= sum
	if n > 0 {
		signal(&q.freed)
	}
	return batch, q.filled, !q.closed
}

// discard empties the queue and counts what was in it, and what the writer had in its hands, by why.
func (q *queue) discard(why error) {
	q.mu.Lock()
	q.list, q.bytes = nil, 0
	q.mu.Unlock()
	q.counts.add(func(c *Counts) {
		if why == errStopped { //nolint:errorlint // it is given as it is
			c.ShutdownAbandoned += c.Pending
		} else {
			c.Returned += c.Pending
		}
		c.Pending = 0
	})
}

func (q *queue) len() (records int, oldest int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) == 0 {
		return 0, 0
	}
	return len(q.list), q.list[0].Time
}

func sizeOf(r *cutover.Record) int { return len(r.Subject) + len(r.Header) + len(r.Data) }

func cloned(r *cutover.Record) cutover.Record {
	out := *r
	out.Subject, out.Header, out.Data = bytes.Clone(r.Subject), bytes.Clone(r.Header), bytes.Clone(r.Data)
	return out
}

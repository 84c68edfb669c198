package jetstreamapi

import "sync"

// queue runs jobs on a few workers that exist only while there is something to do. Each worker owns one publisher,
// which is flushed when the queue runs dry or every flushEvery jobs.
type queue struct {
	workers int // at most this many at once; 1 keeps the order of jobs
	bound   int // at most this many waiting
	newOut  func() (*publisher, error)

	mu      sync.Mutex
	jobs    []job
	head    int
	running int
	idle    []*publisher
	closed  bool
	done    sync.WaitGroup
}

// job is one thing to do; out is where it publishes.
type job func(out *publisher)

const flushEvery = 64

// push adds a job, or reports false: the queue is full or closed.
func (q *queue) push(j job) bool { return q.add(j, q.bound) }

// pushAlways adds a job beyond the bound: for work whose number is bounded elsewhere. False means closed.
func (q *queue) pushAlways(j job) bool { return q.add(j, -1) }

func (q *queue) add(j job, bound int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || (bound >= 0 && len(q.jobs)-q.head >= bound) {
		return false
	}
	q.jobs = append(q.jobs, j)
	if q.running < q.workers {
		q.running++
		q.done.Add(1)
		go q.work()
	}
	return true
}

// len returns how many jobs wait or run.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.jobs) - q.head + q.running
}

func (q *queue) work() {
	defer q.done.Done()
	out := q.publisher()
	for n := 1; ; n++ {
		j := q.next(out)
		if j == nil {
			return
		}
		j(out)
		if n%flushEvery == 0 {
			out.flush()
		}
	}
}

// publisher takes an idle publisher or makes one.
func (q *queue) publisher() *publisher {
	q.mu.Lock()
	if n := len(q.idle); n > 0 {
		out := q.idle[n-1]
		q.idle = q.idle[:n-1]
		q.mu.Unlock()
		return out
	}
	q.mu.Unlock()
	out, err := q.newOut()
	if err != nil {
		return &publisher{} // the bus is closing: jobs still run, their answers have nowhere to go
	}
	return out
}

// next takes the next job. With none left it flushes, and if there is still none it ends the worker.
func (q *queue) next(out *publisher) job {
	for flushed := false; ; flushed = true {
		q.mu.Lock()
		if q.head < len(q.jobs) {
			j := q.jobs[q.head]
			q.jobs[q.head] = nil
			q.head++
			q.compact()
			q.mu.Unlock()
			return j
		}
		if flushed || !out.dirty {
			q.running--
			q.idle = append(q.idle, out)
			q.mu.Unlock()
			return nil
		}
		q.mu.Unlock()
		out.flush()
	}
}

// compact gives back the room of jobs that are done. mu is held.
func (q *queue) compact() {
	switch {
	case q.head == len(q.jobs):
		q.jobs, q.head = q.jobs[:0], 0
	case q.head >= 1024 && q.head > len(q.jobs)/2:
		n := copy(q.jobs, q.jobs[q.head:])
		clear(q.jobs[n:])
		q.jobs, q.head = q.jobs[:n], 0
	}
}

// close refuses new jobs, waits for those in the queue and closes the publishers.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.done.Wait()
	for _, out := range q.idle {
		out.close()
	}
	q.idle = nil
}

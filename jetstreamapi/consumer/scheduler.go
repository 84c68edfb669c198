package consumer

import (
	"runtime"
	"sync"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Scheduler runs consumers on a fixed set of workers: a consumer has no goroutine while it is idle.
type Scheduler struct {
	closed chan struct{}
	wg     sync.WaitGroup

	mu    sync.Mutex
	wake  sync.Cond
	queue ring
	over  bool
}

// NewScheduler starts n workers (0: as many as cores).
func NewScheduler(b bus.Bus, n int) *Scheduler {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	s := &Scheduler{closed: make(chan struct{})}
	s.wake.L = &s.mu
	for range n {
		w := &worker{sched: s, bus: b, sessions: map[string]bus.Session{}}
		s.wg.Go(w.loop)
	}
	return s
}

// Close stops the workers once everything that was scheduled has run.
func (s *Scheduler) Close() {
	s.mu.Lock()
	if !s.over {
		s.over = true
		close(s.closed)
	}
	s.mu.Unlock()
	s.wake.Broadcast()
	s.wg.Wait()
}

// push queues c for its next turn. A consumer is in the queue at most once (see runState).
func (s *Scheduler) push(c *Consumer) {
	s.mu.Lock()
	s.queue.push(c)
	s.mu.Unlock()
	s.wake.Signal()
}

// pop waits for a consumer; nil when the scheduler is closed and nothing is left.
func (s *Scheduler) pop() *Consumer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.queue.n == 0 {
		if s.over {
			return nil
		}
		s.wake.Wait()
	}
	return s.queue.pop()
}

// worker runs consumers, one at a time.
type worker struct {
	sched    *Scheduler
	bus      bus.Bus
	sessions map[string]bus.Session // by account
	out      outbox
	msg      bus.Msg // the message being published; here because a local one would be allocated each time
}

func (w *worker) loop() {
	for c := w.sched.pop(); c != nil; c = w.sched.pop() {
		c.turn(w)
	}
	for _, s := range w.sessions {
		s.Close()
	}
}

// session returns the worker's own party in an account; nil when the bus refuses to open one.
func (w *worker) session(account string) bus.Session {
	if s := w.sessions[account]; s != nil {
		return s
	}
	s, err := w.bus.Open(bus.KindService, bus.Identity{Account: account}, nil)
	if err != nil {
		return nil
	}
	w.sessions[account] = s
	return s
}

// ring is a queue that grows as needed; it never holds more than the consumers there are.
type ring struct {
	items   []*Consumer
	head, n int
}

func (r *ring) push(c *Consumer) {
	if r.n == len(r.items) {
		grown := make([]*Consumer, max(16, 2*len(r.items)))
		for i := range r.n {
			grown[i] = r.items[(r.head+i)%len(r.items)]
		}
		r.items, r.head = grown, 0
	}
	r.items[(r.head+r.n)%len(r.items)] = c
	r.n++
}

func (r *ring) pop() *Consumer {
	c := r.items[r.head]
	r.items[r.head] = nil
	r.head = (r.head + 1) % len(r.items)
	r.n--
	return c
}

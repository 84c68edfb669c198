package bus

import (
	"fmt"
	"math/rand/v2"

	"github.com/noetl/ehdb-gateway/subjects"
)

// session is the publisher's half of a party: what only its own goroutine touches.
type session struct {
	*party
	router *Router
	rand   *rand.Rand

	cache   cache
	scratch result              // of subjects that are not cached
	matched []*Subscription     // scratch
	abroad  map[*account]*cache // of other accounts, for imports
	hops    []hop               // imports that what is being published has passed

	batches map[*party]*batch // every receiver met; results refer to them
	dirty   []*batch          // those with something queued, in order of their first
	queued  int               // deliveries in dirty
	stall   <-chan struct{}   // of deliveries made early

	orphans []Msg // requests queued for a service that closed before they reached it

	flushes                   uint64
	matches, hits, deliveries int64 // since the last Flush
}

// Bounds of one session.
const (
	maxQueued    = 1 << 16 // deliveries, each of 128 bytes; then they are handed over early
	maxBatches   = 4096    // receivers remembered
	maxScratch   = 1 << 14 // room kept for matching
	maxAbroad    = 64      // other accounts whose matches are remembered
	sweepFlushes = 4096    // flushes between sweeps of the cache
	maxPrompt    = 64      // receivers that are sent to at once: some microseconds of the publisher each
)

// Publish queues m for every matching subscription (see Session).
func (s *session) Publish(m *Msg) bool {
	if s.closed.Load() {
		return false
	}
	s.matches++
	interest := false
	if s.account.replies.open.Load() != 0 {
		if w := s.account.answered(m.Target()); w != nil {
			interest = s.answer(s.account, w, m)
		}
	}
	return s.offerAll(s.find(m.Target()), m) || interest
}

// offerAll queues m for all that r names, and reports whether there was any.
func (s *session) offerAll(r *result, m *Msg) bool {
	interest := false
	for i := range r.plain {
		if s.offer(&r.plain[i], m) {
			interest = true
		}
	}
	start := 0
	for _, end := range r.ends {
		if s.offerOne(r.queued[start:end], m) {
			interest = true
		}
		start = end
	}
	return interest
}

// offer queues m for a target, unless it has had all it wanted.
func (s *session) offer(t *target, m *Msg) bool {
	if t.sub.link != nil {
		return s.offerLinked(t, m)
	}
	ok, last := t.sub.take()
	if !ok {
		return false
	}
	s.queue(t.batch, t.sub, m)
	if last {
		t.sub.owner.end(t.sub)
	}
	return true
}

// queue puts m into b.
func (s *session) queue(b *batch, sub *Subscription, m *Msg) {
	if b.buf == nil {
		b.buf = s.router.buffer()
		s.dirty = append(s.dirty, b)
	}
	b.buf.items = append(b.buf.items, Delivery{Sub: sub, Msg: *m})
	if s.queued++; s.queued >= maxQueued {
		s.deliver()
	}
}

// offerOne queues m for one member of a queue group, any one that can take it.
func (s *session) offerOne(group []target, m *Msg) bool {
	n := len(group)
	if n == 1 {
		return s.offer(&group[0], m)
	}
	first := s.rand.IntN(n)
	for i := range n {
		if s.offer(&group[(first+i)%n], m) {
			return true
		}
	}
	return false
}

// find returns what subject matches. The result is good until the next find.
func (s *session) find(subject []byte) *result {
	r, valid := s.cache.get(subject)
	switch {
	case valid:
		s.hits++
	case r != nil:
		s.cache.resize(r, func() { s.fill(r, subject) })
	case s.cache.admits(s.account.generations.seed, subject, s.rand.Uint64()):
		r = &result{}
		s.fill(r, subject)
		s.cache.put(subject, r)
	default:
		r = &s.scratch
		s.fill(r, subject)
	}
	return r
}

// fill matches subject into r.
func (s *session) fill(r *result, subject []byte) { s.fillFrom(s.account, r, subject) }

func (s *session) fillFrom(a *account, r *result, subject []byte) {
	r.reset()
	r.stamp = a.generations.stamp(view(subject)) // before the match: a change between the two makes r stale
	s.matched = a.match(s.matched[:0], subject)
	for _, sub := range s.matched {
		if !sub.owner.accepts(s.party) {
			continue
		}
		t := target{sub: sub, batch: s.batch(sub.owner)}
		if sub.Queue == "" {
			r.plain = append(r.plain, t)
		} else {
			r.queued = append(r.queued, t)
		}
	}
	r.group()
	clear(s.matched)
	if n := int64(r.size()); n > a.counters.maxFanout.Load() {
		a.counters.maxFanout.Store(n)
	}
}

// Flush delivers what was published since the last Flush (see Session).
func (s *session) Flush() <-chan struct{} {
	s.deliver()
	if len(s.orphans) > 0 {
		s.answerOrphans()
	}
	stall := s.stall
	s.stall = nil
	s.report()
	s.tidy()
	return stall
}

// deliver hands over all that is queued, and keeps the first stall.
func (s *session) deliver() {
	hand := (*batch).deliver
	if s.kind == KindService && len(s.dirty) <= maxPrompt {
		hand = (*batch).deliverNow
	}
	for i, b := range s.dirty {
		s.dirty[i] = nil
		if out := b.to.out.Load(); out == nil {
			s.orphan(b)
		} else if stall := hand(b, *out, s.party); stall != nil && s.stall == nil {
			s.stall = stall
		}
		s.router.release(b.buf)
		b.buf = nil
	}
	s.dirty = s.dirty[:0]
	s.deliveries += int64(s.queued)
	s.queued = 0
}

// orphan takes note of the requests in b, whose receiver has closed since they were queued. Only a service answers for
// certain; whoever asks a client that goes away has to expect silence.
func (s *session) orphan(b *batch) {
	if b.to.kind != KindService {
		return
	}
	for i := range b.buf.items {
		if m := &b.buf.items[i].Msg; len(m.Reply) > 0 {
			s.orphans = append(s.orphans, *m)
		}
	}
}

// noResponders is the header of the answer to a request that nobody takes.
var noResponders = []byte("NATS/1.0 503\r\n\r\n")

// answerOrphans tells requesters that nobody has taken their requests after all.
func (s *session) answerOrphans() {
	for i := range s.orphans {
		s.Publish(&Msg{Subject: s.orphans[i].Reply, Header: noResponders})
	}
	s.deliver()
	clear(s.orphans)
	s.orphans = s.orphans[:0]
}

// report adds what was counted since the last time to the account.
func (s *session) report() {
	if s.matches == 0 {
		return
	}
	c := &s.account.counters
	c.matches.Add(s.matches)
	c.hits.Add(s.hits)
	c.deliveries.Add(s.deliveries)
	s.matches, s.hits, s.deliveries = 0, 0, 0
	s.reportCached(len(s.cache.results))
}

// tidy holds what the session remembers to its bounds. Nothing is queued when it runs.
func (s *session) tidy() {
	if len(s.batches) > maxBatches { // results and batches go together: there is one batch for a receiver
		clear(s.batches)
		s.cache.clear()
		clear(s.abroad)
		s.scratch.reset()
	}
	if len(s.abroad) > maxAbroad {
		clear(s.abroad)
	}
	if cap(s.matched) > maxScratch {
		s.scratch, s.matched = result{}, nil
	}
	if s.flushes++; s.flushes%sweepFlushes == 0 {
		s.cache.sweep()
		for _, c := range s.abroad {
			c.sweep()
		}
	}
}

// Subscribe adds a subscription (see Session). Errors: ErrInvalidSubject (wrapped), ErrClosed, ErrNoSink.
func (s *session) Subscribe(sid, filter, queue string) (*Subscription, error) {
	if !subjects.ValidFilter(filter) {
		return nil, fmt.Errorf("%w: %q", ErrInvalidSubject, filter)
	}
	return s.begin(sid, filter, queue)
}

// Barrier calls done at once: whatever a session did before has taken effect.
func (s *session) Barrier(done func()) { done() }

// batch returns the batch for a receiver.
func (s *session) batch(to *party) *batch {
	b := s.batches[to]
	if b == nil {
		if s.batches == nil {
			s.batches = make(map[*party]*batch)
		}
		b = &batch{to: to}
		s.batches[to] = b
	}
	return b
}

// batch is what a session has queued for one receiver.
type batch struct {
	to  *party
	buf *buffer // nil: nothing
}

// deliver hands the batch of from to the sink of its receiver.
func (b *batch) deliver(out Sink, from *party) <-chan struct{} {
	if b.to.kind == KindService {
		if origin, ok := out.(OriginSink); ok {
			return origin.DeliverFrom(from.id, b.buf.items)
		}
	}
	return out.Deliver(b.buf.items)
}

// deliverNow is deliver to a sink that passes on at once, if it can.
func (b *batch) deliverNow(out Sink, from *party) <-chan struct{} {
	if now, ok := out.(PromptSink); ok {
		return now.DeliverNow(b.buf.items)
	}
	return b.deliver(out, from)
}

// buffer is the room for a batch, reused.
type buffer struct{ items []Delivery }

// maxBuffer is the largest buffer worth keeping, in deliveries of 128 bytes.
const maxBuffer = 1 << 13

func (r *Router) buffer() *buffer {
	b, ok := r.buffers.Get().(*buffer)
	if !ok {
		return &buffer{}
	}
	return b
}

func (r *Router) release(b *buffer) {
	if cap(b.items) > maxBuffer {
		return
	}
	clear(b.items)
	b.items = b.items[:0]
	r.buffers.Put(b)
}

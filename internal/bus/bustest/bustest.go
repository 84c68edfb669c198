// Package bustest helps to test parties of the bus.
package bustest

import (
	"bytes"
	"context"
	"sync"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Received is one delivery, copied.
type Received struct {
	Sub *bus.Subscription
	SID string
	Msg bus.Msg
}

// Sink records what it is given. The zero Sink is ready. It is safe for concurrent use.
type Sink struct {
	mu      sync.Mutex
	got     []Received
	batches int
	stall   <-chan struct{}
	changed chan struct{} // closed at the next delivery; nil: nobody waits
}

var _ bus.Sink = (*Sink)(nil)

// Deliver copies the batch.
func (s *Sink) Deliver(batch []bus.Delivery) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches++
	for _, d := range batch {
		s.got = append(s.got, Received{Sub: d.Sub, SID: string(d.Sub.SID), Msg: Clone(d.Msg)})
	}
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	return s.stall
}

// Stall sets what Deliver returns from now on.
func (s *Sink) Stall(stall <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stall = stall
}

// Received returns all that came so far, in order.
func (s *Sink) Received() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Received(nil), s.got...)
}

// Take returns all that came since the last Take, in order.
func (s *Sink) Take() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	return got
}

// Len returns how many messages came since the last Take.
func (s *Sink) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

// Batches returns how often Deliver was called.
func (s *Sink) Batches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.batches
}

// Wait returns what came since the last Take once there are n or more, and takes it. Its error is that of ctx.
func (s *Sink) Wait(ctx context.Context, n int) ([]Received, error) {
	for {
		s.mu.Lock()
		if len(s.got) >= n {
			got := s.got
			s.got = nil
			s.mu.Unlock()
			return got, nil
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Clone copies a message with all its bytes.
func Clone(m bus.Msg) bus.Msg {
	return bus.Msg{
		Subject: bytes.Clone(m.Subject),
		Reply:   bytes.Clone(m.Reply),
		Header:  bytes.Clone(m.Header),
		Data:    bytes.Clone(m.Data),
		Route:   bytes.Clone(m.Route),
	}
}

package bus

import "sync/atomic"

// Subscription is one party's interest in a filter.
type Subscription struct {
	SID    []byte // the party's own name for it
	Filter string
	Queue  string // empty: none

	// Attachment is the owner's: whatever its sink wants to find again with the subscription. Set it before the first
	// delivery can arrive (the sink's own lock), or never. A publisher's cache may keep the subscription for a while
	// after its end, so let it lead to nothing large.
	Attachment any

	delivered atomic.Int64
	max       atomic.Int64 // 0: no limit
	owner     *party       // nil where another Bus than the Router made it
	link      *link        // nil but for what stands for an import
}

// Delivered returns how many messages the subscription was given.
func (s *Subscription) Delivered() int64 { return s.delivered.Load() }

// Max returns the auto-unsubscribe limit, 0 if there is none.
func (s *Subscription) Max() int64 { return s.max.Load() }

// take counts one message and reports whether the subscription may have it, and whether it was its last. The limit is
// looked at before and after, as it may be set meanwhile: either take sees the limit reached, or setMax sees the count.
func (s *Subscription) take() (ok, last bool) {
	for {
		n := s.delivered.Load()
		if limit := s.max.Load(); limit > 0 && n >= limit {
			return false, false
		}
		if !s.delivered.CompareAndSwap(n, n+1) {
			continue
		}
		limit := s.max.Load()
		return true, limit > 0 && n+1 >= limit
	}
}

// setMax sets the limit and reports whether it is reached already.
func (s *Subscription) setMax(limit int64) (reached bool) {
	s.max.Store(limit)
	return s.delivered.Load() >= limit
}

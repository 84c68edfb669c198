package bus

import "sync/atomic"

// Subscription is one party's interest in a filter.
type Subscription struct {
	SID    []byte // the party's own name for it
	Filter string
	Queue  string // empty: none

	// Attachment is the owner's: whatever its sink wants to find again with the subscription. Set it before the first
	// delivery can arrive (the sink's own lock), or never.
	Attachment any

	delivered atomic.Int64
	max       atomic.Int64 // 0: no limit
	session   any
}

// Delivered returns how many messages the subscription was given.
func (s *Subscription) Delivered() int64 { return s.delivered.Load() }

// Max returns the auto-unsubscribe limit, 0 if there is none.
func (s *Subscription) Max() int64 { return s.max.Load() }

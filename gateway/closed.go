package gateway

// maxClosedSubs is how many subscriptions of a connection that ended are remembered.
const maxClosedSubs = 256

// closedRing keeps the last connections that ended.
type closedRing struct {
	limit int
	total uint64
	ring  []ConnInfo
	by    map[CloseReason]uint64 // how many ended, by reason
}

func (r *closedRing) add(c ConnInfo) {
	r.total++
	if r.by == nil {
		r.by = make(map[CloseReason]uint64)
	}
	r.by[c.Reason]++
	switch {
	case r.limit <= 0:
	case len(r.ring) < r.limit:
		r.ring = append(r.ring, c)
	default:
		r.ring[(r.total-1)%uint64(r.limit)] = c
	}
}

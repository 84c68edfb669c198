package gateway

// maxClosedSubs is how many subscriptions of a connection that ended are remembered.
const maxClosedSubs = 256

// closedRing keeps the last connections that ended.
type closedRing struct {
	limit int
	total uint64
	ring  []ConnInfo
}

func (r *closedRing) add(c ConnInfo) {
	r.total++
	switch {
	case r.limit <= 0:
	case len(r.ring) < r.limit:
		r.ring = append(r.ring, c)
	default:
		r.ring[(r.total-1)%uint64(r.limit)] = c
	}
}

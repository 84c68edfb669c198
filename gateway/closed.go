package gateway

// What is remembered of the subscriptions of connections that ended: so many of one, and of all together so many and so
// many bytes of text. What is beyond is forgotten, the oldest first.
const (
	maxClosedSubs    = 256
	maxAllClosedSubs = 64 << 10
	maxAllClosedText = 16 << 20
)

// closedRing keeps the last connections that ended.
type closedRing struct {
	limit int
	total uint64
	ring  []ConnInfo
	by    map[CloseReason]uint64 // how many ended, by reason

	subs, text int    // in ring
	stripped   uint64 // the connections before this one have no subscriptions any more
}

func (r *closedRing) add(c ConnInfo) {
	at := r.total
	r.total++
	if r.by == nil {
		r.by = make(map[CloseReason]uint64)
	}
	r.by[c.Reason]++
	if r.limit <= 0 {
		return
	}
	if len(r.ring) < r.limit {
		r.ring = append(r.ring, c)
	} else {
		old := &r.ring[at%uint64(r.limit)]
		r.strip(old)
		*old = c
		r.stripped = max(r.stripped, at+1-uint64(r.limit))
	}
	r.subs += len(c.Subs)
	r.text += textOf(c.Subs)
	for r.subs > maxAllClosedSubs || r.text > maxAllClosedText {
		r.strip(&r.ring[r.stripped%uint64(r.limit)])
		r.stripped++
	}
}

// strip forgets the subscriptions of c.
func (r *closedRing) strip(c *ConnInfo) {
	r.subs -= len(c.Subs)
	r.text -= textOf(c.Subs)
	c.Subs = nil
}

// textOf is how many bytes of text subscriptions hold.
func textOf(subs []SubInfo) (n int) {
	for i := range subs {
		n += len(subs[i].Subject) + len(subs[i].Queue) + len(subs[i].SID)
	}
	return n
}

package storage

// removal is a record taken out for readers, or a stretch of them: for cursors that have counted it.
type removal struct {
	seq uint64
	end uint64 // not 0: what was removed of [seq, end)
	run uint32 // number of the run it was in
	at  uint32 // its key id there if the run is an index, its ordinal if it is in a part
}

const (
	// maxRemovals bounds the ring of removals a log remembers for its cursors; must be a power of two.
	maxRemovals = 8192
	// maxSingly is up to how many removals of a stretch are noted one by one.
	maxSingly = 512
)

// removalRing remembers the last removals of a log.
type removalRing struct {
	n    uint64    // ever
	ring []removal // removal i is at i % len
}

func (q *removalRing) note(r removal) {
	if n := len(q.ring); uint64(n) <= q.n && n < maxRemovals {
		q.ring = append(q.ring, make([]removal, max(8, n))...)
	}
	q.ring[q.n%uint64(len(q.ring))] = r
	q.n++
}

// since calls fn with each removal since number from until it returns false. ok is false if it did, or if not all of
// them are remembered.
func (q *removalRing) since(from uint64, fn func(r *removal) bool) (ok bool) {
	if q.n-from > uint64(len(q.ring)) {
		return false
	}
	for ; from < q.n; from++ {
		if !fn(&q.ring[from%uint64(len(q.ring))]) {
			return false
		}
	}
	return true
}

package consumer

import (
	"slices"

	"github.com/noetl/ehdb-gateway/storage"
)

// skipList is what a consumer with deliver policy last_per_subject gives before it reads on from its cursor. What
// leaves the log leaves the list.
type skipList struct {
	loaded []uint64        // ascending; until follow
	live   *storage.Subset // from then on; nil: the list is empty
}

// follow makes the list keep to what is in the log.
func (l *skipList) follow(w world) {
	if len(l.loaded) > 0 {
		l.live = w.Subset(l.loaded)
		l.loaded = nil
	}
}

func (l *skipList) len() uint64 {
	if l.live == nil {
		return uint64(len(l.loaded))
	}
	return uint64(l.live.Len()) //nolint:gosec // not negative
}

// lenAfter returns what len is after pass(seq); seq is what first gave.
func (l *skipList) lenAfter(seq uint64) uint64 {
	if l.live == nil {
		return 0
	}
	return uint64(l.live.LenAfter(seq)) //nolint:gosec // not negative
}

// first returns the stream sequence to give next; false if there is none. Only after follow.
func (l *skipList) first() (seq uint64, ok bool) {
	if l.live == nil {
		return 0, false
	}
	return l.live.First()
}

// pass drops what is at or below seq.
func (l *skipList) pass(seq uint64) {
	if l.live != nil {
		l.live.Pass(seq)
		return
	}
	for len(l.loaded) > 0 && l.loaded[0] <= seq {
		l.loaded = l.loaded[1:]
	}
}

// cut drops what is above seq. Only before follow.
func (l *skipList) cut(seq uint64) {
	for n := len(l.loaded); n > 0 && l.loaded[n-1] > seq; n-- {
		l.loaded = l.loaded[:n-1]
	}
}

// seqs returns the list, the caller's to keep.
func (l *skipList) seqs() []uint64 {
	if l.live == nil {
		return slices.Clone(l.loaded)
	}
	return l.live.Seqs()
}

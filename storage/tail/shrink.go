package tail

import "errors"

// Shrink gives back disk space that appends do not need at the rate of those since the last Shrink: segments become
// smaller, spares that are too large go, and the active segment is replaced if it is too large, or not encrypted though
// the log is, and everything in it is below lsn, which says what may be dropped. It reports whether there would be more
// to give back if nothing were appended until the next call. It may be called by any goroutine. Errors as for Append
// and DropBefore; without space for a smaller segment the large one stays.
func (l *File) Shrink(lsn LSN) (more bool, err error) {
	size, err := l.shrink(lsn)
	if err != nil {
		return false, err
	}
	if err := l.DropBefore(lsn); err != nil {
		return false, err
	}
	return l.isLarge(size, l.o.FirstSegment) || l.isLarge(l.spares.step(l.o.SegmentSize), l.o.FirstSegment), nil
}

// isLarge reports whether a segment of size bytes is to be replaced where one of want bytes is enough. Half of it must
// be too much: else it might have to grow again at once.
func (l *File) isLarge(size, want int64) bool { return size > 2*want } //nolint:mnd // see above

// shrink is Shrink but for the dropping. It returns the size of the active segment.
func (l *File) shrink(lsn LSN) (int64, error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	seg, next, _, err := l.usable()
	if err != nil {
		return 0, err
	}
	want := l.o.FirstSegment
	for want < min(l.since, l.o.SegmentSize) {
		want = min(2*want, l.o.SegmentSize) //nolint:mnd // doubles
	}
	l.since = 0
	if err := l.spares.shrink(want); err != nil {
		return 0, l.poison(err)
	}
	wrong := seg.boxed != (l.keys != nil)
	if next > lsn || !wrong && !l.isLarge(seg.size, want) {
		return seg.size, nil
	}
	if err := l.rotate(seg, next, segHeaderSize+reserved); err != nil && !errors.Is(err, ErrNoSpace) {
		return 0, err
	}
	if seg, _, _, err = l.usable(); err != nil {
		return 0, err
	}
	return seg.size, nil
}

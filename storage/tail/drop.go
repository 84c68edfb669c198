package tail

import "fmt"

// DropBefore implements Log. Segments go one at a time, each durably before the next, so that after a crash those
// that are left have no gap. A few are kept as spares. It may be called by any goroutine.
func (l *File) DropBefore(lsn LSN) error {
	l.dropMu.Lock()
	defer l.dropMu.Unlock()
	for {
		if _, _, _, err := l.usable(); err != nil {
			return err
		}
		seg, err := l.segs.popBelow(lsn)
		if err != nil {
			return l.poison(fmt.Errorf("close dropped segment: %w", err))
		}
		if seg == nil {
			return nil
		}
		if err := l.discard(seg); err != nil {
			return l.poison(fmt.Errorf("drop segment: %w", err))
		}
	}
}

// discard removes a segment that is out of the list. One that is still being read must not be written to, so it
// cannot be a spare; nor can one that is not encrypted if the log is.
func (l *File) discard(seg *segment) error {
	full, wanted := l.spares.slot(seg.size)
	if !wanted || l.segs.inUse(seg) || seg.boxed != (l.keys != nil) {
		if err := l.o.FS.Remove(seg.path); err != nil {
			return err
		}
		return l.o.FS.SyncDir(l.o.Dir)
	}
	if err := l.o.FS.Rename(seg.path, full); err != nil {
		return err
	}
	if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
		return err
	}
	l.spares.add(full, seg.size)
	return nil
}

package storage

import (
	"errors"
	"fmt"

	"github.com/noetl/ehdb-gateway/storage/tail"
)

// roomy is a tail that knows how much more it can take for certain, and can take the disk space of its next segment.
type roomy interface {
	Room() int64
	Step() int64 // size of a segment: those of a new directory are small
	Reserve() error
}

// shrinker is a tail that gives back disk space it needs no more.
type shrinker interface {
	Shrink(lsn tail.LSN) (more bool, err error)
}

// Disk space runs out in steps. When the space of the next segment cannot be taken soon after one was begun, messages
// are refused. So about one segment is kept: deletions, acks and other state changes go into it, and so does what the
// sweeper writes again to free a segment. When little of it is left, it is for deletions and moves alone. Only when
// that is full too everything is refused, and what is queued waits.
const (
	roomLow    = 16 // the next segment is to have its space when less than a step but for this part of it is left
	roomLate   = 2  // the commit loop takes that space itself when less than this part of a step is left
	nearSteps  = 4  // the same when the disk has room for fewer than this many steps
	roomTight  = 8  // this part of a step is not used by state changes
	roomMargin = 16 // this part of a step is not used by moves
	sealMargin = 4  // this part of a step is kept for the manifest and what a seal needs besides the records
	hopeless   = 2  // so many steps of dead bytes that cannot be given back are told
)

// isLow reports whether the next segment should have its space by now.
func (w *writer) isLow() bool {
	t, ok := w.tail.(roomy)
	if !ok {
		return false
	}
	step := t.Step()
	return t.Room() < step-step/roomLow
}

// nearlyFull reports whether the next segment may be one too many for the disk: then it is found out before more of
// the room that is kept is used. A file system that does not tell is not.
func (w *writer) nearlyFull(step int64) bool {
	free, ok := w.diskFree()
	return ok && free < nearSteps*step
}

// errSealRoom says that the room that is left is kept for sealing.
var errSealRoom = fmt.Errorf("%w: what is left is for sealing what is not sealed yet", tail.ErrNoSpace)

// shortForSealing reports whether the disk has just enough room to write what is not sealed into parts: more must not
// be taken before that is done, or it could never be.
func (w *writer) shortForSealing() bool {
	if !w.space.off {
		return false
	}
	free, ok := w.diskFree()
	t, is := w.tail.(roomy)
	return ok && is && free < w.unsealed.bytes.Load()*5/4+t.Step()/sealMargin
}

// diskFree returns how many bytes the disk has left, if the file system tells.
func (w *writer) diskFree() (int64, bool) {
	fs, ok := w.opts.FS.(interface {
		Free(dir string) (int64, error)
	})
	if !ok {
		return 0, false
	}
	free, err := fs.Free(w.opts.Dir)
	return free, err == nil
}

// isCramped reports whether moves must stop: messages are refused, and what is left is for deletions.
func (w *writer) isCramped() bool {
	t, ok := w.tail.(roomy)
	return ok && w.lacksRoom() && t.Room() < t.Step()/roomMargin
}

// budget notes how much room there is for state changes.
func (w *writer) budget(t roomy) {
	spend := t.Room() - t.Step()/roomTight
	w.mu.Lock()
	w.spend = spend
	w.mu.Unlock()
}

// affords reports whether a state change of n bytes leaves enough room for deletions. The lock is held.
func (w *writer) affords(n int) bool {
	if w.noRoom == nil {
		return true
	}
	left := w.spend - int64(n)
	for i := range w.shards {
		left -= w.shards[i].queued
	}
	return left >= 0
}

// checkRoom sees to it that the next segment gets its space in time: by the sweeper, so that no commit waits for
// that, but when that is late by the commit loop itself.
func (w *writer) checkRoom() error {
	if w.shortForSealing() && !w.lacksRoom() {
		w.refuse(&w.noRoom, &noSpaceError{textNoRoom, errSealRoom})
		if t, ok := w.tail.(roomy); ok {
			w.budget(t)
		}
		w.space.kick()
	}
	if !w.isLow() {
		return nil
	}
	t, ok := w.tail.(roomy)
	if !ok {
		return nil
	}
	if w.lacksRoom() { // the sweeper tries again by itself
		w.budget(t)
		return nil
	}
	var err error
	if t.Room() < t.Step()/roomLate || w.nearlyFull(t.Step()) {
		err = w.reserve()
	}
	w.space.kick()
	return err
}

// reserve takes the space of the next segment, or refuses messages until that is possible. It may be called by any
// goroutine.
func (w *writer) reserve() error {
	t, ok := w.tail.(roomy)
	if !ok || !w.isLow() && !w.lacksRoom() {
		return nil
	}
	err := t.Reserve()
	switch {
	case err == nil && w.shortForSealing():
	case err == nil:
		w.refuse(&w.noRoom, nil)
	case errors.Is(err, tail.ErrNoSpace):
		w.budget(t)
		if !w.lacksRoom() {
			w.refuse(&w.noRoom, &noSpaceError{textNoRoom, err})
		}
		return nil
	}
	return err
}

// explain sets what refusals of messages say: whether deleting can help.
func (w *writer) explain() {
	t, ok := w.tail.(roomy)
	if !ok {
		return
	}
	text, step := textNoRoom, t.Step()
	if w.space.off {
		if w.space.dead.Load() > hopeless*step {
			text = fmt.Sprintf(textStuck, (step+1<<20-1)>>20)
		}
	} else if dead := w.tail.Size() - t.Room() - w.space.live.Load(); dead > hopeless*step {
		text = fmt.Sprintf(textStuck, (step+1<<20-1)>>20)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := errors.AsType[*noSpaceError](w.noRoom); ok && e.text != text {
		w.noRoom = &noSpaceError{text, e.cause}
	}
}

func (w *writer) lacksRoom() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.noRoom != nil
}

// refuse sets or clears a reason to refuse appends for lack of space: w.err, which is for all, or w.noRoom. It tells
// the owner when the first is set and the last is cleared. A reason to stop for good stays.
func (w *writer) refuse(reason *error, err error) {
	w.mu.Lock()
	before := w.err != nil || w.noRoom != nil
	if !w.closed && w.fail.Load() == nil {
		*reason = err
	}
	after := w.err != nil || w.noRoom != nil
	if after {
		w.unstall() // who waits for a place in the queue learns the reason from the next append
	}
	w.mu.Unlock()
	switch {
	case !before && after:
		w.opts.Events.NoSpace(detail(err))
	case before && !after:
		w.opts.Events.Resumed()
	}
}

package storage

import (
	"errors"

	"github.com/noetl/ehdb-gateway/storage/tail"
)

// roomy is a tail that knows how much more it can take for certain, and can take the disk space of its next segment.
type roomy interface {
	Room() int64
	Step() int64 // size of a segment: those of a new directory are small
	Reserve() error
}

// Disk space runs out in two steps. When the space of the next segment cannot be taken while the one being written is
// half full, messages are refused; deletions, acks and other state changes still go into what is left. Only when that
// is full too everything is refused, and what is queued waits.

// isLow reports whether the next segment should have its space by now.
func (w *writer) isLow() bool {
	t, ok := w.tail.(roomy)
	return ok && t.Room() < t.Step()/2
}

// checkRoom sees to it that the next segment gets its space in time: by the sweeper, so that no commit waits for
// that, but when that is late by the commit loop itself.
func (w *writer) checkRoom() error {
	if !w.isLow() {
		return nil
	}
	var err error
	if t, ok := w.tail.(roomy); ok && t.Room() < t.Step()/4 && !w.lacksRoom() {
		err = w.reserve()
	}
	w.space.kick() // the sweeper tries again if it was not possible
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
	case err == nil:
		w.refuse(&w.noRoom, nil)
	case errors.Is(err, tail.ErrNoSpace):
		w.refuse(&w.noRoom, stopped(err))
		return nil
	}
	return err
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
		w.opts.Events.NoSpace(err)
	case before && !after:
		w.opts.Events.Resumed()
	}
}

package storage

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/noetl/ehdb-gateway/storage/tail"
)

// unsealed is what the tail has that no part has.
type unsealed struct {
	records atomic.Int64
	bytes   atomic.Int64
	since   atomic.Int64 // Unix nanoseconds of the oldest; 0: there is none

	// What is on its way to parts; records and bytes do not have it any more.
	leaving, leavingBytes atomic.Int64
}

// backlog returns how much is not sealed, what is on its way included.
func (u *unsealed) backlog() (records, bytes int64) {
	return u.records.Load() + u.leaving.Load(), u.bytes.Load() + u.leavingBytes.Load()
}

// add counts a commit, and wakes the sealer when there is something for it to do. The commit loop calls it.
func (u *unsealed) add(w *writer, records int, bytes int64) {
	n, b := u.records.Add(int64(records)), u.bytes.Add(bytes)
	first := u.since.Load() == 0
	if first {
		u.since.Store(time.Now().UnixNano())
	}
	if first || n >= w.opts.SealRecords || b >= w.opts.SealBytes {
		w.space.kick()
	}
	w.weighBacklog()
}

// begin begins anew with what is appended from now on: what there was is on its way. What is counted meanwhile may be
// lost or counted twice, which does no harm.
func (u *unsealed) begin() {
	u.leaving.Add(u.records.Swap(0))
	u.leavingBytes.Add(u.bytes.Swap(0))
	u.since.Store(0)
}

// arrived notes that what was on its way is in parts.
func (u *unsealed) arrived() {
	u.leaving.Store(0)
	u.leavingBytes.Store(0)
}

// due returns how long the oldest may still wait, 0 if it is time; false if there is nothing.
func (u *unsealed) due(o *Options) (time.Duration, bool) {
	since := u.since.Load()
	switch {
	case since == 0:
		return 0, false
	case u.isMuch(o):
		return 0, true
	}
	return max(time.Until(time.Unix(0, since).Add(o.SealMaxAge)), 0), true
}

// loop seals when it is time, keeps the parts in order, and sees to it that there is room.
func (sl *sealer) loop() {
	s := sl.s
	retry := minRetry
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-s.w.space.wake:
		case <-timer.C:
		}
		err := sl.work()
		wait, some := s.w.unsealed.due(&s.opts)
		switch {
		case err != nil:
			sl.failed(err)
			fallthrough
		case s.w.lacksRoom():
			wait, some, retry = retry, true, min(2*retry, maxRetry)
		case !some && sl.large:
			wait, some, retry = s.opts.SealMaxAge, true, minRetry
		case sl.plain.Load() > 0: // parts are to be encrypted
			wait, some, retry = 0, true, minRetry
		default:
			retry = minRetry
		}
		if some {
			timer.Reset(max(wait, minRetry))
		}
	}
}

// work does what is due.
func (sl *sealer) work() error {
	w := sl.s.w
	lacking := w.lacksRoom()
	if !lacking {
		if err := w.reserve(); err != nil {
			return err
		}
	}
	wait, some := w.unsealed.due(&sl.s.opts)
	if !some && sl.large {
		return sl.shrinkTail()
	}
	if !some || wait > 0 && !lacking {
		return sl.encryptOld()
	}
	if err := sl.seal(sl.pace); err != nil {
		return err
	}
	if err := sl.tidy(sl.pace); err != nil {
		return err
	}
	if err := sl.shrinkTail(); err != nil {
		return err
	}
	if err := w.reserve(); err != nil {
		return err
	}
	if w.lacksRoom() {
		w.explain()
	}
	return nil
}

// failed tells what went wrong. What was to be sealed stays where it is until the next try.
func (sl *sealer) failed(err error) {
	w := sl.s.w
	w.unsealed.since.CompareAndSwap(0, 1)
	switch {
	case errors.Is(err, tail.ErrPoisoned):
		w.poison(err)
	case errors.Is(err, ErrStopped) || errors.Is(err, errSwept):
		return
	case isFull(err):
		if !w.lacksRoom() {
			w.refuse(&w.noRoom, &noSpaceError{textNoRoom, err})
		}
		return
	}
	sl.s.opts.Events.SweepFailed(err)
}

// shareOfTime is how many times as long as it works the sealer waits while records are being appended.
const shareOfTime = 3

// pace is called while parts are written, again and again: it leaves the disk and the processors to others while they
// need them, unless what is not sealed grows too fast.
func (sl *sealer) pace(int64) error {
	s := sl.s
	appends := s.w.appends.Load()
	busy := appends != sl.pacer.appends
	sl.pacer.appends = appends
	var wait <-chan time.Time
	if busy && !s.w.unsealed.isMuch(&s.opts) && !s.w.lacksRoom() {
		worked := min(time.Since(sl.pacer.began), maxWork)
		wait = time.After(shareOfTime * worked)
	} else {
		closed := make(chan time.Time)
		close(closed)
		wait = closed
	}
	select {
	case <-s.quit:
		return errSwept
	case <-wait:
	}
	sl.pacer.began = time.Now()
	return nil
}

// maxWork bounds what a wait is measured by.
const maxWork = 20 * time.Millisecond

// pacer is what pace remembers.
type pacer struct {
	began   time.Time
	appends uint64
}

// isMuch reports whether enough for the next seal is there while one is on its way.
func (u *unsealed) isMuch(o *Options) bool {
	return u.records.Load() >= o.SealRecords || u.bytes.Load() >= o.SealBytes
}

// last seals what there is, so that the next open has little to read.
func (sl *sealer) last() {
	if sl.s.w.health() != nil || sl.s.w.unsealed.since.Load() == 0 {
		return
	}
	if err := sl.seal(func(int64) error { return nil }); err != nil {
		sl.failed(err)
	}
}

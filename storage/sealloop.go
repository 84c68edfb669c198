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
}

// reset begins anew. What is counted meanwhile may be lost or counted twice, which does no harm.
func (u *unsealed) reset() {
	u.records.Store(0)
	u.bytes.Store(0)
	u.since.Store(0)
}

// due returns how long the oldest may still wait, 0 if it is time; false if there is nothing.
func (u *unsealed) due(o *Options) (time.Duration, bool) {
	since := u.since.Load()
	switch {
	case since == 0:
		return 0, false
	case u.records.Load() >= o.SealRecords || u.bytes.Load() >= o.SealBytes:
		return 0, true
	}
	return max(time.Until(time.Unix(0, since).Add(o.SealMaxAge)), 0), true
}

// loop seals when it is time, and keeps the parts in order.
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
		wait, some := s.w.unsealed.due(&s.opts)
		if some && wait == 0 {
			err := sl.seal(sl.pace)
			if err == nil {
				err = sl.tidy(sl.pace)
			}
			if err != nil {
				sl.failed(err)
				wait, retry = retry, min(2*retry, maxRetry)
				s.w.unsealed.since.CompareAndSwap(0, 1)
			} else {
				retry = minRetry
				wait, some = s.w.unsealed.due(&s.opts)
			}
		}
		if some {
			timer.Reset(max(wait, minRetry))
		}
	}
}

// failed tells what went wrong.
func (sl *sealer) failed(err error) {
	switch {
	case errors.Is(err, tail.ErrPoisoned):
		sl.s.w.poison(err)
	case errors.Is(err, ErrStopped) || errors.Is(err, errSwept):
		return
	}
	sl.s.opts.Events.SweepFailed(err)
}

// pace is called while parts are written, with how many bytes were: it leaves the disk and the processors to others.
func (sl *sealer) pace(int64) error {
	select {
	case <-sl.s.quit:
		return errSwept
	default:
		return nil
	}
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

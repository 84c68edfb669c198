package stream

import (
	"container/heap"
)

// schedules are the schedules of a stream: the messages that say when another is to be published. There is at most one
// for each subject. The table holds one entry for each schedule, and for a while for some that left the stream with
// limits, purges and deletions: looking at two others whenever one comes keeps it below twice as many as there are. The
// stream's lock guards it.
type schedules struct {
	due       scheduleHeap
	bySubject map[string]*schedule
	look      int // the next entry of due to be looked at

	// cancelled has, while the log is looked through, the subjects that got other messages meanwhile, which ended the
	// schedules still to be found there. It is nil otherwise.
	cancelled map[string]uint64
	zones     zones
}

// schedule is one schedule message.
type schedule struct {
	subject string
	seq     uint64
	at      int64 // when it fires, Unix nanoseconds
	wake    int64 // when that is tried: at, or later
	index   int   // in the heap
}

// scheduleHeap is a heap.Interface, the next to fire first.
type scheduleHeap []*schedule

func (h scheduleHeap) Len() int { return len(h) }
func (h scheduleHeap) Less(i, j int) bool {
	if h[i].wake != h[j].wake {
		return h[i].wake < h[j].wake
	}
	return h[i].seq < h[j].seq
}

func (h scheduleHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *scheduleHeap) Push(x any) {
	if e, ok := x.(*schedule); ok {
		e.index = len(*h)
		*h = append(*h, e)
	}
}

// Pop implements heap.Interface.
func (h *scheduleHeap) Pop() any {
	old := *h
	n := len(old) - 1
	last := old[n]
	old[n] = nil
	*h = old[:n]
	return last
}

// reset forgets all schedules.
func (t *schedules) reset() { *t = schedules{zones: t.zones} }

// set makes the message at seq the schedule of its subject, unless a later one is or ended it.
func (t *schedules) set(subject []byte, seq uint64, at int64) {
	if t.cancelled[string(subject)] > seq {
		return
	}
	if e := t.bySubject[string(subject)]; e != nil {
		if e.seq < seq {
			e.seq = seq
			t.move(e, at)
		}
		return
	}
	if t.bySubject == nil {
		t.bySubject = make(map[string]*schedule)
	}
	e := &schedule{subject: string(subject), seq: seq, at: at, wake: at}
	t.bySubject[e.subject] = e
	heap.Push(&t.due, e)
}

// end forgets the schedule of subject if it is older than seq, and returns it; nil if there is none.
func (t *schedules) end(subject []byte, seq uint64) *schedule {
	e := t.bySubject[string(subject)]
	if e == nil || e.seq >= seq {
		return nil
	}
	t.drop(e)
	return e
}

// next sets when the schedule of subject fires next, if it is older than seq.
func (t *schedules) next(subject []byte, seq uint64, at int64) {
	if e := t.bySubject[string(subject)]; e != nil && e.seq < seq {
		t.move(e, at)
	}
}

func (t *schedules) drop(e *schedule) {
	heap.Remove(&t.due, e.index)
	delete(t.bySubject, e.subject)
}

func (t *schedules) move(e *schedule, at int64) {
	e.at = at
	t.postpone(e, at)
}

// postpone has e tried again at wake.
func (t *schedules) postpone(e *schedule, wake int64) {
	e.wake = wake
	heap.Fix(&t.due, e.index)
}

// lookAtSome drops those of two entries that are not alive.
func (t *schedules) lookAtSome(alive func(*schedule) bool) {
	for range 2 {
		if len(t.due) == 0 {
			return
		}
		if t.look >= len(t.due) {
			t.look = 0
		}
		if e := t.due[t.look]; alive(e) {
			t.look++
		} else {
			t.drop(e)
		}
	}
}

package consumer

import "math"

// waiting is one pull request that is not yet answered in full.
type waiting struct {
	prev, next *waiting
	reply      string // the inbox, as the bus asks for it
	to         []byte // the same, as messages carry it
	left       int    // messages still to send
	sent       int    // messages sent
	bytes      int    // bytes still to send; 0: no bound (or all used up)
	expires    int64  // 0: never
	heartbeat  int64  // interval; 0: none
	beat       int64  // when the next heartbeat is due; 0: none
	lost       int    // deliveries that reached nobody
	noWait     bool
	checked    uint64 // the step in which interest in reply was last seen

	group         string
	pin           string
	minPending    int64
	minAckPending int64
	priority      int
}

func (w *waiting) expired(now int64) bool { return w.expires != 0 && now >= w.expires }

// due returns when w needs attention; 0: when something happens.
func (w *waiting) due() int64 { return earlier(w.expires, w.beat) }

// earlier returns the smaller of two times of which 0 means never.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// after returns the time d after t, or never where there is no such time: durations are the clients'.
func after(t, d int64) int64 {
	if d > never-t {
		return never
	}
	return t + d
}

// waitQueue holds the pull requests in the order in which they are served: one message each in turn, or by priority.
type waitQueue struct {
	head, tail *waiting
	n, max     int
	noWaits    int   // requests with no_wait
	due        int64 // no request needs attention before; 0: none does
	byPriority bool
}

func (q *waitQueue) full() bool { return q.n >= q.max }

// add puts w where it is to be served.
func (q *waitQueue) add(w *waiting) {
	q.n++
	if w.noWait {
		q.noWaits++
	}
	q.due = earlier(q.due, w.due())
	q.place(w)
}

func (q *waitQueue) place(w *waiting) {
	after := q.tail
	if q.byPriority {
		for after != nil && after.rank() > w.rank() {
			after = after.prev
		}
	}
	w.prev = after
	if after == nil {
		w.next, q.head = q.head, w
	} else {
		w.next, after.next = after.next, w
	}
	if w.next == nil {
		q.tail = w
	} else {
		w.next.prev = w
	}
}

func (w *waiting) rank() int {
	if w.group == "" {
		return math.MaxInt
	}
	return w.priority
}

func (q *waitQueue) remove(w *waiting) {
	if q.n--; q.n == 0 {
		q.due = 0
	}
	if w.noWait {
		q.noWaits--
	}
	q.unlink(w)
}

func (q *waitQueue) unlink(w *waiting) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// rotate puts w behind those it shares its turn with.
func (q *waitQueue) rotate(w *waiting) {
	if q.n > 1 {
		q.unlink(w)
		q.place(w)
	}
}

// toEnd puts w last, whatever its priority.
func (q *waitQueue) toEnd(w *waiting) {
	if q.tail == w {
		return
	}
	q.unlink(w)
	w.prev = q.tail
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
}

// take counts one message for w and moves it to its next turn, or out when it has all it asked for.
func (q *waitQueue) take(w *waiting) {
	w.sent++
	w.left--
	if w.left <= 0 {
		q.remove(w)
		return
	}
	q.rotate(w)
}

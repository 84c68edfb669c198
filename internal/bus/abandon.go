package bus

import (
	"sync"
	"sync/atomic"

	"github.com/noetl/ehdb-gateway/subjects"
)

// asking are the requests of an account's parties to other accounts that wait for an answer, by the subject where they
// want it: whoever stops listening there is not waited for any longer.
type asking struct {
	open atomic.Int64

	mu    sync.Mutex
	index subjects.Index[*awaited]
}

func (q *asking) add(w *awaited) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// A subject that is none is not listened to.
	if added, err := q.index.Insert(string(w.subject), w); added && err == nil {
		q.open.Add(1)
	}
}

func (q *asking) drop(w *awaited) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.index.Remove(string(w.subject), w) {
		q.open.Add(-1)
	}
}

// under returns the requests that a subscription to filter may have heard the answers of.
func (q *asking) under(filter string) (list []*awaited) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.index.Overlapping(filter, func(_ string, w *awaited) bool {
		list = append(list, w)
		return true
	})
	return list
}

// abandoned returns what is to be done about requests that nobody wants an answer to, now that these subscriptions
// ended.
func (a *account) abandoned(subs []*Subscription) news {
	var n news
	for _, sub := range subs {
		for _, w := range a.asking.under(sub.Filter) {
			if a.hasInterest(string(w.subject)) {
				continue
			}
			n = append(n, func() {
				if w.in.forget(w) {
					w.router.measure(w, nil, statusGone, "Request Timeout")
				}
			})
		}
	}
	return n
}

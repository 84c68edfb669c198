package bus

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// replyPrefix begins the reply subjects that a service sees for requests from other accounts.
var replyPrefix = []byte("_R_.")

// maxReplies bounds the requests from other accounts that wait for an answer, for each account. What comes beyond finds
// no responder.
const maxReplies = 1 << 20

// minSweep is the shortest time between two looks for answers that did not come.
const minSweep = 20 * time.Millisecond

// replies are the requests from other accounts that wait for answers in an account, by the subject of the answer.
type replies struct {
	open atomic.Int64

	mu     sync.Mutex
	prefix string // of all of them
	byKey  map[string]*awaited
	most   int         // there were at once, as far as it was looked at
	sweep  *time.Timer // nil: nothing is waited for
	due    time.Time   // when it fires
}

// awaited is one such request.
type awaited struct {
	router  *Router
	in      *account // of the service
	key     string
	export  *Export
	share   bool
	account *account // who asked
	subject []byte   // where the answer goes there
	used    atomic.Int64
	*measured
}

// measured is what a request carries whose time is taken.
type measured struct {
	requestor Identity
	start     time.Time
	trace     any
	told      atomic.Bool
}

// await makes a subject to answer on. Nil: too many are waited for.
func (r *Router) await(in *account, w *awaited) *awaited {
	w.router, w.in = r, in
	if !in.replies.add(w, func() { r.expire(in) }) {
		return nil
	}
	w.account.asking.add(w)
	return w
}

// add makes w's key and waits for it. False: too many are waited for.
func (q *replies) add(w *awaited, expire func()) bool {
	now := time.Now()
	w.used.Store(now.UnixNano())
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.byKey) >= maxReplies {
		return false
	}
	if q.byKey == nil {
		q.byKey = make(map[string]*awaited)
		q.prefix = string(replyPrefix) + word(6) + "."
	}
	w.key = q.prefix + word(14)
	q.byKey[w.key] = w
	q.open.Store(int64(len(q.byKey)))
	if due := now.Add(w.export.threshold()); q.sweep == nil || due.Before(q.due) {
		q.schedule(due, expire)
	}
	return true
}

// schedule has expire run at due. q.mu is held.
func (q *replies) schedule(due time.Time, expire func()) {
	if q.sweep != nil {
		q.sweep.Stop()
	}
	q.due, q.sweep = due, time.AfterFunc(time.Until(due), expire)
}

// word is a random token of n letters and digits.
func word(n int) string {
	var b [32]byte
	out := b[:0]
	for len(out) < n {
		out = strconv.AppendUint(out, rand.Uint64(), 36) //nolint:gosec // unique, no secret
	}
	return string(out[:n])
}

// answered returns who waits for a message to subject, nil if nobody does.
func (a *account) answered(subject []byte) *awaited {
	if a.replies.open.Load() == 0 || !bytes.HasPrefix(subject, replyPrefix) {
		return nil
	}
	a.replies.mu.Lock()
	defer a.replies.mu.Unlock()
	return a.replies.byKey[string(subject)]
}

// forget ends the wait and reports whether it had not ended.
func (a *account) forget(w *awaited) bool {
	if !a.replies.remove(w) {
		return false
	}
	w.account.asking.drop(w)
	return true
}

// manyReplies is from where on the room for them is given back once there are none.
const manyReplies = 1024

func (q *replies) remove(w *awaited) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.byKey[w.key] != w {
		return false
	}
	q.most = max(q.most, len(q.byKey))
	delete(q.byKey, w.key)
	q.open.Store(int64(len(q.byKey)))
	if len(q.byKey) == 0 && q.most > manyReplies {
		q.byKey, q.most = make(map[string]*awaited), 0 // a map keeps the room of its largest time
	}
	return true
}

// expire ends the waits that took too long.
func (r *Router) expire(in *account) {
	for _, w := range in.replies.expired(time.Now(), func() { r.expire(in) }) {
		w.account.asking.drop(w)
		r.measure(w, nil, statusTimeout, "Service Timeout")
	}
}

// expired takes out what has waited too long and sets the timer for the rest.
func (q *replies) expired(now time.Time, again func()) []*awaited {
	q.mu.Lock()
	defer q.mu.Unlock()
	var late []*awaited
	next := time.Duration(-1) // until the next of those that stay
	for key, w := range q.byKey {
		left := w.export.threshold() - now.Sub(time.Unix(0, w.used.Load()))
		if left <= 0 {
			late = append(late, w)
			delete(q.byKey, key)
		} else if next < 0 || left < next {
			next = left
		}
	}
	q.open.Store(int64(len(q.byKey)))
	q.sweep = nil
	if next >= 0 {
		q.schedule(now.Add(max(next, minSweep)), again)
	}
	return late
}

// Statuses of measurements.
const (
	statusOK          = 200
	statusBadRequest  = 400
	statusGone        = 408
	statusUnavailable = 503
	statusTimeout     = 504
)

// Latency is a measurement of one request of a service.
type Latency struct {
	Account   string // of the service
	Results   string // the subject that it is published to there
	Status    int    // as in HTTP
	Error     string // empty for 200
	Requestor Identity
	Share     bool      // the service may know all about the requestor
	Responder *Identity // nil: nobody answered
	Start     time.Time // when the request came
	Took      time.Duration
	Trace     any // what LatencyExport.Sample returned
}

// Hooks are what the Router asks of and tells to the parts above it. Set them before the first session is opened.
type Hooks struct {
	// Describe returns what a service is told, in a header, about who asks; nothing if nil. It is called by publishers
	// for each request to another account and must not block. through is the account that passes the request on, empty
	// if the requestor's own does.
	Describe func(requestor Identity, share bool, through string) string
	// Measured takes a measurement. It is called by publishers and must not block nor publish.
	Measured func(Latency)
}

// SetHooks sets the hooks.
func (r *Router) SetHooks(h Hooks) { r.hooks = h }

// measure tells of a request's end, once. A nil responder: nobody answered.
func (r *Router) measure(w *awaited, responder *Identity, status int, text string) {
	m := w.measured
	if m == nil || r.hooks.Measured == nil || m.told.Swap(true) {
		return
	}
	r.hooks.Measured(Latency{
		Account: w.export.Account, Results: w.export.Latency.Results, Status: status, Error: text,
		Requestor: m.requestor, Share: w.share, Responder: responder,
		Start: m.start, Took: time.Since(m.start), Trace: m.trace,
	})
}

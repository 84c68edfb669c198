package bus

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/noetl/ehdb-gateway/subjects"
)

// DefaultAccount is the account of parties that name none.
const DefaultAccount = "$G"

func orDefault(account string) string {
	if account == "" {
		return DefaultAccount
	}
	return account
}

// account is one space of subjects: its subscriptions and who watches interest in it.
type account struct {
	name        string
	generations generations
	counters    counters

	mu      sync.RWMutex
	index   subjects.Index[*Subscription]
	watches subjects.Index[*watch] // by the subject watched

	// links are nil where nothing is imported nor renamed. They are stored under mu, so that a subscription that is
	// inserted before is seen by who links, and one after sees the links.
	links   atomic.Pointer[linked]
	replies replies
	asking  asking

	linking sync.Mutex                        // held while links and shadows change; before mu of any account
	shadows map[*Subscription][]*Subscription // by subscription: its subscriptions in accounts imported from
}

// counters feed Stats.
type counters struct {
	inserts, removes, matches, hits, deliveries, cached atomic.Int64
	maxFanout                                           atomic.Int64
}

func newAccount(name string) *account {
	return &account{name: name, generations: generations{seed: maphash.MakeSeed()}}
}

// hasInterest reports whether any subscription matches subject.
func (a *account) hasInterest(subject string) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.index.HasMatch(bytesOf(subject))
}

// match appends the subscriptions that match subject to dst.
func (a *account) match(dst []*Subscription, subject []byte) []*Subscription {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.index.AppendMatch(dst, subject)
}

// insert adds a subscription. The calls it returns are to be made once no lock is held.
func (a *account) insert(s *Subscription) (news, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.index.Insert(s.Filter, s); err != nil {
		return nil, err
	}
	a.generations.bump(s.Filter)
	a.counters.inserts.Add(1)
	return a.count(nil, s, 1), nil
}

// remove takes subscriptions out. The calls it returns are to be made once no lock is held.
func (a *account) remove(subs ...*Subscription) news {
	a.mu.Lock()
	defer a.mu.Unlock()
	var n news
	for _, s := range subs {
		if !a.index.Remove(s.Filter, s) {
			continue
		}
		a.generations.bump(s.Filter)
		a.counters.removes.Add(1)
		n = a.count(n, s, -1)
	}
	return n
}

// watch is one caller's wish to hear of who listens on a subject.
type watch struct {
	subject string
	queue   string // of those that count; empty: none
	changed func(bool)
	count   int // subscriptions that match; guarded by account.mu
	ended   atomic.Bool
}

// news are calls that are due to watchers.
type news []func()

// tell makes the calls. No lock may be held.
func (n news) tell() {
	for _, call := range n {
		call()
	}
}

// watch starts a watch; a subject that is none gets one that never fires.
func (a *account) watch(subject, queue string, changed func(bool)) *watch {
	w := &watch{subject: subject, queue: queue, changed: changed}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.index.AppendMatch(nil, bytesOf(subject)) {
		w.count += w.weight(s)
	}
	if subjects.ValidLiteral(subject) {
		_, _ = a.watches.Insert(subject, w) // cannot fail: a literal is a filter
	}
	return w
}

// weight is how many subscriptions s is to w: one or none.
func (w *watch) weight(s *Subscription) int {
	if w.queue == s.Queue && w.subject == s.Filter {
		return 1
	}
	return 0
}

func (a *account) unwatch(w *watch) {
	w.ended.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watches.Remove(w.subject, w)
}

// count adds delta (1 or -1) to the watches of subjects that s selects, and appends the calls that follow to n. The
// caller holds a.mu.
func (a *account) count(n news, s *Subscription, delta int) news {
	if a.watches.Len() == 0 {
		return n
	}
	a.watches.Overlapping(s.Filter, func(_ string, w *watch) bool {
		before := w.count
		w.count += delta * w.weight(s)
		if (before == 0) != (w.count == 0) {
			listens := w.count > 0
			n = append(n, func() {
				if !w.ended.Load() {
					w.changed(listens)
				}
			})
		}
		return true
	})
	return n
}

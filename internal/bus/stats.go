package bus

import "slices"

// Stats counts what the Router, or one of its accounts, did since it was made.
type Stats struct {
	Subscriptions int   // now
	Cached        int   // results in the caches of sessions, now
	Inserts       int64 // subscriptions that came
	Removes       int64 // subscriptions that went
	Matches       int64 // messages matched: published and flushed
	CacheHits     int64 // of them, those that a session's cache answered
	Deliveries    int64 // messages handed over, each counted for every receiver
	MaxFanout     int   // the most subscriptions one subject matched
}

// CacheHitRate is the part of the matches that caches answered, from 0 to 1.
func (s *Stats) CacheHitRate() float64 { return ratio(s.CacheHits, s.Matches) }

// AvgFanout is the mean number of receivers of a message.
func (s *Stats) AvgFanout() float64 { return ratio(s.Deliveries, s.Matches) }

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Accounts returns the names of the accounts in use so far, sorted.
func (r *Router) Accounts() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := make([]string, 0, len(r.accounts))
	for name := range r.accounts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// NumSubscriptions returns the number of subscriptions in account.
func (r *Router) NumSubscriptions(account string) int {
	a := r.lookup(account)
	if a == nil {
		return 0
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.index.Len()
}

// AccountStats returns the counts of one account.
func (r *Router) AccountStats(account string) Stats {
	a := r.lookup(account)
	if a == nil {
		return Stats{}
	}
	return a.stats()
}

// Stats returns the counts of all accounts together.
func (r *Router) Stats() Stats {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var sum Stats
	for _, a := range r.accounts {
		s := a.stats()
		sum.Subscriptions += s.Subscriptions
		sum.Cached += s.Cached
		sum.Inserts += s.Inserts
		sum.Removes += s.Removes
		sum.Matches += s.Matches
		sum.CacheHits += s.CacheHits
		sum.Deliveries += s.Deliveries
		sum.MaxFanout = max(sum.MaxFanout, s.MaxFanout)
	}
	return sum
}

func (a *account) stats() Stats {
	a.mu.RLock()
	n := a.index.Len()
	a.mu.RUnlock()
	c := &a.counters
	return Stats{
		Subscriptions: n,
		Cached:        int(c.cached.Load()),
		Inserts:       c.inserts.Load(),
		Removes:       c.removes.Load(),
		Matches:       c.matches.Load(),
		CacheHits:     c.hits.Load(),
		Deliveries:    c.deliveries.Load(),
		MaxFanout:     int(c.maxFanout.Load()),
	}
}

// EachSubscription calls fn for each subscription of account with the party it belongs to, in no order, until fn
// returns false. It works on a copy of the list: fn may do as it likes, and may see a subscription that has just ended.
func (r *Router) EachSubscription(account string, fn func(s *Subscription, kind Kind, id Identity) bool) {
	a := r.lookup(account)
	if a == nil {
		return
	}
	for _, s := range a.all() {
		if s.link != nil {
			continue // not a party's own
		}
		if !fn(s, s.owner.kind, s.owner.id) {
			return
		}
	}
}

// SubscriptionsMatching returns the subscriptions of account that a message to subject would reach, all members of
// queue groups included.
func (r *Router) SubscriptionsMatching(account, subject string) []*Subscription {
	a := r.lookup(account)
	if a == nil {
		return nil
	}
	return a.match(nil, []byte(subject))
}

func (a *account) all() []*Subscription {
	a.mu.RLock()
	defer a.mu.RUnlock()
	list := make([]*Subscription, 0, a.index.Len())
	a.index.Each(func(_ string, s *Subscription) bool {
		list = append(list, s)
		return true
	})
	return list
}

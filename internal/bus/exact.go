package bus

// HasExactInterest reports whether somebody subscribed to subject itself: a filter with wildcards that selects it does
// not count. It is for senders that must know that a receiver is ready, where HasInterest would be true of any client's
// inbox.
func (r *Router) HasExactInterest(account, subject string) bool {
	a := r.lookup(account)
	if a == nil {
		return false
	}
	a, subject = a.resolve(subject)
	for _, s := range a.match(nil, []byte(subject)) {
		if s.Filter == subject {
			return true
		}
	}
	return false
}

package gateway

import (
	"regexp"
	"sync"

	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// passageSubs are the subscriptions that a client has upstream, as far as can be seen on the way.
type passageSubs struct {
	mu   sync.Mutex
	list map[string]*SubInfo
}

// add takes a SUB. As upstream does, it ignores a sid that is in use.
func (s *passageSubs) add(f *wire.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = make(map[string]*SubInfo)
	}
	if s.list[string(f.SID)] == nil {
		sid := string(f.SID)
		s.list[sid] = &SubInfo{Subject: string(f.Subject), Queue: string(f.Queue), SID: sid}
	}
}

// end takes an UNSUB.
func (s *passageSubs) end(f *wire.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.list[string(f.SID)]
	switch {
	case sub == nil:
	case f.Max > sub.Msgs:
		sub.Max = f.Max
	default:
		delete(s.list, sub.SID)
	}
}

// delivered counts a message, and reports whether it was the last for its subscription.
func (s *passageSubs) delivered(sid []byte) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.list[string(sid)]
	if sub == nil {
		return false
	}
	if sub.Msgs++; sub.Msgs == sub.Max {
		delete(s.list, sub.SID)
		return true
	}
	return false
}

// has reports whether there is a subscription.
func (s *passageSubs) has(sid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list[sid] != nil
}

// drop forgets them all, as upstream does at another CONNECT.
func (s *passageSubs) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.list)
}

// refused forgets the subscription that an -ERR from upstream speaks of, and returns its sid; empty: there is none.
func (s *passageSubs) refused(text string) string {
	m := refusedSub.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for sid, sub := range s.list {
		if sub.Subject == m[1] && sub.Queue == m[2] {
			delete(s.list, sid)
			return sid
		}
	}
	return ""
}

var refusedSub = regexp.MustCompile(`^Permissions Violation for Subscription to "([^"]*)"(?: using queue "([^"]*)")?`)

func (s *passageSubs) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list)
}

func (s *passageSubs) all() []SubInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]SubInfo, 0, len(s.list))
	for _, sub := range s.list {
		out = append(out, *sub)
	}
	return out
}

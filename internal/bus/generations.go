package bus

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// generations counts the changes of an account's subscriptions, in classes, so that a session's cached match lives
// through changes that cannot touch it: the inbox that every request of another client makes and drops must not cost
// the publishers of "orders.>" their caches.
//
// A filter belongs to one class: by its first two tokens if both are literal, by its first if only that is (or if there
// is just one), else to the class of all. A subject is touched by at most three classes: all, its first token, its
// first two tokens. Classes share slots by hash; a collision costs a needless match, never a wrong one.
type generations struct {
	seed maphash.Seed
	all  atomic.Uint64
	slot [generationSlots]atomic.Uint64
}

const generationSlots = 512 // a power of two

// stamp is the state of the classes that touch a subject at one moment.
type stamp struct {
	all, one, two *atomic.Uint64 // two may be nil
	sum           uint64
}

// bump notes a change of a subscription with the given filter. The caller holds the account's lock for writing, so the
// index and its generation are seen to change together by those who hold it for reading.
func (g *generations) bump(filter string) {
	first, rest, more := strings.Cut(filter, ".")
	switch {
	case first == "*" || (first == ">" && !more):
		g.all.Add(1)
		return
	case more:
		second, _, third := strings.Cut(rest, ".")
		if second != "*" && (second != ">" || third) {
			g.of(filter[:len(first)+1+len(second)]).Add(1)
			return
		}
	}
	g.of(first).Add(1)
}

// of returns the counter of a class, named by one literal token or two.
func (g *generations) of(class string) *atomic.Uint64 {
	return &g.slot[maphash.String(g.seed, class)%generationSlots]
}

// stamp returns the present state for subject.
func (g *generations) stamp(subject string) stamp {
	s := stamp{all: &g.all}
	first, rest, more := strings.Cut(subject, ".")
	s.one = g.of(first)
	if more {
		second, _, _ := strings.Cut(rest, ".")
		s.two = g.of(subject[:len(first)+1+len(second)])
	}
	s.sum = s.now()
	return s
}

// now adds up the counters. They only grow, so the sum is the same only if each of them is.
func (s *stamp) now() uint64 {
	sum := s.all.Load() + s.one.Load()
	if s.two != nil {
		sum += s.two.Load()
	}
	return sum
}

// valid reports whether nothing changed since the stamp was taken.
func (s *stamp) valid() bool { return s.now() == s.sum }

// Package top finds the heaviest of very many keys in little memory: the Space-Saving algorithm (Metwally, Agrawal and
// El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005).
//
// A [Sketch] counts a fixed number of keys. One that is new takes the place of the lightest, and inherits its count: so
// no key that is heavier than one part in so many of the total is ever missed, and a count is too large by at most the
// inherited part, which is known.
package top

import (
	"cmp"
	"slices"
	"sync"
)

// Sketch counts weights of keys. Safe for concurrent use.
type Sketch struct {
	mu     sync.Mutex
	size   int
	counts map[string]*count
}

type count struct {
	key       string
	weight    uint64 // never too small
	inherited uint64 // how much of it may be others'
}

// Item is a key with its weight.
type Item struct {
	Key    string
	Weight uint64
}

// New returns a Sketch of so many keys.
func New(size int) *Sketch {
	return &Sketch{size: max(size, 1), counts: make(map[string]*count, size)}
}

// Add adds weight to key, which is copied if it is new.
func (s *Sketch) Add(key []byte, weight uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.counts[string(key)]; c != nil {
		c.weight += weight
		return
	}
	if len(s.counts) < s.size {
		c := &count{key: string(key), weight: weight}
		s.counts[c.key] = c
		return
	}
	var lightest *count
	for _, c := range s.counts {
		if lightest == nil || c.weight < lightest.weight {
			lightest = c
		}
	}
	delete(s.counts, lightest.key)
	lightest.key, lightest.inherited = string(key), lightest.weight
	lightest.weight += weight
	s.counts[lightest.key] = lightest
}

// All returns every key that is counted, in no order.
func (s *Sketch) All() []Item { return s.items(func(*count) bool { return true }) }

// Top returns the n heaviest keys, the heaviest first, without those of which half or more may be others'.
func (s *Sketch) Top(n int) []Item {
	return Heaviest(s.items(func(c *count) bool { return c.inherited < c.weight-c.weight/2 }), n)
}

func (s *Sketch) items(wanted func(*count) bool) []Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Item, 0, len(s.counts))
	for _, c := range s.counts {
		if wanted(c) {
			out = append(out, Item{c.key, c.weight})
		}
	}
	return out
}

// Heaviest sorts items and returns the first n of them, the heaviest first.
func Heaviest(items []Item, n int) []Item {
	slices.SortFunc(items, func(a, b Item) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.Key, b.Key))
	})
	return items[:min(max(n, 0), len(items))]
}

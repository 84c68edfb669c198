package storage

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/noetl/ehdb-gateway/storage/part"
)

// census is the last count of a log's keys. Records are added behind the last sequence or taken away, never changed or
// put back: while the last sequence and the number of records are the same, so are the keys.
type census struct {
	begun atomic.Uint64 // counts

	mu                sync.Mutex
	counted           bool // keys is of the records that lastSeq and messages say
	lastSeq, messages uint64
	keys              int
}

func (c *census) isOf(s State) bool { return c.lastSeq == s.LastSeq && c.messages == s.Messages }

// Keys returns how many different keys the visible records have. With records in parts it is a walk over their keys,
// unless nothing changed since the last one; those who ask while somebody counts share the next count.
func (l *Log) Keys() int {
	c := &l.census
	asked := c.begun.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	before := l.VisibleState()
	if c.counted && c.isOf(before) || c.begun.Load() > asked { // it was begun, and is done, since we asked
		return c.keys
	}
	c.begun.Add(1)
	n, err := l.countKeys()
	l.fault(err)
	c.keys, c.lastSeq, c.messages = n, before.LastSeq, before.Messages
	c.counted = err == nil && c.isOf(l.VisibleState())
	return n
}

func (l *Log) countKeys() (int, error) {
	l.mu.RLock()
	if len(l.vis.sealed) == 0 && l.vis.mid == nil {
		defer l.mu.RUnlock()
		return l.vis.tail.visibleKeys(), nil
	}
	var inRAM sortedKeys
	for _, x := range l.vis.ram() {
		inRAM.add(x)
	}
	views, err := snapshot(l.vis.sealed, visible)
	l.mu.RUnlock()
	if err != nil {
		return 0, err
	}
	defer release(views)
	walks := make([]keySource, 0, len(views)+1)
	for i := range views {
		sec, err := views[i].section()
		if err != nil {
			return 0, err
		}
		walks = append(walks, sec.LiveKeys(views[i].dead))
	}
	inRAM.sort()
	return countUnion(append(walks, &inRAM))
}

// visibleKeys returns how many keys have a visible record.
func (x *index) visibleKeys() int {
	n := x.keys.used
	for ord := x.next(x.vis, x.end); ord < x.end; ord = x.next(ord+1, x.end) {
		if x.keys.info(x.at(ord).key).chainFirst == ord+1 {
			n-- // it has no visible record yet
		}
	}
	return n
}

// keySource gives keys in order, each valid until the next is asked for.
type keySource interface {
	Next() (key []byte, ok bool)
	Err() error
}

var (
	_ keySource = (*part.LiveKeys)(nil)
	_ keySource = (*sortedKeys)(nil)
)

// sortedKeys are copies of keys. A key may be there more than once.
type sortedKeys struct {
	bytes []byte
	spans [][2]int // of the keys in bytes
	next  int
}

// add copies the keys of x that have a visible record.
func (k *sortedKeys) add(x *index) {
	x.eachKey(nil, func(id uint32) bool {
		if first := x.keys.info(id).chainFirst; first != 0 && first-1 < x.vis {
			at := len(k.bytes)
			k.bytes = append(k.bytes, x.keys.key(id)...)
			k.spans = append(k.spans, [2]int{at, len(k.bytes)})
		}
		return true
	})
}

func (k *sortedKeys) key(s [2]int) []byte { return k.bytes[s[0]:s[1]] }

func (k *sortedKeys) sort() {
	slices.SortFunc(k.spans, func(a, b [2]int) int { return bytes.Compare(k.key(a), k.key(b)) })
}

func (k *sortedKeys) Next() ([]byte, bool) {
	if k.next == len(k.spans) {
		return nil, false
	}
	k.next++
	return k.key(k.spans[k.next-1]), true
}

func (k *sortedKeys) Err() error { return nil }

// keyHead is a source at one of its keys.
type keyHead struct {
	keySource
	key []byte
}

// pass goes on to the first key that is another; false at the end.
func (h *keyHead) pass(key []byte) (bool, error) {
	for bytes.Equal(h.key, key) {
		var ok bool
		if h.key, ok = h.Next(); !ok {
			return false, h.Err()
		}
	}
	return true, nil
}

// countUnion returns how many different keys the sources have.
func countUnion(sources []keySource) (n int, err error) {
	heads := make([]keyHead, 0, len(sources))
	for _, s := range sources {
		if key, ok := s.Next(); ok {
			heads = append(heads, keyHead{s, key})
		} else if err := s.Err(); err != nil {
			return 0, err
		}
	}
	var least []byte // a copy: whose key it is goes on
	for ; len(heads) > 0; n++ {
		first := heads[0].key
		for i := range heads[1:] {
			if key := heads[i+1].key; bytes.Compare(key, first) < 0 {
				first = key
			}
		}
		least = append(least[:0], first...)
		if heads, err = passAll(heads, least); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// passAll passes key in all heads, and leaves out those that are at their end.
func passAll(heads []keyHead, key []byte) ([]keyHead, error) {
	for i := 0; i < len(heads); {
		more, err := heads[i].pass(key)
		switch {
		case err != nil:
			return nil, err
		case more:
			i++
		default:
			heads = slices.Delete(heads, i, i+1)
		}
	}
	return heads, nil
}

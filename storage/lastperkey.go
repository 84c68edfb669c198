package storage

import (
	"errors"
	"slices"
)

// LastPerKey returns, ascending, the sequence of the newest live record (<= upTo; 0: no bound) of each key that matches
// one of filters (none: all). At most limit (0: no limit); more is true when it was cut.
func (l *Log) LastPerKey(filters []Filter, upTo uint64, limit int) (seqs []uint64, more bool) {
	l.mu.RLock()
	seen := keySet{}
	ram := l.vis.ram()
	several := len(ram) > 1 || len(l.vis.sealed) > 0
	for _, x := range slices.Backward(ram) {
		bound := x.below(upTo)
		x.eachMatch(filters, func(id uint32) {
			ord := x.chainUpTo(x.keys.info(id), bound)
			if ord != 0 && (!several || seen.add(x.keys.key(id))) {
				seqs = append(seqs, x.at(ord-1).seq)
			}
		})
	}
	views, err := snapshot(l.vis.sealed, visible)
	l.mu.RUnlock()
	for i := len(views) - 1; i >= 0 && err == nil; i-- {
		err = views[i].lastPerKey(filters, upTo, seen, func(seq uint64) { seqs = append(seqs, seq) })
	}
	release(views)
	l.fault(err)
	slices.Sort(seqs)
	if limit > 0 && len(seqs) > limit {
		return seqs[:limit], true
	}
	return seqs, false
}

// keySet is a set of keys.
type keySet map[string]struct{}

// add reports whether key was not there.
func (s keySet) add(key []byte) bool {
	if _, ok := s[string(key)]; ok {
		return false
	}
	s[string(key)] = struct{}{}
	return true
}

// lastPerKey calls fn with the sequence of the newest record of each matching key that is not in seen, and adds it.
func (v *sealedView) lastPerKey(filters []Filter, upTo uint64, seen keySet, fn func(seq uint64)) error {
	if upTo != 0 && upTo < v.info.FirstSeq {
		return nil
	}
	sec, err := v.section()
	if err != nil {
		return err
	}
	m, err := v.match(filters)
	if err != nil {
		return err
	}
	var inner error
	err = sec.LastPerKey(m, upTo, v.dead, func(id, ord uint32) bool {
		var (
			key []byte
			seq uint64
		)
		if key, inner = sec.Key(id); inner == nil && seen.add(key) {
			if seq, inner = sec.Seq(ord); inner == nil {
				fn(seq)
			}
		}
		return inner == nil
	})
	return errors.Join(err, inner)
}

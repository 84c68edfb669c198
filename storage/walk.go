package storage

import (
	"bytes"
	"iter"

	"github.com/noetl/ehdb-gateway/storage/part"
)

// eachKey is EachKey for a log with several runs: the keys of those in parts are merged, and what RAM has of each, as
// it was at the beginning, is added.
func (l *Log) eachKey(filter Filter, fn func(key []byte, ks KeyState) bool) error {
	recent := map[string]KeyState{}
	l.mu.RLock()
	for _, x := range l.vis.ram() {
		x.eachKey(filter, func(id uint32) bool {
			if st := x.visibleKey(x.keys.info(id)); st.Count > 0 {
				key := x.keys.key(id)
				ks := recent[string(key)]
				ks.add(st)
				recent[string(key)] = ks
			}
			return true
		})
	}
	views, err := snapshot(l.vis.sealed, visible)
	l.mu.RUnlock()
	if err != nil {
		return err
	}
	defer release(views)
	more := true
	err = mergeKeys(views, filter, func(key []byte, ks KeyState) bool {
		if after, ok := recent[string(key)]; ok {
			ks.add(after)
			delete(recent, string(key))
		}
		more = fn(key, ks)
		return more
	})
	if err != nil || !more {
		return err
	}
	for key, ks := range recent {
		if !fn([]byte(key), ks) {
			return nil
		}
	}
	return nil
}

// keyWalk is one run's keys, one after the other. key is valid until the next.
type keysOf struct {
	key  []byte
	ks   KeyState
	ok   bool
	next func() ([]byte, KeyState, bool)
	stop func()
	err  error
}

func (k *keysOf) step() { k.key, k.ks, k.ok = k.next() }

// mergeKeys calls fn for each key of views that matches filter, in order, until it returns false.
func mergeKeys(views []sealedView, filter Filter, fn func(key []byte, ks KeyState) bool) error {
	walks := make([]*keysOf, len(views))
	for i := range views {
		k := &keysOf{}
		k.next, k.stop = iter.Pull2(func(yield func([]byte, KeyState) bool) { k.err = views[i].eachKey(filter, yield) })
		defer k.stop()
		k.step()
		walks[i] = k
	}
	for {
		least, err := leastKey(walks)
		if err != nil || least == nil {
			return err
		}
		var ks KeyState
		key := least.key
		for _, k := range walks { // the oldest first
			if k.ok && bytes.Equal(k.key, key) {
				ks.add(k.ks)
				if k != least {
					k.step()
				}
			}
		}
		if !fn(key, ks) {
			return nil
		}
		least.step()
	}
}

// leastKey returns the walk that is at the lowest key; nil if all have ended.
func leastKey(walks []*keysOf) (least *keysOf, err error) {
	for _, k := range walks {
		if k.err != nil {
			return nil, k.err
		}
		if k.ok && (least == nil || bytes.Compare(k.key, least.key) < 0) {
			least = k
		}
	}
	return least, nil
}

func (v *sealedView) eachKey(filter Filter, fn func(key []byte, ks KeyState) bool) error {
	sec, err := v.section()
	if err != nil {
		return err
	}
	m, err := v.match(oneFilter(filter))
	if err != nil {
		return err
	}
	return sec.EachKey(m, v.dead, func(key []byte, ks part.KeyState) bool { return fn(key, KeyState(ks)) })
}

// EachDeleted calls fn for the sequences between the first and the last visible record that are not live, ascending,
// until fn returns false.
func (l *Log) EachDeleted(fn func(seq uint64) bool) {
	g := gapWalk{fn: fn}
	end := uint64(0) // what is in parts was looked at up to here
	for more := true; more && !g.done; {
		var (
			gaps  []seqRun
			views []sealedView
			err   error
		)
		l.mu.RLock()
		if last := l.vis.lastSealed(); last > end {
			views, err = snapshot(l.vis.from(end+1), visible)
			end = last
		} else {
			gaps, g.want, more = l.gaps(g.want)
		}
		l.mu.RUnlock()
		for i := range views {
			if err == nil && !g.done {
				err = g.run(&views[i])
			}
		}
		release(views)
		if err != nil {
			l.fault(err)
			return
		}
		for _, r := range gaps {
			if !g.give(r.first, r.first+r.n) {
				return
			}
		}
	}
}

// gapWalk gives the sequences between live ones.
type gapWalk struct {
	fn   func(seq uint64) bool
	want uint64 // the next sequence if none is missing; 0: nothing was seen yet
	done bool
}

// give gives the sequences in [from, to).
func (g *gapWalk) give(from, to uint64) bool {
	for ; from < to; from++ {
		if !g.fn(from) {
			g.done = true
			return false
		}
	}
	return true
}

// live notes that seq is there.
func (g *gapWalk) live(seq uint64) bool {
	if g.want != 0 && !g.give(g.want, seq) {
		return false
	}
	g.want = seq + 1
	return true
}

// run walks over a run in a part.
func (g *gapWalk) run(v *sealedView) error {
	sec, err := v.section()
	if err != nil {
		return err
	}
	for ord := v.dead.Live(0); ord < v.info.Count; ord = v.dead.Live(ord + 1) {
		seq, err := sec.Seq(ord)
		if err != nil {
			return err
		}
		if !g.live(seq) {
			return nil
		}
	}
	return nil
}

// gaps returns the next runs of sequences that are not live from want on (0: from the first record), where to go on,
// and whether there is more, of what is in RAM. The lock is held.
func (l *Log) gaps(want uint64) (gaps []seqRun, next uint64, more bool) {
	const batch = 4096
	n := 0
	for _, x := range l.vis.ram() {
		ord := x.next(x.first, x.vis)
		if want != 0 {
			ord = x.next(x.lower(want), x.vis)
		}
		for ; ord < x.vis; ord = x.next(ord+1, x.vis) {
			seq := x.at(ord).seq
			if want != 0 && seq > want {
				gaps = append(gaps, seqRun{want, seq - want})
			}
			want = seq + 1
			if n++; n == batch {
				return gaps, want, true
			}
		}
	}
	if last := l.visible.Load(); want != 0 && last >= want {
		gaps = append(gaps, seqRun{want, last + 1 - want})
	}
	return gaps, 0, false
}

// walkKeys calls fn for the matching keys with visible records among the next ids from from, at most most of them, and
// returns where to go on.
func (x *index) walkKeys(from uint32, most int, filter Filter, fn func([]byte, KeyState)) (next uint32, more bool) {
	if filter != nil && filter.Literal() {
		x.eachKey(filter, func(id uint32) bool {
			if ks := x.visibleKey(x.keys.info(id)); ks.Count > 0 {
				fn(x.keys.key(id), ks)
			}
			return true
		})
		return 0, false
	}
	for id := from; id < x.keys.ids; id++ {
		k := x.keys.info(id)
		if k.chained == 0 || filter != nil && !filter.Match(x.keys.key(id)) {
			continue
		}
		if ks := x.visibleKey(k); ks.Count > 0 {
			fn(x.keys.key(id), ks)
			if most--; most == 0 {
				return id + 1, true
			}
		}
	}
	return 0, false
}

package storage

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/noetl/ehdb-gateway/storage/manifest"
	"github.com/noetl/ehdb-gateway/storage/part"
)

// Parts are merged by size: four neighbours of a size, or more, become one of the next size, so that there are few of
// them and each record is written once for each size there is (4 KiB, 16 KiB, ... 256 MiB). A part of which more than
// half is deleted is written again by itself.
const (
	mergeFan   = 4
	maxFan     = 16
	smallest   = 4 << 10
	largest    = 256 << 20
	worthwhile = 64 << 10 // a part smaller than that is left until it is merged with others
)

// tier returns the size class of a part.
func (p *sealedPart) tier() int { return (bits.Len64(uint64(max(p.size/smallest, 1))) - 1) / 2 }

// ageOf returns the number that a part's name begins with: that of its oldest records' first part.
func ageOf(name string) uint64 {
	digits, _, _ := strings.Cut(path.Base(name), "-")
	age, _ := strconv.ParseUint(digits, 10, 64)
	return age
}

// left returns how many records of p are not deleted.
func (sl *sealer) left(p *sealedPart) (n, of uint64) {
	for _, s := range p.runs {
		of += uint64(s.info.Count)
		if l := sl.owner(s); l != nil {
			l.mu.RLock()
			n += s.vis.msgs
			l.mu.RUnlock()
		} else if sl.isLeaving(s) {
			n += uint64(s.info.Count)
		}
	}
	return n, of
}

// isLeaving reports whether the log of s was dropped, but perhaps not durably: the next seal waits for that and says so
// in the manifest. Until then its records must stay.
func (sl *sealer) isLeaving(s *sealed) bool {
	_, known := sl.known[LogID(s.info.Log)]
	return known && sl.owner(s) == nil
}

// tidy removes parts in which nothing is left and merges others.
func (sl *sealer) tidy(pace func(int64) error) error {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	for {
		if err := sl.dropDead(); err != nil {
			return err
		}
		group := sl.pick()
		if sl.s.w.lacksRoom() {
			group = sl.pickForRoom()
		}
		if group == nil {
			return nil
		}
		if err := sl.merge(group, pace); err != nil {
			return err
		}
	}
}

func (sl *sealer) dropDead() error {
	var dead []*sealedPart
	for _, p := range sl.parts {
		if n, _ := sl.left(p); n == 0 {
			dead = append(dead, p)
		}
	}
	if len(dead) == 0 {
		return nil
	}
	m := newMerged(sl, dead)
	if err := sl.apply(&manifest.Edit{DropParts: m.ids()}); err != nil {
		return err
	}
	for _, log := range m.logs {
		log.l.mu.Lock()
		if v := log.view(); v != nil {
			v.sealed = slices.DeleteFunc(slices.Clone(v.sealed), func(s *sealed) bool {
				return slices.Contains(log.runs, s)
			})
			log.l.version++
		}
		log.l.mu.Unlock()
	}
	return sl.remove(dead)
}

// pick chooses parts to merge; nil if there is nothing to do.
func (sl *sealer) pick() []*sealedPart {
	shards := map[ShardID][]*sealedPart{}
	for _, p := range sl.parts {
		if p.err == nil && !slices.ContainsFunc(p.runs, sl.isLeaving) {
			shards[p.shard] = append(shards[p.shard], p)
		}
	}
	for _, list := range shards {
		slices.SortFunc(list, func(a, b *sealedPart) int {
			return cmp.Or(cmp.Compare(ageOf(a.path), ageOf(b.path)), cmp.Compare(a.id, b.id))
		})
		if group := sl.neighbours(list); group != nil {
			return group
		}
		for _, p := range list {
			if n, of := sl.left(p); p.size >= worthwhile && n < of/2 {
				return []*sealedPart{p}
			}
		}
	}
	return nil
}

// pickForRoom chooses the part that gives back the most when it is written again, among those that there is room for.
func (sl *sealer) pickForRoom() (best []*sealedPart) {
	w := sl.s.w
	t, ok := w.tail.(roomy)
	free, known := w.diskFree()
	if !ok || !known {
		return nil
	}
	most, dead := t.Step()/minGain, int64(0)
	for _, p := range sl.parts {
		n, of := sl.left(p)
		if p.err != nil || of == 0 || slices.ContainsFunc(p.runs, sl.isLeaving) {
			continue
		}
		live := int64(float64(p.size) * float64(n) / float64(of))
		dead += p.size - live
		if gain := p.size - live; gain > most && live+live/minGain < free {
			most, best = gain, []*sealedPart{p}
		}
	}
	w.space.dead.Store(dead)
	return best
}

// neighbours returns enough parts of a size, or smaller, that follow one another.
func (sl *sealer) neighbours(list []*sealedPart) []*sealedPart {
	top := 0
	for _, p := range list {
		top = max(top, p.tier())
	}
	for tier := 0; tier <= top; tier++ {
		var group []*sealedPart
		size := int64(0)
		for i := len(list) - 1; i >= -1; i-- {
			if i >= 0 && list[i].tier() <= tier && len(group) < maxFan && size+list[i].size <= largest {
				group = append(group, list[i])
				size += list[i].size
				continue
			}
			if len(group) >= mergeFan {
				if slices.Reverse(group); sl.contiguous(group) {
					return group
				}
			}
			group, size = nil, 0
		}
	}
	return nil
}

// contiguous reports whether nothing of a log lies between its runs in group.
func (sl *sealer) contiguous(group []*sealedPart) bool {
	m := newMerged(sl, group)
	for _, log := range m.logs {
		log.l.mu.RLock()
		v := log.view()
		ok := v == nil || log.find(v) >= 0
		log.l.mu.RUnlock()
		if !ok {
			return false
		}
	}
	return true
}

// merged is a merge of parts.
type merged struct {
	parts   []*sealedPart
	logs    map[uint64]*mergedLog
	leaving bool // of a log that is leaving something is there
}

// mergedLog is what a merge does to one log.
type mergedLog struct {
	l    *Log
	runs []*sealed          // ascending
	dead []*part.Tombstones // of each, what is left out
}

// newMerged notes what is visibly deleted in parts at this moment: that is left out.
func newMerged(sl *sealer, parts []*sealedPart) *merged {
	m := &merged{parts: parts, logs: map[uint64]*mergedLog{}}
	for _, p := range parts {
		for _, s := range p.runs {
			l := sl.owner(s)
			m.leaving = m.leaving || l == nil && sl.isLeaving(s)
			if l == nil || !l.reads(s) {
				continue
			}
			log := m.logs[s.info.Log]
			if log == nil {
				log = &mergedLog{l: l}
				m.logs[s.info.Log] = log
			}
			log.runs = append(log.runs, s)
		}
	}
	for _, log := range m.logs {
		slices.SortFunc(log.runs, func(a, b *sealed) int { return cmp.Compare(a.info.FirstSeq, b.info.FirstSeq) })
		log.l.mu.RLock()
		for _, s := range log.runs {
			log.dead = append(log.dead, s.vis.share())
		}
		log.l.mu.RUnlock()
	}
	return m
}

// reads reports whether s is a run of the log. If not, all that was in it is visibly gone.
func (l *Log) reads(s *sealed) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Contains(l.vis.sealed, s) || slices.Contains(l.head.sealed, s)
}

func (m *merged) ids() (ids []manifest.PartID) {
	for _, p := range m.parts {
		ids = append(ids, p.id)
	}
	return ids
}

// left returns what is left out of a run.
func (m *mergedLog) left(s *sealed) *part.Tombstones {
	if i := slices.Index(m.runs, s); i >= 0 {
		return m.dead[i]
	}
	all := &part.Tombstones{}
	all.AddRange(0, s.info.Count)
	return all
}

// view returns the view that the runs are in; nil if they were purged with everything else. The log's lock is held.
func (m *mergedLog) view() *view {
	for _, v := range []*view{m.l.vis, m.l.head} {
		if slices.Contains(v.sealed, m.runs[0]) {
			return v
		}
	}
	return nil
}

// find returns where in v the runs are, one after the other; -1 if they are not.
func (m *mergedLog) find(v *view) int {
	i := slices.Index(v.sealed, m.runs[0])
	if i < 0 || len(v.sealed)-i < len(m.runs) || !slices.Equal(v.sealed[i:i+len(m.runs)], m.runs) {
		return -1
	}
	return i
}

var errLeaving = errors.New("a log is leaving")

// merge writes the parts of a group as one.
func (sl *sealer) merge(group []*sealedPart, pace func(int64) error) error {
	m, p, err := sl.writeMerged(group, pace)
	if errors.Is(err, errLeaving) {
		return nil // it is not picked again before it has left
	}
	if err != nil {
		return fmt.Errorf("merge %d parts from %s on: %w", len(group), group[0].path, err)
	}
	return sl.commitMerged(m, p)
}

// writeMerged writes the part that is to replace group; nil if there is nothing left to write.
func (sl *sealer) writeMerged(group []*sealedPart, pace func(int64) error) (*merged, *sealedPart, error) {
	m := newMerged(sl, group)
	if m.leaving {
		return nil, nil, errLeaving
	}
	b, err := sl.create(group[0].shard)
	if err != nil {
		return nil, nil, err
	}
	inputs := make([]part.Input, len(group))
	for i, p := range group {
		inputs[i] = part.Input{Reader: p.r, Dead: map[uint64]*part.Tombstones{}}
		for _, s := range p.runs {
			if log := m.logs[s.info.Log]; log != nil {
				inputs[i].Dead[s.info.Log] = log.left(s)
			}
		}
	}
	_, err = part.Merge(b, inputs, part.MergeOptions{
		Logs: func(log uint64) bool { return m.logs[log] != nil }, Step: pace,
		Codec: func(log uint64) part.Codec { return m.logs[log].l.codec() },
	})
	if err != nil {
		return nil, nil, errors.Join(err, b.Abort())
	}
	p, err := sl.finish(b, group[0].shard, ageOf(group[0].path))
	return m, p, err
}

// commitMerged makes the manifest and the logs say that p is there instead of what it was merged from.
func (sl *sealer) commitMerged(m *merged, p *sealedPart) error {
	e := manifest.Edit{DropParts: m.ids()}
	if p != nil {
		e.AddParts = []manifest.Part{p.entry()}
	}
	if err := sl.apply(&e); err != nil {
		return err
	}
	if p != nil {
		sl.keep(p)
	}
	if err := m.install(p); err != nil {
		sl.s.w.poison(err)
		return err
	}
	sl.merges.Add(1)
	return sl.remove(m.parts)
}

// install makes the logs read p, nil if nothing was left, instead of what was merged.
func (m *merged) install(p *sealedPart) error {
	for id, log := range m.logs {
		var to *sealed
		if p != nil {
			if i := slices.IndexFunc(p.runs, func(s *sealed) bool { return s.info.Log == id }); i >= 0 {
				to = p.runs[i]
			}
		}
		if err := log.install(to); err != nil {
			return err
		}
	}
	return nil
}

func (m *mergedLog) install(to *sealed) error {
	l := m.l
	l.mu.Lock()
	defer l.mu.Unlock()
	v := m.view()
	if v == nil { // purged with everything else
		if to != nil {
			to.die(0, to.info.Count, to.vis.msgs, to.vis.bytes)
		}
		return nil
	}
	at := m.find(v)
	if at < 0 {
		return fmt.Errorf("log %d: parts that were merged are not neighbours", l.meta.ID)
	}
	var with []*sealed
	if to != nil {
		to.num = l.nextNum()
		for _, d := range []*deaths{&to.head, &to.vis} {
			d.msgs, d.bytes = 0, 0
		}
		base := uint32(0)
		for i, s := range m.runs {
			base = s.forwardTo(to, m.dead[i], base)
		}
		if base != to.info.Count {
			return fmt.Errorf("log %d: %d records were merged, %d were to be", l.meta.ID, to.info.Count, base)
		}
		with = []*sealed{to}
	}
	v.sealed = slices.Concat(v.sealed[:at], with, v.sealed[at+len(m.runs):])
	l.version++
	return nil
}

// forwardTo notes that what is not in dead was written to another run, from the ordinal base on, carries over what was
// deleted since, and returns the next base. The log's lock is held.
func (s *sealed) forwardTo(to *sealed, dead *part.Tombstones, base uint32) uint32 {
	f := &forward{to: to, dead: dead, base: base}
	s.vis.dead.Without(dead, func(ord uint32) { to.vis.mark(f.at(uint64(ord))); to.dirty = true })
	s.head.dead.Without(dead, func(ord uint32) { to.head.mark(f.at(uint64(ord))) })
	to.head.msgs += s.head.msgs
	to.head.bytes += s.head.bytes
	to.vis.msgs += s.vis.msgs
	to.vis.bytes += s.vis.bytes
	s.fwd = f
	return base + s.info.Count - uint32(dead.Count())
}

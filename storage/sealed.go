package storage

import (
	"errors"
	"sort"
	"sync/atomic"

	"github.com/noetl/ehdb-gateway/storage/manifest"
	"github.com/noetl/ehdb-gateway/storage/part"
)

// sealedPart is a live part, open for reading. It is closed when neither the sealer nor a reader holds it.
type sealedPart struct {
	id    manifest.PartID
	path  string // relative to the data directory
	shard ShardID
	size  int64
	r     *part.Reader // nil: see err
	err   error        // why it cannot be read
	stuck bool         // it could not be written again
	runs  []*sealed    // its sections; the sealer's
	refs  atomic.Int64
}

// hold keeps p open until release; false if it is closed.
func (p *sealedPart) hold() bool {
	for {
		n := p.refs.Load()
		if n == 0 {
			return false
		}
		if p.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (p *sealedPart) release() {
	if p.refs.Add(-1) == 0 && p.r != nil {
		_ = p.r.Close() // it was only read
	}
}

// sealed is the run of a log's records that is in one part. What is deleted of it is kept beside the part: in two
// views, as in an index. Guarded by the log's lock but for what never changes.
type sealed struct {
	p    *sealedPart
	num  uint32 // of the run in its log
	info part.SectionInfo
	head deaths
	vis  deaths
	fwd  *forward // where its records are now, when it is no run of its log any more
	// dirty: the visible deletions are not all in the manifest.
	dirty bool
	first atomic.Pointer[firstRecord]
}

// deaths are the deletions of a run in one view, and the totals of what is left.
type deaths struct {
	dead   *part.Tombstones
	shared atomic.Bool // dead was given to a reader: it is not to be changed any more
	from   uint32      // nothing below this ordinal is left
	msgs   uint64
	bytes  uint64
}

// share returns the deletions for a reader, who may keep them.
func (d *deaths) share() *part.Tombstones {
	d.shared.Store(true)
	return d.dead
}

// own makes dead changeable.
func (d *deaths) own() {
	if d.dead == nil || d.shared.Load() {
		d.dead = d.dead.Clone()
		d.shared.Store(false)
	}
}

// kill deletes the ordinals in [lo, hi), n of which were left, with bytes in all.
func (d *deaths) kill(lo, hi uint32, n, bytes uint64) {
	if n == 0 {
		return
	}
	d.own()
	if hi-lo == 1 {
		d.dead.Add(lo)
	} else {
		d.dead.AddRange(lo, hi)
	}
	d.msgs -= n
	d.bytes -= bytes
	if lo <= d.from && d.from < hi {
		d.from = d.dead.Live(hi)
	}
}

// forward says where the records of a run are that were written anew: into a part, or from several parts into one.
type forward struct {
	to    *sealed
	first uint64           // ordinal that dead counts from
	dead  *part.Tombstones // what was left out
	base  uint32           // ordinal in to of the first record
}

// at returns the ordinal of a record, or of the first one behind it if it was left out.
func (f *forward) at(ord uint64) uint32 {
	rel := uint32(ord - f.first)
	return f.base + rel - uint32(f.dead.Rank(rel))
}

// isDense reports that no sequence is missing in the run, so that ordinals follow from sequences.
func (s *sealed) isDense() bool { return s.info.LastSeq-s.info.FirstSeq == uint64(s.info.Count-1) }

// firstRecord is what the first record that is left of a run has, remembered because it is asked for again and again.
type firstRecord struct {
	ord  uint32
	seq  uint64
	time int64
}

// sealedView is a run as a reader sees it: what is deleted does not change.
type sealedView struct {
	*sealed
	dead *part.Tombstones
	sec  *part.Section
}

// section returns the section of the part. The part is held.
func (v *sealedView) section() (*part.Section, error) {
	if v.sec != nil {
		return v.sec, nil
	}
	if v.p.err != nil {
		return nil, v.p.err
	}
	sec, err := v.p.r.Section(v.info.Log)
	if err == nil && (sec == nil || sec.Info().Count != v.info.Count) {
		err = &part.CorruptError{
			Path: v.p.r.Path(), Err: errors.New("the section is not the one the manifest says"),
			Hint: "restore the file from a backup or a replica",
		}
	}
	v.sec = sec
	return sec, err
}

// firstLeft returns the first record that is left, ok is false if there is none.
func (v *sealedView) firstLeft() (f firstRecord, ok bool, err error) {
	ord := v.dead.Live(0)
	if ord >= v.info.Count {
		return f, false, nil
	}
	if ord == 0 {
		return firstRecord{0, v.info.FirstSeq, v.info.FirstTime}, true, nil
	}
	if known := v.first.Load(); known != nil && known.ord == ord {
		return *known, true, nil
	}
	sec, err := v.section()
	if err != nil {
		return f, false, err
	}
	r, err := sec.ByOrdinal(ord)
	if err != nil {
		return f, false, err
	}
	f = firstRecord{ord, r.Seq, r.Time}
	v.first.Store(&f)
	return f, true, nil
}

// match returns the keys that filters select, nil for all of them.
func (v *sealedView) match(filters []Filter) (*part.Match, error) {
	if len(filters) == 0 {
		return nil, nil //nolint:nilnil // all
	}
	sec, err := v.section()
	if err != nil {
		return nil, err
	}
	fs := make([]part.Filter, len(filters))
	for i, f := range filters {
		fs[i] = f
	}
	return sec.Match(fs...)
}

// view is all that a log has in one of its two views: runs of ascending sequences. The two are one but while a purge of
// everything is on its way. Guarded by the log's lock.
type view struct {
	sealed []*sealed // the slice is replaced, never changed
	mid    *index    // on its way to a part; nil most of the time
	tail   *index    // what appends go to
	inRAM  []*index  // the two; the slice is replaced, never changed
}

// ram returns the runs that are in RAM.
func (v *view) ram() []*index { return v.inRAM }

// set says which runs are in RAM; mid may be nil.
func (v *view) set(mid, tail *index) {
	v.mid, v.tail = mid, tail
	if mid == nil {
		v.inRAM = []*index{tail}
	} else {
		v.inRAM = []*index{mid, tail}
	}
}

// lastSealed returns the highest sequence that may be in a part.
func (v *view) lastSealed() uint64 {
	if n := len(v.sealed); n > 0 {
		return v.sealed[n-1].info.LastSeq
	}
	return 0
}

// from returns the runs in parts that reach to seq or beyond.
func (v *view) from(seq uint64) []*sealed {
	n := sort.Search(len(v.sealed), func(i int) bool { return v.sealed[i].info.LastSeq >= seq })
	return v.sealed[n:]
}

// which says which of the two views of a log is meant.
type which bool

const (
	atHead  which = true
	visible which = false
)

func (s *sealed) deaths(of which) *deaths {
	if of == atHead {
		return &s.head
	}
	return &s.vis
}

// snapshot returns the runs among list that have something left, for use after the lock is given up, which is held now.
// Whoever asks must release them.
func snapshot(list []*sealed, of which) ([]sealedView, error) {
	if len(list) == 0 {
		return nil, nil
	}
	views := make([]sealedView, 0, len(list))
	for _, s := range list {
		d := s.deaths(of)
		if d.msgs == 0 {
			continue
		}
		if !s.p.hold() {
			release(views)
			return nil, stopped(errClosed)
		}
		views = append(views, sealedView{sealed: s, dead: d.share()})
	}
	return views, nil
}

func release(views []sealedView) {
	for i := range views {
		views[i].p.release()
	}
}

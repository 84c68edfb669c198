package inspect

import (
	"container/heap"
	"context"
	"fmt"
	"path"
	"slices"
	"sort"
)

// Record is a record of a log, or an entry of a state log (only Data and Checkpoint are set). What a call gives is
// valid until the next.
type Record struct {
	Seq        uint64
	Time       int64 // Unix nanoseconds
	Key        []byte
	Header     []byte
	Data       []byte
	Checkpoint bool // of a state log: it replaces all before
}

// Each calls fn for the live records of l with a sequence in [from, to], ascending, until fn returns false; for a state
// log for its last checkpoint and the changes since. What is damaged is left out: Directory.Findings has it. An error
// is one of the file system, or says that a file was changed since Read.
func (d *Directory) Each(ctx context.Context, l *Log, from, to uint64, fn func(*Record) bool) error {
	if l.State {
		return d.eachChange(ctx, l, fn)
	}
	m := merge{&walCursor{w: walReader{d: d}, l: l, i: l.lower(from)}}
	for _, s := range l.parts {
		m = append(m, newSectionCursor(d, l, s, from))
	}
	m = slices.DeleteFunc(m, func(c cursor) bool { _, ok := c.bound(); return !ok })
	heap.Init(&m)
	for len(m) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := m[0]
		if seq, _ := c.bound(); seq > to {
			return nil
		}
		r, err := c.next()
		if err != nil {
			return err
		}
		if _, ok := c.bound(); ok {
			heap.Fix(&m, 0)
		} else {
			heap.Pop(&m)
		}
		if r != nil && r.Seq >= from && r.Seq <= to && !fn(r) {
			return nil
		}
	}
	return nil
}

func (d *Directory) eachChange(ctx context.Context, l *Log, fn func(*Record) bool) error {
	w := walReader{d: d}
	for _, r := range l.base {
		if !fn(r) {
			return nil
		}
	}
	for i := range l.changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := w.read(&l.changes[i])
		if err != nil {
			return err
		}
		if !fn(&Record{Data: r.Data, Checkpoint: r.Kind == KindCheckpoint}) {
			return nil
		}
	}
	return nil
}

// cursor gives records in order.
type cursor interface {
	// bound is a sequence below which it will give none; false at its end.
	bound() (uint64, bool)
	// next gives the next record; nil if it only came nearer to it.
	next() (*Record, error)
}

// merge is a heap of cursors by their bounds.
type merge []cursor

func (m merge) Len() int      { return len(m) }
func (m merge) Swap(i, j int) { m[i], m[j] = m[j], m[i] }

func (m merge) Less(i, j int) bool {
	a, _ := m[i].bound()
	b, _ := m[j].bound()
	return a < b
}

// Push implements heap.Interface.
func (m *merge) Push(x any) { *m = append(*m, x.(cursor)) } //nolint:errcheck,forcetypeassert // heap.Interface

// Pop implements heap.Interface.
func (m *merge) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// sectionCursor gives the records of a section that are not deleted.
type sectionCursor struct {
	d    *Directory
	l    *Log
	s    *Section
	i    int // in s.data: the block that is read next
	recs []Record
}

func newSectionCursor(d *Directory, l *Log, s *Section, from uint64) *sectionCursor {
	i := sort.Search(len(s.data), func(i int) bool { return s.Part.blocks[s.data[i].at].lastSeq >= from })
	return &sectionCursor{d: d, l: l, s: s, i: i}
}

func (c *sectionCursor) bound() (uint64, bool) {
	switch {
	case len(c.recs) > 0:
		return c.recs[0].Seq, true
	case c.i < len(c.s.data) && !c.s.Part.Locked:
		return c.s.Part.blocks[c.s.data[c.i].at].firstSeq, true
	}
	return 0, false
}

func (c *sectionCursor) next() (*Record, error) {
	if len(c.recs) == 0 {
		return nil, c.load()
	}
	r := &c.recs[0]
	c.recs = c.recs[1:]
	return r, nil
}

// load reads the live records of the next block.
func (c *sectionCursor) load() error {
	return c.each(func(_ uint32, r *Record, dead bool) error {
		if !dead {
			c.recs = append(c.recs, *r)
		}
		return nil
	})
}

// each calls fn for the records of the next block.
func (c *sectionCursor) each(fn func(i uint32, r *Record, dead bool) error) error {
	ref := c.s.data[c.i]
	c.i++
	p := c.s.Part
	f, err := c.d.fs.OpenRead(path.Join(c.d.Path, p.File))
	if err != nil {
		return err
	}
	defer f.Close()
	raw, err := p.rawBlock(f, &p.blocks[ref.at])
	if err != nil {
		return fmt.Errorf("%s: block at offset %d: %w", p.File, p.blocks[ref.at].off, err)
	}
	return eachRecord(raw, func(i uint32, r *Record) error {
		dead := c.s.Dead != nil && ref.ordKnown && c.s.Dead.Contains(ref.firstOrd+i)
		return fn(i, r, dead || hasSeq(c.l.gone, r.Seq))
	})
}

// walCursor gives the live records in the write-ahead log.
type walCursor struct {
	w walReader
	l *Log
	i int
}

func (c *walCursor) bound() (uint64, bool) {
	for c.i < len(c.l.entries) && c.l.entries[c.i].dead {
		c.i++
	}
	if c.i == len(c.l.entries) {
		return 0, false
	}
	return c.l.entries[c.i].seq, true
}

func (c *walCursor) next() (*Record, error) {
	r, err := c.w.read(&c.l.entries[c.i])
	if err != nil {
		return nil, err
	}
	c.i++
	return &Record{Seq: r.Seq, Time: r.Time, Key: r.Key, Header: r.Header, Data: r.Data}, nil
}

// walReader reads records of the write-ahead log again, checking their block, and keeps the last one.
type walReader struct {
	d    *Directory
	at   int
	body []byte
}

func (w *walReader) read(e *entry) (*WALRecord, error) {
	at := int(e.block)
	if w.body == nil || w.at != at {
		body, err := w.d.readBlock(at)
		if err != nil {
			return nil, err
		}
		w.at, w.body = at, body
	}
	var r WALRecord
	f := fields{b: w.body, pos: int(e.off)}
	r.parse(&f)
	err := f.err
	if err == nil && r.Seq != e.seq {
		err = fmt.Errorf("record %d is where %d was", r.Seq, e.seq)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: block at offset %d: %w", w.d.fileOf(at), w.d.blocks[at].Offset, err)
	}
	return &r, nil
}

// readBlock reads the body of a block that was whole.
func (d *Directory) readBlock(at int) ([]byte, error) {
	b := &d.blocks[at]
	s := &d.Segments[b.Segment]
	f, err := d.fs.OpenRead(d.fileOf(at))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, (&BlockHeader{Len: b.Len}).size())
	if _, err := f.ReadAt(buf, b.Offset); err != nil {
		return nil, fmt.Errorf("%s: offset %d: %w", d.fileOf(at), b.Offset, err)
	}
	h, ok := wholeBlock(buf, 0, s)
	if !ok || h.LSN != b.LSN {
		return nil, fmt.Errorf("%s: block %d at offset %d was changed while it was read (is a gateway running?)",
			d.fileOf(at), b.LSN, b.Offset)
	}
	body := buf[blockHead : blockHead+int64(b.Len)]
	if s.Boxed {
		h.Offset = b.Offset
		return d.keys.open(BlockPlace(s, &h), body)
	}
	return body, nil
}

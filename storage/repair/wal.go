package repair

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/inspect"
)

const (
	segmentEnd   = 8 // zero bytes behind the last block
	segmentAlign = 4096
	maxFill      = 1 << 22 // blocks of a missing segment that are made up for
)

// wal makes the write-ahead log one without holes.
func (r *repairer) wal(ctx context.Context) error {
	p := walPlan{r: r, d: r.d}
	recovered, err := p.recovery(ctx) // before the blocks it is taken from are written elsewhere
	if err != nil {
		return err
	}
	if err := p.run(ctx); err != nil || recovered == nil {
		return err
	}
	return p.write(p.last+1, p.next, bodies(recovered...),
		"made: it says what is lost and must not be: which logs there are")
}

// bodies gives the bodies in list.
func bodies(list ...[]byte) body {
	return func() ([]byte, bool, error) {
		if len(list) == 0 {
			return nil, false, nil
		}
		b := list[0]
		list = list[1:]
		return b, true, nil
	}
}

// walPlan goes through the segments, by id.
type walPlan struct {
	r    *repairer
	d    *inspect.Directory
	next uint64 // position behind what is there by now
	last uint64 // id of the last segment
	at   int    // in d.Blocks()
}

func (p *walPlan) run(ctx context.Context) error {
	ids := p.d.SegmentIDs()
	floor := uint64(0)
	if p.d.Manifest != nil {
		floor = p.d.Manifest.Floor
	}
	if p.d.Next < floor {
		return p.restart(ids, floor)
	}
	if len(ids) == 0 {
		return nil
	}
	p.last = ids[len(ids)-1]
	p.next = floor
	begun := floor > 0
	first := ids[0]
	if s := p.segment(first); begun && s != nil && s.Base > floor && first > 1 {
		first-- // the segments before it are missing
	}
	for id := first; id <= ids[len(ids)-1]; id++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		s := p.segment(id)
		if s == nil && !begun { // nothing before it can be missed: it is as if it had been dropped
			if err := p.discard(id); err != nil {
				return err
			}
			continue
		}
		begun = true
		if err := p.step(id, s); err != nil {
			return err
		}
	}
	return nil
}

// segment returns a segment that could be read.
func (p *walPlan) segment(id uint64) *inspect.Segment {
	i := slices.IndexFunc(p.d.Segments, func(s inspect.Segment) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return &p.d.Segments[i]
}

// baseAfter returns where the first segment behind id that could be read starts.
func (p *walPlan) baseAfter(id uint64) (base uint64, ok bool) {
	for i := range p.d.Segments {
		if s := &p.d.Segments[i]; s.ID > id {
			return s.Base, true
		}
	}
	return 0, false
}

// restart replaces a log that ends before the manifest's floor: all that was in it is in parts and checkpoints.
func (p *walPlan) restart(ids []uint64, floor uint64) error {
	next := uint64(1)
	for _, id := range ids {
		if err := p.discard(id); err != nil {
			return err
		}
		next = id + 1
	}
	p.next, p.last = floor, next
	return p.write(next, floor, nil, "made anew: it starts with block %d, behind what is in parts", floor)
}

// discard puts a segment aside that nothing takes the place of.
func (p *walPlan) discard(id uint64) error {
	file := path.Join(inspect.WALDir, inspect.SegmentName(id))
	if !slices.Contains(p.d.SegmentIDs(), id) {
		return nil
	}
	if err := p.r.putAside(file); err != nil {
		return err
	}
	p.r.did(file, "put aside: no block in it can be used")
	return nil
}

// step keeps, writes again or makes one segment.
func (p *walPlan) step(id uint64, s *inspect.Segment) error {
	if s == nil {
		base, ok := p.baseAfter(id)
		if !ok {
			if id == p.last {
				p.last--
			}
			return p.discard(id)
		}
		start := min(p.next, base)
		n := base - start
		if n > maxFill {
			return fmt.Errorf("%s: %d blocks are missing before block %d: too many to be made up for; restore the "+
				"directory from a backup", inspect.SegmentName(id), n, base)
		}
		return p.write(id, start, p.fill(start, base),
			"made anew: it holds nothing, in the place of %d blocks from %d on", n, start)
	}
	end := s.Next
	if base, ok := p.baseAfter(id); ok && p.segment(id+1) == nil {
		if h := p.holeAt(s.File, s.End); h != nil && h.To == base {
			end = h.From // what is missing is in the segment behind, which is made
		}
	}
	must, err := p.mustWrite(s, end)
	if err != nil {
		return err
	}
	if !must {
		p.at += s.Blocks
		p.next = end
		return nil
	}
	start := s.Base
	return p.write(id, start, p.collect(s, end), "written again from what is whole: blocks %d to %d", start, end)
}

// holeAt returns the hole at an offset of a file.
func (p *walPlan) holeAt(file string, off int64) *inspect.Hole {
	for i := range p.d.Holes {
		if h := &p.d.Holes[i]; h.Segment == file && h.Offset == off {
			return h
		}
	}
	return nil
}

// mustWrite tells whether a segment is damaged in itself. A hole at its end is none of it if another segment makes up
// for it and nothing is left of the block that was there.
func (p *walPlan) mustWrite(s *inspect.Segment, end uint64) (bool, error) {
	bad := slices.ContainsFunc(p.d.Findings, func(f inspect.Finding) bool {
		return f.Severity == inspect.Damage && f.File == s.File && (end == s.Next || f.Offset != s.End)
	})
	if bad || end == s.Next {
		return bad, nil
	}
	f, err := p.r.fs.OpenRead(path.Join(p.r.dir, s.File))
	if err != nil {
		return false, err
	}
	defer f.Close()
	b := make([]byte, min(segmentEnd, s.Size-s.End))
	if _, err := f.ReadAt(b, s.End); errors.Is(err, io.EOF) {
		return true, nil // it was cut short
	} else if err != nil {
		return false, err
	}
	return slices.ContainsFunc(b, func(v byte) bool { return v != 0 }), nil
}

// body gives the bodies of blocks, in order.
type body func() (b []byte, ok bool, err error)

// fill gives the blocks that take the place of those from a position up to another.
func (p *walPlan) fill(from, to uint64) body {
	hole := p.holeOf(from)
	return func() ([]byte, bool, error) {
		if from == to {
			return nil, false, nil
		}
		from++
		b := filler(hole, p.d)
		hole = nil
		return b, true, nil
	}
}

// holeOf returns the hole that starts with block n; nil if there is none.
func (p *walPlan) holeOf(n uint64) *inspect.Hole {
	for i := range p.d.Holes {
		if h := &p.d.Holes[i]; h.From == n && h.To > n && !h.Open {
			return h
		}
	}
	return nil
}

// collect gives the blocks of a segment up to a position: those that are whole, and others in the place of lost ones.
func (p *walPlan) collect(s *inspect.Segment, end uint64) body {
	blocks := p.d.Blocks()[p.at:][:s.Blocks]
	i, next := 0, s.Base
	var holes body
	return func() ([]byte, bool, error) {
		for {
			if holes != nil {
				if b, ok, err := holes(); ok || err != nil {
					next++
					return b, true, err
				}
				holes = nil
			}
			switch {
			case i < len(blocks) && blocks[i].LSN == next:
				i++
				next++
				p.at++
				b, err := p.d.Body(p.at - 1)
				return b, true, err
			case i < len(blocks):
				holes = p.fill(next, blocks[i].LSN)
			case next < end && p.holeOf(next) != nil:
				holes = p.fill(next, end)
			default:
				return nil, false, nil
			}
		}
	}
}

// write writes a segment that starts with block base, and says so. Its last block is followed by a mark, which proves
// that all before was durable.
func (p *walPlan) write(id, base uint64, next body, format string, args ...any) error {
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // never fails
	s := inspect.Segment{ID: id, Base: base, Salt: binary.LittleEndian.Uint32(salt[:]), Boxed: p.r.box != nil}
	var b []byte
	b = append(b, inspect.EncodeSegmentHeader(&s)...) // once more when the size is known
	lsn := base
	for next != nil {
		body, ok, err := next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if b, err = p.r.appendBlock(b, &s, lsn, body); err != nil {
			return err
		}
		lsn++
	}
	b = inspect.AppendMark(b, s.Salt, lsn)
	size := (len(b) + segmentEnd + segmentAlign - 1) / segmentAlign * segmentAlign
	b = append(b, make([]byte, size-len(b))...)
	s.Size = int64(size)
	copy(b, inspect.EncodeSegmentHeader(&s))
	file := path.Join(inspect.WALDir, inspect.SegmentName(id))
	if err := p.r.replace(file, b); err != nil {
		return err
	}
	p.next, p.last = lsn, max(p.last, id)
	p.r.did(file, format, args...)
	return nil
}

// appendBlock adds a block of which all before it are durable to b, the bytes of a segment, encrypted if that is.
func (r *repairer) appendBlock(b []byte, s *inspect.Segment, lsn uint64, body []byte) ([]byte, error) {
	if s.Boxed {
		h := inspect.BlockHeader{Offset: int64(len(b)), LSN: lsn, Durable: lsn}
		h.Len = uint32(crypt.BoxSize(int64(len(body)))) //nolint:gosec // at most 1 GiB
		var err error
		if body, err = r.box.Seal(nil, inspect.BlockPlace(s, &h), body); err != nil {
			return nil, err
		}
	}
	return inspect.AppendBlock(b, s.Salt, lsn, lsn, body), nil
}

// filler is a block in the place of a lost one. The first of a hole lets the shards' positions go on behind it, by a
// store record in the place of one that is lost.
func filler(h *inspect.Hole, d *inspect.Directory) []byte {
	if h != nil {
		for shard, n := range h.Lost {
			if n > 0 {
				return bridge(h, d, uint64(shard))
			}
		}
	}
	return []byte{1, 0} // version 1, no section
}

func bridge(h *inspect.Hole, d *inspect.Directory, shard uint64) []byte {
	n, _ := d.ShardsSeen()
	heads := make([]uint64, n)
	for s := range heads {
		heads[s] = at(h.Heads, s) + at(h.Lost, s)
	}
	return oneSection(shard, 1, at(h.Heads, int(shard)), storeRecord(d.FreeID(), heads))
}

func at(v []uint64, i int) uint64 {
	if i < len(v) {
		return v[i]
	}
	return 0
}

// oneSection is a block's body with one section.
func oneSection(shard, count, first uint64, records []byte) []byte {
	b := []byte{1, 1} // version 1, one section
	for _, v := range []uint64{shard, count, first, uint64(len(records))} {
		b = binary.AppendUvarint(b, v)
	}
	return append(b, records...)
}

// recovery returns blocks that make those logs known of which the record that says they exist is lost, and adds to
// the catalog what it lacks; nil if there is nothing to say. A state log begins anew with the record that makes it
// known, so what is left of it follows.
func (p *walPlan) recovery(ctx context.Context) ([][]byte, error) {
	var s recordList
	for _, l := range p.d.Logs {
		if l.Known() {
			continue
		}
		s.add(logRecord(l, nameOf(l), shardsOf(l)))
		p.r.did(inspect.WALDir, "log %d is known again, as %q", l.ID, nameOf(l))
		if !l.State {
			continue
		}
		err := p.d.Each(ctx, l, 0, 0, func(r *inspect.Record) bool {
			kind := inspect.KindChange
			if r.Checkpoint {
				kind = inspect.KindCheckpoint
			}
			s.add(stateRecord(kind, l.ID, r.Data))
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	if err := p.catalog(ctx, &s); err != nil || s.count == 0 {
		return nil, err
	}
	n, _ := p.d.ShardsSeen()
	heads := make([]uint64, n)
	late := false
	for i := range heads {
		heads[i] = max(at(p.d.Heads(), i), at(p.d.KnownHeads(), i))
		late = late || heads[i] > at(p.d.Heads(), i)
	}
	if !late {
		return [][]byte{oneSection(0, s.count, heads[0], s.b)}, nil
	}
	// the log ends before what the manifest knows of: records below that would be passed over
	first := at(p.d.Heads(), 0)
	heads[0] = max(heads[0], first+1)
	return [][]byte{
		oneSection(0, 1, first, storeRecord(p.d.FreeID(), heads)), oneSection(0, s.count, heads[0], s.b),
	}, nil
}

// storeRecord is a store record in the first place of its block.
func storeRecord(next uint64, heads []uint64) []byte {
	b := binary.AppendUvarint([]byte{0, byte(inspect.KindStore)}, next) // the place, the kind
	b = binary.AppendUvarint(b, uint64(len(heads)))
	for _, h := range heads {
		b = binary.AppendUvarint(b, h)
	}
	return b
}

// nameOf is the name of a log, or one for a log of which it is lost.
func nameOf(l *inspect.Log) string {
	if l.Known() {
		return l.Name
	}
	return fmt.Sprintf("recovered-%d", l.ID)
}

const catalogID = 1

// catalog adds what the catalog lacks.
func (p *walPlan) catalog(ctx context.Context, s *recordList) error {
	if p.r.o.Catalog == nil || len(p.d.Holes) == 0 && s.count == 0 && !p.r.rebuilt {
		return nil
	}
	var entries [][]byte
	var logs []LogInfo
	for _, l := range p.d.Logs {
		if l.ID != catalogID && l.State {
			continue
		}
		some := false
		err := p.d.Each(ctx, l, 0, ^uint64(0), func(r *inspect.Record) bool {
			if l.ID == catalogID {
				entries = append(entries, append([]byte(nil), r.Data...))
				return true
			}
			some = true
			return false
		})
		if err != nil {
			return err
		}
		if some {
			logs = append(logs, LogInfo{ID: l.ID, Name: nameOf(l), Shards: shardsOf(l), LastTime: l.LastTime})
		}
	}
	for _, e := range p.r.o.Catalog(entries, logs) {
		s.add(stateRecord(inspect.KindChange, catalogID, e.Entry))
		p.r.did(inspect.WALDir, "%s", e.What)
	}
	return nil
}

// recordList is records of a section that is the only one of its block.
type recordList struct {
	b     []byte
	count uint64
}

// add appends a record, given from its kind on.
func (l *recordList) add(fields []byte) {
	l.b = append(binary.AppendUvarint(l.b, l.count), fields...)
	l.count++
}

func stateRecord(kind inspect.Kind, log uint64, data []byte) []byte {
	b := binary.AppendUvarint([]byte{byte(kind)}, log)
	b = binary.AppendUvarint(b, uint64(len(data)))
	return append(b, data...)
}

func shardsOf(l *inspect.Log) []uint64 {
	switch {
	case l.Known():
		return l.Shards
	case len(l.SeenIn()) == 0:
		return []uint64{0}
	}
	return l.SeenIn()
}

// logRecord is the record that says that l exists, from its kind on.
func logRecord(l *inspect.Log, name string, shards []uint64) []byte {
	b := binary.AppendUvarint([]byte{byte(inspect.KindLog)}, l.ID)
	flags := byte(0)
	if l.State {
		flags = 1
	}
	b = binary.AppendUvarint(append(b, flags), l.LastSeq)
	b = binary.LittleEndian.AppendUint64(b, uint64(l.LastTime))
	b = binary.AppendUvarint(b, uint64(len(shards)))
	for _, s := range shards {
		b = binary.AppendUvarint(b, s)
	}
	b = binary.AppendUvarint(b, uint64(len(name)))
	return append(b, name...)
}

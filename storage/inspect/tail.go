package inspect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// WALDir is where the write-ahead log is, below the data directory.
const WALDir = "wal"

const segExtension = ".seg"

// SegmentName returns the file name of a segment.
func SegmentName(id uint64) string { return fmt.Sprintf("%020d%s", id, segExtension) }

// Hole is where durable blocks of the write-ahead log are missing.
type Hole struct {
	Segment  string // the file in which it begins
	Offset   int64
	Length   int64  // bytes of that file; 0: not known
	From, To uint64 // the positions of the blocks that are lost: From to To-1. None are if only a mark is lost
	Open     bool   // nothing whole follows, so To is what is known to have been there

	// Heads are the shards' positions before the hole, Lost how many records of each are known to be missing.
	Heads, Lost []uint64

	finding int // in Directory.Findings
	gaps    []Affected
}

// Block says where a whole block is.
type Block struct {
	Segment int // in Directory.Segments
	Offset  int64
	Len     uint32 // of the body
	LSN     uint64
}

// tailReader goes through the segments in order.
type tailReader struct {
	d    *Directory
	fn   func(at int, body []byte) // for each whole block, Directory.blocks[at]
	next uint64                    // position that is next
	last int                       // segment read last
	seen bool                      // a segment was read
}

// readTail reads all segments and calls fn for each whole block, in order; each hole is noted before the first block
// behind it.
func (d *Directory) readTail(ctx context.Context, fn func(at int, body []byte)) error {
	names, err := d.fs.List(path.Join(d.Path, WALDir))
	if errors.Is(err, fs.ErrNotExist) {
		d.damage(WALDir, 0, remedyRestore, "the directory of the write-ahead log is missing")
		return nil
	}
	if err != nil {
		return err
	}
	ids := d.segmentIDs(names)
	t := tailReader{d: d, fn: fn}
	for i, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i > 0 && id != ids[i-1]+1 {
			d.damage(path.Join(WALDir, SegmentName(ids[i-1]+1)), 0, remedyRestore,
				"the segment is missing: %s is there, and then %s", SegmentName(ids[i-1]), SegmentName(id))
		}
		limit, err := d.baseOf(ids, i+1)
		if err != nil {
			return err
		}
		if err := t.segment(id, limit); err != nil {
			return err
		}
	}
	t.finish()
	return nil
}

// segmentIDs sorts the names of the log's directory out: they come sorted.
func (d *Directory) segmentIDs(names []string) (ids []uint64) {
	for _, name := range names {
		file := path.Join(WALDir, name)
		size, err := d.fs.Stat(path.Join(d.Path, file))
		if err != nil {
			continue // gone meanwhile
		}
		digits, isSeg := strings.CutSuffix(name, segExtension)
		kind := "other"
		switch {
		case isSeg:
			kind = "segment"
			id, err := strconv.ParseUint(digits, 10, 64)
			if err != nil || SegmentName(id) != name {
				d.damage(file, 0, "move the file out of the directory if it does not belong there",
					"the name is not that of a log segment")
				continue
			}
			ids = append(ids, id)
		case strings.HasSuffix(name, ".spare"), strings.HasSuffix(name, ".spare.tmp"):
			kind = "spare segment"
		case name == "LOCK":
			kind = "lock"
		}
		d.Files = append(d.Files, FileInfo{Path: file, Kind: kind, Size: size})
	}
	return ids
}

// noLimit is the limit of the last segment.
const noLimit = ^uint64(0)

// baseOf returns the base of the i-th segment, or of the first one behind it whose header can be read.
func (d *Directory) baseOf(ids []uint64, i int) (uint64, error) {
	for ; i < len(ids); i++ {
		s, _, err := d.loadSegment(ids[i])
		if err != nil {
			return 0, err
		}
		if s != nil {
			return s.Base, nil
		}
	}
	return noLimit, nil
}

// loadSegment reads a segment's file and header; s is nil if the header cannot be read nor found out.
func (d *Directory) loadSegment(id uint64) (s *Segment, b []byte, err error) {
	file := path.Join(WALDir, SegmentName(id))
	b, err = readFile(d.fs, path.Join(d.Path, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil // dropped meanwhile, or found missing by its neighbours
	}
	if err != nil {
		return nil, nil, err
	}
	head, bad := parseSegmentHeader(b)
	ok := bad == nil && head.ID == id
	if !ok {
		head, ok = rebuildHeader(b, id, d.keys)
	}
	if !ok {
		return nil, b, nil
	}
	head.File = file
	return &head, b, nil
}

// checkHeader reports what is wrong with the head of a segment, or the size of its file.
func (d *Directory) checkHeader(id uint64, s *Segment, b []byte) {
	file := path.Join(WALDir, SegmentName(id))
	head, err := parseSegmentHeader(b)
	if err == nil && head.ID != id {
		err = fmt.Errorf("it is segment %d by its header: the file was renamed", head.ID)
	}
	switch {
	case err != nil && s == nil:
		f := d.damage(file, 0, remedyRepair, "%v, and no block in it can be read without", err)
		f.Length = int64(len(b))
	case err != nil:
		f := d.damage(file, 0, remedyRepair, "%v; what it said is known from the blocks, which are read", err)
		f.Length = segHead
	case int64(len(b)) != s.Size:
		d.damage(file, min(int64(len(b)), s.Size), remedyRepair, "the file is %d bytes long, its header says %d",
			len(b), s.Size)
	}
}

func (t *tailReader) segment(id, limit uint64) error {
	d := t.d
	s, b, err := d.loadSegment(id)
	if err != nil || b == nil {
		return err
	}
	if s != nil && s.Boxed && d.keys == nil {
		return fmt.Errorf("%s: %w", s.File, errKeysGone)
	}
	d.checkHeader(id, s, b)
	if s == nil {
		if limit == noLimit {
			d.Holes = append(d.Holes, Hole{
				Segment: path.Join(WALDir, SegmentName(id)), Length: int64(len(b)), From: t.next, To: t.next,
				Open: true, finding: len(d.Findings) - 1,
			})
		}
		return nil
	}
	if t.seen && s.Base < t.next {
		d.damage(s.File, 24, remedyRepair, "it starts with block %d, but the segments before it reach to %d", s.Base,
			t.next)
		return nil
	}
	if floor := d.floor(); !t.seen && floor > 0 && s.Base > floor {
		t.hole(Hole{Segment: s.File, Offset: 24, From: floor, To: s.Base},
			fmt.Sprintf("the log starts with block %d, but by the manifest those from %d on are nowhere else: a "+
				"segment before it is missing", s.Base, floor))
	}
	if t.seen && s.Base > t.next {
		prev := &d.Segments[t.last]
		t.hole(Hole{Segment: prev.File, Offset: prev.End, From: t.next, To: s.Base},
			fmt.Sprintf("blocks %d to %d are missing: the next segment that can be read, %s, starts with block %d",
				t.next, s.Base-1, s.File, s.Base))
	}
	d.Segments = append(d.Segments, *s)
	t.last, t.seen, t.next = len(d.Segments)-1, true, s.Base
	d.progress(s.File)
	w := segmentWalk{t: t, s: &d.Segments[t.last], b: b[:min(int64(len(b)), s.Size)], limit: limit, off: segHead}
	w.run()
	d.Segments[t.last].Next, d.Segments[t.last].End = t.next, w.off
	return nil
}

// hole notes that blocks are missing.
func (t *tailReader) hole(h Hole, what string) {
	d := t.d
	f := d.damage(h.Segment, h.Offset, remedyRepair, "%s", what)
	f.Length = h.Length
	h.finding = len(d.Findings) - 1
	d.Holes = append(d.Holes, h)
}

// segmentWalk reads the blocks of one segment.
type segmentWalk struct {
	t     *tailReader
	s     *Segment
	b     []byte
	limit uint64 // base of the next segment
	off   int64
}

func (w *segmentWalk) run() {
	for w.t.next < w.limit {
		h, ok := wholeBlock(w.b, w.off, w.s)
		if ok && h.LSN == w.t.next {
			w.take(&h)
			continue
		}
		if !w.broken() {
			return
		}
	}
	if h, ok := parseBlockHeader(w.b, w.off, w.s.Salt); ok && !h.Mark && h.LSN >= w.limit && w.limit != noLimit {
		w.t.d.damage(w.s.File, w.off, remedyRepair, "it holds block %d, and so does the next segment", h.LSN)
	}
}

// take gives a whole block to who reads.
func (w *segmentWalk) take(h *BlockHeader) {
	d := w.t.d
	w.off = h.Offset + h.size()
	if h.Mark {
		return
	}
	body, err := h.plain(w.b, w.s, d.keys)
	if err != nil {
		w.t.hole(Hole{Segment: w.s.File, Offset: h.Offset, Length: h.size(), From: h.LSN, To: h.LSN + 1},
			fmt.Sprintf("block %d: %v", h.LSN, err))
		w.t.next = h.LSN + 1
		return
	}
	w.s.Blocks++
	w.t.next = h.LSN + 1
	d.blocks = append(d.blocks, Block{Segment: w.t.last, Offset: h.Offset, Len: h.Len, LSN: h.LSN})
	w.t.fn(len(d.blocks)-1, body)
}

// broken decides about a block that is not whole, and goes to the next one that is. It returns false when there is
// none: then the segment ends here.
func (w *segmentWalk) broken() bool {
	n := w.t.next
	last := w.limit == noLimit
	var rest remains
	if last {
		rest = scanRemains(w.b, w.off, n, w.s)
		if rest.proof == 0 {
			w.torn(rest)
			return false
		}
	}
	h, ok := nextWhole(w.b, w.off, n, w.limit, w.s)
	switch {
	case ok && h.LSN == n:
		w.t.hole(Hole{Segment: w.s.File, Offset: w.off, Length: h.Offset - w.off, From: n, To: n},
			fmt.Sprintf("what is here is no whole block or mark, and block %d follows at offset %d: no block is lost",
				n, h.Offset))
	case ok:
		w.t.hole(Hole{Segment: w.s.File, Offset: w.off, Length: h.Offset - w.off, From: n, To: h.LSN},
			fmt.Sprintf("%s not whole, but durable: block %d follows at offset %d",
				blocksAre(n, h.LSN), h.LSN, h.Offset))
	case last:
		p, _ := parseBlockHeader(w.b, rest.proof, w.s.Salt)
		w.t.hole(Hole{
			Segment: w.s.File, Offset: w.off, Length: rest.end - w.off, From: n, To: max(p.Durable, n+1), Open: true,
		}, fmt.Sprintf("%s not whole, but durable: a block header at offset %d says so",
			blocksAre(n, p.Durable), rest.proof))
		return false
	default:
		w.t.hole(Hole{Segment: w.s.File, Offset: w.off, Length: int64(len(w.b)) - w.off, From: n, To: w.limit},
			fmt.Sprintf("%s not whole, but durable: the next segment starts with block %d",
				blocksAre(n, w.limit), w.limit))
		w.t.next = w.limit
		return false
	}
	w.off, w.t.next = h.Offset, h.LSN
	return true
}

func blocksAre(from, to uint64) string {
	if to <= from+1 {
		return fmt.Sprintf("block %d is", from)
	}
	return fmt.Sprintf("blocks %d to %d are", from, to-1)
}

// torn notes what a crash left behind the last block.
func (w *segmentWalk) torn(rest remains) {
	if rest.end <= w.off {
		return
	}
	w.t.d.add(Finding{
		Severity: Torn, File: w.s.File, Offset: w.off, Length: rest.end - w.off, Remedy: remedyTorn,
		What: fmt.Sprintf("the log ends with block %d; behind it is what a crash leaves of blocks that were never "+
			"synced (or, if the last one was, damage that nothing later proves)", w.t.next),
	})
}

// sinceSealed is what a log that ends too early means.
var sinceSealed = []Affected{{What: "all that was written since records were last sealed: it is not known which logs"}}

// finish checks the ends of the log against what the manifest says.
func (t *tailReader) finish() {
	d := t.d
	d.Next = t.next
	if len(d.Segments) == 0 {
		if len(d.Files) > 0 {
			d.add(Finding{Severity: Note, File: WALDir, What: "the write-ahead log has no segment"})
		}
		if d.floor() > 0 {
			f := d.damage(WALDir, 0, remedyRestore, "no segment is there, but blocks up to %d were written", d.floor())
			f.Affected = sinceSealed
		}
		return
	}
	last := &d.Segments[len(d.Segments)-1]
	if t.next < d.floor() {
		f := d.damage(last.File, last.End, remedyRepair, "the log ends before block %d, but by the manifest those up "+
			"to %d were durable", t.next, d.floor())
		f.Affected = sinceSealed
	}
}

package tail

import (
	"errors"
	"fmt"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// errReplayed is returned by a second Replay.
var errReplayed = errors.New("log was replayed before")

// Require has Replay check that blocks from floor on are there, if Open was not told: see Options.Floor.
func (l *File) Require(floor LSN) { l.o.Floor = max(l.o.Floor, floor) }

// Replay implements Log. All blocks it gave are durable when it returns nil. Errors: a *CorruptError, fn's error, or
// an I/O error; after any of them the log can only be closed.
func (l *File) Replay(fn func(lsn LSN, pos Pos, body []byte) error) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.mu.Lock()
	err := l.failed
	switch {
	case l.closed:
		err = ErrClosed
	case l.replayed:
		err = errReplayed
	}
	l.replayed = true
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.replay(fn)
}

func (l *File) replay(fn func(LSN, Pos, []byte) error) error {
	list := l.segs.snapshot()
	if first := list[0]; l.o.Floor > 0 && first.base > l.o.Floor {
		return corrupt(first.path, 0, hintRestore, "the log starts with block %d, but blocks from %d on "+
			"must be there: a segment before it is missing", first.base, l.o.Floor)
	}
	for i, seg := range list[:len(list)-1] {
		if err := l.replaySealed(seg, list[i+1], fn); err != nil {
			return err
		}
	}
	return l.replayActive(fn)
}

// replaySealed reads a segment that another one follows: all its blocks were durable when that was started.
func (l *File) replaySealed(seg, after *segment, fn func(LSN, Pos, []byte) error) error {
	f, err := l.o.FS.OpenRead(seg.path)
	if err != nil {
		return err
	}
	defer f.Close()
	t := tailReplay{l: l, r: newBlockReader(f, seg), seg: seg, next: seg.base}
	if err := t.run(after.base, fn); err != nil {
		return err
	}
	seg.end.Store(t.r.off)
	if t.next < after.base {
		return corrupt(seg.path, t.r.off, hintRestore, "block %d is not whole, but it was durable: the next "+
			"segment, %s, starts with block %d", t.next, after.path, after.base)
	}
	h, ok, err := t.r.header(t.r.off)
	if err != nil {
		return fmt.Errorf("%s: %w", seg.path, err)
	}
	if ok && h.lsn >= after.base && h.typ == typeData {
		return corrupt(seg.path, t.r.off, hintRestore, "it holds block %d, and so does the next segment, %s",
			h.lsn, after.path)
	}
	return nil
}

// replayActive reads the last segment, cuts what a crash left of unsynced blocks, and makes the rest durable.
func (l *File) replayActive(fn func(LSN, Pos, []byte) error) error {
	seg, err := l.segs.pinLast()
	if err != nil {
		return err
	}
	t := tailReplay{l: l, r: newBlockReader(seg.file, seg), seg: seg, next: seg.base, proven: seg.base}
	if err := t.run(^LSN(0), fn); err != nil {
		return err
	}
	end := t.r.off
	found, err := t.r.scan(t.next)
	if err != nil {
		return fmt.Errorf("%s: %w", seg.path, err)
	}
	if found.proof > 0 {
		return corrupt(seg.path, end, hintRestore, "block %d is not whole, but it was durable: a header at %d says so",
			t.next, found.proof)
	}
	if l.o.Floor > t.next {
		return corrupt(seg.path, end, hintRestore, "the log ends before block %d, but blocks up to %d were durable",
			t.next, l.o.Floor)
	}
	if err := l.settle(seg, &t, found.end); err != nil {
		return l.poison(fmt.Errorf("recover log: %w", err))
	}
	seg.end.Store(end)
	l.marked = t.marked
	l.mu.Lock()
	l.active, l.next, l.durable = seg, t.next, t.next
	l.mu.Unlock()
	return nil
}

// settle makes the segment's name and bytes durable as they read. Blocks that are not proven durable are written
// again: after a failed sync the system may hold bytes in memory that never reached the disk and that a sync would
// not write. Remains are set to zero, or blocks among them could later seem to follow new ones.
func (l *File) settle(seg *segment, t *tailReplay, remainsEnd int64) error {
	end := t.r.off
	for off := t.unprovenOff(); off < end; {
		n := min(end-off, readAhead)
		b, err := t.r.w.view(off, n)
		if err != nil {
			return err
		}
		if _, err := seg.file.WriteAt(b, off); err != nil {
			return err
		}
		off += n
	}
	if remainsEnd > end {
		if err := vfs.ZeroFill(seg.file, end, remainsEnd, nil); err != nil {
			return err
		}
	}
	if err := seg.file.Sync(); err != nil {
		return err
	}
	// The process before this one may have ended between naming the segment and making the name durable.
	if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
		return err
	}
	if remainsEnd > end {
		l.o.OnCut(seg.path, end, remainsEnd-end)
	}
	return nil
}

// tailReplay is the state of reading one segment.
type tailReplay struct {
	l      *File
	r      *blockReader
	seg    *segment
	next   LSN
	marked bool   // the last thing read was a mark or the header
	plain  []byte // scratch of a decrypted body

	proven   LSN         // all blocks below it were durable, by what later blocks say
	unproven []blockSpot // blocks from proven on
}

type blockSpot struct {
	lsn LSN
	off int64
}

// run reads blocks up to limit or the first that is not whole, and gives them to fn.
func (t *tailReplay) run(limit LSN, fn func(LSN, Pos, []byte) error) error {
	t.marked = true
	for t.next < limit {
		off := t.r.off
		h, body, ok, err := t.r.next(t.next)
		if err != nil {
			return fmt.Errorf("%s: %w", t.seg.path, err)
		}
		if !ok {
			return nil
		}
		t.prove(h, off)
		t.marked = h.typ == typeMark
		if t.marked {
			continue
		}
		if t.seg.boxed {
			if body, err = t.l.decrypt(t.plain[:0], t.seg, off, &h, body); err != nil {
				return err
			}
			t.plain = body
		}
		pos := Pos{Segment: t.seg.id, Offset: uint32(off + blockHeaderSize)}
		if err := fn(h.lsn, pos, body); err != nil {
			return err
		}
		t.next++
	}
	return nil
}

// prove notes what a block says about those before it.
func (t *tailReplay) prove(h blockHeader, off int64) {
	t.proven = max(t.proven, h.durable)
	for len(t.unproven) > 0 && t.unproven[0].lsn < t.proven {
		t.unproven = t.unproven[1:]
	}
	t.unproven = append(t.unproven, blockSpot{lsn: h.lsn, off: off})
}

// unprovenOff returns where the blocks begin that are not proven durable.
func (t *tailReplay) unprovenOff() int64 {
	if len(t.unproven) == 0 {
		return t.r.off
	}
	return t.unproven[0].off
}

package tail

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

const (
	segSuffix = ".seg"
	lockName  = "LOCK"
)

// Open opens or makes the log in o.Dir and takes its lock. Replay must follow before anything is written. Errors: a
// *vfs.LockedError that names the process that has it open, a *CorruptError, or an I/O error.
func Open(o Options) (*File, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := vfs.MakeDir(o.FS, o.Dir); err != nil {
		return nil, fmt.Errorf("make log directory: %w", err)
	}
	lock, err := o.FS.Lock(path.Join(o.Dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("lock log directory: %w", err)
	}
	l := &File{o: o, lock: lock, spares: newSpares(o), segs: segments{fs: o.FS, max: o.OpenFiles}}
	if l.keys, err = o.Keys(); err == nil {
		l.spares.boxed = l.keys != nil
		err = l.load()
	}
	if err != nil {
		l.spares.close()
		return nil, errors.Join(err, l.segs.closeAll(), lock.Close())
	}
	return l, nil
}

// load finds the segments, or makes the first.
func (l *File) load() error {
	names, err := l.o.FS.List(l.o.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		num, ok := strings.CutSuffix(name, segSuffix)
		if !ok {
			continue
		}
		id, err := strconv.ParseUint(num, 10, 64)
		if err != nil || segName(id) != name {
			return corrupt(path.Join(l.o.Dir, name), 0, hintStranger, "name is not that of a log segment")
		}
		seg, err := l.loadSegment(id)
		if err != nil {
			return err
		}
		if seg.boxed && l.keys == nil {
			return corrupt(seg.path, 8, hintKeys, "it is encrypted, and the directory's keys are missing")
		}
		if err := follows(l.segs.list, seg); err != nil {
			return err
		}
		l.segs.list = append(l.segs.list, seg)
	}
	if n := len(l.segs.list); n > 0 {
		l.spares.follow(l.segs.list[n-1].size)
	}
	if err := l.spares.adopt(names); err != nil {
		return err
	}
	if len(l.segs.list) > 0 {
		return nil
	}
	if l.o.Floor > 0 {
		return corrupt(l.o.Dir, 0, hintRestore, "no segment is there, but blocks up to %d were written", l.o.Floor)
	}
	return l.addSegment(1, 0, segHeaderSize)
}

// follows checks that seg continues the segments before it.
func follows(list []*segment, seg *segment) error {
	if len(list) == 0 {
		return nil
	}
	prev := list[len(list)-1]
	if seg.id != prev.id+1 {
		return corrupt(seg.path, 0, hintRestore, "the segment before it is missing: %s, and then %s",
			prev.path, seg.path)
	}
	if seg.base < prev.base {
		return corrupt(seg.path, 0, hintRestore, "it starts with block %d, but %s before it starts with block %d",
			seg.base, prev.path, prev.base)
	}
	return nil
}

// loadSegment reads a segment's header.
func (l *File) loadSegment(id uint64) (*segment, error) {
	seg := &segment{path: path.Join(l.o.Dir, segName(id))}
	f, err := l.o.FS.OpenRead(seg.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, segHeaderSize)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read segment header: %w", err)
	}
	if seg.segHeader, err = decodeSegHeader(b[:n]); err != nil {
		return nil, corrupt(seg.path, 0, hintRestore, "%w", err)
	}
	if seg.id != id {
		return nil, corrupt(seg.path, 16, hintRestore, "it is segment %d by its header: the file was renamed", seg.id)
	}
	if size != seg.size {
		return nil, corrupt(seg.path, min(size, seg.size), hintRestore, "it is %d bytes long, its header says %d",
			size, seg.size)
	}
	return seg, nil
}

// IsEncrypted reports whether the log in dir, which may be missing, has an encrypted segment.
func IsEncrypted(fsys vfs.FS, dir string) (bool, error) {
	names, err := fsys.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, segSuffix) {
			continue
		}
		h, ok, err := peek(fsys, path.Join(dir, name))
		if err != nil || ok && h.boxed {
			return ok, err
		}
	}
	return false, nil
}

// peek reads the segment header of a file; ok is false if it has none.
func peek(fsys vfs.FS, name string) (h segHeader, ok bool, err error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return h, false, err
	}
	defer f.Close()
	b := make([]byte, segHeaderSize)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return h, false, fmt.Errorf("read segment header: %w", err)
	}
	h, err = decodeSegHeader(b[:n])
	return h, err == nil, nil
}

func segName(id uint64) string { return fmt.Sprintf("%020d%s", id, segSuffix) }

// addSegment makes segment id, with room for at least minSize bytes, the active one. ErrNoSpace if it cannot: then
// nothing has changed. Any other error leaves it open what is on disk.
//
// The header is durable before the name is, and the name before the first block is written: so a segment that is
// there has a whole header, and what was synced in it cannot lose its name.
func (l *File) addSegment(id uint64, base LSN, minSize int64) error {
	sp, err := l.spareFor(minSize)
	if err != nil {
		return err
	}
	seg := &segment{
		segHeader: segHeader{id: id, base: base, size: sp.size, salt: newSalt(), stale: sp.stale, boxed: l.keys != nil},
		path:      path.Join(l.o.Dir, segName(id)),
	}
	seg.end.Store(segHeaderSize)
	if seg.file, err = l.o.FS.Open(sp.path); err != nil {
		return fmt.Errorf("open spare segment: %w", err)
	}
	if err := l.writeHeader(seg, sp); err != nil {
		return errors.Join(err, seg.file.Close())
	}
	return l.segs.push(seg)
}

func (l *File) writeHeader(seg *segment, sp spare) error {
	if _, err := seg.file.WriteAt(seg.encode(), 0); err != nil {
		return fmt.Errorf("write segment header: %w", err)
	}
	if err := seg.file.Sync(); err != nil {
		return fmt.Errorf("sync segment header: %w", err)
	}
	if err := l.o.FS.Rename(sp.path, seg.path); err != nil {
		return fmt.Errorf("name segment: %w", err)
	}
	if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
		return fmt.Errorf("sync log directory: %w", err)
	}
	return nil
}

func (l *File) spareFor(minSize int64) (spare, error) {
	if minSize <= l.o.SegmentSize {
		return l.spares.take(minSize, l.isFast(minSize))
	}
	return l.spares.large(alignUp(minSize, 4096))
}

// isFast reports whether all of the active segment was appended since the last Shrink. minSize is that of the next one,
// with the block that does not fit.
func (l *File) isFast(minSize int64) bool { return l.active != nil && l.since+minSize > l.active.size }

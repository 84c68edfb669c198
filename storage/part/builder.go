package part

import (
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"math"
	"path"
	"slices"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Options configure what Create writes. Zero values mean the defaults given here.
type Options struct {
	Shard     uint32      // that the records are of; for people and checks
	Created   int64       // Unix nanoseconds, for people
	BlockSize int         // raw bytes of a data block; default 64 KiB. A record larger than that has a block of its own
	Codec     Codec       // of sections for which SetCodec says nothing else; default None
	Keys      *crypt.Keys // nil: not encrypted
	// SyncEvery has the file synced whenever that many bytes were written, so that the last sync does not keep the disk
	// from others for long. 0: only at the end.
	SyncEvery int64
}

// DefaultBlockSize is the raw size of a data block.
const DefaultBlockSize = 64 << 10

// writeBuffer is how many bytes are gathered for one write.
const writeBuffer = 1 << 20

// SizeFunc counts a record for the accounted bytes of its log from the lengths of its parts.
type SizeFunc func(key, header, data int) uint64

// SectionInfo sums up a section.
type SectionInfo struct {
	Log                 uint64
	Count               uint32
	Keys                uint32
	FirstSeq, LastSeq   uint64
	FirstTime, LastTime int64
	Bytes               uint64 // as SizeFunc counts
}

// Info sums up a part.
type Info struct {
	ID       [idSize]byte
	Shard    uint32
	Size     int64  // of the file
	Records  uint64 // of all sections
	Bytes    uint64 // of all sections, as SizeFunc counts
	Data     int64  // bytes of the file that are data blocks
	Sections []SectionInfo
}

// Builder writes one part file. It is not for several goroutines. After an error it is of no use but for Abort.
type Builder struct {
	fs   vfs.FS
	path string // temporary
	f    vfs.File
	o    Options
	aead cipher.AEAD
	comp compressor
	err  error // sticky

	buf     []byte // not written yet
	off     int64  // of buf in the file
	synced  int64  // up to here
	sealed  []byte // scratch of one block
	head    header
	foot    footer
	log     *logBuilder
	dir     []dirEntry
	seen    map[uint64]bool // logs begun
	info    Info
	stopped bool // Finish or Abort was called
}

type dirEntry struct {
	log   uint64
	ref   blockRef
	count uint32
	bytes uint64
}

// Create makes a part file of a unique temporary name in dir, which exists.
func Create(fsys vfs.FS, dir string, o Options) (*Builder, error) {
	if o.BlockSize <= 0 {
		o.BlockSize = DefaultBlockSize
	}
	if o.BlockSize > maxRaw/2 {
		return nil, fmt.Errorf("part: block size %d is above %d", o.BlockSize, maxRaw/2)
	}
	b := &Builder{fs: fsys, o: o, seen: map[uint64]bool{}}
	var err error
	if err = b.comp.set(o.Codec); err != nil {
		return nil, err
	}
	b.head = header{shard: o.Shard, created: o.Created}
	if _, err = rand.Read(b.head.id[:]); err != nil {
		return nil, err
	}
	if b.aead, err = b.head.seal(o.Keys); err != nil {
		return nil, err
	}
	b.path = path.Join(dir, TempName(fmt.Sprintf("%x", b.head.id[:8])))
	if b.f, err = fsys.Create(b.path); err != nil {
		return nil, err
	}
	b.foot.id, b.foot.cipher = b.head.id, b.head.cipher
	b.info.ID, b.info.Shard = b.head.id, o.Shard
	b.buf = append(make([]byte, 0, writeBuffer+o.BlockSize), b.head.encode()...)
	return b, nil
}

// Path returns the file's temporary name.
func (b *Builder) Path() string { return b.path }

// Written returns the bytes of the file so far.
func (b *Builder) Written() int64 { return b.off + int64(len(b.buf)) }

func (b *Builder) fail(err error) error {
	if b.err == nil {
		b.err = err
	}
	return err
}

// BeginLog starts the section of a log, each once in a part. size counts its records; nil is the sum of the lengths.
func (b *Builder) BeginLog(log uint64, size SizeFunc) error {
	if err := b.endLog(); err != nil {
		return err
	}
	if b.seen[log] {
		return b.fail(fmt.Errorf("%w: the part has log %d already", ErrNoLog, log))
	}
	if size == nil {
		size = func(key, header, data int) uint64 { return uint64(key + header + data) }
	}
	b.seen[log] = true
	b.log = newLogBuilder(b, log, size)
	return nil
}

// SetCodec has the section that was begun last, and those after it, compressed with c. It must come before Add.
func (b *Builder) SetCodec(c Codec) error {
	if err := b.comp.set(c); err != nil {
		return b.fail(err)
	}
	return nil
}

// Add appends a record to the section begun last, copying its bytes. Its sequence must be above that of the one before,
// and its time not below: else it is refused with ErrOutOfOrder, nothing is added and the builder can go on.
func (b *Builder) Add(r *Record) error {
	if err := b.admit(r); err != nil {
		return err
	}
	return b.log.add(r, b.log.size(len(r.Key), len(r.Header), len(r.Data)))
}

// addSized is Add for a record whose size is known.
func (b *Builder) addSized(r *Record, size uint64) error {
	if err := b.admit(r); err != nil {
		return err
	}
	return b.log.add(r, size)
}

func (b *Builder) admit(r *Record) error {
	switch l := b.log; {
	case b.err != nil:
		return b.err
	case b.stopped:
		return ErrFinished
	case l == nil:
		return ErrNoLog
	case len(r.Key)+len(r.Header)+len(r.Data) > MaxRecord:
		return ErrTooLarge
	case l.info.Count == MaxRecords:
		return ErrFull
	case l.info.Count > 0 && (r.Seq <= l.info.LastSeq || r.Time < l.info.LastTime):
		return fmt.Errorf("%w: log %d: sequence %d, time %d after %d, %d", ErrOutOfOrder, l.info.Log, r.Seq, r.Time,
			l.info.LastSeq, l.info.LastTime)
	}
	return nil
}

// endLog writes the rest of the current section. One without records leaves nothing.
func (b *Builder) endLog() error {
	if b.err != nil {
		return b.err
	}
	if b.stopped {
		return ErrFinished
	}
	l := b.log
	b.log = nil
	if l == nil || l.info.Count == 0 {
		return nil
	}
	ref, err := l.finish()
	if err != nil {
		return b.fail(err)
	}
	b.dir = append(b.dir, dirEntry{log: l.info.Log, ref: ref, count: l.info.Count, bytes: l.info.Bytes})
	b.info.Sections = append(b.info.Sections, l.info)
	b.info.Records += uint64(l.info.Count)
	b.info.Bytes += l.info.Bytes
	return nil
}

// Finish writes what is left, syncs the file and closes it. It still has its temporary name: see Commit.
func (b *Builder) Finish() (Info, error) {
	if err := b.endLog(); err != nil {
		return Info{}, err
	}
	b.stopped = true
	slices.SortFunc(b.dir, func(x, y dirEntry) int {
		if x.log < y.log {
			return -1
		}
		return 1
	})
	raw := le.AppendUint32(nil, uint32(len(b.dir)))
	for _, e := range b.dir {
		raw = le.AppendUint64(raw, e.log)
		raw = le.AppendUint64(raw, uint64(e.ref.off))
		raw = le.AppendUint32(raw, e.ref.len)
		raw = le.AppendUint32(raw, e.count)
		raw = le.AppendUint64(raw, e.bytes)
	}
	dir, err := b.write(kindDirectory, 0, raw)
	if err != nil {
		return Info{}, b.fail(err)
	}
	f := &b.foot
	f.dir, f.sections, f.records, f.bytes = dir, uint32(len(b.dir)), b.info.Records, b.info.Bytes
	f.size = uint64(b.Written()) + footerSize
	b.buf = append(b.buf, f.encode()...)
	b.info.Size, b.info.Data = int64(f.size), int64(f.data)
	if err := b.flush(); err != nil {
		return Info{}, b.fail(err)
	}
	if err := b.f.Sync(); err != nil {
		return Info{}, b.fail(err)
	}
	if err := b.f.Close(); err != nil {
		return Info{}, b.fail(err)
	}
	slices.SortFunc(b.info.Sections, func(x, y SectionInfo) int {
		if x.Log < y.Log {
			return -1
		}
		return 1
	})
	return b.info, nil
}

// Commit gives the finished file its name in the same directory and makes the name durable. A file of that name is
// never replaced: the error wraps fs.ErrExist.
func (b *Builder) Commit(name string) error {
	if b.err != nil || !b.stopped || b.info.Size == 0 {
		return ErrFinished
	}
	return Publish(b.fs, b.path, path.Join(path.Dir(b.path), name))
}

// Abort closes the file and removes it. After Commit it must not be called.
func (b *Builder) Abort() error {
	finished := b.stopped && b.err == nil
	b.stopped, b.log = true, nil
	if !finished {
		_ = b.f.Close() // the file is removed: what it holds does not count
	}
	return b.fs.Remove(b.path)
}

func (b *Builder) flush() error {
	if _, err := b.f.WriteAt(b.buf, b.off); err != nil {
		return err
	}
	b.off += int64(len(b.buf))
	b.buf = b.buf[:0]
	if b.o.SyncEvery == 0 || b.off-b.synced < b.o.SyncEvery {
		return nil
	}
	b.synced = b.off
	return b.f.Sync()
}

// write adds a block and says where it is.
func (b *Builder) write(kind uint8, log uint64, raw []byte) (blockRef, error) {
	if len(raw) > maxRaw {
		return blockRef{}, fmt.Errorf("part: a block of %d bytes is above the bound of %d", len(raw), maxRaw)
	}
	if b.foot.blocks == math.MaxUint32 {
		return blockRef{}, fmt.Errorf("part: more than %d blocks", b.foot.blocks)
	}
	body, codec := raw, None
	if kind != kindBloom { // which is noise
		body, codec = b.comp.compress(raw)
	}
	h := block{raw: uint32(len(raw)), number: b.foot.blocks, log: log, kind: kind, codec: codec, len: uint32(len(body))}
	var head [blockHeader]byte
	seed := blockSeed(&b.head.id, b.Written())
	if b.aead != nil {
		h.len += uint32(b.aead.Overhead())
		h.put(head[:], seed)
		b.sealed = b.aead.Seal(b.sealed[:0], nonce(h.number), body, blockAAD(head[:], &b.head.id))
		body = b.sealed
	}
	h.bodyCRC = crc32.Checksum(body, castagnoli)
	h.put(head[:], seed)
	ref := blockRef{off: b.Written(), len: blockHeader + h.len}
	b.buf = append(append(b.buf, head[:]...), body...)
	b.foot.blocks++
	if kind == kindData {
		b.foot.data += uint64(ref.len)
	} else {
		b.foot.meta += uint64(ref.len)
	}
	if len(b.buf) >= writeBuffer {
		return ref, b.flush()
	}
	return ref, nil
}

// blockAAD is what the encryption of a block also vouches for: what its header says of it, and the part it is in.
func blockAAD(head []byte, id *[idSize]byte) []byte {
	return append(append(make([]byte, 0, 24+idSize), head[4:28]...), id[:]...)
}

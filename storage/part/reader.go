package part

import (
	"crypto/cipher"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sort"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// ReadOptions configure Open.
type ReadOptions struct {
	Cache BlockCache  // nil: every block is read from the file each time
	Keys  *crypt.Keys // of encrypted parts
	// Verify reads all of the file at Open (see Reader.Verify).
	Verify bool
}

// Reader reads a part file. Its methods may be called by several goroutines, but for Close.
type Reader struct {
	path  string
	f     vfs.File
	head  header
	foot  footer
	aead  cipher.AEAD
	cache BlockCache
	file  uint64
}

// Open opens a part and checks its header, footer and directory against each other and the file's size. Errors: a
// *CorruptError for damage; one that wraps crypt.ErrKey when the key is missing.
func Open(fsys vfs.FS, name string, o ReadOptions) (*Reader, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: name, f: f, cache: o.Cache}
	if r.cache == nil {
		r.cache = noCache{}
	}
	r.file = r.cache.NextFile()
	err = r.open(o)
	if err == nil && o.Verify {
		err = r.Verify()
	}
	if err != nil {
		_ = r.Close() // it was only read
		return nil, err
	}
	return r, nil
}

func (r *Reader) open(o ReadOptions) error {
	size, err := r.f.Size()
	if err != nil {
		return err
	}
	if size < headerSize+blockHeader+footerSize {
		return r.corrupt(0, "file is %d bytes long, too short for a part", size)
	}
	b := make([]byte, headerSize)
	if err := r.readAt(b, 0); err != nil {
		return err
	}
	if r.head, err = decodeHeader(b); err != nil {
		return &CorruptError{Path: r.path, Err: err, Hint: hintStranger}
	}
	if err := r.readAt(b[:footerSize], size-footerSize); err != nil {
		return err
	}
	if r.foot, err = decodeFooter(b[:footerSize], size); err != nil {
		return r.corrupt(size-footerSize, "%w", err)
	}
	if r.foot.id != r.head.id || r.foot.cipher != r.head.cipher {
		return r.corrupt(size-footerSize, "footer is of another part than the header")
	}
	if r.aead, err = r.head.open(o.Keys); errors.Is(err, crypt.ErrKey) {
		return fmt.Errorf("%s: %w", r.path, err)
	} else if err != nil {
		return r.corrupt(48, "%w", err)
	}
	return r.checkDirectory()
}

// checkDirectory counts the records of the sections again.
func (r *Reader) checkDirectory() error {
	d, err := r.directory()
	if err != nil {
		return err
	}
	var records, bytes, last uint64
	for i := range d.n {
		e := d.at(i)
		if i > 0 && e.log <= last || e.count == 0 {
			return r.corrupt(r.foot.dir.off, "directory entry %d (log %d) is out of order or empty", i, e.log)
		}
		last = e.log
		records += uint64(e.count)
		bytes += e.bytes
	}
	if records != r.foot.records || bytes != r.foot.bytes {
		return r.corrupt(r.foot.dir.off, "sections hold %d records, %d bytes; the footer says %d, %d",
			records, bytes, r.foot.records, r.foot.bytes)
	}
	return nil
}

func (r *Reader) corrupt(off int64, format string, args ...any) error {
	return corrupt(r.path, off, format, args...)
}

// Close closes the file and lets go of what the cache has of it. No read may be under way.
func (r *Reader) Close() error {
	r.cache.DropFile(r.file)
	return r.f.Close()
}

// Path returns the file's name.
func (r *Reader) Path() string { return r.path }

// ID returns the part's own id, given at random when it was made.
func (r *Reader) ID() [16]byte { return r.head.id }

// Shard returns the shard the records are of.
func (r *Reader) Shard() uint32 { return r.head.shard }

// Created returns when the part was made, in Unix nanoseconds.
func (r *Reader) Created() int64 { return r.head.created }

// Size returns the file's size in bytes.
func (r *Reader) Size() int64 { return int64(r.foot.size) }

// Records returns how many records all sections have together, and how many bytes their logs count for them.
func (r *Reader) Records() (n, bytes uint64) { return r.foot.records, r.foot.bytes }

// Cipher returns how the part is encrypted.
func (r *Reader) Cipher() crypt.Cipher { return r.head.cipher }

// noCache keeps nothing.
type noCache struct{}

func (noCache) NextFile() uint64            { return 0 }
func (noCache) Get(BlockKey) ([]byte, bool) { return nil, false }
func (noCache) Put(BlockKey, []byte)        {}
func (noCache) DropFile(uint64)             {}

func (r *Reader) readAt(b []byte, off int64) error {
	n, err := r.f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return r.corrupt(off+int64(n), "file ends after %d of %d bytes", n, len(b))
	}
	return fmt.Errorf("%s: offset %d: %w", r.path, off, err)
}

// block returns the raw bytes of the block at ref, from the cache if it has them.
func (r *Reader) block(ref blockRef, kind uint8, log uint64) ([]byte, error) {
	k := BlockKey{File: r.file, Offset: ref.off, Log: log, Kind: kind}
	if b, ok := r.cache.Get(k); ok {
		return b, nil
	}
	b, err := r.readBlock(ref, kind, log)
	if err == nil {
		r.cache.Put(k, b)
	}
	return b, err
}

// scanBlock is block for a walk over many of them, which leaves the cache as it is.
func (r *Reader) scanBlock(ref blockRef, kind uint8, log uint64) ([]byte, error) {
	if b, ok := r.cache.Get(BlockKey{File: r.file, Offset: ref.off, Log: log, Kind: kind}); ok {
		return b, nil
	}
	return r.readBlock(ref, kind, log)
}

// readBlock reads a block that is where a table says it is.
func (r *Reader) readBlock(ref blockRef, kind uint8, log uint64) ([]byte, error) {
	end := int64(r.foot.size) - footerSize
	if ref.off < headerSize || ref.len < blockHeader || ref.off > end || int64(ref.len) > end-ref.off {
		return nil, r.corrupt(ref.off, "a table has a block of %d bytes here, which is not in the file", ref.len)
	}
	b := make([]byte, ref.len)
	if err := r.readAt(b, ref.off); err != nil {
		return nil, err
	}
	h, err := decodeBlock(b, blockSeed(&r.head.id, ref.off))
	if err != nil {
		return nil, r.corrupt(ref.off, "%w", err)
	}
	if h.kind != kind || h.log != log || blockHeader+int64(h.len) != int64(ref.len) {
		return nil, r.corrupt(ref.off, "block of kind %d, log %d, %d bytes where kind %d, log %d, %d bytes is to be",
			h.kind, h.log, h.len, kind, log, ref.len-blockHeader)
	}
	raw, err := r.decode(&h, b)
	if err != nil {
		return nil, r.corrupt(ref.off, "%w", err)
	}
	return raw, nil
}

// decode returns the raw bytes of the block in b, header included.
func (r *Reader) decode(h *block, b []byte) ([]byte, error) {
	body := b[blockHeader:]
	if crc32.Checksum(body, castagnoli) != h.bodyCRC {
		return nil, errors.New("block does not match its checksum")
	}
	if r.aead != nil {
		var err error
		if body, err = r.aead.Open(body[:0], nonce(h.number), body, blockAAD(b, &r.head.id)); err != nil {
			return nil, errors.New("block does not decrypt")
		}
	}
	return decompress(h.codec, body, h.raw)
}

// directory is the table of sections.
type directory struct {
	b []byte
	n int
}

func (r *Reader) directory() (d directory, err error) {
	b, err := r.block(r.foot.dir, kindDirectory, 0)
	if err != nil {
		return d, err
	}
	if len(b) < 4 || uint64(len(b)-4) != uint64(le.Uint32(b))*dirEntrySize || le.Uint32(b) != r.foot.sections {
		return d, r.corrupt(r.foot.dir.off, "directory of %d bytes, not of %d sections", len(b), r.foot.sections)
	}
	return directory{b: b[4:], n: int(r.foot.sections)}, nil
}

func (d *directory) at(i int) dirEntry {
	b := d.b[i*dirEntrySize:]
	return dirEntry{
		log:   le.Uint64(b),
		ref:   blockRef{off: int64(le.Uint64(b[8:])), len: le.Uint32(b[16:])},
		count: le.Uint32(b[20:]),
		bytes: le.Uint64(b[24:]),
	}
}

// Logs returns the ids of the logs that have a section, ascending.
func (r *Reader) Logs() ([]uint64, error) {
	d, err := r.directory()
	if err != nil {
		return nil, err
	}
	logs := make([]uint64, d.n)
	for i := range logs {
		logs[i] = d.at(i).log
	}
	return logs, nil
}

// Section returns the section of a log, nil if the part has none. It reads the section's head through the cache and
// holds on to it, so it is to be asked for again rather than kept.
func (r *Reader) Section(log uint64) (*Section, error) {
	d, err := r.directory()
	if err != nil {
		return nil, err
	}
	i := sort.Search(d.n, func(i int) bool { return d.at(i).log >= log })
	if i == d.n || d.at(i).log != log {
		return nil, nil //nolint:nilnil // there is none, as documented
	}
	return r.section(d.at(i))
}

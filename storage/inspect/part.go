package inspect

import (
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

const (
	partMagic   = "EHDBPART"
	partEnd     = "EHDBPEND"
	partHead    = 128
	partFoot    = 96
	partBlockHd = 32

	blockData      = 1
	blockColumns   = 2
	blockPostings  = 3
	blockKeys      = 4
	blockBloom     = 5
	blockSection   = 6
	blockDirectory = 7
)

var blockKinds = [...]string{"none", "data", "columns", "postings", "keys", "bloom", "head of a section", "directory"}

// Part is a sealed file of records.
type Part struct {
	File     string
	Number   uint64 // in the manifest; 0: it is not live
	ID       [16]byte
	Shard    uint32
	Created  int64
	Cipher   uint8
	Size     int64
	Records  uint64
	Bytes    uint64
	Sections []*Section
	Locked   bool // encrypted, and the key was not given
	Damaged  bool

	blocks []partBlock
	aead   cipher.AEAD
}

// Section is the records of one log in a part.
type Section struct {
	SectionInfo
	Part *Part
	Dead *roaring.Bitmap // ordinals; nil: none, or they cannot be read

	data []dataRef // whole data blocks, in order
}

// dataRef is a whole data block of a section.
type dataRef struct {
	at       int // in Part.blocks
	firstOrd uint32
	ordKnown bool
}

// partBlock is what was found of a block when all of the file was read.
type partBlock struct {
	off     int64
	len     uint32 // of the body as it stands
	raw     uint32
	number  uint32
	log     uint64
	kind    uint8
	codec   uint8
	bodyCRC uint32
	whole   bool

	count               uint32 // data: records
	firstSeq, lastSeq   uint64
	firstTime, lastTime int64
}

func (b *partBlock) size() int64 { return partBlockHd + int64(b.len) }

// stretch is bytes of a part that cannot be read.
type stretch struct {
	off, len int64
	block    *partBlock // nil if its header is gone too
	err      error
}

// partReader goes through one part.
type partReader struct {
	d    *Directory
	f    vfs.File
	p    *Part
	foot partFooter
	end  int64 // where the blocks end
	lost []stretch
	byAt map[int64]int // blocks by offset
}

type partFooter struct {
	ok               bool
	blocks, sections uint32
	dirOff           int64
	dirLen           uint32
	records, bytes   uint64
	meta, data       uint64
	id               [16]byte
	cipher           uint8
}

// checkPart reads all of a part file and adds what is wrong to the findings.
func (d *Directory) checkPart(file string) (*Part, error) {
	f, err := d.fs.OpenRead(path.Join(d.Path, file))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &Part{File: file}
	r := partReader{d: d, f: f, p: p, byAt: map[int64]int{}}
	if p.Size, err = f.Size(); err != nil {
		return nil, err
	}
	d.progress(file)
	ok, err := r.ends()
	if err != nil || !ok {
		return p, err
	}
	if err := r.walk(); err != nil {
		return p, err
	}
	return p, r.sections()
}

func (r *partReader) damage(off int64, format string, args ...any) *Finding {
	r.p.Damaged = true
	return r.d.damage(r.p.File, off, remedyRepair, format, args...)
}

// readAt reads n bytes; fewer if the file ends.
func (r *partReader) readAt(off, n int64) ([]byte, error) {
	return readRange(r.f, r.p.File, r.p.Size, off, n)
}

func readRange(f io.ReaderAt, name string, size, off, n int64) ([]byte, error) {
	n = max(min(n, size-off), 0)
	b := make([]byte, n)
	m, err := f.ReadAt(b, off)
	if m < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("%s: offset %d: %w", name, off, err)
	}
	return b, nil
}

// ends reads header and footer. ok is false if nothing between them can be read.
func (r *partReader) ends() (ok bool, err error) {
	p := r.p
	h, err := r.readAt(0, partHead)
	if err != nil {
		return false, err
	}
	headErr := checkPartEnd(h, partHead, partMagic, "header")
	foot, err := r.readAt(max(p.Size-partFoot, 0), partFoot)
	if err != nil {
		return false, err
	}
	footErr := checkPartEnd(foot, partFoot, partEnd, "footer")
	if footErr == nil {
		r.parseFooter(foot)
	}
	r.end = p.Size
	if r.foot.ok {
		r.end -= partFoot
	}
	if footErr != nil {
		r.damage(max(p.Size-partFoot, 0), "%v", footErr)
	}
	if headErr != nil {
		r.damage(0, "%v", headErr)
		if !r.foot.ok || r.foot.cipher != cipherNone {
			r.p.Damaged = true
			r.damage(0, "without the header, or the key in it, no block can be read").Length = p.Size
			return false, nil
		}
		p.ID, p.Cipher = r.foot.id, r.foot.cipher
		return true, nil
	}
	p.Cipher = h[12]
	copy(p.ID[:], h[16:])
	p.Shard, p.Created = le.Uint32(h[32:]), int64(le.Uint64(h[40:]))
	if r.foot.ok && (r.foot.id != p.ID || r.foot.cipher != p.Cipher) {
		r.damage(r.end, "the footer is of another part than the header")
	}
	return r.unlock(h)
}

// unlock finds what decrypts the blocks.
func (r *partReader) unlock(h []byte) (ok bool, err error) {
	p := r.p
	switch p.Cipher {
	case cipherNone:
		return true, nil
	case cipherAES, cipherChaCha:
	default:
		r.damage(12, "cipher %d is not known", p.Cipher)
		return false, nil
	}
	p.aead, err = r.d.keys.unwrap(p.Cipher, le.Uint64(h[48:]), h[56:116], p.ID[:])
	switch {
	case errors.Is(err, errNoKey):
		p.Locked = true
		r.d.add(Finding{
			Severity: Note, File: p.File, Offset: 48, Remedy: remedyKey,
			What: fmt.Sprintf("%v: its checksums are verified, its records are not", err),
		})
	case err != nil:
		r.damage(48, "%v", err)
		p.Locked = true
	}
	return true, nil
}

// checkPartEnd tests size, magic, version and CRC of a header or footer.
func checkPartEnd(b []byte, size int, magic, what string) error {
	if len(b) < size {
		return fmt.Errorf("the file is too short for a %s", what)
	}
	if string(b[:8]) != magic {
		return fmt.Errorf("there is no %s of a part: it starts with %q", what, b[:8])
	}
	if v := le.Uint32(b[8:]); v != 1 {
		return fmt.Errorf("the %s is damaged or of version %d, which is not known", what, v)
	}
	if checksum(0, b[:size-4]) != le.Uint32(b[size-4:]) {
		return fmt.Errorf("the %s does not match its checksum", what)
	}
	return nil
}

func (r *partReader) parseFooter(b []byte) {
	f := &r.foot
	*f = partFooter{
		ok: true, blocks: le.Uint32(b[12:]), dirOff: int64(le.Uint64(b[32:])), dirLen: le.Uint32(b[40:]),
		sections: le.Uint32(b[44:]), records: le.Uint64(b[48:]), bytes: le.Uint64(b[56:]),
		meta: le.Uint64(b[72:]), data: le.Uint64(b[80:]), cipher: b[88],
	}
	copy(f.id[:], b[16:])
	r.p.Records, r.p.Bytes = f.records, f.bytes
	size, at := le.Uint64(b[64:]), r.p.Size-partFoot
	switch {
	case size != uint64(r.p.Size):
		r.damage(at, "the file is %d bytes long, its footer says %d", r.p.Size, size)
		f.ok = false
	case f.meta > size || f.data > size || partHead+f.meta+f.data+partFoot != size:
		r.damage(at, "the footer's lengths of blocks do not add up to the file's")
	case f.dirOff != r.p.Size-partFoot-int64(f.dirLen):
		r.damage(at, "the directory does not end where the footer starts")
	}
}

// parsePartBlock reads the header of the block at off of the part with that id.
func parsePartBlock(b []byte, id *[16]byte, off int64) (h partBlock, ok bool) {
	if len(b) < partBlockHd {
		return h, false
	}
	var at [8]byte
	le.PutUint64(at[:], uint64(off))
	seed := checksum(checksum(0, id[:]), at[:])
	if checksum(seed, b[4:partBlockHd]) != le.Uint32(b) {
		return h, false
	}
	h = partBlock{
		off: off, len: le.Uint32(b[4:]), raw: le.Uint32(b[8:]), number: le.Uint32(b[12:]), log: le.Uint64(b[16:]),
		kind: b[24], codec: b[25], bodyCRC: le.Uint32(b[28:]),
	}
	return h, h.kind >= blockData && h.kind <= blockDirectory && b[26] == 0 && b[27] == 0 && h.raw <= maxRaw
}

// walk reads every block between header and footer.
func (r *partReader) walk() error {
	var meta, data uint64
	number := uint32(0)
	for off := int64(partHead); off < r.end; {
		h, err := r.readAt(off, partBlockHd)
		if err != nil {
			return err
		}
		b, ok := parsePartBlock(h, &r.p.ID, off)
		if !ok || b.size() > r.end-off {
			next, err := r.search(off + 1)
			if err != nil {
				return err
			}
			r.p.Damaged = true
			r.lost = append(r.lost, stretch{off: off, len: next - off, err: errors.New("there is no block header")})
			off = next
			continue
		}
		if err := r.block(&b); err != nil {
			return err
		}
		if b.number != number && len(r.lost) == 0 {
			r.damage(off, "it is block number %d, where number %d is to be", b.number, number)
		}
		number = b.number + 1
		if b.kind == blockData {
			data += uint64(b.size())
		} else {
			meta += uint64(b.size())
		}
		off += b.size()
	}
	if f := &r.foot; f.ok && !r.p.Damaged && (number != f.blocks || data != f.data || meta != f.meta) {
		r.damage(r.end, "there are %d blocks with %d and %d bytes of data and metadata; the footer says %d with %d "+
			"and %d", number, data, meta, f.blocks, f.data, f.meta)
	}
	return nil
}

// searchWindow is how much is read at once in the search for a block.
const searchWindow = 1 << 20

// search returns the offset of the first block header from off on; the end of the blocks if there is none.
func (r *partReader) search(off int64) (int64, error) {
	for off < r.end {
		b, err := r.readAt(off, min(searchWindow+partBlockHd, r.end-off))
		if err != nil {
			return 0, err
		}
		for i := 0; i+partBlockHd <= len(b) && i < searchWindow; i++ {
			if h, ok := parsePartBlock(b[i:], &r.p.ID, off+int64(i)); ok && h.size() <= r.end-h.off {
				return h.off, nil
			}
		}
		off += searchWindow
	}
	return r.end, nil
}

// block reads the body of a block whose header is good, and notes it.
func (r *partReader) block(b *partBlock) error {
	raw, err := r.raw(b)
	if err == nil && b.kind == blockData && !r.p.Locked {
		err = b.sum(raw)
	}
	if failed, ok := errors.AsType[*ioError](err); ok {
		return failed.err
	}
	b.whole = err == nil
	r.p.blocks = append(r.p.blocks, *b)
	r.byAt[b.off] = len(r.p.blocks) - 1
	if err != nil {
		r.p.Damaged = true
		r.lost = append(r.lost, stretch{off: b.off, len: b.size(), block: b, err: err})
	}
	return nil
}

// ioError is a failure to read, as opposed to what was read.
type ioError struct{ err error }

func (e *ioError) Error() string { return e.err.Error() }

// raw returns the raw bytes of a block; none if the part is locked.
func (r *partReader) raw(b *partBlock) ([]byte, error) { return r.p.rawBlock(r.f, b) }

func (p *Part) rawBlock(f io.ReaderAt, b *partBlock) ([]byte, error) {
	all, err := readRange(f, p.File, p.Size, b.off, b.size())
	if err != nil {
		return nil, &ioError{err}
	}
	if h, ok := parsePartBlock(all, &p.ID, b.off); !ok || h.len != b.len {
		return nil, errors.New("the block's header does not match its checksum")
	}
	body := all[partBlockHd:]
	if checksum(0, body) != b.bodyCRC {
		return nil, errors.New("the block does not match its checksum")
	}
	if p.Locked {
		return nil, nil
	}
	if p.aead != nil {
		nonce := make([]byte, nonceSize)
		le.PutUint32(nonce, b.number)
		aad := append(append(make([]byte, 0, 40), all[4:28]...), p.ID[:]...)
		if body, err = p.aead.Open(nil, nonce, body, aad); err != nil {
			return nil, errors.New("the block does not decrypt")
		}
	}
	return decompress(b.codec, body, b.raw)
}

// sum reads the records of a data block and notes what they are.
func (b *partBlock) sum(raw []byte) error {
	return eachRecord(raw, func(i uint32, r *Record) error {
		if i == 0 {
			b.firstSeq, b.firstTime = r.Seq, r.Time
		} else if r.Seq <= b.lastSeq || r.Time < b.lastTime {
			return fmt.Errorf("record %d of the block does not ascend", i)
		}
		b.count, b.lastSeq, b.lastTime = i+1, r.Seq, r.Time
		return nil
	})
}

// eachRecord calls fn for the records of a data block, whose raw bytes are b, and checks its structure.
func eachRecord(b []byte, fn func(i uint32, r *Record) error) error {
	f := fields{b: b}
	count, seq, time := f.u32(), f.u64(), f.i64()
	restarts := (uint64(count) + restartEvery - 1) / restartEvery * 4
	if f.err != nil || count == 0 || restarts > uint64(f.left()) {
		return fmt.Errorf("a data block of %d bytes: %w", len(b), errShort)
	}
	end := len(b) - int(restarts)
	f.b = b[:end]
	for i := range count {
		if at := int(i) / restartEvery * 4; i%restartEvery == 0 && le.Uint32(b[end+at:]) != uint32(f.pos) {
			return fmt.Errorf("the restart of record %d of the block is not where it is", i)
		}
		r := Record{Seq: seq + f.uvarint(), Time: time + int64(f.uvarint())}
		k, h, d := f.uvarint(), f.uvarint(), f.uvarint()
		r.Key, r.Header, r.Data = f.bytes(k), f.bytes(h), f.bytes(d)
		if f.err != nil {
			return fmt.Errorf("record %d of the block: %w", i, f.err)
		}
		if err := fn(i, &r); err != nil {
			return err
		}
	}
	if f.left() != 0 {
		return errors.New("there are bytes between the last record of the block and its restarts")
	}
	return nil
}

// PartName returns the name of a part's file.
func PartName(number uint64, id [16]byte) string { return fmt.Sprintf("%020d-%x.part", number, id[:8]) }

// PartNumber returns the number in a part's name; 0 if it has none.
func PartNumber(name string) uint64 {
	n, ok := parsePartName(path.Base(name))
	if !ok {
		return 0
	}
	return n
}

// parsePartName returns the number in a part's name.
func parsePartName(name string) (number uint64, ok bool) {
	if len(name) != 20+1+16+5 || path.Ext(name) != ".part" {
		return 0, false
	}
	number, err := strconv.ParseUint(name[:20], 10, 64)
	return number, err == nil
}

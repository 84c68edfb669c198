package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// checksum continues a CRC-32C from seed.
func checksum(seed uint32, b []byte) uint32 { return crc32.Update(seed, castagnoli, b) }

var (
	errShort  = errors.New("it is cut short")
	errNumber = errors.New("a number in it is malformed or out of range")
)

// fields reads numbers and bytes one after the other. After a failure err is set and every read returns zero.
type fields struct {
	b   []byte
	pos int
	err error
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
	f.pos = len(f.b)
}

func (f *fields) left() int { return len(f.b) - f.pos }

func (f *fields) u8() byte {
	if b := f.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) u32() uint32 {
	if b := f.bytes(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (f *fields) u64() uint64 {
	if b := f.bytes(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (f *fields) i64() int64 { return int64(f.u64()) }

// uvarint reads an unsigned LEB128 number of at most 10 bytes.
func (f *fields) uvarint() uint64 {
	v, n := binary.Uvarint(f.b[f.pos:])
	switch {
	case n == 0:
		f.fail(errShort)
		return 0
	case n < 0:
		f.fail(errNumber)
		return 0
	}
	f.pos += n
	return v
}

// upTo reads a number that is at most most.
func (f *fields) upTo(most uint64) uint64 {
	v := f.uvarint()
	if v > most {
		f.fail(errNumber)
		return 0
	}
	return v
}

// bytes borrows the next n bytes; nil if there are not so many.
func (f *fields) bytes(n uint64) []byte {
	if n > uint64(f.left()) {
		f.fail(errShort)
		return nil
	}
	end := f.pos + int(n)
	b := f.b[f.pos:end:end]
	f.pos = end
	return b
}

// readFile reads a whole file.
func readFile(fsys vfs.FS, name string) (b []byte, err error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b = make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			return b[:n], nil // it became shorter meanwhile: what is missing is found by its reader
		}
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

package archive

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Reader reads an archive. It takes memory for what it has read, not for what a length announces.
type Reader struct {
	r     *bufio.Reader
	begun bool
	entry Entry
	name  []byte
	left  int64 // bytes of the entry that were not read yet
	err   error
}

// readerBuffer is what a Reader asks the underlying reader for.
const readerBuffer = 64 << 10

// NewReader returns a Reader.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, readerBuffer)} }

// Next moves to the next entry; what was not read of the one before is skipped. io.EOF means that the archive has come
// to its end; other errors are those of the package, wrapped, or of the underlying reader. The entry is valid until the
// next call.
func (r *Reader) Next() (*Entry, error) {
	if r.err == nil {
		r.err = r.next()
	}
	if r.err != nil {
		return nil, r.err
	}
	return &r.entry, nil
}

func (r *Reader) next() error {
	if err := r.skip(); err != nil {
		return err
	}
	if !r.begun {
		if err := r.begin(); err != nil {
			return err
		}
	}
	if _, err := r.r.Peek(1); err != nil {
		return truncated(err)
	}
	size, err := r.head()
	if err != nil {
		return err
	}
	if r.name, err = r.take(r.name[:0], size); err != nil {
		return err
	}
	r.entry.Name = r.name
	if r.entry.isEnd() {
		return io.EOF
	}
	r.left = r.entry.Header + r.entry.Data
	return nil
}

// begin reads the magic.
func (r *Reader) begin() error {
	start, err := r.r.Peek(len(Magic))
	switch {
	case err == nil && string(start) == Magic:
	case err == nil || errors.Is(err, io.EOF) && len(start) > 0:
		return &FormatError{Start: bytes.Clone(start)}
	default:
		return truncated(err)
	}
	_, err = r.r.Discard(len(Magic))
	r.begun = true
	return err
}

// head reads the numbers of an entry and returns the length of its name.
func (r *Reader) head() (nameLen int64, err error) {
	e := &r.entry
	*e = Entry{}
	size, err := r.uvarint(MaxName, "the length of a name")
	if err != nil {
		return 0, err
	}
	if e.Time, err = binary.ReadVarint(r.r); err != nil {
		return 0, badNumber(err, "a time")
	}
	if e.Seq, err = r.uvarint(math.MaxUint64, "a sequence"); err != nil {
		return 0, err
	}
	const most = math.MaxInt64 / 2 // so that the sum of the two is no overflow
	header, err := r.uvarint(most, "the length of a header")
	if err != nil {
		return 0, err
	}
	data, err := r.uvarint(most, "the length of a payload")
	if err != nil {
		return 0, err
	}
	e.Header, e.Data = int64(header), int64(data) //nolint:gosec // bounded
	return int64(size), nil                       //nolint:gosec // bounded
}

func (r *Reader) uvarint(most uint64, what string) (uint64, error) {
	v, err := binary.ReadUvarint(r.r)
	if err != nil {
		return 0, badNumber(err, what)
	}
	if v > most {
		return 0, fmt.Errorf("%w: %s is %d", ErrDamaged, what, v)
	}
	return v, nil
}

// badNumber tells apart a number that cannot be read and one that is none.
func badNumber(err error, what string) error {
	if err.Error() == errOverflow {
		return fmt.Errorf("%w: %s has too many bytes", ErrDamaged, what)
	}
	return truncated(err)
}

// errOverflow is how encoding/binary tells of a number that is none; it exports no error for it.
const errOverflow = "binary: varint overflows a 64-bit integer"

// truncated makes an end where there should be more into ErrTruncated.
func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return err
}

// skip passes over what is left of the entry.
func (r *Reader) skip() error {
	for r.left > 0 {
		n, err := r.r.Discard(int(min(r.left, readerBuffer)))
		r.left -= int64(n)
		if err != nil {
			return truncated(err)
		}
	}
	return nil
}

// step bounds how much memory is taken before there is something to put there.
const step = 64 << 10

// take appends the next size bytes to dst.
func (r *Reader) take(dst []byte, size int64) ([]byte, error) {
	for size > 0 {
		n := int(min(size, max(step, int64(len(dst)))))
		at := len(dst)
		if cap(dst)-at < n {
			dst = append(make([]byte, 0, at+n), dst...)
		}
		dst = dst[:at+n]
		if _, err := io.ReadFull(r.r, dst[at:]); err != nil {
			return dst[:at], truncated(err)
		}
		size -= int64(n)
	}
	return dst, nil
}

// Body appends what is left of the entry, header block first, to dst. ErrTooLarge if it is more than most bytes:
// nothing was read then.
func (r *Reader) Body(dst []byte, most int64) ([]byte, error) {
	if r.err != nil {
		return dst, r.err
	}
	if r.left > most {
		return dst, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, r.left, most)
	}
	dst, err := r.take(dst, r.left)
	r.left = 0
	r.err = err
	return dst, err
}

package archive

import (
	"encoding/binary"
	"io"
)

// Writer writes an archive. After an error it is of no more use.
type Writer struct {
	w     io.Writer
	buf   []byte
	ended bool
}

// NewWriter returns a Writer; nothing is written before the first entry.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: w, buf: append(make([]byte, 0, 256), Magic...)}
}

// Add writes an entry. Errors are those of the underlying writer.
func (w *Writer) Add(name []byte, time int64, seq uint64, header, data []byte) error {
	if w.ended {
		return errEnded
	}
	w.buf = binary.AppendUvarint(w.buf, uint64(len(name)))
	w.buf = binary.AppendVarint(w.buf, time)
	w.buf = binary.AppendUvarint(w.buf, seq)
	w.buf = binary.AppendUvarint(w.buf, uint64(len(header)))
	w.buf = binary.AppendUvarint(w.buf, uint64(len(data)))
	w.buf = append(w.buf, name...)
	for _, b := range [][]byte{w.buf, header, data} {
		if len(b) == 0 {
			continue
		}
		if _, err := w.w.Write(b); err != nil {
			return err
		}
	}
	w.buf = w.buf[:0]
	return nil
}

// End writes the mark without which an archive counts as truncated. It does not close the underlying writer.
func (w *Writer) End() error {
	err := w.Add(nil, 0, 0, nil, nil)
	w.ended = true
	return err
}

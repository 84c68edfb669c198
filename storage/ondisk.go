package storage

import "github.com/noetl/ehdb-gateway/storage/tail"

// onDisk reads the bytes of a record from the tail.
func (w *writer) onDisk(r *ref) (Record, error) {
	b := make([]byte, r.length())
	if err := w.tail.ReadAt(b, r.place()); err != nil {
		return Record{}, err
	}
	return r.record(b), nil
}

func (r *ref) length() uint32 { return r.klen + r.e.hlen + r.e.dlen }

// place returns where the record's bytes are.
func (r *ref) place() tail.Pos {
	pos := r.pos
	pos.Offset += r.e.off
	return pos
}

const (
	minAhead = 4 << 10
	maxAhead = 64 << 10
)

// readAhead reads records from the tail that lie one after the other, some at once: the more, the longer it goes on.
type readAhead struct {
	sec  uint64
	from uint32 // where in the section buf begins
	buf  []byte
	want uint32
}

// read returns the record's bytes. They share memory with those of its neighbours.
func (a *readAhead) read(t tail.Log, r *ref) (Record, error) {
	n, off := r.length(), r.e.off
	here := a.buf != nil && a.sec == r.e.sec && off >= a.from
	end := a.from + uint32(len(a.buf))
	if here && off+n <= end {
		b := a.buf[off-a.from:][:n]
		return r.record(b), nil
	}
	switch {
	case here && off <= end+minAhead: // it goes on from where the last read ended
		a.want = min(2*a.want, maxAhead)
	default:
		a.want = minAhead
	}
	b := make([]byte, max(n, min(a.want, r.size-off)))
	if err := t.ReadAt(b, r.place()); err != nil {
		return Record{}, err
	}
	a.sec, a.from, a.buf = r.e.sec, off, b
	return r.record(b[:n:n]), nil
}

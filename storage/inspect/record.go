package inspect

import (
	"errors"
	"fmt"
)

// Kind says what a record of the write-ahead log is.
type Kind byte

// Kinds. The zero kind is invalid.
const (
	KindMessage    Kind = 1
	KindDelete     Kind = 2
	KindTruncate   Kind = 3
	KindLog        Kind = 4
	KindDrop       Kind = 5
	KindChange     Kind = 6
	KindCheckpoint Kind = 7
	KindMoved      Kind = 8
	KindStore      Kind = 9
)

var kindNames = [...]string{
	"invalid", "message", "delete", "truncate", "log", "drop", "change", "checkpoint", "moved", "store",
}

// String returns the name of k in docs/format/records.md.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// Run is the sequences First, First+1, ... First+N-1.
type Run struct{ First, N uint64 }

// WALRecord is one record of a block. Only the fields of its kind are set; slices are borrowed from the block.
type WALRecord struct {
	Place uint64 // in the block
	Shard uint64
	Pos   uint64 // position in the shard
	Kind  Kind
	Log   uint64 // of a store record: the lowest id not given yet

	Seq               uint64 // message, moved; log: the last sequence given; truncate: the first that stays
	Time              int64
	Key, Header, Data []byte // message, moved. Data also: change, checkpoint
	Erase             bool   // delete
	Runs              []Run  // delete
	State             bool   // log: it is a state log
	Shards            []uint64
	Name              string
	Heads             []uint64 // store

	off int // of the record's kind in the block's body
}

// section is the records of one shard in a block.
type section struct {
	shard, count, first uint64
	off                 int // of its head in the body
}

// block is a block's body, taken apart.
type block struct {
	sections []section
	records  []WALRecord // in the order in which they were appended
}

const blockVersion = 1

// bodyError says where in a block's body something is wrong.
type bodyError struct {
	off int
	err error
}

func (e *bodyError) Error() string { return e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }

// parseBody takes the body of a block apart. into is used again.
func parseBody(body []byte, into *block) error {
	into.sections, into.records = into.sections[:0], into.records[:0]
	f := fields{b: body}
	if v := f.u8(); f.err == nil && v != blockVersion {
		return &bodyError{0, fmt.Errorf("the block's format version is %d, this program knows %d", v, blockVersion)}
	}
	for n := f.uvarint(); n > 0 && f.err == nil; n-- {
		if err := parseSection(&f, into); err != nil {
			return err
		}
	}
	if f.err == nil && f.left() > 0 {
		f.err = errors.New("there are bytes behind the last section")
	}
	if f.err != nil {
		return &bodyError{f.pos, f.err}
	}
	return into.order()
}

// parseSection reads a section, whose records are appended as they come.
func parseSection(f *fields, into *block) error {
	s := section{off: f.pos}
	s.shard, s.count, s.first = f.uvarint(), f.uvarint(), f.uvarint()
	size := f.uvarint()
	start := f.pos
	body := f.bytes(size)
	if f.err != nil {
		return &bodyError{s.off, fmt.Errorf("section: %w", f.err)}
	}
	if s.count == 0 || s.count > size {
		return &bodyError{s.off, fmt.Errorf("a section of %d bytes cannot have %d records", size, s.count)}
	}
	if s.first+s.count < s.first {
		return &bodyError{s.off, errNumber}
	}
	into.sections = append(into.sections, s)
	r := fields{b: body}
	for n, last := uint64(0), uint64(0); n < s.count; n++ {
		rec, err := parseRecord(&r)
		if err == nil && n > 0 && rec.Place <= last {
			err = errors.New("places in a section do not rise")
		}
		if err != nil {
			return &bodyError{start + r.pos, fmt.Errorf("record: %w", err)}
		}
		last = rec.Place
		rec.Shard, rec.Pos, rec.off = s.shard, s.first+n, rec.off+start
		into.records = append(into.records, rec)
	}
	if r.left() > 0 {
		return &bodyError{start + r.pos, fmt.Errorf("the section has more records than its head says, %d", s.count)}
	}
	return nil
}

// order brings the records into the order of their places, which have no gap.
func (b *block) order() error {
	for i := 0; i < len(b.records); i++ {
		for b.records[i].Place != uint64(i) {
			at := b.records[i].Place
			if at >= uint64(len(b.records)) || b.records[at].Place == at {
				return &bodyError{b.records[i].off, fmt.Errorf("place %d in the block is taken twice or too high", at)}
			}
			b.records[i], b.records[at] = b.records[at], b.records[i]
		}
	}
	return nil
}

func parseRecord(f *fields) (r WALRecord, err error) {
	r.Place = f.uvarint()
	r.off = f.pos
	r.parse(f)
	return r, f.err
}

// parse reads what is behind the place.
func (r *WALRecord) parse(f *fields) {
	r.Kind = Kind(f.u8())
	r.Log = f.uvarint()
	switch r.Kind {
	case KindMessage, KindMoved:
		r.Seq, r.Time = f.uvarint(), f.i64()
		k, h, d := f.uvarint(), f.uvarint(), f.uvarint()
		r.Key, r.Header, r.Data = f.bytes(k), f.bytes(h), f.bytes(d)
	case KindDelete:
		r.parseDelete(f)
	case KindTruncate:
		r.Seq = f.uvarint()
	case KindLog:
		r.parseLog(f)
	case KindDrop:
	case KindChange, KindCheckpoint:
		r.Data = f.bytes(f.uvarint())
	case KindStore:
		r.Heads = parseNumbers(f)
	default:
		f.fail(fmt.Errorf("%v is not known to format version %d", r.Kind, blockVersion))
	}
}

func (r *WALRecord) parseDelete(f *fields) {
	r.Erase = f.u8()&1 != 0
	n := f.uvarint()
	if n > uint64(f.left())/2 {
		f.fail(errShort)
		return
	}
	at := uint64(0)
	for ; n > 0 && f.err == nil; n-- {
		gap, count := f.uvarint(), f.uvarint()
		first := at + gap
		if f.err == nil && (first < at || count == 0 || first+count < first) {
			f.fail(errNumber)
			return
		}
		r.Runs = append(r.Runs, Run{first, count})
		at = first + count
	}
}

func (r *WALRecord) parseLog(f *fields) {
	r.State = f.u8()&1 != 0
	r.Seq, r.Time = f.uvarint(), f.i64()
	r.Shards = parseNumbers(f)
	r.Name = string(f.bytes(f.uvarint()))
	if f.err == nil && len(r.Shards) == 0 {
		f.fail(errors.New("the log is in no shard"))
	}
}

// parseNumbers reads how many there are, and that many.
func parseNumbers(f *fields) (out []uint64) {
	n := f.uvarint()
	if n > uint64(f.left()) {
		f.fail(errShort)
		return nil
	}
	for ; n > 0 && f.err == nil; n-- {
		out = append(out, f.uvarint())
	}
	return out
}

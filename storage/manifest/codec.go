package manifest

import (
	"encoding/binary"
	"errors"
	"math"
)

// The body of a frame is a list of items, each a byte for its kind and its fields. Numbers are uvarints, times u64,
// bytes and text have their length before them. docs/format/manifest.md has the table.
const (
	itemDropPart = 1
	itemPart     = 2
	itemTomb     = 3
	itemDropLog  = 4
	itemLog      = 5
	itemFloor    = 6
	itemStore    = 7
	itemNextPart = 8 // in a snapshot
)

func appendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func appendUvarints(b []byte, vs ...uint64) []byte {
	for _, v := range vs {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// appendEdit encodes e.
func appendEdit(b []byte, e *Edit) []byte {
	for _, id := range e.DropParts {
		b = appendUvarints(append(b, itemDropPart), uint64(id))
	}
	for i := range e.AddParts {
		b = appendPart(b, &e.AddParts[i])
	}
	for _, t := range e.Tombs {
		b = appendBytes(appendUvarints(append(b, itemTomb), uint64(t.Part), t.Log), t.Blob)
	}
	for _, id := range e.DropLogs {
		b = appendUvarints(append(b, itemDropLog), id)
	}
	for i := range e.Logs {
		b = appendLog(b, &e.Logs[i])
	}
	if e.Floor != 0 {
		b = appendUvarints(append(b, itemFloor), e.Floor)
	}
	if e.Store != nil {
		b = appendBytes(append(b, itemStore), e.Store)
	}
	return b
}

func appendPart(b []byte, p *Part) []byte {
	b = appendUvarints(append(b, itemPart), uint64(p.ID), uint64(p.Shard), uint64(p.Size))
	b = appendBytes(b, []byte(p.Path))
	b = appendUvarints(b, uint64(len(p.Sections)))
	for _, s := range p.Sections {
		b = appendUvarints(b, s.Log, uint64(s.Count), uint64(s.Keys), s.FirstSeq, s.LastSeq-s.FirstSeq, s.Bytes)
		b = le.AppendUint64(b, uint64(s.FirstTime))
		b = le.AppendUint64(b, uint64(s.LastTime))
	}
	return b
}

func appendLog(b []byte, l *Log) []byte {
	b = appendUvarints(append(b, itemLog), l.ID, l.FirstSeq, l.LastSeq, l.Messages, l.Bytes, l.Deleted)
	b = le.AppendUint64(b, uint64(l.LastTime))
	b = appendBytes(b, l.Spec)
	b = appendUvarints(b, l.CheckpointPosition)
	return appendBytes(b, l.Checkpoint)
}

var (
	errShort = errors.New("item is cut short")
	errValue = errors.New("item has a number that is out of range")
	errItem  = errors.New("item is of a kind that is not known to this version")
)

// decoder reads items. After a failure err is set and every read returns zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) uvarintUpTo(most uint64) uint64 {
	v := d.uvarint()
	if v > most {
		d.fail(errValue)
		return 0
	}
	return v
}

func (d *decoder) time() int64 {
	if len(d.b) < 8 {
		d.fail(errShort)
		return 0
	}
	v := le.Uint64(d.b)
	d.b = d.b[8:]
	return int64(v)
}

// bytes returns a copy, so that a snapshot's file need not stay in RAM for one of its blobs; nil if it is empty.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail(errShort)
		return nil
	}
	v := append([]byte(nil), d.b[:n]...)
	d.b = d.b[n:]
	return v
}

// decodeEdit reads an edit. next is of a snapshot: the number of the next part.
func decodeEdit(b []byte) (e Edit, next PartID, err error) {
	d := decoder{b: b}
	for len(d.b) > 0 {
		kind := d.b[0]
		d.b = d.b[1:]
		switch kind {
		case itemDropPart:
			e.DropParts = append(e.DropParts, PartID(d.uvarint()))
		case itemPart:
			e.AddParts = append(e.AddParts, d.part())
		case itemTomb:
			k := TombKey{PartID(d.uvarint()), d.uvarint()}
			e.Tombs = append(e.Tombs, Tomb{k, d.bytes()})
		case itemDropLog:
			e.DropLogs = append(e.DropLogs, d.uvarint())
		case itemLog:
			e.Logs = append(e.Logs, d.log())
		case itemFloor:
			e.Floor = d.uvarint()
		case itemStore:
			if e.Store = d.bytes(); e.Store == nil {
				e.Store = []byte{}
			}
		case itemNextPart:
			next = PartID(d.uvarint())
		default:
			d.fail(errItem)
		}
	}
	return e, next, d.err
}

func (d *decoder) part() Part {
	p := Part{ID: PartID(d.uvarint()), Shard: uint32(d.uvarintUpTo(math.MaxUint32))}
	p.Size = int64(d.uvarintUpTo(math.MaxInt64))
	p.Path = string(d.bytes())
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		s := Section{
			Log: d.uvarint(), Count: uint32(d.uvarintUpTo(math.MaxUint32)), Keys: uint32(d.uvarintUpTo(math.MaxUint32)),
			FirstSeq: d.uvarint(),
		}
		s.LastSeq = s.FirstSeq + d.uvarintUpTo(math.MaxUint64-s.FirstSeq)
		s.Bytes = d.uvarint()
		s.FirstTime, s.LastTime = d.time(), d.time()
		p.Sections = append(p.Sections, s)
	}
	return p
}

func (d *decoder) log() Log {
	l := Log{
		ID: d.uvarint(), FirstSeq: d.uvarint(), LastSeq: d.uvarint(),
		Messages: d.uvarint(), Bytes: d.uvarint(), Deleted: d.uvarint(),
	}
	l.LastTime = d.time()
	l.Spec = d.bytes()
	l.CheckpointPosition = d.uvarint()
	l.Checkpoint = d.bytes()
	return l
}

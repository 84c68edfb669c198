package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// formatVersion is the first byte of every block. A reader refuses what it does not know.
const formatVersion = 1

// kind says what a record is. 0 is invalid, so that zeroed bytes never parse.
type kind byte

const (
	kindMessage    kind = 1 // a record of a log
	kindDelete     kind = 2 // sequences removed from a log
	kindTruncate   kind = 3 // everything below a sequence removed from a log
	kindLog        kind = 4 // a log or state log exists
	kindDrop       kind = 5 // a log or state log is gone
	kindChange     kind = 6 // a change of a state log
	kindCheckpoint kind = 7 // a state log's new beginning
	kindMoved      kind = 8 // a message again, because its place is to be dropped
	kindStore      kind = 9 // what the directory must not forget: the next log id and the shards' positions
)

var (
	errShort   = errors.New("record is cut short")
	errVarint  = errors.New("record has a malformed number")
	errTooLong = errors.New("record's length is beyond its block")
)

// maxFixed is the most a record takes besides its key, header and data: kind, seven varints and a time.
const maxFixed = 1 + 7*binary.MaxVarintLen64 + 8

// appendMessage encodes r. The layout is in docs/format/records.md.
func appendMessage(b []byte, k kind, id LogID, r *Record) []byte {
	b = append(b, byte(k))
	b = binary.AppendUvarint(b, uint64(id))
	b = binary.AppendUvarint(b, r.Seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Time))
	b = binary.AppendUvarint(b, uint64(len(r.Key)))
	b = binary.AppendUvarint(b, uint64(len(r.Header)))
	b = binary.AppendUvarint(b, uint64(len(r.Data)))
	b = append(b, r.Key...)
	b = append(b, r.Header...)
	return append(b, r.Data...)
}

// seqRun is the sequences first, first+1, ... first+n-1.
type seqRun struct{ first, n uint64 }

// appendRuns adds seq to runs.
func appendRuns(runs []seqRun, seq uint64) []seqRun {
	if n := len(runs); n > 0 && runs[n-1].first+runs[n-1].n == seq {
		runs[n-1].n++
		return runs
	}
	return append(runs, seqRun{seq, 1})
}

// maxDelete returns a bound for the size of a delete record.
func maxDelete(runs []seqRun) int {
	n, at := maxFixed, uint64(0)
	for _, r := range runs {
		n += uvarintLen(r.first-at) + uvarintLen(r.n)
		at = r.first + r.n
	}
	return n
}

func uvarintLen(v uint64) int { return max(bits.Len64(v)+6, 7) / 7 }

// deleteFlags are in a delete record.
type deleteFlags byte

// flagErase asks for the bytes to be overwritten when their space is rewritten.
const flagErase deleteFlags = 1

// appendDelete encodes the removal of runs, ascending.
func appendDelete(b []byte, id LogID, flags deleteFlags, runs []seqRun) []byte {
	b = append(b, byte(kindDelete))
	b = binary.AppendUvarint(b, uint64(id))
	b = append(b, byte(flags))
	b = binary.AppendUvarint(b, uint64(len(runs)))
	at := uint64(0)
	for _, r := range runs {
		b = binary.AppendUvarint(b, r.first-at)
		b = binary.AppendUvarint(b, r.n)
		at = r.first + r.n
	}
	return b
}

func appendTruncate(b []byte, id LogID, below uint64) []byte {
	b = append(b, byte(kindTruncate))
	b = binary.AppendUvarint(b, uint64(id))
	return binary.AppendUvarint(b, below)
}

func appendDrop(b []byte, id LogID) []byte {
	return binary.AppendUvarint(append(b, byte(kindDrop)), uint64(id))
}

func appendState(b []byte, k kind, id LogID, state []byte) []byte {
	b = append(b, byte(k))
	b = binary.AppendUvarint(b, uint64(id))
	b = binary.AppendUvarint(b, uint64(len(state)))
	return append(b, state...)
}

// logMeta is what a log record says.
type logMeta struct {
	ID       LogID
	State    bool // a state log
	Name     string
	Shards   []ShardID
	LastSeq  uint64 // the last sequence given when the record was written
	LastTime int64
}

func maxLog(m *logMeta) int {
	return 2*maxFixed + len(m.Name) + len(m.Shards)*binary.MaxVarintLen64
}

func appendLog(b []byte, m *logMeta) []byte {
	b = append(b, byte(kindLog))
	b = binary.AppendUvarint(b, uint64(m.ID))
	flags := byte(0)
	if m.State {
		flags = 1
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, m.LastSeq)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.LastTime))
	b = binary.AppendUvarint(b, uint64(len(m.Shards)))
	for _, s := range m.Shards {
		b = binary.AppendUvarint(b, uint64(s))
	}
	b = binary.AppendUvarint(b, uint64(len(m.Name)))
	return append(b, m.Name...)
}

// appendStore encodes the next log id and the position of each shard.
func appendStore(b []byte, next LogID, heads []uint64) []byte {
	b = append(b, byte(kindStore))
	b = binary.AppendUvarint(b, uint64(next))
	b = binary.AppendUvarint(b, uint64(len(heads)))
	for _, h := range heads {
		b = binary.AppendUvarint(b, h)
	}
	return b
}

// decoder reads the fields of a record. After a failure err is set and every further read returns zero.
type decoder struct {
	b   []byte
	pos int
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *decoder) byte() byte {
	if d.err != nil || d.pos >= len(d.b) {
		d.fail(errShort)
		return 0
	}
	d.pos++
	return d.b[d.pos-1]
}

func (d *decoder) uvarint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b[d.pos:])
	switch {
	case n == 0:
		d.fail(errShort)
		return 0
	case n < 0:
		d.fail(errVarint)
		return 0
	}
	d.pos += n
	return v
}

func (d *decoder) uint64() uint64 {
	if d.err != nil || len(d.b)-d.pos < 8 {
		d.fail(errShort)
		return 0
	}
	d.pos += 8
	return binary.LittleEndian.Uint64(d.b[d.pos-8:])
}

// length reads the length of something that must still fit.
func (d *decoder) length() int {
	n := d.uvarint()
	if n > uint64(len(d.b)-d.pos) {
		d.fail(errTooLong)
		return 0
	}
	return int(n)
}

func (d *decoder) bytes(n int) []byte {
	if d.err != nil || n > len(d.b)-d.pos {
		d.fail(errTooLong)
		return nil
	}
	d.pos += n
	return d.b[d.pos-n : d.pos : d.pos]
}

// decoded is one record as read back. Only the fields of its kind are set; slices are borrowed.
type decoded struct {
	kind  kind
	log   LogID
	rec   Record // message
	off   int    // message: where its key starts
	flags deleteFlags
	runs  []seqRun // delete
	below uint64   // truncate
	meta  logMeta  // log
	state []byte   // change, checkpoint
	heads []uint64 // store; log is the next id
}

// next decodes one record behind its place in the group. r is used again for the next.
func (d *decoder) next(r *decoded) error {
	r.kind = kind(d.byte())
	r.log = LogID(d.uvarint())
	switch r.kind {
	case kindMessage, kindMoved:
		d.message(r)
	case kindDelete:
		d.deletion(r)
	case kindTruncate:
		r.below = d.uvarint()
	case kindLog:
		d.logMeta(r)
	case kindDrop:
	case kindStore:
		r.heads = r.heads[:0]
		for n := d.length(); n > 0 && d.err == nil; n-- {
			r.heads = append(r.heads, d.uvarint())
		}
	case kindChange, kindCheckpoint:
		r.state = d.bytes(d.length())
	default:
		if d.err == nil {
			d.fail(fmt.Errorf("record kind %d is not known to format version %d", r.kind, formatVersion))
		}
	}
	return d.err
}

func (d *decoder) message(r *decoded) {
	r.rec.Seq = d.uvarint()
	r.rec.Time = int64(d.uint64())
	k, h, n := d.length(), d.length(), d.length()
	r.off = d.pos
	r.rec.Key, r.rec.Header, r.rec.Data = d.bytes(k), d.bytes(h), d.bytes(n)
}

func (d *decoder) deletion(r *decoded) {
	r.flags = deleteFlags(d.byte())
	n := d.length() // a run takes two bytes at least, so this bounds the allocation
	r.runs = r.runs[:0]
	at := uint64(0)
	for i := 0; i < n && d.err == nil; i++ {
		first := at + d.uvarint()
		count := d.uvarint()
		if first < at || count == 0 || first+count < first {
			d.fail(errVarint)
			return
		}
		r.runs = append(r.runs, seqRun{first, count})
		at = first + count
	}
}

func (d *decoder) logMeta(r *decoded) {
	m := logMeta{ID: r.log, State: d.byte()&1 != 0, LastSeq: d.uvarint(), LastTime: int64(d.uint64())}
	n := d.length()
	for i := 0; i < n && d.err == nil; i++ {
		s := d.uvarint()
		if s > maxShards {
			d.fail(errVarint)
			return
		}
		m.Shards = append(m.Shards, ShardID(s))
	}
	m.Name = string(d.bytes(d.length()))
	r.meta = m
}

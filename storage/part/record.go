package part

import (
	"encoding/binary"
	"errors"
)

// Record is one record of a log. What a read returns is immutable and may be kept.
type Record struct {
	Seq    uint64
	Time   int64 // Unix nanoseconds; never below the previous record's
	Key    []byte
	Header []byte
	Data   []byte
}

// The raw bytes of a data block. A restart offset, counted from the block's start, stands for every 16th record.
//
//	0       4         12         20                                             end - 4*ceil(count/16)
//	+-------+---------+----------+----------------------------------------------+-----------------------+
//	| count | baseseq | basetime | record record ...                            | restarts, u32 each    |
//	+-------+---------+----------+----------------------------------------------+-----------------------+
//
//	record
//
//	+-------------+---------------+----------+----------+----------+-----+--------+------+
//	| seq-baseseq | time-basetime | key len  | head len | data len | key | header | data |   numbers are uvarints
//	+-------------+---------------+----------+----------+----------+-----+--------+------+

// dataBuilder fills one data block.
type dataBuilder struct {
	raw      []byte
	restarts []uint32
	count    uint32
	seq      uint64 // of the first record
	time     int64
}

func (d *dataBuilder) add(r *Record) {
	if d.count == 0 {
		d.seq, d.time = r.Seq, r.Time
		d.raw = append(d.raw[:0], make([]byte, dataFixed)...)
		d.restarts = d.restarts[:0]
	}
	if d.count%restartEvery == 0 {
		d.restarts = append(d.restarts, uint32(len(d.raw)))
	}
	d.count++
	d.raw = binary.AppendUvarint(d.raw, r.Seq-d.seq)
	d.raw = binary.AppendUvarint(d.raw, uint64(r.Time)-uint64(d.time))
	d.raw = binary.AppendUvarint(d.raw, uint64(len(r.Key)))
	d.raw = binary.AppendUvarint(d.raw, uint64(len(r.Header)))
	d.raw = binary.AppendUvarint(d.raw, uint64(len(r.Data)))
	d.raw = append(d.raw, r.Key...)
	d.raw = append(d.raw, r.Header...)
	d.raw = append(d.raw, r.Data...)
}

// finish returns the raw bytes of the block and empties d.
func (d *dataBuilder) finish() []byte {
	le.PutUint32(d.raw, d.count)
	le.PutUint64(d.raw[4:], d.seq)
	le.PutUint64(d.raw[12:], uint64(d.time))
	for _, off := range d.restarts {
		d.raw = le.AppendUint32(d.raw, off)
	}
	d.count = 0
	return d.raw
}

var (
	errData   = errors.New("data block's lengths do not fit it")
	errRecord = errors.New("record's lengths do not fit its block")
)

// dataBlock reads the raw bytes of one.
type dataBlock struct {
	b        []byte // up to the restarts
	restarts []byte
	count    uint32
	seq      uint64
	time     int64
}

func parseData(b []byte, count uint32) (d dataBlock, err error) {
	if len(b) < dataFixed {
		return d, errData
	}
	d = dataBlock{count: le.Uint32(b), seq: le.Uint64(b[4:]), time: int64(le.Uint64(b[12:]))}
	n := (int64(d.count) + restartEvery - 1) / restartEvery * 4
	if d.count != count || n > int64(len(b)-dataFixed) {
		return d, errData
	}
	end := len(b) - int(n)
	d.b, d.restarts = b[:end:end], b[end:]
	return d, nil
}

// uvarint reads a number at pos; the next position is -1 if there is none.
func uvarint(b []byte, pos int) (uint64, int) {
	if pos >= 0 && pos < len(b) {
		if v := b[pos]; v < 0x80 {
			return uint64(v), pos + 1
		}
		if v, n := binary.Uvarint(b[pos:]); n > 0 {
			return v, pos + n
		}
	}
	return 0, -1
}

// at reads the record at position pos into r and returns the position behind it.
func (d *dataBlock) at(pos int, r *Record) (int, error) {
	seq, pos := uvarint(d.b, pos)
	time, pos := uvarint(d.b, pos)
	k, pos := uvarint(d.b, pos)
	h, pos := uvarint(d.b, pos)
	n, pos := uvarint(d.b, pos)
	if pos < 0 {
		return 0, errRecord
	}
	room := uint64(len(d.b) - pos)
	if k > room || h > room-k || n > room-k-h {
		return 0, errRecord
	}
	r.Seq, r.Time = d.seq+seq, int64(uint64(d.time)+time)
	hpos, npos := pos+int(k), pos+int(k+h)
	end := npos + int(n)
	r.Key, r.Header, r.Data = d.b[pos:hpos:hpos], d.b[hpos:npos:npos], d.b[npos:end:end]
	return end, nil
}

// record reads record i of the block, which is below count.
func (d *dataBlock) record(i uint32) (r Record, err error) {
	pos := int(le.Uint32(d.restarts[i/restartEvery*4:]))
	for j := i / restartEvery * restartEvery; j <= i && err == nil; j++ {
		pos, err = d.at(pos, &r)
	}
	return r, err
}

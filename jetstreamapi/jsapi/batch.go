package jsapi

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
)

// Values of [HeaderBatchCommit].
const (
	BatchCommit    = "1"   // this message is the last of its batch
	BatchCommitEOB = "eob" // the message before this one was the last; this one is not stored
)

// MaxBatchID is the length of the longest id of a batch.
const MaxBatchID = 64

// FastOp is what a message means to its fast batch.
type FastOp uint8

// The operations of a fast batch.
const (
	FastStart FastOp = iota
	FastAppend
	FastCommit
	FastCommitEOB // the message itself is not stored
	FastPing
)

// FastBatch is what the reply subject of a fast-ingest publish says:
// <prefix>.<id>.<flow>.<ok|fail>.<seq>.<op>.$FI.
type FastBatch struct {
	ID    []byte // borrowed
	Seq   uint64 // of the message in the batch, from 1
	Flow  uint16 // the publisher wants an ack every so many messages at least
	GapOK bool   // a missing message does not end the batch
	Op    FastOp
}

// Commits reports whether the message ends the batch.
func (b *FastBatch) Commits() bool { return b.Op == FastCommit || b.Op == FastCommitEOB }

const defaultFlow = 10

// IsFastBatch reports whether reply is that of a fast-ingest publish.
func IsFastBatch(reply []byte) bool { return bytes.HasSuffix(reply, []byte(FastBatchSuffix)) }

// ParseFastBatch parses a reply subject that [IsFastBatch]; false if it is malformed.
func ParseFastBatch(reply []byte) (b FastBatch, ok bool) {
	rest := reply[:len(reply)-len(FastBatchSuffix)]
	var fields [5][]byte // op, seq, gap mode, flow, id
	for i := range fields {
		dot := bytes.LastIndexByte(rest, '.')
		if dot < 0 {
			return b, false
		}
		fields[i], rest = rest[dot+1:], rest[:dot]
	}
	op, err := strconv.ParseUint(string(fields[0]), 10, 8)
	if err != nil || FastOp(op) > FastPing {
		return b, false
	}
	b.Op = FastOp(op)
	b.Seq, err = strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil || b.Seq == 0 || b.Seq == math.MaxUint64 {
		return b, false
	}
	switch {
	case b.Seq == 1 && (b.Op == FastCommitEOB || b.Op == FastAppend), b.Seq != 1 && b.Op == FastStart:
		return b, false
	}
	switch string(fields[2]) {
	case server.FastBatchGapOk:
		b.GapOK = true
	case server.FastBatchGapFail:
	default:
		return b, false
	}
	b.Flow = defaultFlow
	if flow, err := strconv.ParseInt(string(fields[3]), 10, 64); err == nil && flow > 0 {
		b.Flow = uint16(min(flow, math.MaxUint16))
	}
	b.ID = fields[4]
	return b, true
}

// BatchTail returns the end of a batch's PubAck, behind the sequence.
func BatchTail(id string, count uint64) []byte {
	out := append([]byte(`,"batch":`), quote(id)...)
	out = append(out, `,"count":`...)
	return append(strconv.AppendUint(out, count, 10), '}')
}

// DuplicateBatchTail is BatchTail for a batch whose only message was stored before.
func DuplicateBatchTail(id string, count uint64) []byte {
	return append([]byte(`,"duplicate": true`), BatchTail(id, count)...)
}

// AppendBatchAck appends the PubAck of a batch whose last message has seq.
func AppendBatchAck(dst, prefix []byte, seq uint64, tail []byte) []byte {
	return append(strconv.AppendUint(append(dst, prefix...), seq, 10), tail...)
}

// FlowAck returns the message that tells the publisher of a fast batch how far it is stored, and that the next such
// message comes after so many more.
func FlowAck(seq uint64, every uint16) []byte {
	return mustJSON(server.BatchFlowAck{Sequence: seq, Messages: every})
}

// FlowGap returns the message that tells of messages of a fast batch that are missing.
func FlowGap(expected, got uint64) []byte {
	return mustJSON(server.BatchFlowGap{ExpectedLastSequence: expected, CurrentSequence: got})
}

// FlowError returns the message that tells why one message of a fast batch was refused.
func FlowError(seq uint64, e *server.ApiError) []byte {
	return mustJSON(server.BatchFlowErr{Sequence: seq, Error: e})
}

// mustJSON encodes what always can be.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

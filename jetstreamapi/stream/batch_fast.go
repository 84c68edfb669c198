package stream

import (
	"errors"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// mostFlow is the most messages of all fast batches of a stream between two acks.
const mostFlow = 500

// fastBatch is a fast-ingest batch under way. Its messages are stored as they come; the publisher is told now and then
// how far they are durable.
type fastBatch struct {
	id       string
	due      int64  // when it is forgotten, Unix nanoseconds
	lastSeq  uint64 // in the batch, seen
	stored   uint64 // in the batch: up to here all was stored, or was allowed to be missing
	acked    uint64 // in the batch, of the last flow ack
	seq      uint64 // in the stream, of the last message stored
	every    uint16 // a flow ack comes after so many messages
	maxEvery uint16 // that the publisher allows
	gapOK    bool
}

// acceptFast takes one message of a fast batch.
func (s *Stream) acceptFast(set *settings, in *incoming, now int64) {
	if err := s.mayBatch(set, in); err != nil {
		s.refuse(set, in, refuse(err))
		return
	}
	op, ok := jsapi.ParseFastBatch(in.reply)
	switch {
	case !set.cfg.AllowBatchPublish:
		s.refuse(set, in, refuse(server.NewJSBatchPublishDisabledError()))
		return
	case !ok:
		s.refuse(set, in, refuse(server.NewJSBatchPublishInvalidPatternError()))
		return
	case len(op.ID) > jsapi.MaxBatchID:
		s.refuse(set, in, refuse(server.NewJSBatchPublishInvalidBatchIDError()))
		return
	}
	b, err := s.fastBatch(&op)
	if err != nil {
		s.refuse(set, in, refuse(err))
		return
	}
	if len(in.named.RequiredAPILevel) > 0 {
		if jsapi.APILevelTooHigh(in.header) {
			s.dropFast(b)
			s.refuse(set, in, refuse(server.NewJSRequiredApiLevelError()))
			return
		}
		in.header = withoutLevel(in.header)
	}
	b.due = now + int64(s.o.Batches.timeout())
	s.wakeAt(b.due)
	switch {
	case op.Op == jsapi.FastPing:
		s.pingFast(b, &op, in)
	case !s.inOrder(b, &op, in):
	case op.Op == jsapi.FastCommitEOB:
		b.lastSeq--
		s.endFast(b, in)
	default:
		s.storeFast(set, b, &op, in, now)
	}
}

// fastBatch returns the batch of a message, which may be new.
func (s *Stream) fastBatch(op *jsapi.FastBatch) (*fastBatch, *server.ApiError) {
	if b := s.batches.fast[string(op.ID)]; b != nil {
		return b, nil
	}
	if op.Seq != 1 || op.Op == jsapi.FastPing {
		return nil, server.NewJSBatchPublishUnknownBatchIDError()
	}
	o := s.o.Batches
	if !o.begin(&o.fast, len(s.batches.fast), fastPerStream, fastTotal) {
		return nil, server.NewJSBatchPublishTooManyInflightError()
	}
	b := &fastBatch{id: string(op.ID), gapOK: op.GapOK, maxEvery: op.Flow, every: min(mostFlow, op.Flow)}
	if s.batches.fast == nil {
		s.batches.fast, s.batches.alone = make(map[string]*fastBatch), alone(s)
	}
	s.batches.fast[b.id] = b
	if len(s.batches.fast) > 1 { // others are at work: it begins slowly
		b.every = 1
	}
	return b, nil
}

// dropFast forgets a batch.
func (s *Stream) dropFast(b *fastBatch) {
	if s.batches.fast[b.id] != b {
		return
	}
	delete(s.batches.fast, b.id)
	s.o.Batches.fast.Add(-1)
}

// tellFast queues a message for the publisher of a batch, which is sent once what was stored before is durable.
func (s *Stream) tellFast(b *fastBatch, in *incoming, text []byte) {
	s.answers.push(answer{kind: answerText, wait: b.seq}, in.reply, nil, text)
}

// endFast commits a batch with what is stored of it.
func (s *Stream) endFast(b *fastBatch, in *incoming) {
	s.dropFast(b)
	tail := jsapi.BatchTail(b.id, b.lastSeq)
	s.answers.push(answer{kind: answerBatch, wait: b.seq, seq: b.seq}, in.reply, nil, tail)
}

// pingFast answers a publisher that asks how far its batch is.
func (s *Stream) pingFast(b *fastBatch, op *jsapi.FastBatch, in *incoming) {
	if op.Seq > b.lastSeq {
		s.tellFast(b, in, jsapi.FlowGap(b.lastSeq+1, op.Seq+1))
		if !b.gapOK {
			s.endFast(b, in)
			return
		}
		b.lastSeq, b.stored = op.Seq, op.Seq
		if s.flow(b, in) {
			return
		}
	}
	s.tellFast(b, in, jsapi.FlowAck(b.acked, b.every))
}

// inOrder reports whether the message is the next of its batch, or comes after a gap that the publisher allows. If not,
// the batch has ended.
func (s *Stream) inOrder(b *fastBatch, op *jsapi.FastBatch, in *incoming) bool {
	next := b.lastSeq + 1
	if op.Seq == next {
		b.lastSeq = next
		return true
	}
	s.tellFast(b, in, jsapi.FlowGap(next, op.Seq))
	if b.gapOK && op.Seq > next {
		b.lastSeq = op.Seq
		return true
	}
	s.endFast(b, in)
	return false
}

// storeFast stores a message that is in order.
func (s *Stream) storeFast(set *settings, b *fastBatch, op *jsapi.FastBatch, in *incoming, now int64) {
	if op.Seq == 1 && !op.Commits() && !set.cfg.NoAck {
		s.tellFast(b, in, jsapi.FlowAck(0, b.every))
	}
	reply := in.reply
	v := s.putFast(set, in, now)
	in.reply = reply
	switch v.kind {
	case verdictDuplicate:
		s.metrics.duplicates.Add(1)
		s.duplicateFast(b, op, in, v)
	case verdictRefuse:
		s.refuseFast(b, op, in, v)
	case verdictStore, verdictSkip:
		b.seq, b.stored = s.head.lastSeq, b.lastSeq
		if op.Commits() {
			s.endFast(b, in)
			return
		}
		s.flow(b, in)
	}
}

// putFast admits and stores a message without an answer, and returns what became of it.
func (s *Stream) putFast(set *settings, in *incoming, now int64) verdict {
	v := set.admitBatched(s.head.lastSeq, s.batches.alone, in)
	if v.kind == verdictRefuse || v.kind == verdictDuplicate {
		return v
	}
	if id := in.named.ExpectedLastMsgID; len(id) > 0 && string(id) != string(s.head.lastMsgID) {
		return refuseAtHead(server.NewJSStreamWrongLastMsgIDError(string(s.head.lastMsgID)))
	}
	in.reply = nil
	before := s.head.lastSeq
	s.head.refusal = nil
	if v.kind == verdictSkip {
		s.skip(set, in, v.rollup, now)
	} else {
		s.store(set, in, v.rollup, now)
	}
	if s.head.lastSeq == before {
		return refuse(s.refusal())
	}
	return v
}

// duplicateFast goes on with a message that was stored before.
func (s *Stream) duplicateFast(b *fastBatch, op *jsapi.FastBatch, in *incoming, v verdict) {
	b.stored = op.Seq
	s.flow(b, in)
	switch {
	case !op.Commits():
	case !b.gapOK && b.lastSeq == 1:
		s.dropFast(b)
		tail := jsapi.DuplicateBatchTail(b.id, op.Seq)
		s.answers.push(answer{kind: answerBatch, wait: v.seq, seq: v.seq}, in.reply, nil, tail)
	default:
		s.endFast(b, in)
	}
}

// refuseFast tells of a message that was refused. Where nothing may be missing the batch ends with it.
func (s *Stream) refuseFast(b *fastBatch, op *jsapi.FastBatch, in *incoming, v verdict) {
	if !b.gapOK && b.lastSeq == 1 {
		s.dropFast(b)
		s.metrics.refuse(v.err.ErrCode)
		s.answers.push(v.answer(s.head.lastSeq), in.reply, nil, nil) // whether the stream acknowledges or not
		return
	}
	s.metrics.refuse(v.err.ErrCode)
	s.tellFast(b, in, jsapi.FlowError(op.Seq, v.err))
	if b.gapOK && !op.Commits() {
		return
	}
	b.lastSeq--
	s.endFast(b, in)
}

// flow sends a flow ack if one is due, and reports whether it did. Batches share what may be between two acks.
func (s *Stream) flow(b *fastBatch, in *incoming) bool {
	every := uint64(b.every)
	if b.stored < b.acked+every {
		return false
	}
	b.acked += (b.stored - b.acked) / every * every
	most := min(max(uint16(mostFlow/len(s.batches.fast)), 1), b.maxEvery) //nolint:gosec // at most mostFlow
	switch {
	case b.every < most:
		b.every = min(2*b.every, most)
	case b.every > most:
		b.every = max(b.every/2, most)
	}
	s.tellFast(b, in, jsapi.FlowAck(b.acked, b.every))
	return true
}

// refusal returns why the last message was refused.
func (s *Stream) refusal() *server.ApiError {
	if err, ok := errors.AsType[*server.ApiError](s.head.refusal); ok {
		return err
	}
	return server.NewJSStreamStoreFailedError(s.head.refusal)
}

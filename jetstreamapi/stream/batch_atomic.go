package stream

import (
	"fmt"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// atomicBatch is one atomic batch before its commit. Its messages are in memory.
type atomicBatch struct {
	id       string
	due      int64  // when it is abandoned, Unix nanoseconds
	lastSeq  uint64 // in the batch
	messages []stagedMessage
	bytes    int64
}

// stagedMessage is one message of a batch, copied.
type stagedMessage struct{ subject, header, data []byte }

// acceptAtomic takes one message of an atomic batch: it is staged, or commits the batch.
func (s *Stream) acceptAtomic(set *settings, in *incoming, now int64) {
	if err := s.mayBatch(set, in); err != nil {
		s.refuse(set, in, refuse(err))
		return
	}
	h := &in.named
	seq, ok := parseDecimal(h.BatchSeq)
	switch {
	case !set.cfg.AllowAtomicPublish:
		s.refuse(set, in, refuse(server.NewJSAtomicPublishDisabledError()))
		return
	case len(h.BatchID) > jsapi.MaxBatchID:
		s.refuse(set, in, refuse(server.NewJSAtomicPublishInvalidBatchIDError()))
		return
	case !ok:
		s.refuse(set, in, refuse(server.NewJSAtomicPublishMissingSeqError()))
		return
	}
	b, err := s.atomicBatch(h, seq)
	if err != nil {
		s.refuse(set, in, refuse(err))
		return
	}
	if err := s.stage(b, in, seq, now); err != nil {
		s.dropAtomic(b)
		s.refuse(set, in, refuse(err))
		return
	}
	if h.BatchCommit == nil {
		s.reply(set, in, answer{kind: answerText}) // an empty one
		return
	}
	s.dropAtomic(b)
	s.commitAtomic(set, b, in, now)
}

// endOfBatch reports whether the message only commits its batch.
func endOfBatch(h *jsapi.PublishHeaders) bool { return string(h.BatchCommit) == jsapi.BatchCommitEOB }

// atomicBatch returns the batch of a message, which may be new.
func (s *Stream) atomicBatch(h *jsapi.PublishHeaders, seq uint64) (*atomicBatch, *server.ApiError) {
	if b := s.batches.atomic[string(h.BatchID)]; b != nil {
		return b, nil
	}
	o := s.o.Batches
	if seq != 1 {
		if batchSize(h, seq) > uint64(o.maxMessages()) { //nolint:gosec // positive
			return nil, server.NewJSAtomicPublishTooLargeBatchError(o.maxMessages())
		}
		return nil, server.NewJSAtomicPublishIncompleteBatchError()
	}
	if !o.begin(&o.atomic, len(s.batches.atomic), atomicPerStream, atomicTotal) {
		return nil, server.NewJSAtomicPublishTooManyInflightError()
	}
	b := &atomicBatch{id: string(h.BatchID)}
	if s.batches.atomic == nil {
		s.batches.atomic = make(map[string]*atomicBatch)
	}
	s.batches.atomic[b.id] = b
	return b, nil
}

// batchSize is how many messages a batch has with the one at seq.
func batchSize(h *jsapi.PublishHeaders, seq uint64) uint64 {
	if endOfBatch(h) {
		return seq - 1
	}
	return seq
}

// stage adds a message to its batch, unless it only commits it. On an error the batch is at its end.
func (s *Stream) stage(b *atomicBatch, in *incoming, seq uint64, now int64) *server.ApiError {
	h := &in.named
	if h.BatchCommit != nil && !endOfBatch(h) && string(h.BatchCommit) != jsapi.BatchCommit {
		return server.NewJSAtomicPublishInvalidBatchCommitError()
	}
	if len(h.RequiredAPILevel) > 0 {
		if jsapi.APILevelTooHigh(in.header) {
			s.abandoned(b.id, server.BatchRequirementsNotMet)
			return server.NewJSRequiredApiLevelError()
		}
		in.header = withoutLevel(in.header)
	}
	b.lastSeq++
	if b.lastSeq != seq || (seq == 1 && endOfBatch(h)) {
		s.abandoned(b.id, server.BatchIncomplete)
		return server.NewJSAtomicPublishIncompleteBatchError()
	}
	most := s.o.Batches.maxMessages()
	if batchSize(h, seq) > uint64(most) { //nolint:gosec // positive
		s.abandoned(b.id, server.BatchLarge)
		return server.NewJSAtomicPublishTooLargeBatchError(most)
	}
	if !endOfBatch(h) {
		if err := s.keepStaged(b, in); err != nil {
			s.abandoned(b.id, server.BatchLarge)
			return err
		}
	}
	b.due = now + int64(s.o.Batches.timeout())
	s.wakeAt(b.due)
	return nil
}

// withoutLevel returns a header without the API level it asks for.
func withoutLevel(header []byte) []byte {
	return jsapi.WithoutHeaders(header, func(name []byte) bool { return string(name) == server.JSRequiredApiLevel })
}

// keepStaged copies a message into its batch, if there is room for it.
func (s *Stream) keepStaged(b *atomicBatch, in *incoming) *server.ApiError {
	size := int64(len(in.subject) + len(in.header) + len(in.data) + stagedOverhead)
	if b.bytes+size > stagedPerBatch {
		err := server.NewJSAtomicPublishTooLargeBatchError(stagedPerBatch)
		err.Description += fmt.Sprintf(" bytes (%v)", errBatchBytes)
		return err
	}
	if s.o.Batches.staged.Add(size) > stagedTotal {
		s.o.Batches.staged.Add(-size)
		return server.NewJSAtomicPublishTooManyInflightError()
	}
	b.bytes += size
	buf := make([]byte, 0, len(in.subject)+len(in.header)+len(in.data))
	m := stagedMessage{}
	buf, m.subject = appendPart(buf, in.subject)
	buf, m.header = appendPart(buf, in.header)
	_, m.data = appendPart(buf, in.data)
	b.messages = append(b.messages, m)
	return nil
}

// appendPart appends part to buf, which has room for it, and returns it there.
func appendPart(buf, part []byte) (longer, kept []byte) {
	longer = append(buf, part...)
	return longer, longer[len(buf):len(longer):len(longer)]
}

// dropAtomic forgets a batch. What it staged stays as long as somebody has it.
func (s *Stream) dropAtomic(b *atomicBatch) {
	if s.batches.atomic[b.id] != b {
		return
	}
	delete(s.batches.atomic, b.id)
	s.o.Batches.atomic.Add(-1)
	s.o.Batches.staged.Add(-b.bytes)
}

// commitAtomic stores the messages of a batch, all or none, and answers the one that committed it.
func (s *Stream) commitAtomic(set *settings, b *atomicBatch, in *incoming, now int64) {
	list, v := s.checkAtomic(set, b, now)
	if v.err != nil {
		s.refuse(set, in, v)
		return
	}
	if endOfBatch(&in.named) {
		last := &list[len(list)-1].in
		last.header = jsapi.AddHeader(last.header, jsapi.HeaderBatchCommit, jsapi.BatchCommit)
	}
	var size uint64
	for i := range list {
		list[i].placed.size = set.size(&list[i].in)
		size += list[i].placed.size
	}
	if err := s.reserve(size); err != nil {
		s.refuse(set, in, refuse(err))
		return
	}
	if err := s.appendAtomic(set, list, now, commitAlone); err != nil {
		s.release(size)
		s.refuseFailed(set, in, err)
		return
	}
	for i := range list {
		s.placeAtomic(set, &list[i], now)
	}
	seq := s.head.lastSeq
	if len(in.reply) > 0 && !set.cfg.NoAck {
		tail := jsapi.BatchTail(b.id, uint64(len(list)))
		s.answers.push(answer{kind: answerBatch, wait: seq, seq: seq}, in.reply, nil, tail)
	}
}

// checkedMessage is a message of a batch that was admitted.
type checkedMessage struct {
	in     incoming
	skip   bool // nobody wants it
	placed placed
}

// checkAtomic admits the messages of a batch. The verdict is of the first that is refused.
func (s *Stream) checkAtomic(set *settings, b *atomicBatch, now int64) ([]checkedMessage, verdict) {
	d := newStaged(s)
	list := make([]checkedMessage, len(b.messages))
	for i, m := range b.messages {
		in := &list[i].in
		*in = incoming{subject: set.mapped(m.subject), header: m.header, data: m.data, now: now}
		in.named.Parse(in.header)
		if len(in.named.ExpectedLastMsgID) > 0 {
			return nil, refuse(server.NewJSAtomicPublishUnsupportedHeaderBatchError(jsapi.HeaderExpectedLastMsgID))
		}
		v := set.admitBatched(s.head.lastSeq+uint64(i), d, in)
		if v.err != nil {
			return nil, v
		}
		d.add(set, in)
		list[i].skip, list[i].placed.rollup = v.kind == verdictSkip, v.rollup
		ttl, _ := parseTTL(in.named.TTL) // it was checked
		list[i].placed.ttl = s.atLeastMarkerTTL(set, in, ttl)
	}
	return list, verdict{}
}

// commitAlone commits a group with nothing else in it.
func commitAlone(group *storage.Batch) error { return group.Commit(nil) }

// appendAtomic hands the messages to the log as one group, with what their rollups remove. commit commits it.
func (s *Stream) appendAtomic(
	set *settings, list []checkedMessage, now int64, commit func(*storage.Batch) error,
) error {
	var group storage.Batch
	last := make(map[string]uint64)
	seq := s.head.lastSeq
	for i := range list {
		in, p := &list[i].in, &list[i].placed
		seq++
		p.seq = seq
		group.Append(s.log, &storage.Record{Seq: seq, Time: now, Key: in.subject, Header: in.header, Data: in.data})
		if list[i].skip {
			group.Delete(s.log, seq)
		} else {
			s.addRollup(&group, p.rollup, in.subject)
		}
		if set.republish != nil {
			before, ok := last[string(in.subject)]
			if !ok {
				before = s.log.Key(in.subject).Last
			}
			p.before = before
			last[string(in.subject)] = seq
		}
	}
	if err := commit(&group); err != nil {
		return err
	}
	s.head.lastSeq = seq
	return nil
}

// placeAtomic takes note of one message of a batch that was appended.
func (s *Stream) placeAtomic(set *settings, m *checkedMessage, now int64) {
	in, p := &m.in, &m.placed
	if !m.skip {
		s.place(set, in, p, now)
		s.follow(set, in, p, now)
		return
	}
	s.release(p.size)
	s.passOver(set, in, p.seq, now)
	switch p.rollup {
	case rollupNone:
		return
	case rollupSubject:
		_, _ = s.log.Purge(exactly(in.subject), p.seq, 0, nil) // as a rollup that finds no room: with the next one
	case rollupAll:
		_, _ = s.log.Purge(nil, p.seq, 0, nil)
	}
	s.removed()
}

package stream

import (
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// Deliver implements bus.Sink: the publish path. It takes the stream's lock once for the batch.
func (s *Stream) Deliver(batch []bus.Delivery) <-chan struct{} {
	set := s.settings.Load()
	if set.cfg.AllowMsgCounter {
		s.loadCounts(set, batch)
	}
	s.awaitDedupe(batch)
	ahead := s.lookAhead(set, batch)
	defer ahead.release()
	s.mu.Lock()
	set = s.settings.Load()
	now := s.stamp()
	s.sample.begin(s.head.lastSeq+1, now)
	for i := range batch {
		s.head.ahead = ahead.of(i)
		s.accept(set, &batch[i].Msg, now)
	}
	s.head.ahead = nil
	s.sample.settle(s.head.lastSeq)
	return s.settled(set)
}

// stamp returns the time of the next records: now, but never before the newest.
func (s *Stream) stamp() int64 {
	s.head.lastTime = max(s.head.lastTime, time.Now().UnixNano())
	return s.head.lastTime
}

// accept takes one message: it is stored, or answered, or both.
func (s *Stream) accept(set *settings, m *bus.Msg, now int64) {
	in := &s.head.in
	s.read(set, m, in)
	in.now = now
	if len(in.reply) > 0 && s.answers.full() {
		s.metrics.unanswered.Add(1)
		return
	}
	if s.head.closed {
		s.refuse(set, in, refuse(server.NewJSStreamStoreFailedError(errStopped)))
		return
	}
	if s.head.trimDue && (len(in.header) > 0 || set.cfg.Discard == server.DiscardNew) {
		s.trim(set) // the checks are to see the stream as the message before left it
	}
	s.dedupe.expire(now)
	switch {
	case jsapi.IsFastBatch(in.reply):
		s.acceptFast(set, in, now)
		return
	case len(in.named.BatchID) > 0:
		in.subject = m.Target() // the mapping is that of the commit
		s.acceptAtomic(set, in, now)
		return
	}
	v := set.admit(&s.head.position, s, in)
	switch v.kind {
	case verdictStore:
		s.store(set, in, v.rollup, now)
	case verdictSkip:
		s.skip(set, in, v.rollup, now)
	case verdictDuplicate:
		s.metrics.duplicates.Add(1)
		s.reply(set, in, answer{kind: answerDuplicate, wait: v.seq, seq: v.seq})
	case verdictRefuse:
		s.refuse(set, in, v)
	}
}

// read fills in from m: the subject mapped, the header as it is stored and parsed.
func (s *Stream) read(set *settings, m *bus.Msg, in *incoming) {
	in.subject, in.reply, in.header, in.data = m.Target(), m.Reply, m.Header, m.Data
	in.changed, in.scheduled, in.count, in.seq, in.by = false, false, nil, 0, nil
	in.subject = set.mapped(in.subject)
	if len(in.header) > 0 {
		in.header = jsapi.StoredHeader(nil, in.header)
		in.named.Parse(in.header)
		s.head.parsed = true
	} else if s.head.parsed {
		in.named = jsapi.PublishHeaders{}
		s.head.parsed = false
	}
}

// store appends a message that was admitted.
func (s *Stream) store(set *settings, in *incoming, rollup rollupKind, now int64) {
	size := set.size(in)
	if err := s.reserve(size); err != nil {
		s.refuse(set, in, refuse(err))
		return
	}
	ttl, v := set.fit(s, in)
	if !v.accepted() {
		s.release(size)
		s.refuse(set, in, v)
		return
	}
	ttl = s.atLeastMarkerTTL(set, in, ttl)
	var before uint64
	if set.republish != nil {
		before = s.key(in.subject).Last
	}
	atOnce := set.rollsUpAtOnce(in, rollup)
	if err := s.append(in, atOnce, now); err != nil {
		s.release(size)
		s.refuseFailed(set, in, err)
		return
	}
	p := placed{seq: s.head.lastSeq, size: size, before: before, ttl: ttl, rollup: rollup}
	s.place(set, in, &p, now)
	if atOnce == rollupNone {
		s.rollUp(rollup, in.subject, 1)
	}
	s.follow(set, in, &p, now)
	if in.count != nil {
		s.replyCount(set, in, p.seq)
		return
	}
	s.reply(set, in, answer{kind: answerAck, wait: p.seq, seq: p.seq})
}

// placed is where a message was stored and what comes of it.
type placed struct {
	seq, size uint64
	before    uint64 // the last sequence of the subject before; only where the stream republishes
	ttl       int64  // as settings.fit returns it
	rollup    rollupKind
}

// place takes note of a message that was just appended, and applies the limits.
func (s *Stream) place(set *settings, in *incoming, p *placed, now int64) {
	s.metrics.stored.Add(1)
	if s.inflight.on {
		s.inflight.note(p.seq, p.size, in.subject, s.log.Visible())
	}
	s.remember(in, p.seq, now)
	s.expireAt(set, p.seq, p.ttl, now)
	s.trimSubject(set, in.subject)
	s.head.trimDue = s.head.trimDue || set.evicts()
	if p.rollup != rollupNone {
		s.removed()
	}
	if p.rollup != rollupNone || (set.maxPer > 0 && set.maxBytes > 0) {
		s.trim(set)
	}
}

// follow does what a stored message brings about.
func (s *Stream) follow(set *settings, in *incoming, p *placed, now int64) {
	if set.cfg.AllowMsgSchedules {
		s.noteEnd(in, p.seq)
		s.followSchedules(in, p.seq)
	}
	if set.republish != nil {
		s.sendOn(set, in, p.seq, p.before, now)
	}
	if in.count != nil {
		s.counters.keep(in.subject, p.seq, in.count, s.log.Visible())
	}
}

// skip gives a message that no consumer of an interest stream wants its sequence, and lets it go.
func (s *Stream) skip(set *settings, in *incoming, rollup rollupKind, now int64) {
	if err := s.append(in, rollupNone, now); err != nil {
		s.refuseFailed(set, in, err)
		return
	}
	seq := s.head.lastSeq
	s.remove(seq)
	s.passOver(set, in, seq, now)
	s.rollUp(rollup, in.subject, 0)
	s.reply(set, in, answer{kind: answerAck, wait: seq, seq: seq})
}

// passOver takes note of a message that has a sequence but is not kept.
func (s *Stream) passOver(set *settings, in *incoming, seq uint64, now int64) {
	s.metrics.skipped.Add(1)
	s.remember(in, seq, now)
	if set.cfg.AllowMsgSchedules {
		in.scheduled = false // it is gone
		s.followSchedules(in, seq)
	}
}

// append gives in the next sequence, unless it has one, and hands it to the log, in one group with what its rollup
// removes.
func (s *Stream) append(in *incoming, rollup rollupKind, now int64) error {
	seq := s.head.lastSeq + 1
	if in.seq > 0 {
		seq = in.seq
	}
	s.head.record = storage.Record{Seq: seq, Time: now, Key: in.subject, Header: in.header, Data: in.data}
	var err error
	switch {
	case in.by != nil:
		err = s.positions.appendMoving(s.log, &s.head.record, in.by)
	case rollup != rollupNone:
		var group storage.Batch
		group.Append(s.log, &s.head.record)
		s.addRollup(&group, rollup, in.subject)
		err = group.Commit(nil)
	default:
		err = s.log.Append(&s.head.record, nil)
	}
	if err == nil {
		s.head.lastSeq = seq
	}
	return err
}

// remember makes in the last message, and its id a duplicate from now on.
func (s *Stream) remember(in *incoming, seq uint64, now int64) {
	id := in.named.MsgID
	s.head.lastMsgID = append(s.head.lastMsgID[:0], id...)
	if len(id) > 0 {
		s.dedupe.remember(id, seq, now)
		s.dedupeDue(now)
	}
}

// reserve asks the account for room.
func (s *Stream) reserve(size uint64) *server.ApiError {
	if s.o.Reserve == nil {
		return nil
	}
	err := s.o.Reserve(int64(size)) //nolint:gosec // a message
	if err == nil {
		s.head.reserved += size
		return nil
	}
	if api, ok := errors.AsType[*server.ApiError](err); ok {
		return api
	}
	return server.NewJSAccountResourcesExceededError()
}

// release gives room back to the account.
func (s *Stream) release(size uint64) {
	if s.o.Release == nil || size == 0 {
		return
	}
	size = min(size, s.head.reserved)
	s.head.reserved -= size
	s.o.Release(int64(size)) //nolint:gosec // bytes on disk
}

// removed is called after every change of the log that removes what consumers may still have outstanding.
func (s *Stream) removed() {
	s.audience.trimmed.Store(true)
	s.giveBack()
}

// giveBack returns to the account what deletions freed.
func (s *Stream) giveBack() {
	if s.o.Release == nil {
		return
	}
	if now := s.log.State().Bytes; now < s.head.reserved {
		s.release(s.head.reserved - now)
	}
}

// reply queues an answer, if one is wanted.
func (s *Stream) reply(set *settings, in *incoming, a answer) {
	if len(in.reply) == 0 || set.cfg.NoAck {
		return
	}
	s.answers.push(a, in.reply, nil, nil)
}

// refuse counts a refusal and queues its answer.
func (s *Stream) refuse(set *settings, in *incoming, v verdict) {
	s.metrics.refuse(v.err.ErrCode)
	s.head.refusal = v.err
	s.reply(set, in, v.answer(s.head.lastSeq))
}

// answer is what tells of a refusal; lastSeq is the stream's.
func (v *verdict) answer(lastSeq uint64) answer {
	a := answer{kind: answerError, err: v.err}
	if v.atHead {
		a.wait = lastSeq
	}
	return a
}

// refuseFailed answers a message that the log did not take.
func (s *Stream) refuseFailed(set *settings, in *incoming, err error) {
	if !errors.Is(err, storage.ErrFull) {
		s.refuse(set, in, refuse(server.NewJSStreamStoreFailedError(err)))
		return
	}
	busy := server.NewJSStreamTooManyRequestsError()
	s.head.refusal = busy
	s.metrics.refuse(busy.ErrCode)
	s.reply(set, in, answer{kind: answerBusy, err: busy})
}

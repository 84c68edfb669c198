package stream

import (
	"errors"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/storage"
)

// staged is the facts with what the messages of a batch before this one will change.
type staged struct {
	facts
	messages, bytes uint64
	ids             map[string]bool
	counts          map[string]*count
	subjects        map[string]stagedSubject
}

// stagedSubject is what a batch adds to one subject.
type stagedSubject struct {
	messages uint64
	schedule bool // the last is a schedule
}

func newStaged(f facts) *staged {
	return &staged{facts: f, ids: map[string]bool{}, counts: map[string]*count{}, subjects: map[string]stagedSubject{}}
}

// alone is the staged of a message before which nothing is.
func alone(f facts) *staged { return &staged{facts: f} }

// key implements facts.
func (d *staged) key(subject []byte) storage.KeyState {
	k := d.facts.key(subject)
	k.Count += d.subjects[string(subject)].messages
	return k
}

// counter implements facts.
func (d *staged) counter(subject []byte) (*count, *server.ApiError) {
	if c := d.counts[string(subject)]; c != nil {
		return c, nil
	}
	return d.facts.counter(subject)
}

// lastIsSchedule implements facts.
func (d *staged) lastIsSchedule(subject []byte) bool {
	if s, ok := d.subjects[string(subject)]; ok {
		return s.schedule
	}
	return d.facts.lastIsSchedule(subject)
}

// add notes a message that was checked.
func (d *staged) add(c *settings, in *incoming) {
	d.messages++
	d.bytes += c.size(in)
	s := d.subjects[string(in.subject)]
	s.messages, s.schedule = s.messages+1, in.scheduled
	d.subjects[string(in.subject)] = s
	if in.count != nil {
		d.counts[string(in.subject)] = in.count
	}
	if len(in.named.MsgID) > 0 {
		d.ids[string(in.named.MsgID)] = true
	}
}

// admitBatched is admit for a message of a batch, in the order of checks nats-server has for them; lastSeq is the
// sequence before it. The limits of discard new are among the checks: a batch does not replace messages.
func (c *settings) admitBatched(lastSeq uint64, d *staged, in *incoming) verdict {
	if err := c.checkBatchedForm(in); err != nil {
		return refuse(err)
	}
	if v := d.checkID(in); !v.accepted() {
		return v
	}
	if len(in.named.StreamSource) > 0 {
		return refuse(server.NewJSMessageSourceHdrNotAllowedError())
	}
	if c.cfg.AllowMsgCounter {
		if v := c.countUp(d, in); !v.accepted() {
			return v
		}
		if err := c.checkSize(in); err != nil {
			return refuse(err)
		}
	}
	if v := checkExpectedBatched(lastSeq, d, in); !v.accepted() {
		return v
	}
	if err := c.checkSchedules(d, in); err != nil {
		return refuse(err)
	}
	rollup := c.checkRollupBatched(d, in)
	if rollup.err != nil {
		return rollup
	}
	if err := c.checkFullBatched(d, in); err != nil {
		return refuseAtHead(server.NewJSStreamStoreFailedError(err))
	}
	v := verdict{kind: verdictStore, rollup: rollup.rollup}
	if c.unwanted(d, in) {
		v.kind = verdictSkip
	}
	return v
}

// checkBatchedForm checks what needs no state.
func (c *settings) checkBatchedForm(in *incoming) *server.ApiError {
	if c.cfg.Storage == server.FileStorage && c.size(in) > maxRecordBytes {
		return server.NewJSStreamStoreFailedError(server.ErrMsgTooLarge)
	}
	if len(in.header) > maxHeaderBytes {
		return server.NewJSStreamHeaderExceedsMaximumError()
	}
	if err := c.checkIncrement(in); err != nil {
		return err
	}
	h := &in.named
	if len(h.ExpectedStream) > 0 && string(h.ExpectedStream) != c.cfg.Name {
		return server.NewJSStreamNotMatchError()
	}
	ttl, err := parseTTL(h.TTL)
	switch {
	case err == nil && ttl == 0:
	case !c.cfg.AllowMsgTTL:
		return server.NewJSMessageTTLDisabledError()
	case err != nil:
		return server.NewJSMessageTTLInvalidError()
	}
	return nil
}

// checkID looks for the message's id in the batch and in the dedup window.
func (d *staged) checkID(in *incoming) verdict {
	id := in.named.MsgID
	if len(id) == 0 {
		return verdict{}
	}
	if d.ids[string(id)] {
		return refuse(server.NewJSAtomicPublishContainsDuplicateMessageError())
	}
	if seq := d.duplicateOf(id); seq > 0 {
		return verdict{kind: verdictDuplicate, seq: seq, err: server.NewJSAtomicPublishContainsDuplicateMessageError()}
	}
	return verdict{}
}

// checkExpectedBatched is checkExpectedSeq inside a batch: what a message before it in the batch changes cannot be
// expected.
func checkExpectedBatched(lastSeq uint64, d *staged, in *incoming) verdict {
	h := &in.named
	if len(h.ExpectedLastSeq) > 0 {
		switch {
		case parseSeq(h.ExpectedLastSeq) != lastSeq:
			return refuseAtHead(server.NewJSStreamWrongLastSequenceError(lastSeq))
		case d.messages > 0:
			return refuse(server.NewJSStreamWrongLastSequenceConstantError())
		}
	}
	if len(h.ExpectedSubjectSeq) == 0 {
		if len(h.ExpectedSubjectSeqSubj) > 0 {
			return refuse(server.NewJSStreamExpectedLastSeqPerSubjectInvalidError())
		}
		return verdict{}
	}
	subject := in.subject
	if len(h.ExpectedSubjectSeqSubj) > 0 {
		subject = h.ExpectedSubjectSeqSubj
	}
	if _, ok := d.subjects[string(subject)]; ok {
		return refuse(server.NewJSStreamWrongLastSequenceConstantError())
	}
	last, known := lastOf(d, subject)
	switch {
	case !known:
		return refuse(server.NewJSStreamExpectedLastSeqPerSubjectNotReadyError())
	case last != parseSeq(h.ExpectedSubjectSeq):
		return refuseAtHead(server.NewJSStreamWrongLastSequenceError(last))
	}
	return verdict{}
}

// checkRollupBatched is checkRollup inside a batch: a rollup must not remove messages of its own batch.
func (c *settings) checkRollupBatched(d *staged, in *incoming) verdict {
	v := c.checkRollup(in.named.Rollup)
	if v.err != nil {
		return v
	}
	_, again := d.subjects[string(in.subject)]
	switch {
	case v.rollup == rollupSubject && again:
		return refuse(server.NewJSStreamRollupFailedError(errors.New("batch rollup sub invalid")))
	case v.rollup == rollupAll && d.messages > 0:
		return refuse(server.NewJSStreamRollupFailedError(errors.New("batch rollup all invalid")))
	}
	return v
}

// checkFullBatched is the policy discard new.
func (c *settings) checkFullBatched(d *staged, in *incoming) error {
	if c.cfg.Discard != server.DiscardNew {
		return nil
	}
	messages, size := d.totals()
	switch {
	case c.maxMsgs > 0 && messages+d.messages+1 > c.maxMsgs:
		return server.ErrMaxMsgs
	case c.maxBytes > 0 && size+d.bytes+c.size(in) > c.maxBytes:
		return server.ErrMaxBytes
	case c.cfg.DiscardNewPer && c.maxPer > 0 && len(in.named.Rollup) == 0 && d.key(in.subject).Count+1 > c.maxPer:
		return server.ErrMaxMsgsPerSubject
	}
	return nil
}

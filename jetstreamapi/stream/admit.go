package stream

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

const (
	maxHeaderBytes = math.MaxUint16
	maxRecordBytes = 32 << 20 // the largest record a file stream takes
)

// incoming is one message as admission sees it. Its slices are borrowed.
type incoming struct {
	subject []byte
	reply   []byte
	header  []byte // as it will be stored
	data    []byte
	named   jsapi.PublishHeaders // zero when header is empty
	now     int64                // Unix nanoseconds
	seq     uint64               // of a mirrored message; 0: the next there is
	by      *step                // of a sourced message; nil: it is none

	// What admission adds.
	changed   bool // the header or data are not as they came
	scheduled bool // it is a schedule, which fires first at due (Unix nanoseconds)
	due       int64
	count     *count // of a counter, with this message; nil: it is none
}

// position is the part of a stream's state that changes with every message.
type position struct {
	lastSeq   uint64
	lastMsgID []byte // Nats-Msg-Id of the last message, empty if it had none
}

// facts is what admission asks the stream's indexes. All answers are for the head of the log.
type facts interface {
	// duplicateOf returns the sequence of the message that had this id inside the window, or 0.
	duplicateOf(id []byte) uint64
	// key returns the totals of one subject.
	key(subject []byte) storage.KeyState
	// lastMatching returns the last sequence of a filter with wildcards, or 0; known is false while it cannot be told.
	lastMatching(filter []byte) (seq uint64, known bool)
	// wanted reports whether any consumer's filters match subject.
	wanted(subject []byte) bool
	// totals returns the live messages and their bytes.
	totals() (messages, size uint64)
	// counter returns what the counter of subject has; nil if there is none yet.
	counter(subject []byte) (*count, *server.ApiError)
	// zone returns a time zone by its name.
	zone(name []byte) (*time.Location, error)
	// lastIsSchedule reports whether the last message of subject, which has some, is a schedule.
	lastIsSchedule(subject []byte) bool
	// sizeAt returns the size of a live message, or 0 if it cannot be told.
	sizeAt(seq uint64) uint64
}

// verdict is what admission decides.
type verdict struct {
	kind   verdictKind
	rollup rollupKind
	// atHead: the refusal speaks of the head, so it waits until the head is durable.
	atHead bool
	seq    uint64           // verdictDuplicate: of the first message
	err    *server.ApiError // verdictRefuse
}

type verdictKind uint8

const (
	verdictStore     verdictKind = iota + 1
	verdictSkip                  // takes a sequence and is acknowledged, but nobody wants it: not kept
	verdictDuplicate             // stored before
	verdictRefuse
)

type rollupKind uint8

const (
	rollupNone rollupKind = iota
	rollupSubject
	rollupAll
)

func refuse(err *server.ApiError) verdict { return verdict{kind: verdictRefuse, err: err} }

func refuseAtHead(err *server.ApiError) verdict {
	return verdict{kind: verdictRefuse, err: err, atHead: true}
}

// accepted is the verdict of a check that found nothing: its kind is not set.
func (v verdict) accepted() bool { return v.kind == 0 }

// admit decides about a message, in nats-server's order of checks. It is a pure function of the settings, the position,
// the facts and the message, which it completes: an increment gets its data, a schedule its rollup. What it accepts
// must still [settings.fit].
func (c *settings) admit(at *position, f facts, in *incoming) verdict {
	if err := c.checkForm(in); err != nil {
		return refuse(err)
	}
	rollup := rollupNone
	if len(in.header) > 0 {
		v := c.admitHeaders(at, f, in)
		if !v.accepted() {
			return v
		}
		rollup = v.rollup
	}
	if c.cfg.AllowMsgCounter {
		if v := c.countUp(f, in); !v.accepted() {
			return v
		}
	}
	if in.changed {
		if err := c.checkSize(in); err != nil {
			return refuse(err)
		}
	}
	if c.unwanted(f, in) {
		return verdict{kind: verdictSkip, rollup: rollup}
	}
	return verdict{kind: verdictStore, rollup: rollup}
}

// unwanted reports whether an interest stream lets a message go because no consumer wants it.
func (c *settings) unwanted(f facts, in *incoming) bool {
	return c.cfg.Retention == server.InterestPolicy && !f.wanted(in.subject)
}

// checkForm checks what needs no state: sizes, seal, and that the kind of publish is served.
func (c *settings) checkForm(in *incoming) *server.ApiError {
	if c.cfg.Storage == server.FileStorage && c.size(in) > maxRecordBytes {
		return server.NewJSStreamStoreFailedError(server.ErrMsgTooLarge)
	}
	if c.cfg.Sealed {
		return server.NewJSStreamSealedError()
	}
	if c.tooLarge(in) {
		return server.NewJSStreamMessageExceedsMaximumError()
	}
	if len(in.header) > maxHeaderBytes {
		return server.NewJSStreamHeaderExceedsMaximumError()
	}
	return nil
}

// checkSize checks once more what admission has changed.
func (c *settings) checkSize(in *incoming) *server.ApiError {
	if c.tooLarge(in) {
		return server.NewJSStreamMessageExceedsMaximumError()
	}
	if len(in.header) > maxHeaderBytes {
		return server.NewJSStreamHeaderExceedsMaximumError()
	}
	return nil
}

func (c *settings) tooLarge(in *incoming) bool {
	most := int(c.cfg.MaxMsgSize)
	return most >= 0 && len(in.header)+len(in.data) > most
}

func (c *settings) admitHeaders(at *position, f facts, in *incoming) verdict {
	h := &in.named
	if err := c.checkIncrement(in); err != nil {
		return refuse(err)
	}
	if len(h.ExpectedStream) > 0 && string(h.ExpectedStream) != c.cfg.Name {
		return refuse(server.NewJSStreamNotMatchError())
	}
	if ttl, err := parseTTL(h.TTL); err == nil && ttl != 0 && !c.cfg.AllowMsgTTL {
		return refuse(server.NewJSMessageTTLDisabledError())
	}
	if v := checkExpectedSeq(at, f, in); !v.accepted() {
		return v
	}
	if err := c.checkSchedules(f, in); err != nil {
		return refuse(err)
	}
	if len(h.StreamSource) > 0 {
		return refuse(server.NewJSMessageSourceHdrNotAllowedError())
	}
	if len(h.MsgID) > 0 {
		if seq := f.duplicateOf(h.MsgID); seq > 0 {
			return verdict{kind: verdictDuplicate, seq: seq}
		}
	}
	if len(h.ExpectedLastMsgID) > 0 && !bytes.Equal(h.ExpectedLastMsgID, at.lastMsgID) {
		return refuseAtHead(server.NewJSStreamWrongLastMsgIDError(string(at.lastMsgID)))
	}
	return c.checkRollup(h.Rollup)
}

func checkExpectedSeq(at *position, f facts, in *incoming) verdict {
	h := &in.named
	if len(h.ExpectedSubjectSeq) > 0 {
		subject := in.subject
		if len(h.ExpectedSubjectSeqSubj) > 0 {
			subject = h.ExpectedSubjectSeqSubj
		}
		last, known := lastOf(f, subject)
		if !known {
			return refuse(server.NewJSStreamExpectedLastSeqPerSubjectNotReadyError())
		}
		if last != parseSeq(h.ExpectedSubjectSeq) {
			return refuseAtHead(server.NewJSStreamWrongLastSequenceError(last))
		}
	} else if len(h.ExpectedSubjectSeqSubj) > 0 {
		return refuse(server.NewJSStreamExpectedLastSeqPerSubjectInvalidError())
	}
	if len(h.ExpectedLastSeq) > 0 && parseSeq(h.ExpectedLastSeq) != at.lastSeq {
		return refuseAtHead(server.NewJSStreamWrongLastSequenceError(at.lastSeq))
	}
	return verdict{}
}

func lastOf(f facts, subject []byte) (seq uint64, known bool) {
	if subjects.HasWildcard(subject) {
		return f.lastMatching(subject)
	}
	return f.key(subject).Last, true
}

func (c *settings) checkRollup(value []byte) verdict {
	if len(value) == 0 {
		return verdict{}
	}
	if !c.cfg.AllowRollup || c.cfg.DenyPurge {
		return refuse(server.NewJSStreamRollupFailedError(errors.New("rollup not permitted")))
	}
	lower := bytes.ToLower(value)
	switch string(lower) {
	case jsapi.RollupSubject:
		return verdict{rollup: rollupSubject}
	case jsapi.RollupAll:
		return verdict{rollup: rollupAll}
	}
	return refuse(server.NewJSStreamRollupFailedError(fmt.Errorf("rollup value invalid: %q", lower)))
}

// fit is the last check of a message that is to be stored: its TTL (in seconds; 0: none, -1: never expires) and, where
// the policy is discard new, that it fits under the limits.
func (c *settings) fit(f facts, in *incoming) (ttl int64, v verdict) {
	if len(in.named.TTL) > 0 {
		var err error
		if ttl, err = parseTTL(in.named.TTL); err != nil {
			return 0, refuse(server.NewJSMessageTTLInvalidError())
		}
	}
	if c.cfg.Discard == server.DiscardNew {
		if err := c.checkFull(f, in); err != nil {
			return 0, refuseAtHead(server.NewJSStreamStoreFailedError(err))
		}
	}
	return ttl, verdict{}
}

// checkFull is the policy discard new: a full stream refuses, unless the message replaces the oldest of its subject.
func (c *settings) checkFull(f facts, in *incoming) error {
	replaces := false
	var key storage.KeyState
	if c.cfg.MaxMsgsPer > 0 {
		key = f.key(in.subject)
		replaces = key.Count >= c.maxPer
		if replaces && c.cfg.DiscardNewPer && len(in.named.Rollup) == 0 {
			return server.ErrMaxMsgsPerSubject
		}
	}
	if c.maxMsgs == 0 && c.maxBytes == 0 {
		return nil
	}
	messages, size := f.totals()
	if c.maxMsgs > 0 && messages >= c.maxMsgs && !replaces {
		return server.ErrMaxMsgs
	}
	if own := c.size(in); c.maxBytes > 0 && size+own > c.maxBytes {
		if !replaces || f.sizeAt(key.First) < own {
			return server.ErrMaxBytes
		}
	}
	return nil
}

// parseSeq parses a decimal sequence. What is none becomes the largest number, which no sequence is equal to.
func parseSeq(b []byte) uint64 {
	n, ok := parseDecimal(b)
	if !ok {
		return math.MaxUint64
	}
	return n
}

func parseDecimal(b []byte) (n uint64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' || n > (math.MaxInt64-9)/10 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, len(b) > 0
}

var errTTL = errors.New("invalid per-message TTL")

// parseTTL parses a Nats-TTL: whole seconds, a Go duration of at least a second, or "never" (-1). Empty is 0.
func parseTTL(b []byte) (seconds int64, err error) {
	switch {
	case len(b) == 0:
		return 0, nil
	case bytes.EqualFold(b, []byte("never")):
		return -1, nil
	}
	if d, err := time.ParseDuration(string(b)); err == nil {
		if d < time.Second {
			return 0, errTTL
		}
		return int64(d / time.Second), nil
	}
	n, ok := parseDecimal(b)
	if !ok {
		return 0, errTTL
	}
	return int64(n), nil //nolint:gosec // parseDecimal stays below 1<<63
}

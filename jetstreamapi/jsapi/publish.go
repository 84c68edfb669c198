package jsapi

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
)

// Headers that a publisher may set on a message for a stream.
const (
	HeaderMsgID                  = "Nats-Msg-Id"
	HeaderExpectedStream         = "Nats-Expected-Stream"
	HeaderExpectedLastSeq        = "Nats-Expected-Last-Sequence"
	HeaderExpectedSubjectSeq     = "Nats-Expected-Last-Subject-Sequence"
	HeaderExpectedSubjectSeqSubj = "Nats-Expected-Last-Subject-Sequence-Subject"
	HeaderExpectedLastMsgID      = "Nats-Expected-Last-Msg-Id"
	HeaderRollup                 = "Nats-Rollup"
	HeaderTTL                    = "Nats-TTL"
	HeaderMarkerReason           = "Nats-Marker-Reason"
	HeaderIncr                   = "Nats-Incr"
	HeaderCounterSources         = "Nats-Counter-Sources"
	HeaderBatchID                = "Nats-Batch-Id"
	HeaderBatchSeq               = "Nats-Batch-Sequence"
	HeaderBatchCommit            = "Nats-Batch-Commit"
	HeaderSchedule               = "Nats-Schedule"
	HeaderScheduleTimeZone       = "Nats-Schedule-Time-Zone"
	HeaderScheduleTTL            = "Nats-Schedule-TTL"
	HeaderScheduleRollup         = "Nats-Schedule-Rollup"
	HeaderScheduleTarget         = "Nats-Schedule-Target"
	HeaderScheduleSource         = "Nats-Schedule-Source"
	HeaderScheduler              = "Nats-Scheduler"
	HeaderScheduleNext           = "Nats-Schedule-Next"
	HeaderStreamSource           = "Nats-Stream-Source"
	HeaderRequestInfo            = "Nats-Request-Info"
	HeaderKVOperation            = "KV-Operation"
)

// Values of [HeaderRollup]. They are compared without regard to case.
const (
	RollupSubject = "sub"
	RollupAll     = "all"
)

// FastBatchSuffix ends the reply subject of a fast-ingest publish.
const FastBatchSuffix = ".$FI"

// TooManyRequests is the header of an answer to a message that did not fit into the stream's queue.
const TooManyRequests = "NATS/1.0 429 Too Many Requests\r\n\r\n"

const (
	versionLine = "NATS/1.0"
	emptyHeader = versionLine + "\r\n\r\n"
	crlf        = "\r\n"
)

// PublishHeaders are the values of the headers a stream acts on; nil or empty where they are absent. They borrow the
// block they were parsed from.
type PublishHeaders struct {
	MsgID                  []byte
	ExpectedStream         []byte
	ExpectedLastSeq        []byte
	ExpectedSubjectSeq     []byte
	ExpectedSubjectSeqSubj []byte
	ExpectedLastMsgID      []byte
	Rollup                 []byte
	TTL                    []byte
	MarkerReason           []byte
	Incr                   []byte
	BatchID                []byte
	BatchSeq               []byte
	BatchCommit            []byte // nil: absent
	RequiredAPILevel       []byte
	Schedule               []byte
	ScheduleTimeZone       []byte
	ScheduleTTL            []byte
	ScheduleRollup         []byte
	ScheduleTarget         []byte
	ScheduleSource         []byte
	Scheduler              []byte
	ScheduleNext           []byte
	StreamSource           []byte
	KVOperation            []byte
}

// Parse fills h from a header block. The first of several headers of the same name counts; names are compared exactly.
func (h *PublishHeaders) Parse(block []byte) {
	*h = PublishHeaders{}
	rest := afterLine(block) // the version line
	for len(rest) > 0 {
		line := rest
		rest = nil
		if end := bytes.Index(line, []byte(crlf)); end >= 0 {
			line, rest = line[:end], line[end+len(crlf):]
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			continue
		}
		field := h.field(line[:colon])
		if field != nil && *field == nil {
			*field = trimSpacesLeft(line[colon+1:])
		}
	}
}

// field returns where the value of the header called name belongs, or nil.
func (h *PublishHeaders) field(name []byte) *[]byte {
	switch string(name) {
	case HeaderMsgID:
		return &h.MsgID
	case HeaderExpectedStream:
		return &h.ExpectedStream
	case HeaderExpectedLastSeq:
		return &h.ExpectedLastSeq
	case HeaderExpectedSubjectSeq:
		return &h.ExpectedSubjectSeq
	case HeaderExpectedSubjectSeqSubj:
		return &h.ExpectedSubjectSeqSubj
	case HeaderExpectedLastMsgID:
		return &h.ExpectedLastMsgID
	case HeaderRollup:
		return &h.Rollup
	case HeaderTTL:
		return &h.TTL
	case HeaderMarkerReason:
		return &h.MarkerReason
	case HeaderIncr:
		return &h.Incr
	case HeaderBatchID:
		return &h.BatchID
	case HeaderBatchSeq:
		return &h.BatchSeq
	case HeaderBatchCommit:
		return &h.BatchCommit
	case server.JSRequiredApiLevel:
		return &h.RequiredAPILevel
	case HeaderSchedule:
		return &h.Schedule
	case HeaderScheduleTimeZone:
		return &h.ScheduleTimeZone
	case HeaderScheduleTTL:
		return &h.ScheduleTTL
	case HeaderScheduleRollup:
		return &h.ScheduleRollup
	case HeaderScheduleTarget:
		return &h.ScheduleTarget
	case HeaderScheduleSource:
		return &h.ScheduleSource
	case HeaderScheduler:
		return &h.Scheduler
	case HeaderScheduleNext:
		return &h.ScheduleNext
	case HeaderStreamSource:
		return &h.StreamSource
	case HeaderKVOperation:
		return &h.KVOperation
	}
	return nil
}

// StoredHeader returns the header block as a stream keeps it: without a status in its first line and without the
// request info of an account import. It returns block itself when there is nothing to take out, else a copy in dst[:0].
// The result is empty when no header remains.
func StoredHeader(dst, block []byte) []byte {
	dst = dst[:0]
	status := bytes.HasPrefix(block, []byte(versionLine)) && bytes.IndexByte(block, '\r') > len(versionLine)
	info := HasHeader(block, HeaderRequestInfo)
	if !status && !info {
		return block
	}
	if status {
		dst = append(dst, versionLine...)
		dst = append(dst, block[bytes.IndexByte(block, '\r'):]...)
	} else {
		dst = append(dst, block...)
	}
	if info {
		dst = removeHeader(dst, HeaderRequestInfo)
	}
	if len(dst) <= len(emptyHeader) {
		return nil
	}
	return dst
}

// HasHeader reports whether block has a header called name.
func HasHeader(block []byte, name string) bool {
	start, _ := findHeader(block, name)
	return start >= 0
}

// SetHeader returns a copy of block (which may be empty) in which name has value and no other.
func SetHeader(block []byte, name, value string) []byte {
	out := make([]byte, 0, len(block)+len(name)+len(value)+len(emptyHeader)+4)
	if len(block) == 0 {
		out = append(out, emptyHeader...)
	} else {
		out = removeHeader(append(out, block...), name)
	}
	return appendHeader(out, name, value)
}

// ReplaceHeader is SetHeader, but that a header which is there keeps its place.
func ReplaceHeader(block []byte, name, value string) []byte {
	start, end := findHeader(block, name)
	if start < 0 {
		return SetHeader(block, name, value)
	}
	out := make([]byte, 0, len(block)+len(value))
	out = append(append(out, block[:start+len(name)]...), ": "...)
	return append(append(out, value...), block[end:]...)
}

// AddHeader returns a copy of block (which may be empty) with one more header.
func AddHeader(block []byte, name, value string) []byte {
	if len(block) == 0 {
		return SetHeader(nil, name, value)
	}
	out := make([]byte, 0, len(block)+len(name)+len(value)+4)
	return appendHeader(append(out, block...), name, value)
}

// appendHeader puts a header at the end of block.
func appendHeader(block []byte, name, value string) []byte {
	block = block[:len(block)-len(crlf)]
	block = append(block, name...)
	block = append(block, ": "...)
	block = append(block, value...)
	return append(block, crlf+crlf...)
}

// WithoutHeaders returns a copy of block without the lines whose name drop tells; empty when no header remains.
func WithoutHeaders(block []byte, drop func(name []byte) bool) []byte {
	out := make([]byte, 0, len(block))
	for line := range bytes.SplitAfterSeq(block, []byte(crlf)) {
		name, _, isHeader := bytes.Cut(line, []byte(":"))
		if !isHeader || !drop(name) {
			out = append(out, line...)
		}
	}
	if len(out) <= len(emptyHeader) {
		return nil
	}
	return out
}

// removeHeader takes every line called name out of block, in place.
func removeHeader(block []byte, name string) []byte {
	for {
		start, end := findHeader(block, name)
		if start < 0 {
			return block
		}
		if end += len(crlf); end > len(block) {
			end = len(block)
		}
		block = append(block[:start], block[end:]...)
	}
}

// findHeader returns where the line of the first header called name starts and ends (before its CRLF); -1 if it is not
// there.
func findHeader(block []byte, name string) (start, end int) {
	for from := 0; ; {
		i := bytes.Index(block[from:], []byte(name))
		if i < 0 {
			return -1, -1
		}
		start = from + i
		after := start + len(name)
		if start >= 2 && string(block[start-2:start]) == crlf && after < len(block) && block[after] == ':' {
			break
		}
		from = after
	}
	end = len(block)
	if i := bytes.Index(block[start:], []byte(crlf)); i >= 0 {
		end = start + i
	}
	return start, end
}

func afterLine(block []byte) []byte {
	_, after, _ := bytes.Cut(block, []byte(crlf))
	return after
}

func trimSpacesLeft(b []byte) []byte {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	return b
}

// PubAckPrefix returns the part of a stream's PubAcks that is always the same, up to the sequence.
func PubAckPrefix(stream, domain string) []byte {
	out := append([]byte(`{"stream":`), quote(stream)...)
	if domain != "" {
		out = append(append(out, `,"domain":`...), quote(domain)...)
	}
	return append(out, `,"seq":`...)
}

// AppendPubAck appends the PubAck of seq.
func AppendPubAck(dst, prefix []byte, seq uint64) []byte {
	dst = append(dst, prefix...)
	dst = strconv.AppendUint(dst, seq, 10)
	return append(dst, '}')
}

// AppendCounterAck appends the PubAck of an increment: seq, and the counter's new value.
func AppendCounterAck(dst, prefix []byte, seq uint64, value []byte) []byte {
	dst = append(dst, prefix...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, `,"val":"`...)
	dst = append(dst, value...)
	return append(dst, `"}`...)
}

// AppendDuplicateAck appends the PubAck of a message that was stored before, at seq.
func AppendDuplicateAck(dst, prefix []byte, seq uint64) []byte {
	dst = append(dst, prefix...)
	dst = strconv.AppendUint(dst, seq, 10)
	return append(dst, `,"duplicate": true}`...)
}

// AppendPubError appends the answer to a message that was refused.
func AppendPubError(dst []byte, stream string, e *server.ApiError) []byte {
	dst = append(dst, `{"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(e.Code), 10)
	if e.ErrCode != 0 {
		dst = append(dst, `,"err_code":`...)
		dst = strconv.AppendUint(dst, uint64(e.ErrCode), 10)
	}
	if e.Description != "" {
		dst = append(dst, `,"description":`...)
		dst = append(dst, quote(e.Description)...)
	}
	dst = append(dst, `},"stream":`...)
	dst = append(dst, quote(stream)...)
	return append(dst, `,"seq":0}`...)
}

// quote returns s as a JSON string.
func quote(s string) []byte {
	out, err := json.Marshal(s)
	if err != nil { // a string always marshals
		return []byte(`""`)
	}
	return out
}

package jsapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// AckPrefix starts every subject that acknowledges a delivery, FlowControlPrefix every answer to a flow-control
// request.
const (
	AckPrefix         = "$JS.ACK."
	FlowControlPrefix = "$JS.FC."
)

// Numbers of tokens: a v1 subject has exactly nine, a v2 subject eleven or more.
const (
	ackTokensV1 = 9
	ackTokensV2 = 11
)

// AckSubject is what the reply subject of a delivery says. Its slices point into the subject it was parsed from.
//
//	v1: $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
//	v2: $JS.ACK.<domain>.<account hash>.<stream>.<consumer>. and as v1, then any number of further tokens
type AckSubject struct {
	Domain      []byte // v2 only; "_" means none
	AccountHash []byte // v2 only
	Stream      []byte
	Consumer    []byte
	Delivered   uint64 // delivery count
	StreamSeq   uint64
	ConsumerSeq uint64
	Time        int64 // Unix nanoseconds of the message
	Pending     uint64
}

// ParseAckSubject reads an ack subject of either version; false if it is none.
func ParseAckSubject(subject []byte) (AckSubject, bool) {
	rest, ok := bytes.CutPrefix(subject, []byte(AckPrefix))
	if !ok {
		return AckSubject{}, false
	}
	var a AckSubject
	switch n := bytes.Count(subject, []byte{'.'}) + 1; {
	case n == ackTokensV1:
	case n >= ackTokensV2:
		a.Domain, rest = token(rest)
		if a.AccountHash, rest = token(rest); len(a.Domain) == 0 || len(a.AccountHash) == 0 {
			return AckSubject{}, false
		}
	default:
		return AckSubject{}, false
	}
	a.Stream, rest = token(rest)
	a.Consumer, rest = token(rest)
	var ts uint64
	for _, to := range [...]*uint64{&a.Delivered, &a.StreamSeq, &a.ConsumerSeq, &ts, &a.Pending} {
		var t []byte
		t, rest = token(rest)
		if *to, ok = parseUint(t); !ok {
			return AckSubject{}, false
		}
	}
	a.Time = int64(ts) //nolint:gosec // parseUint stops at the largest int64
	return a, len(a.Stream) > 0 && len(a.Consumer) > 0
}

// ParseFlowControlSubject splits an answer to a flow-control request, $JS.FC.<stream>.<consumer>.<token>, or v2 with a
// domain and an account hash before the stream; false if it is none.
func ParseFlowControlSubject(subject []byte) (stream, consumer, tok []byte, ok bool) {
	rest, ok := bytes.CutPrefix(subject, []byte(FlowControlPrefix))
	if !ok {
		return nil, nil, nil, false
	}
	switch bytes.Count(rest, []byte{'.'}) {
	case 2:
	case 4:
		_, rest = token(rest)
		_, rest = token(rest)
	default:
		return nil, nil, nil, false
	}
	stream, rest = token(rest)
	consumer, rest = token(rest)
	return stream, consumer, rest, len(stream) > 0 && len(consumer) > 0 && len(rest) > 0
}

// AppendAckSubject appends the v1 ack subject of a delivery. prefix is what AckSubjectPrefix made. It allocates nothing
// when dst has room.
func AppendAckSubject(dst []byte, prefix string, a *AckSubject) []byte {
	dst = append(dst, prefix...)
	dst = strconv.AppendUint(dst, a.Delivered, 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, a.StreamSeq, 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, a.ConsumerSeq, 10)
	dst = append(dst, '.')
	dst = strconv.AppendInt(dst, a.Time, 10)
	dst = append(dst, '.')
	return strconv.AppendUint(dst, a.Pending, 10)
}

// AckSubjectPrefix returns the part of the v1 ack subjects of a consumer that never changes, with its last dot.
func AckSubjectPrefix(stream, consumer string) string {
	return AckPrefix + stream + "." + consumer + "."
}

// AckSubjectPrefixV2 is AckSubjectPrefix for v2 subjects.
func AckSubjectPrefixV2(domain, accountHash, stream, consumer string) string {
	if domain == "" {
		domain = "_"
	}
	return AckPrefix + domain + "." + accountHash + "." + stream + "." + consumer + "."
}

func token(b []byte) (tok, rest []byte) {
	tok, rest, _ = bytes.Cut(b, []byte{'.'})
	return tok, rest
}

// parseUint reads digits up to the largest int64.
func parseUint(b []byte) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, n <= 1<<63-1
}

// AckKind is what the body of an ack asks for.
type AckKind uint8

// The kinds of acks.
const (
	AckUnknown  AckKind = iota // none of the bodies below
	AckDone                    // empty, +ACK, +OK
	AckNext                    // +NXT: done, and here is a pull request (the argument)
	AckNak                     // -NAK: deliver again, at once or after a delay (the argument)
	AckProgress                // +WPI: still working
	AckTerm                    // +TERM: never deliver again; the argument is the reason
)

// ParseAckBody tells the kind of an ack and its argument (a part of body, without the space around it).
func ParseAckBody(body []byte) (kind AckKind, arg []byte) {
	switch {
	case len(body) == 0, bytes.Equal(body, server.AckAck), bytes.Equal(body, server.AckOK):
		return AckDone, nil
	case bytes.HasPrefix(body, server.AckNext):
		return AckNext, bytes.TrimSpace(body[len(server.AckNext):])
	case bytes.HasPrefix(body, server.AckNak):
		return AckNak, bytes.TrimSpace(body[len(server.AckNak):])
	case bytes.Equal(body, server.AckProgress):
		return AckProgress, nil
	case bytes.HasPrefix(body, server.AckTerm):
		return AckTerm, bytes.TrimSpace(body[len(server.AckTerm):])
	}
	return AckUnknown, nil
}

// ParseNakDelay reads the argument of a NAK: {"delay": nanoseconds} or a Go duration. ok is false when there is no
// delay (no argument); an argument that is neither is an error, and the NAK counts as one without a delay.
func ParseNakDelay(arg []byte) (delay time.Duration, ok bool, err error) {
	if len(arg) == 0 {
		return 0, false, nil
	}
	if arg[0] == '{' {
		var o server.ConsumerNakOptions
		err = json.Unmarshal(arg, &o)
		delay = o.Delay
	} else {
		delay, err = time.ParseDuration(string(arg))
	}
	if err != nil {
		return 0, false, fmt.Errorf("bad NAK delay %q: %w", arg, err)
	}
	return delay, true, nil
}

// PullRequest is the body of a request for the next messages.
type PullRequest struct {
	Batch     int
	MaxBytes  int           // 0: no bound
	Expires   time.Duration // 0: never
	Heartbeat time.Duration // 0: none
	NoWait    bool

	HasGroup      bool // the body was an object: the fields below count, even if they are empty
	Group         string
	MinPending    int64
	MinAckPending int64
	ID            string
	Priority      int
}

var errHeartbeatTooLarge = errors.New("heartbeat value too large")

// ParsePullRequest reads a pull request: nothing (one message), a number, or an object. What is none of them asks for
// one message, as in NATS; an object that is not valid JSON is an error.
func ParsePullRequest(body []byte) (PullRequest, error) {
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return PullRequest{Batch: 1}, nil
	}
	if body[0] != '{' {
		n, err := strconv.Atoi(string(body))
		if err != nil {
			n = 1
		}
		return PullRequest{Batch: n}, nil
	}
	if r, ok := parsePlainPull(body); ok {
		return checkPull(r)
	}
	var r server.JSApiConsumerGetNextRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return PullRequest{}, err
	}
	return checkPull(PullRequest{
		Batch: r.Batch, MaxBytes: r.MaxBytes, Expires: r.Expires, Heartbeat: r.Heartbeat, NoWait: r.NoWait,
		HasGroup: true,
		Group:    r.Group, MinPending: r.MinPending, MinAckPending: r.MinAckPending, ID: r.Id, Priority: r.Priority,
	})
}

func checkPull(r PullRequest) (PullRequest, error) {
	if r.Heartbeat > 0 && (r.Heartbeat > r.Expires || r.Heartbeat*2 > r.Expires) {
		return PullRequest{}, errHeartbeatTooLarge
	}
	return r, nil
}

// parsePlainPull reads what all common clients send, an object with only plain numbers and booleans under known names,
// without the cost of a JSON decoder. false means: not that plain, take the decoder.
func parsePlainPull(b []byte) (r PullRequest, ok bool) {
	r.HasGroup = true
	b = b[1:]
	if len(b) == 1 && b[0] == '}' {
		return r, true
	}
	for {
		var name, value []byte
		if name, value, b, ok = plainField(b); !ok || !r.set(name, value) {
			return PullRequest{}, false
		}
		switch {
		case len(b) == 1 && b[0] == '}':
			return r, true
		case len(b) > 1 && b[0] == ',':
			b = b[1:]
		default:
			return PullRequest{}, false
		}
	}
}

// plainField splits `"name":value` off b; value ends before a comma or brace.
func plainField(b []byte) (name, value, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, nil, false
	}
	b = b[1:]
	end := bytes.IndexByte(b, '"')
	if end < 0 || end+2 > len(b) || b[end+1] != ':' {
		return nil, nil, nil, false
	}
	name, b = b[:end], b[end+2:]
	if end = bytes.IndexAny(b, ",}"); end <= 0 {
		return nil, nil, nil, false
	}
	return name, b[:end], b[end:], true
}

func (r *PullRequest) set(name, value []byte) bool {
	if string(name) == "no_wait" {
		r.NoWait = string(value) == "true"
		return r.NoWait || string(value) == "false"
	}
	n, ok := parseUint(value)
	if !ok || (len(value) > 1 && value[0] == '0') {
		return false
	}
	switch string(name) {
	case "batch":
		r.Batch = int(n) //nolint:gosec // parseUint stops at the largest int64
	case "max_bytes":
		r.MaxBytes = int(n) //nolint:gosec // as above
	case "expires":
		r.Expires = time.Duration(n) //nolint:gosec // as above
	case "idle_heartbeat":
		r.Heartbeat = time.Duration(n) //nolint:gosec // as above
	default:
		return false
	}
	return true
}

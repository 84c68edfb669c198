package feed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"
)

const contentType = "text/event-stream"

// setHeaders sets what keeps everything between here and the client from holding events back.
func setHeaders(h http.Header) {
	h.Set("Content-Type", contentType+"; charset=utf-8")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no") // nginx
	h.Set("X-Content-Type-Options", "nosniff")
}

// format is how a message becomes the data of an event.
type format string

const (
	// formatRaw is the payload itself; one that is no text is an event "binary" with the JSON form.
	formatRaw format = "raw"
	// formatJSON is an object with subject, seq, time, headers and the payload.
	formatJSON format = "json"
)

// envelope is the JSON form of a message. One of Data and Base64 is set.
type envelope struct {
	Subject string              `json:"subject"`
	Seq     uint64              `json:"seq"`
	Time    time.Time           `json:"time"`
	Headers map[string][]string `json:"headers,omitempty"`
	Data    *string             `json:"data,omitempty"`
	Base64  []byte              `json:"data_base64,omitempty"`
}

// appendMessage appends the event of m.
func appendMessage(b []byte, m *Message, f format) []byte {
	b = appendID(b, m.Seq)
	if f == formatJSON {
		return append(appendJSON(b, toEnvelope(m)), '\n')
	}
	if !isText(m.Data) {
		b = append(b, "event: binary\n"...)
		return append(appendJSON(b, toEnvelope(m)), '\n')
	}
	for line := range bytes.SplitSeq(m.Data, []byte{'\n'}) {
		b = append(append(append(b, "data: "...), line...), '\n')
	}
	return append(b, '\n')
}

func appendID(b []byte, seq uint64) []byte {
	return append(strconv.AppendUint(append(b, "id: "...), seq, 10), '\n')
}

// isText reports whether data comes out of an event as it went in: a CR would end a line.
func isText(data []byte) bool { return utf8.Valid(data) && bytes.IndexByte(data, '\r') < 0 }

func toEnvelope(m *Message) *envelope {
	e := &envelope{Subject: string(m.Subject), Seq: m.Seq, Time: m.Time.UTC(), Headers: headers(m.Header)}
	if utf8.Valid(m.Data) {
		text := string(m.Data)
		e.Data = &text
	} else {
		e.Base64 = m.Data
	}
	return e
}

// headers reads a NATS/1.0 header block.
func headers(block []byte) map[string][]string {
	var out map[string][]string
	_, lines, _ := bytes.Cut(block, []byte("\r\n")) // the version
	for line := range bytes.SplitSeq(lines, []byte("\r\n")) {
		if key, value, ok := bytes.Cut(line, []byte{':'}); ok {
			if out == nil {
				out = map[string][]string{}
			}
			out[string(key)] = append(out[string(key)], string(bytes.TrimSpace(value)))
		}
	}
	return out
}

// appendJSON appends v, which marshals, as the data of an event.
func appendJSON(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("feed: %v", err)) // all that comes here are structs of ours
	}
	return append(append(append(b, "data: "...), text...), '\n')
}

// gap says which sequences are not sent because they are not in the stream any more.
type gap struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	Text string `json:"reason"`
}

const gapText = "removed from the stream before it was sent"

func appendGap(b []byte, from, to uint64) []byte {
	b = append(appendID(b, to), "event: gap\n"...)
	return append(appendJSON(b, gap{from, to, gapText}), '\n')
}

// reset says that the stream ends before what the client has seen.
type reset struct {
	LastEventID uint64 `json:"last_event_id"`
	LastSeq     uint64 `json:"last_seq"`
	Text        string `json:"reason"`
}

func (r *reset) append(b []byte) []byte {
	r.Text = "the stream ends before that event: it was made anew, or restored from a backup; " +
		"it follows from its first message"
	return append(appendJSON(append(b, "event: reset\n"...), r), '\n')
}

// ending is why a feed ends.
type ending string

const (
	endGone     ending = "gone"        // the client went
	endSlow     ending = "slow_reader" // the client does not read
	endLameDuck ending = "lame_duck"
	endShutdown ending = "shutdown"
	endNotReady ending = "not_ready"
	endFull     ending = "max_connections"
	endClosed   ending = "stream_closed"
	endLogin    ending = "login_ended"
)

// The pause before a client comes back: at least minRetry, and not all of them at once.
const (
	minRetry    = 2000 // milliseconds
	retryJitter = 1000
	byeJitter   = 3000
)

// append appends the event that says why a feed ends, and when to come back.
func (e ending) append(b []byte, text string) []byte {
	b = fmt.Appendf(b, "event: bye\nretry: %d\n", minRetry+rand.IntN(byeJitter)) //nolint:gosec // no secret
	return append(appendJSON(b, struct {
		Reason ending `json:"reason"`
		Text   string `json:"text,omitempty"`
	}{e, text}), '\n')
}

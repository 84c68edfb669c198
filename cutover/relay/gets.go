package relay

import (
	"encoding/json"

	"github.com/noetl/ehdb-gateway/cutover"
)

// maxGets bounds the messages that a connection waits for. Beyond it those that were asked for before are forgotten,
// most of which never come: they would pass as they are.
const maxGets = 4096

// gets are the subjects at which a connection waits for a message of a stream.
type gets map[string]int

func (l *gets) add(reply []byte) {
	if *l == nil {
		*l = make(gets)
	}
	if len(*l) >= maxGets {
		clear(*l)
	}
	(*l)[string(reply)]++
}

func (l gets) has(subject []byte) bool { return len(l) > 0 && l[string(subject)] > 0 }

func (l gets) take(subject []byte) bool {
	if !l.has(subject) {
		return false
	}
	if l[string(subject)]--; l[string(subject)] == 0 {
		delete(l, string(subject))
	}
	return true
}

// unmarkedGet returns the answer to a request for a message without what the reverse chain has added to the message's
// header. What cannot be read stays as it is.
func unmarkedGet(data []byte) []byte {
	var doc, msg map[string]json.RawMessage
	var header []byte
	if json.Unmarshal(data, &doc) != nil || json.Unmarshal(doc["message"], &msg) != nil ||
		json.Unmarshal(msg["hdrs"], &header) != nil || !cutover.Marked(header) {
		return data
	}
	if header = unmarked(header); len(header) == 0 {
		delete(msg, "hdrs")
	} else if b, err := json.Marshal(header); err == nil {
		msg["hdrs"] = b
	}
	b, err := json.Marshal(msg)
	if err != nil {
		return data
	}
	doc["message"] = b
	if b, err = json.Marshal(doc); err != nil {
		return data
	}
	return b
}

package relay

import (
	"bytes"
	"encoding/json"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// maxLists bounds the lists that a connection waits for; the answers to more pass as they are.
const maxLists = 64

// lists are the subjects at which a connection waits for a list of streams.
type lists map[string]int

func (l *lists) add(reply []byte) {
	if *l == nil {
		*l = make(lists)
	}
	if len(*l) < maxLists {
		(*l)[string(reply)]++
	}
}

func (l lists) has(subject []byte) bool { return len(l) > 0 && l[string(subject)] > 0 }

func (l lists) take(subject []byte) bool {
	if !l.has(subject) {
		return false
	}
	if l[string(subject)]--; l[string(subject)] == 0 {
		delete(l, string(subject))
	}
	return true
}

var listSuffix = []byte(".API.STREAM.LIST")

// isList tells a request for all streams: $JS.API.STREAM.LIST, or that of a domain.
func isList(subject []byte) bool { return bytes.HasSuffix(subject, listSuffix) }

// upList decides about a request that is about no stream: the answer to a list is looked at.
func (g *guide) upList(a *account, subject, reply []byte) gateway.Course {
	if !a.here || len(reply) == 0 || !isList(subject) {
		return gateway.CoursePass
	}
	g.sending = sending{kind: kindList}
	return gateway.CourseShow
}

// relist puts into a list of streams how those stand that are served from here: the servers are a little behind. What
// cannot be read stays as it is.
func (r *Relay) relist(a *account, m *bus.Msg) {
	info := r.info.Load()
	if a == nil || info == nil {
		return
	}
	var doc map[string]json.RawMessage
	var streams []json.RawMessage
	if json.Unmarshal(m.Data, &doc) != nil || json.Unmarshal(doc["streams"], &streams) != nil {
		return
	}
	changed := false
	for i, raw := range streams {
		if own := a.restated(raw, *info); own != nil {
			streams[i], changed = own, true
		}
	}
	if !changed {
		return
	}
	list, err := json.Marshal(streams)
	if err != nil {
		return
	}
	doc["streams"] = list
	if b, err := json.Marshal(doc); err == nil {
		m.Data = b
	}
}

// restated is how the stream of an info stands here, nil if it is not served from here.
func (a *account) restated(raw json.RawMessage, info func(cutover.Scope) *server.StreamInfo) json.RawMessage {
	var s struct {
		Config struct {
			Name string `json:"name"`
		} `json:"config"`
	}
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	route := a.ofStream([]byte(s.Config.Name))
	if route == nil || !route.State.here() {
		return nil
	}
	own := info(route.Scope.Name)
	if own == nil {
		return nil
	}
	b, err := json.Marshal(own)
	if err != nil {
		return nil
	}
	return b
}

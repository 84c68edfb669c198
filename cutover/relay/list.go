package relay

import (
	"bytes"
	"encoding/json"

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
		var s struct {
			Config struct {
				Name string `json:"name"`
			} `json:"config"`
		}
		if json.Unmarshal(raw, &s) != nil {
			return
		}
		route := a.ofStream([]byte(s.Config.Name))
		if route == nil || !route.State.here() {
			continue
		}
		own := (*info)(route.Scope.Name)
		if own == nil {
			continue
		}
		b, err := json.Marshal(own)
		if err != nil {
			continue
		}
		streams[i], changed = b, true
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

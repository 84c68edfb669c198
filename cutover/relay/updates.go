package relay

import (
	"encoding/json"

	"github.com/nats-io/nats-server/v2/server"
)

// updates are the subjects at which a connection waits to hear that a stream was changed. The stream may store other
// subjects then, and what the client publishes there next is a publish of the stream.
type updates map[string]*Scope

// maxUpdates bounds those that a connection waits for; what others bring is seen at the next look at the servers.
const maxUpdates = 64

func (u *updates) add(reply []byte, s *Scope) {
	if *u == nil {
		*u = make(updates)
	}
	if len(*u) < maxUpdates {
		(*u)[string(reply)] = s
	}
}

func (u updates) has(subject []byte) bool { return len(u) > 0 && u[string(subject)] != nil }

func (u updates) take(subject []byte) *Scope {
	s := u[string(subject)]
	delete(u, string(subject))
	return s
}

// configured takes the answer to a change of the stream.
func (s *Scope) configured(data []byte) {
	var answer struct {
		Error  json.RawMessage      `json:"error"`
		Config *server.StreamConfig `json:"config"`
	}
	if json.Unmarshal(data, &answer) == nil && answer.Error == nil && answer.Config != nil &&
		answer.Config.Name == s.Name.Stream {
		s.Configured(answer.Config)
	}
}

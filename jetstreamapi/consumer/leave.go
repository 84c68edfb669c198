package consumer

import (
	"encoding/json"
	"time"
)

// Waiting is what is left of a request for messages.
type Waiting struct {
	Inbox   string
	Request []byte // the body
}

// Leave is Stop for a consumer that goes on elsewhere: those who wait are told nothing, and what is left of their
// requests is returned, in the order in which they would be served.
func (c *Consumer) Leave(code int, status string) []Waiting {
	c.mu.Lock()
	list := c.m.leave(time.Now().UnixNano())
	c.mu.Unlock()
	c.Stop(code, status)
	return list
}

// leave takes the requests that wait.
func (m *machine) leave(now int64) (list []Waiting) {
	for w := m.wait.head; w != nil; w = w.next {
		if w.left > 0 && !w.expired(now) {
			list = append(list, Waiting{Inbox: string(w.to), Request: w.rest(now)})
		}
	}
	m.wait = waitQueue{max: m.wait.max, byPriority: m.wait.byPriority}
	return list
}

// rest is the request for what has not come of w. Its pin is nobody's elsewhere.
func (w *waiting) rest(now int64) []byte {
	body := struct {
		Batch         int    `json:"batch"`
		MaxBytes      int    `json:"max_bytes,omitempty"`
		Expires       int64  `json:"expires,omitempty"`
		Heartbeat     int64  `json:"idle_heartbeat,omitempty"`
		NoWait        bool   `json:"no_wait,omitempty"`
		Group         string `json:"group,omitempty"`
		MinPending    int64  `json:"min_pending,omitempty"`
		MinAckPending int64  `json:"min_ack_pending,omitempty"`
		Priority      int    `json:"priority,omitempty"`
	}{
		w.left, w.bytes, 0, w.heartbeat, w.noWait, w.group, w.minPending, w.minAckPending, w.priority,
	}
	if w.expires != 0 {
		body.Expires = w.expires - now
		const often = 3 // it has to be less than half the time
		body.Heartbeat = min(body.Heartbeat, body.Expires/often)
	}
	doc, err := json.Marshal(body)
	if err != nil {
		panic("consumer: a pull request: " + err.Error())
	}
	return doc
}

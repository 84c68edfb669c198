package relay

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// maxPulls bounds the pull requests of one connection that are remembered.
const maxPulls = 4096

// pull is a request that a server upstream holds.
type pull struct {
	scope    *Scope
	consumer string
	inbox    string
	request  []byte
	left     int       // messages still to come
	until    time.Time // zero: no end
	moved    bool      // it is served from here now: what upstream says about it does not pass
}

// pulls are those of one connection, the oldest first: a consumer serves a connection's requests in this order.
type pulls struct {
	list []*pull
}

func (p *pulls) has(inbox []byte) bool { return p.find(inbox) != nil }

func (p *pulls) find(inbox []byte) *pull {
	for _, q := range p.list {
		if q.inbox == string(inbox) {
			return q
		}
	}
	return nil
}

// add notes a request. Beyond the bound the oldest is forgotten: it ends by its own time.
func (p *pulls) add(s *Scope, consumer string, inbox, request []byte) {
	now := time.Now()
	p.prune(now)
	if len(p.list) >= maxPulls {
		p.list = p.list[1:]
	}
	q := &pull{scope: s, consumer: consumer, inbox: string(inbox), request: bytes.Clone(request), left: 1}
	var body struct {
		Batch   int   `json:"batch"`
		Expires int64 `json:"expires"`
		NoWait  bool  `json:"no_wait"`
	}
	if n, err := strconv.Atoi(string(request)); err == nil {
		q.left = n
	} else if json.Unmarshal(request, &body) == nil {
		q.left = max(body.Batch, 1)
		if body.Expires > 0 {
			q.until = now.Add(time.Duration(body.Expires))
		} else if body.NoWait {
			q.until = now.Add(time.Second)
		}
	}
	p.list = append(p.list, q)
}

func (p *pulls) prune(now time.Time) {
	kept := p.list[:0]
	for _, q := range p.list {
		const grace = time.Second // the last word about it may still be on its way
		if q.until.IsZero() || now.Before(q.until.Add(grace)) {
			kept = append(kept, q)
		}
	}
	clear(p.list[len(kept):])
	p.list = kept
}

// delivered counts a message for the oldest request of a consumer.
func (p *pulls) delivered(s *Scope, consumer []byte) {
	for i, q := range p.list {
		if q.scope != s || q.consumer != string(consumer) || q.moved {
			continue
		}
		if q.left--; q.left <= 0 {
			p.list = append(p.list[:i], p.list[i+1:]...)
		}
		return
	}
}

// status takes what upstream says about a request, and reports whether that is not for the client. Everything but a
// heartbeat ends it.
func (p *pulls) status(m *bus.Msg) (moved bool) {
	q := p.find(m.Subject)
	if q == nil {
		return false
	}
	status, _, _ := bytes.Cut(bytes.TrimPrefix(m.Header, []byte("NATS/1.0 ")), []byte(" "))
	if string(status) != "100" {
		for i := range p.list {
			if p.list[i] == q {
				p.list = append(p.list[:i], p.list[i+1:]...)
				break
			}
		}
	}
	return q.moved
}

// Pull is what is left of a pull request.
type Pull struct {
	Consumer string
	Inbox    string
	Request  []byte
}

// MovePulls returns what is left of the pull requests for a stream, or one of its consumers if that is named, that the
// servers upstream hold. From now on clients do not hear from the servers about them.
func (r *Relay) MovePulls(s *Scope, consumer string) (list []Pull) {
	now := time.Now()
	for _, g := range r.all() {
		g.mu.Lock()
		g.pulls.prune(now)
		for _, q := range g.pulls.list {
			if q.scope != s || q.moved || consumer != "" && q.consumer != consumer {
				continue
			}
			q.moved = true
			if request, more := q.rest(now); more {
				list = append(list, Pull{q.consumer, q.inbox, request})
			}
		}
		g.mu.Unlock()
	}
	return list
}

// rest is the request for what has not come of q; false: its time is over.
func (q *pull) rest(now time.Time) ([]byte, bool) {
	doc := make(map[string]json.RawMessage)
	if json.Unmarshal(q.request, &doc) != nil {
		clear(doc) // a number, or nothing
	}
	doc["batch"] = json.RawMessage(strconv.Itoa(q.left))
	if !q.until.IsZero() {
		left := q.until.Sub(now)
		const least = time.Millisecond
		if left < least {
			return nil, false
		}
		if _, says := doc["expires"]; says {
			doc["expires"] = json.RawMessage(strconv.FormatInt(int64(left), 10))
		}
		var beat int64
		if json.Unmarshal(doc["idle_heartbeat"], &beat) == nil && beat > int64(left)/2 {
			delete(doc, "idle_heartbeat") // it has to be less than half the time
		}
	}
	out, err := json.Marshal(doc)
	if err != nil {
		panic("relay: a pull request: " + err.Error())
	}
	return out, true
}

package relay

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// maxPulls bounds the pull requests of one connection that are remembered.
const maxPulls = 4096

// pull is a request that a server upstream holds.
type pull struct {
	stream   string
	consumer string
	inbox    string
	request  []byte
	left     int       // messages still to come
	there    int       // those that the servers would send
	until    time.Time // zero: no end
	moved    bool      // it is served from here now: what upstream says about it does not pass
	grouped  bool      // of a priority group: upstream it may be of a pin that has ended
}

// pulls are those of one connection, in the order in which a consumer serves them: in turn, a message each.
type pulls struct {
	list []*pull
}

func (p *pulls) has(inbox []byte) bool {
	return slices.ContainsFunc(p.list, func(q *pull) bool { return q.inbox == string(inbox) })
}

// ended returns which request a status of the servers is about. Many may share an inbox: then it is the one of which as
// much is left as the status says, and of those the one that ends first. -1: none.
func (p *pulls) ended(m *bus.Msg) int {
	found := -1
	left, err := strconv.Atoi(string(jsapi.HeaderValue(m.Header, server.JSPullRequestPendingMsgs)))
	for i, q := range p.list {
		switch {
		case q.inbox != string(m.Subject):
		case found < 0:
			found = i
		case err != nil:
		case (p.list[found].there == left) != (q.there == left):
			if q.there == left {
				found = i
			}
		case q.until.Before(p.list[found].until):
			found = i
		}
	}
	return found
}

// add notes a request. Beyond the bound the oldest is forgotten: it ends by its own time.
func (p *pulls) add(stream, consumer string, inbox, request []byte) {
	now := time.Now()
	p.prune(now)
	if len(p.list) >= maxPulls {
		p.list = p.list[1:]
	}
	q := newPull(request, now)
	q.there = q.left
	q.stream, q.consumer, q.inbox = stream, consumer, string(inbox)
	p.list = append(p.list, q)
}

// newPull reads a request.
func newPull(request []byte, now time.Time) *pull {
	q := &pull{request: bytes.Clone(request), left: 1}
	var body struct {
		Batch   int    `json:"batch"`
		Expires int64  `json:"expires"`
		NoWait  bool   `json:"no_wait"`
		Group   string `json:"group"`
	}
	if n, err := strconv.Atoi(string(request)); err == nil {
		q.left = n
	} else if json.Unmarshal(request, &body) == nil {
		q.left, q.grouped = max(body.Batch, 1), body.Group != ""
		if body.Expires > 0 {
			q.until = now.Add(time.Duration(body.Expires))
		} else if body.NoWait {
			q.until = now.Add(time.Second)
		}
	}
	return q
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

// delivered counts a message that the servers have sent for the request of a consumer whose turn it is: it is the last
// in turn then, or done. With kept the client has not got it: its stream is served from here.
//
//nolint:revive // kept is what became of it
func (p *pulls) delivered(stream, consumer []byte, kept bool) {
	for i, q := range p.list {
		if q.stream != string(stream) || q.consumer != string(consumer) || q.there == 0 || q.moved && !kept {
			continue
		}
		p.list = slices.Delete(p.list, i, i+1)
		if q.there--; !kept {
			q.left--
		}
		if q.there > 0 || !q.moved && q.left > 0 {
			p.list = append(p.list, q)
		}
		return
	}
}

// resume makes requests that the servers hold still those of an inbox again, up to n messages, and returns how many are
// to be asked for beside.
func (p *pulls) resume(stream, consumer, inbox string, n int) int {
	for _, q := range p.list {
		if n > 0 && q.moved && !q.grouped && q.stream == stream && q.consumer == consumer && q.inbox == inbox {
			q.moved, q.left = false, q.there
			n -= q.there
		}
	}
	return max(n, 0)
}

// status takes what upstream says about a request, and reports whether that is not for the client. Everything but a
// heartbeat ends it.
func (p *pulls) status(m *bus.Msg) (moved bool) {
	const heartbeat = "100"
	status, _, _ := bytes.Cut(bytes.TrimPrefix(m.Header, []byte("NATS/1.0 ")), []byte(" "))
	if string(status) == heartbeat { // of any that waits there
		return p.has(m.Subject) && !slices.ContainsFunc(p.list, func(q *pull) bool {
			return q.inbox == string(m.Subject) && !q.moved
		})
	}
	i := p.ended(m)
	if i < 0 {
		return false
	}
	moved = p.list[i].moved
	p.list = slices.Delete(p.list, i, i+1)
	return moved
}

// unwatched decides about a message for a stream that is not under watch. It may come under watch, and be served from
// here, while a pull request for it waits: those are noted.
func (g *guide) unwatched(subject, reply []byte) gateway.Course {
	if len(reply) == 0 || !bytes.HasPrefix(subject, jsPrefix) {
		return gateway.CoursePass
	}
	if bytes.HasPrefix(subject, ackPrefix) {
		g.sending.kind = kindAck
		return gateway.CourseShow
	}
	if verb, _, _ := apiStream(subject); !bytes.Equal(verb, msgNext) {
		return gateway.CoursePass
	}
	g.sending.kind = kindPull
	return gateway.CourseShow
}

// downUnwatched decides about what the servers send to a client of whose account nothing is under watch.
func (g *guide) downUnwatched(subject, reply []byte) gateway.Course {
	if ack, delivery := jsapi.ParseAckSubject(reply); delivery {
		g.pulled(&ack)
		return gateway.CoursePass
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pulls.has(subject) {
		return gateway.CourseShow
	}
	return gateway.CoursePass
}

// pulled counts a message that a consumer of the servers delivers.
func (g *guide) pulled(ack *jsapi.AckSubject) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pulls.delivered(ack.Stream, ack.Consumer, false)
}

// Pull is what is left of a pull request.
type Pull = cutover.Pull

// inboxes are those of pull requests that were sent to consumers here, with when the last one of each is over at the
// latest.
type inboxes map[string]time.Time

// forever is how long a request without an end is remembered after it was sent.
const forever = 24 * time.Hour

func (l *inboxes) add(inbox, request []byte) {
	now := time.Now()
	if *l == nil {
		*l = make(inboxes)
	}
	if len(*l) >= maxPulls {
		maps.DeleteFunc(*l, func(_ string, until time.Time) bool { return until.Before(now) })
	}
	if len(*l) >= maxPulls {
		clear(*l) // what waits then is not continued by the servers: it ends by its own time
	}
	q := newPull(request, now)
	if q.until.IsZero() {
		q.until = now.Add(forever)
	}
	(*l)[string(inbox)] = q.until
}

// AdoptPulls notes pull requests that waited at consumers here and that the servers upstream are about to hold, and
// returns what is to be asked for, of connections that are there. What the servers hold still, since before the stream
// came here, is not asked for again.
func (r *Relay) AdoptPulls(s *Scope, list []Pull) (kept []Pull) {
	guides := r.all()
	for _, p := range list {
		for _, g := range guides {
			own, ask := g.adopt(s, &p)
			if ask {
				kept = append(kept, p)
			}
			if own {
				break
			}
		}
	}
	return kept
}

// adopt notes p, if it is the connection's own, and leaves in it what is to be asked for, if anything is.
func (g *guide) adopt(s *Scope, p *Pull) (own, ask bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, own = g.local[p.Inbox]; !own {
		return false, false
	}
	now := time.Now()
	q := newPull(p.Request, now)
	left := g.pulls.resume(s.Name.Stream, p.Consumer, p.Inbox, q.left)
	if left == 0 {
		return true, false
	}
	if left < q.left {
		q.left = left
		if p.Request, ask = q.rest(now); !ask {
			return true, false
		}
	}
	g.pulls.add(s.Name.Stream, p.Consumer, []byte(p.Inbox), p.Request)
	return true, true
}

// MovePulls returns what is left of the pull requests for a stream, or one of its consumers if that is named, that the
// servers upstream hold. From now on clients do not hear from the servers about them.
func (r *Relay) MovePulls(s *Scope, consumer string) (list []Pull) {
	now := time.Now()
	for _, g := range r.all() {
		if id, _ := g.traveler.Identity(); id.Account != s.Name.Account {
			continue
		}
		g.mu.Lock()
		g.pulls.prune(now)
		for _, q := range g.pulls.list {
			if q.stream != s.Name.Stream || q.moved || consumer != "" && q.consumer != consumer {
				continue
			}
			q.moved = true
			if request, more := q.rest(now); more {
				g.local.add([]byte(q.inbox), request)
				list = append(list, Pull{Consumer: q.consumer, Inbox: q.inbox, Request: request})
			}
		}
		g.pulls.list = slices.DeleteFunc(g.pulls.list, func(q *pull) bool { return q.moved && q.there == 0 })
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

package relay

import (
	"bytes"
	"time"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// While a stream is observed behind a flip, it is seen what clients get of it from here: which publishes have no
// answer, and what consumers deliver. That costs an entry for each publish, so it is not done all the time.

// Observe begins to look at what clients get of a stream from here, or ends that.
//
//nolint:revive // on is one of two states
func (r *Relay) Observe(s *Scope, on bool) {
	if s.observed.Swap(on) == on {
		return
	}
	if on {
		r.observed.Add(1)
	} else {
		r.observed.Add(-1)
	}
	for _, g := range r.all() {
		g.mu.Lock()
		g.asked.forget(s)
		g.waiting.Store(int64(g.asked.count))
		g.mu.Unlock()
	}
}

// Unanswered returns how many publishes to an observed stream are without an answer for longer than wait, and the
// subject of one of them. Those of connections that have never got a PubAck do not count: theirs go elsewhere.
func (r *Relay) Unanswered(s *Scope, wait time.Duration) (n int, subject string) {
	before := time.Now().Add(-wait)
	for _, g := range r.all() {
		g.mu.Lock()
		if g.acknowledged {
			for _, list := range g.asked.waiting {
				for i := range list {
					if list[i].scope == s && list[i].since.Before(before) {
						n, subject = n+1, list[i].subject
					}
				}
			}
		}
		g.mu.Unlock()
	}
	return n, subject
}

// ask is a publish to a stream that is served from here, without an answer yet.
type ask struct {
	scope   *Scope
	subject string
	since   time.Time
}

// asks are those of one connection, by the subject of the answer: in order, where many share one.
type asks struct {
	waiting map[string][]ask
	count   int
}

func (a *asks) add(reply []byte, q ask) {
	if a.count >= maxFlights {
		return
	}
	if a.waiting == nil {
		a.waiting = make(map[string][]ask)
	}
	a.waiting[string(reply)] = append(a.waiting[string(reply)], q)
	a.count++
}

// take takes the answer to the oldest, and reports whether there is one.
func (a *asks) take(subject []byte) bool {
	list := a.waiting[string(subject)]
	switch len(list) {
	case 0:
		return false
	case 1:
		delete(a.waiting, string(subject))
	default:
		a.waiting[string(subject)] = list[1:]
	}
	a.count--
	return true
}

func (a *asks) forget(s *Scope) {
	for reply, list := range a.waiting {
		if list[0].scope == s {
			delete(a.waiting, reply)
			a.count -= len(list)
		}
	}
}

// askHere notes a publish that is about to be served from here. The messages of a batch are not answered one by one.
func (g *guide) askHere(s *Scope, m *bus.Msg) {
	if jsapi.IsFastBatch(m.Reply) || len(jsapi.HeaderValue(m.Header, jsapi.HeaderBatchID)) > 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked.add(m.Reply, ask{s, string(m.Subject), time.Now()})
	g.waiting.Store(int64(g.asked.count))
}

// Delivered implements gateway.Guide.
func (g *guide) Delivered(m *bus.Msg) {
	if g.relay.observed.Load() == 0 {
		return
	}
	if bytes.HasPrefix(m.Reply, ackPrefix) {
		g.offeredHere(m.Reply)
		return
	}
	if g.waiting.Load() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asked.take(m.Target()) {
		g.acknowledged = true
	}
	g.waiting.Store(int64(g.asked.count))
}

// offeredHere notes what a consumer of an observed stream delivers from here.
func (g *guide) offeredHere(reply []byte) {
	a := g.here.of(g.relay.table.Load(), g.traveler)
	if a == nil {
		return
	}
	ack, ok := jsapi.ParseAckSubject(reply)
	if !ok {
		return
	}
	r := a.ofStream(ack.Stream)
	if r == nil || !r.State.here() || !r.Scope.observed.Load() {
		return
	}
	if f := r.Scope.Served; f != nil {
		f(ack.Consumer, ack.StreamSeq)
	}
}

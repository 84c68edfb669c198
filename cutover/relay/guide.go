package relay

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// guide decides for one connection. What is not guarded by mu belongs to one of its two goroutines.
type guide struct {
	relay    *Relay
	traveler gateway.Traveler
	up, down resolved
	here     resolved // for what is delivered from here
	sending  sending  // the message that Up has decided about last

	mu     sync.Mutex
	flight flights
	asked  asks
	pulls  pulls
	local  inboxes // of pull requests that were sent to consumers here
	gets   gets    // where messages are waited for
	// updates are changes of streams that wait for their answer.
	updates updates

	acknowledged bool         // some publish was answered; guarded by mu
	waiting      atomic.Int64 // how many asked has
}

// resolved is an account's part of a table, as one goroutine has looked it up last.
type resolved struct {
	table   *Table
	account *account
	name    string
}

// of returns the part of t that concerns the client; nil: nothing does, or its account is not known yet.
func (r *resolved) of(t *Table, traveler gateway.Traveler) *account {
	if r.table == t && r.name != "" {
		return r.account
	}
	if r.name == "" {
		id, _ := traveler.Identity()
		r.name = id.Account
	}
	r.table, r.account = t, t.accounts[r.name]
	return r.account
}

// sending is what Sent has to do with the message that it is shown.
type sending struct {
	kind  kind
	route *Route // nil: of a stream that is not under watch
}

type kind uint8

const (
	kindNone kind = iota
	kindPublish
	kindPull
	kindPullHere
	kindAckHere
	kindAck
	kindGet    // a request for a message, which may have the mark of the chain
	kindMirror // an ack that the servers are told of as well
	kindHere   // a publish to a stream that is served from here and observed
	kindUpdate // a change of a stream
)

// Arrived implements gateway.Guide.
func (g *guide) Arrived() <-chan struct{} {
	if f := g.relay.guard.Load(); f != nil {
		return (*f)()
	}
	return nil
}

// Up implements gateway.Guide.
func (g *guide) Up(subject, reply []byte, _ int) (gateway.Course, <-chan struct{}) {
	g.sending = sending{}
	t := g.relay.table.Load()
	a := g.up.of(t, g.traveler)
	if g.up.name == "" && t.strict {
		_, known := g.traveler.Identity()
		select {
		case <-known:
			return t.unknown(subject), nil
		default:
			return gateway.CoursePass, known
		}
	}
	if a == nil {
		if g.up.name == "" {
			t.unnoted(subject)
		}
		return g.unwatched(subject, reply), nil
	}
	if bytes.HasPrefix(subject, jsPrefix) {
		return g.upJetStream(t, a, subject, reply)
	}
	r := a.storing(subject)
	if r == nil {
		return gateway.CoursePass, nil
	}
	switch {
	case r.State.held():
		return gateway.CoursePass, t.next
	case r.State == Here:
		if len(reply) > 0 && r.Scope.observed.Load() {
			g.sending = sending{kindHere, r}
		}
		return gateway.CourseLocal, nil
	}
	if len(reply) == 0 {
		r.Scope.notes.unasked.Add(1)
		return gateway.CoursePass, nil
	}
	// Counted before it is known that the table still counts: who replaces the table and then sees no flight has missed
	// none.
	r.Scope.flight.Add(1)
	if g.relay.table.Load() != t {
		r.Scope.flight.Add(-1)
		return g.Up(subject, reply, 0)
	}
	g.sending = sending{kindPublish, r}
	return gateway.CourseShow, nil
}

// unknown is the course of a message whose sender's account nobody knows: not upstream if any account's stream that
// this gateway serves might store it. The gateway turns the client away then, and says why.
func (t *Table) unknown(subject []byte) gateway.Course {
	for _, a := range t.accounts {
		if a.here && (bytes.HasPrefix(subject, jsPrefix) || a.storing(subject) != nil) {
			return gateway.CourseLocal
		}
	}
	return gateway.CoursePass
}

// unnoted counts a publish of a client whose account nobody knows yet, as those that follow a CONNECT at once, for
// whichever stream may store it: no sequence of it will be known.
func (t *Table) unnoted(subject []byte) {
	for _, a := range t.accounts {
		if r := a.storing(subject); r != nil {
			r.Scope.notes.unasked.Add(1)
		}
	}
}

// upJetStream decides about requests, acks and answers of flow control.
func (g *guide) upJetStream(t *Table, a *account, subject, reply []byte) (gateway.Course, <-chan struct{}) {
	if bytes.HasPrefix(subject, ackPrefix) {
		return g.upAck(t, a, subject, reply)
	}
	if bytes.HasPrefix(subject, fcPrefix) {
		return upFlowControl(t, a, subject)
	}
	verb, stream, rest := apiStream(subject)
	if verb == nil {
		g.relay.unknown.look(subject)
		return g.upWhole(a, subject), nil
	}
	r := a.ofStream(stream)
	if r == nil {
		return g.unwatched(subject, reply), nil
	}
	switch s := r.requested(verb, rest); {
	case s.held():
		return gateway.CoursePass, t.next
	case s == Here:
		if f := r.Scope.Changed; f != nil && changing(verb) {
			f()
		}
		if bytes.Equal(verb, msgNext) && len(reply) > 0 {
			g.sending = sending{kindPullHere, r}
		}
		return gateway.CourseLocal, nil
	}
	if changing(verb) {
		r.Scope.change(verb, rest)
	}
	if k := shown(t, r, verb); k != kindNone && len(reply) > 0 {
		g.sending = sending{k, r}
		return gateway.CourseShow, nil
	}
	return gateway.CoursePass, nil
}

// shown is the kind of a request to the servers that has to be seen whole, with its answer; kindNone: it has not.
func shown(t *Table, r *Route, verb []byte) kind {
	switch {
	case bytes.Equal(verb, msgNext):
		return kindPull
	case bytes.Equal(verb, msgGet) && t.marked:
		return kindGet
	case string(verb) == "STREAM.UPDATE." && r.Scope.Configured != nil:
		return kindUpdate
	}
	return kindNone
}

// upFlowControl decides about a client's answer of flow control.
func upFlowControl(t *Table, a *account, subject []byte) (gateway.Course, <-chan struct{}) {
	stream, _, _, ok := jsapi.ParseFlowControlSubject(subject)
	switch r := a.ofStream(stream); {
	case !ok || r == nil:
	case r.State.held(): // a consumer that pushes comes to rest
		return gateway.CoursePass, t.next
	case r.State == Here:
		return gateway.CourseLocal, nil
	}
	return gateway.CoursePass, nil
}

// change notes that a request passes which changes the stream, or one of its consumers.
func (s *Scope) change(verb, consumer []byte) {
	if removing(verb) {
		s.notes.removals.Add(1)
	}
	if renewing(verb) {
		s.tracker.forget(consumer)
	}
	if f := s.Changed; f != nil {
		f()
	}
}

// requested is the state that counts for a request: what asks a consumer for messages goes to who serves it. Other
// requests about a consumer that is served from here are the servers' to answer, but wait while it changes sides.
func (r *Route) requested(verb, rest []byte) State {
	if len(r.Consumers) == 0 || !bytes.HasPrefix(verb, consumerVerb) {
		return r.State
	}
	name, _, _ := bytes.Cut(rest, dot)
	s := r.consumer(name)
	if s == Here && !bytes.Equal(verb, msgNext) {
		return r.State
	}
	return s
}

var consumerVerb = []byte("CONSUMER.")

// upAck decides about an ack.
func (g *guide) upAck(t *Table, a *account, subject, reply []byte) (gateway.Course, <-chan struct{}) {
	ack, ok := jsapi.ParseAckSubject(subject)
	if !ok {
		return gateway.CoursePass, nil
	}
	r := a.ofStream(ack.Stream)
	if r == nil {
		return g.unwatched(subject, reply), nil
	}
	switch s := r.consumer(ack.Consumer); {
	case s.held():
		return gateway.CoursePass, t.next
	case s == Here:
		if g.sending = (sending{kindAckHere, r}); r.State != Here {
			g.sending.kind = kindMirror
		}
		return gateway.CourseLocal, nil
	}
	if f := r.Scope.Barrier; f != nil {
		if wait := f(ack.StreamSeq); wait != nil {
			return gateway.CoursePass, wait
		}
	}
	g.sending = sending{kindAck, r}
	if r.Scope.tracker.straddles(&ack) {
		return gateway.CourseLocal, nil
	}
	return gateway.CourseShow, nil
}

// Sent implements gateway.Guide.
func (g *guide) Sent(m *bus.Msg) {
	s := g.sending
	switch s.kind {
	case kindPublish:
		g.publish(s.route.Scope, m)
	case kindPull:
		_, stream, consumer := apiStream(m.Subject)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.pulls.add(string(stream), string(consumer), m.Reply, m.Data)
	case kindPullHere:
		g.mu.Lock()
		defer g.mu.Unlock()
		g.local.add(m.Reply, m.Data)
	case kindAckHere:
		if next, asks := bytes.CutPrefix(m.Data, ackNext); asks && len(m.Reply) > 0 {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.local.add(m.Reply, bytes.TrimSpace(next))
		}
	case kindAck:
		ack, ok := jsapi.ParseAckSubject(m.Subject)
		if !ok {
			return
		}
		if s.route != nil {
			s.route.Scope.tracker.ack(&ack, m.Data)
		}
		if next, asks := bytes.CutPrefix(m.Data, ackNext); asks && len(m.Reply) > 0 {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.pulls.add(string(ack.Stream), string(ack.Consumer), m.Reply, bytes.TrimSpace(next))
		}
	case kindUpdate:
		g.mu.Lock()
		defer g.mu.Unlock()
		g.updates.add(m.Reply, s.route.Scope)
	case kindGet:
		g.mu.Lock()
		defer g.mu.Unlock()
		g.gets.add(m.Reply)
	case kindMirror:
		ack, ok := jsapi.ParseAckSubject(m.Subject)
		if f := s.route.Scope.Mirror; f != nil && ok {
			kind, _ := jsapi.ParseAckBody(m.Data)
			f(&Mirrored{
				Msg: m, Consumer: string(ack.Consumer), Seq: ack.StreamSeq,
				Done: kind == jsapi.AckDone || kind == jsapi.AckTerm, Next: kind == jsapi.AckNext,
			})
		}
	case kindHere:
		g.askHere(s.route.Scope, m)
	case kindNone:
	}
}

// Down implements gateway.Guide.
func (g *guide) Down(subject, reply []byte, header bool) gateway.Course {
	t := g.relay.table.Load()
	a := g.down.of(t, g.traveler)
	if a == nil {
		return g.downUnwatched(subject, reply)
	}
	if bytes.HasPrefix(reply, jsPrefix) {
		if course, settled := g.downJetStream(t, a, reply, header); settled {
			return course
		}
	}
	if t.marked && bytes.HasPrefix(reply, chainInbox) && a.storing(subject) != nil {
		return gateway.CourseDrop
	}
	g.mu.Lock()
	waited := g.flight.has(subject) || g.pulls.has(subject) || g.gets.has(subject) || g.updates.has(subject)
	g.mu.Unlock()
	switch {
	case waited:
		return gateway.CourseShow
	case header && a.here && a.deliver.HasMatch(subject):
		return gateway.CourseDrop // heartbeats of a consumer that is served from here
	case header && t.marked:
		return gateway.CourseShow
	}
	return gateway.CoursePass
}

// downJetStream decides about what a consumer upstream delivers or asks; false: it is nothing of the kind.
//
//nolint:revive // header is what the message has
func (g *guide) downJetStream(t *Table, a *account, reply []byte, header bool) (gateway.Course, bool) {
	ack, delivery := jsapi.ParseAckSubject(reply)
	stream, consumer := ack.Stream, ack.Consumer
	if !delivery {
		var ok bool
		if stream, consumer, _, ok = jsapi.ParseFlowControlSubject(reply); !ok {
			return gateway.CoursePass, false
		}
	}
	r := a.ofStream(stream)
	if r == nil && delivery {
		g.pulled(&ack)
	}
	switch {
	case r == nil && delivery && header && t.marked: // a mirror of a stream that is served from here has marks too
		return gateway.CourseShow, true
	case r == nil:
		return gateway.CoursePass, true
	case r.State.here() || r.consumer(consumer).here():
		if f := r.Scope.Stray; f != nil {
			f(consumer, reply)
		}
		if delivery {
			g.mu.Lock()
			g.pulls.delivered(stream, consumer, true)
			g.mu.Unlock()
		}
		return gateway.CourseDrop, true
	case !delivery:
		return gateway.CoursePass, true
	}
	// Counted before it is known that the table still counts, as publishes are.
	r.Scope.delivered.Add(1)
	if now := g.relay.table.Load(); now != t {
		r.Scope.delivered.Add(-1)
		if a = g.down.of(now, g.traveler); a == nil {
			return gateway.CoursePass, true
		}
		return g.downJetStream(now, a, reply, header)
	}
	r.Scope.tracker.delivered(&ack)
	if f := r.Scope.Offered; f != nil {
		f(ack.Consumer, ack.StreamSeq)
	}
	g.pulled(&ack)
	if header && t.marked {
		return gateway.CourseShow, true
	}
	return gateway.CoursePass, true
}

// Received implements gateway.Guide.
func (g *guide) Received(m *bus.Msg) gateway.Course {
	g.mu.Lock()
	f, answered := g.flight.take(m.Subject)
	g.acknowledged = g.acknowledged || answered
	moved := !answered && g.pulls.status(m)
	gotten := !answered && g.gets.take(m.Subject)
	updated := g.updates.take(m.Subject)
	g.mu.Unlock()
	if updated != nil {
		updated.configured(m.Data)
	}
	switch {
	case answered:
		f.answer(m.Data)
	case gotten:
		m.Data = unmarkedGet(m.Data)
	case moved:
		return gateway.CourseDrop
	case cutover.Marked(m.Header):
		return g.marked(m)
	}
	return gateway.CoursePass
}

var chainInbox = []byte(cutover.ChainInbox)

// marked decides about what the reverse chain has published: whoever is subscribed to its subject has got it from here.
// What a consumer or a request yields passes, without the mark.
func (g *guide) marked(m *bus.Msg) gateway.Course {
	if a := g.down.account; a != nil && !bytes.HasPrefix(m.Reply, ackPrefix) && a.storing(m.Subject) != nil {
		return gateway.CourseDrop
	}
	m.Header = unmarked(m.Header)
	return gateway.CoursePass
}

// unmarked returns a header block without what the reverse chain has added.
func unmarked(header []byte) []byte {
	out := jsapi.WithoutHeaders(header, func(name []byte) bool {
		return string(name) == cutover.HeaderOrigin || string(name) == jsapi.HeaderExpectedLastSeq
	})
	if bytes.Equal(bytes.TrimSpace(out), []byte("NATS/1.0")) {
		return nil
	}
	return out
}

// Closed implements gateway.Guide.
func (g *guide) Closed() {
	g.relay.mu.Lock()
	delete(g.relay.guides, g)
	g.relay.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flight.close()
	g.pulls, g.local, g.gets, g.asked, g.updates = pulls{}, nil, nil, asks{}, nil
}

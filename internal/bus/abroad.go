package bus

import (
	"bytes"
	"slices"
	"time"
)

// What a session does in other accounts than its own, on behalf of an import.

// infoHeader tells a service who asks.
const infoHeader = "Nats-Request-Info"

// ackPrefix begins reply subjects that are handed on as they are: whoever imports a consumer's messages imports the
// service of its acks too.
var ackPrefix = []byte("$JS.ACK.")

// hop is one import that a message has passed.
type hop struct {
	export *Export
	share  bool
}

// offerLinked passes m on through an import.
func (s *session) offerLinked(t *target, m *Msg) bool {
	l := t.sub.link
	if l.service != nil {
		return s.request(l, m)
	}
	if len(s.hops) > 0 {
		return false // what came by a service is not exported once more
	}
	ok, last := l.of.take()
	if !ok {
		return false
	}
	shown := *m
	if len(m.Route) == 0 {
		shown.Subject = l.stream.local(m.Subject)
	} else {
		shown.Route = l.stream.local(m.Route)
	}
	s.queue(t.batch, l.of, &shown)
	if last {
		l.of.owner.end(l.of)
	}
	return true
}

// request sends m to a service of another account, and makes a way back for the answer.
func (s *session) request(l *link, m *Msg) bool {
	im := l.service
	if slices.ContainsFunc(s.hops, func(h hop) bool { return h.export == im.Export }) {
		return false // in a circle
	}
	asked := *m
	to := im.remote(m.Target())
	to, _ = l.to.renamed(to)
	asked.readdress(to)
	share, through := im.Share, ""
	if n := len(s.hops); n > 0 {
		share, through = s.hops[n-1].share, l.from
	}
	var w *awaited
	if len(m.Reply) > 0 && !bytes.HasPrefix(m.Reply, ackPrefix) {
		w = &awaited{
			export: im.Export, share: im.Share, account: s.router.account(l.from), subject: bytes.Clone(m.Reply),
			measured: s.measured(im.Export, m),
		}
		if s.router.await(l.to, w) == nil {
			return false
		}
		asked.Reply = []byte(w.key)
	} else if len(m.Reply) == 0 {
		s.measureUnasked(im, m)
	}
	asked.Header = s.traceAbroad(l, m.Header)
	if describe := s.router.hooks.Describe; describe != nil {
		asked.Header = withHeader(asked.Header, infoHeader, describe(s.id, share, through))
	}
	s.hops = append(s.hops, hop{im.Export, share})
	delivered := s.publishIn(l.to, &asked)
	s.hops = s.hops[:len(s.hops)-1]
	if !delivered && w != nil && l.to.forget(w) {
		s.router.measure(w, nil, statusUnavailable, "Service Unavailable")
	}
	return delivered
}

// Renamed implements Renamer.
func (s *session) Renamed(subject []byte) (to []byte, changed bool) {
	return s.account.renamed(subject)
}

func (a *account) renamed(subject []byte) (to []byte, changed bool) {
	if l := a.links.Load(); l != nil && l.mapping != nil {
		return l.mapping(subject)
	}
	return subject, false
}

// readdress sends m to another subject. What it shows stays, where that is something else.
func (m *Msg) readdress(to []byte) {
	if len(m.Route) == 0 {
		m.Subject = to
	} else {
		m.Route = to
	}
}

// measured returns what is noted of a request whose time is to be taken, nil if it is not.
func (s *session) measured(e *Export, m *Msg) *measured {
	if e.Latency == nil {
		return nil
	}
	trace, sampled := e.Latency.Sample(m.Header)
	if !sampled {
		return nil
	}
	return &measured{requestor: s.id, start: time.Now(), trace: trace}
}

// measureUnasked tells of a request that wants no answer and so cannot be measured.
func (s *session) measureUnasked(im *ServiceImport, m *Msg) {
	if noted := s.measured(im.Export, m); noted != nil {
		asked := &awaited{export: im.Export, share: im.Share, measured: noted}
		s.router.measure(asked, nil, statusBadRequest, "Bad Request")
	}
}

// answer passes m, which was sent in account a, on to who asked.
func (s *session) answer(a *account, w *awaited, m *Msg) bool {
	out := *m
	out.readdress(w.subject)
	if len(m.Reply) > 0 && !bytes.HasPrefix(m.Reply, ackPrefix) { // an answer that asks back
		back := &awaited{export: w.export, share: w.share, account: a, subject: bytes.Clone(m.Reply)}
		if s.router.await(w.account, back) == nil {
			return false
		}
		out.Reply = []byte(back.key)
	}
	s.router.measure(w, &s.id, statusOK, "")
	s.hops = append(s.hops, hop{w.export, w.share})
	delivered := s.publishIn(w.account, &out)
	s.hops = s.hops[:len(s.hops)-1]
	if !delivered || w.export.Response == Singleton || len(m.Header)+len(m.Data) == 0 {
		a.forget(w)
	} else {
		w.used.Store(time.Now().UnixNano())
	}
	return delivered
}

// publishIn queues m for those who hear it in account a.
func (s *session) publishIn(a *account, m *Msg) bool {
	interest := false
	if w := a.answered(m.Target()); w != nil {
		interest = s.answer(a, w, m)
	}
	return s.offerAll(s.findIn(a, m.Target()), m) || interest
}

// findIn is find in any account. It touches no result that a publish which is going on may be walking through.
func (s *session) findIn(a *account, subject []byte) *result {
	c := s.cacheOf(a)
	r, valid := c.get(subject)
	if valid {
		return r
	}
	if r != nil {
		c.drop(string(subject), r)
	}
	fresh := &result{}
	s.fillFrom(a, fresh, subject)
	if r != nil || c.admits(a.generations.seed, subject, s.rand.Uint64()) {
		c.put(subject, fresh)
	}
	return fresh
}

// cacheOf returns the session's cache of what matches in account a.
func (s *session) cacheOf(a *account) *cache {
	if a == s.account {
		return &s.cache
	}
	c := s.abroad[a]
	if c == nil {
		if s.abroad == nil {
			s.abroad = make(map[*account]*cache)
		}
		c = &cache{}
		s.abroad[a] = c
	}
	return c
}

// withHeader returns block with the header name set to value, in a copy.
func withHeader(block []byte, name, value string) []byte {
	const first, end = "NATS/1.0\r\n", "\r\n"
	out := make([]byte, 0, len(block)+len(first)+len(name)+len(value)+8)
	if len(block) == 0 {
		out = append(out, first...)
	}
	for rest := block; len(rest) > 0; {
		line, more, found := bytes.Cut(rest, []byte(end))
		rest = more
		if len(line) == 0 || !found {
			break
		}
		if n := len(name); len(line) > n && line[n] == ':' && string(line[:n]) == name {
			continue
		}
		out = append(append(out, line...), end...)
	}
	out = append(append(append(out, name...), ": "...), value...)
	return append(out, end+end...)
}

// resolve follows the answers to requests from other accounts: a message to subject in a reaches who is subscribed to
// the subject returned, in the account returned.
func (a *account) resolve(subject string) (*account, string) {
	for range maxHops {
		w := a.answered(bytesOf(subject))
		if w == nil {
			break
		}
		a, subject = w.account, string(w.subject)
	}
	return a, subject
}

// maxHops bounds how far imports are followed where interest is looked for.
const maxHops = 32

// heard reports whether anybody, in any account, hears a message to subject. hops is how many imports were passed.
func (a *account) heard(subject string, hops int) bool {
	a, subject = a.resolve(subject)
	l := a.links.Load()
	if l == nil || len(l.services) == 0 {
		return a.hasInterest(subject)
	}
	if hops >= maxHops {
		return false
	}
	here, services := a.matchOrServices(subject)
	return here || slices.ContainsFunc(services, func(l *link) bool {
		return l.to.heard(string(l.service.remote([]byte(subject))), hops+1)
	})
}

// matchOrServices reports whether a party of a, or of who imports from it, hears subject; if not, it returns the
// services that might.
func (a *account) matchOrServices(subject string) (here bool, services []*link) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	a.index.Match(bytesOf(subject), func(s *Subscription) bool {
		if here = s.link == nil || s.link.service == nil; !here {
			services = append(services, s.link)
		}
		return !here
	})
	return here, services
}

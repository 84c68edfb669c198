package bus

import (
	"bytes"
	"slices"
)

const (
	// traceDest is the header that says where events about a message's way are sent.
	traceDest = "Nats-Trace-Dest"
	// traceEnds stands in its place where a trace ends. It is no subject, so that nobody takes it for one.
	traceEnds = "trace disabled"
)

// Trace implements Tracer.
func (s *session) Trace(m *Msg, step func(*Step)) { s.traceIn(s.account, m.Target(), nil, step) }

// TraceTo implements Tracer.
func (s *session) TraceTo() (dest string, percent int) {
	if l := s.account.links.Load(); l != nil {
		return l.traceTo, l.traceShare
	}
	return "", 0
}

// traceIn tells of all who hear subject in account a. passed are the services that led there.
func (s *session) traceIn(a *account, subject []byte, passed []*Export, step func(*Step)) {
	r := &result{} // of its own: nothing here may disturb what the session remembers
	s.fillFrom(a, r, subject)
	for i := range r.plain {
		s.traceSub(a, r.plain[i].sub, subject, passed, step)
	}
	start := 0
	for _, end := range r.ends {
		s.traceSub(a, r.queued[start+s.rand.IntN(end-start)].sub, subject, passed, step)
		start = end
	}
}

// traceSub tells of one of them, and goes on in another account where an import allows it.
func (s *session) traceSub(a *account, sub *Subscription, subject []byte, passed []*Export, step func(*Step)) {
	switch l := sub.link; {
	case l == nil:
		step(received(a, sub, subject))
	case l.service == nil:
		local := l.stream.local(subject)
		step(&Step{Kind: StepStreamImport, Account: l.of.owner.account.name, To: string(local)})
		if l.stream.Trace {
			step(received(l.of.owner.account, sub, local))
		}
	case slices.Contains(passed, l.service.Export): // in a circle
	default:
		to, _ := l.to.renamed(l.service.remote(subject))
		step(&Step{Kind: StepServiceImport, Account: l.to.name, From: string(subject), To: string(to)})
		if l.service.Export.Trace {
			s.traceIn(l.to, to, append(slices.Clip(passed), l.service.Export), step)
		}
	}
}

func received(in *account, sub *Subscription, subject []byte) *Step {
	return &Step{
		Kind: StepReceiver, Account: in.name, To: string(subject), Filter: sub.Filter, Queue: sub.Queue,
		Party: sub.owner.kind, Identity: sub.owner.id,
	}
}

// traceAbroad returns the header block of a request as it goes on through an import: where it is to be traced to
// becomes a subject there that leads back here, or nothing, if the export lets no traces pass.
func (s *session) traceAbroad(l *link, block []byte) []byte {
	dest := headerValue(block, traceDest)
	if len(dest) == 0 || string(dest) == traceEnds {
		return block
	}
	to := traceEnds
	if e := l.service.Export; e.Trace {
		back := &awaited{export: e, account: s.router.account(l.from), subject: bytes.Clone(dest)}
		if s.router.await(l.to, back) != nil {
			to = back.key
		}
	}
	return withHeader(block, traceDest, to)
}

// headerValue returns the first value of the header name in block, nil if there is none.
func headerValue(block []byte, name string) []byte {
	for rest := block; ; {
		at := bytes.Index(rest, []byte(name))
		if at < 0 {
			return nil
		}
		begins := at > 0 && rest[at-1] == '\n'
		rest = rest[at+len(name):]
		if begins && len(rest) > 0 && rest[0] == ':' {
			value, _, _ := bytes.Cut(rest[1:], []byte("\r\n"))
			return bytes.TrimSpace(value)
		}
	}
}

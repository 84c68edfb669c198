package bus

// Trace implements Tracer.
func (s *session) Trace(m *Msg, step func(*Step)) {
	r := &result{} // of its own: nothing here may disturb what the session remembers
	s.fillFrom(s.account, r, m.Target())
	for i := range r.plain {
		s.trace(r.plain[i].sub, m.Target(), step)
	}
	start := 0
	for _, end := range r.ends {
		s.trace(r.queued[start+s.rand.IntN(end-start)].sub, m.Target(), step)
		start = end
	}
}

// trace tells of one who hears subject. What happens in another account stays there.
func (s *session) trace(sub *Subscription, subject []byte, step func(*Step)) {
	switch l := sub.link; {
	case l == nil:
		step(&Step{
			Kind: StepReceiver, Account: s.account.name, Filter: sub.Filter, Queue: sub.Queue,
			Party: sub.owner.kind, Identity: sub.owner.id,
		})
	case l.service == nil:
		step(&Step{Kind: StepStreamImport, Account: l.of.owner.account.name, To: string(l.stream.local(subject))})
	default:
		to, _ := l.to.renamed(l.service.remote(subject))
		step(&Step{Kind: StepServiceImport, Account: l.to.name, From: string(subject), To: string(to)})
	}
}

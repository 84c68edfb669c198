package jetstreamapi

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// account is one account with JetStream, or an outsider: its streams, its limits and the queues its requests are served
// from. It is the bus.Sink of its API subjects.
type account struct {
	svc      *Service
	name     string
	outsider bool // has no JetStream: its requests are told so
	api      bus.Session
	views    *views // nil without a domain

	writes     *queue // what changes things, in order
	reads      *queue
	wholes     *queue // questions that others are asked, too, see elsewhere.go
	answers    *queue // answers that waited for the disk; as many as there are requests
	rejects    *queue // "too many requests"
	advisories *queue
	transfers  transfers

	// change is held while assets are made, changed or removed, so that there is one such change at a time.
	change sync.Mutex

	mu      sync.RWMutex // guards what follows and each stream's consumers; held only briefly
	streams map[string]*streamEntry
	taken   subjectIndex
	// standbys are the streams whose authority is elsewhere, see standby.go. No name is in both.
	standbys map[string]*streamEntry

	limits    atomic.Pointer[server.JetStreamAccountLimits]
	used      usage
	apiTotal  atomic.Uint64
	apiErrors atomic.Uint64
	inflight  atomic.Int64
	dropped   atomic.Uint64 // advisories and rejections that found their queue full
}

func newAccount(svc *Service, name string, limits server.JetStreamAccountLimits) *account {
	a := &account{
		svc: svc, name: name, streams: make(map[string]*streamEntry), standbys: make(map[string]*streamEntry),
		taken: subjectIndex{},
	}
	a.limits.Store(&limits)
	a.writes = a.newQueue(1, svc.opts.QueueLimit)
	a.reads = a.newQueue(svc.opts.ReadWorkers, svc.opts.QueueLimit)
	a.wholes = a.newQueue(wholeWorkers, svc.opts.QueueLimit)
	a.answers = a.newQueue(1, svc.opts.QueueLimit)
	a.rejects = a.newQueue(1, rejectLimit)
	a.advisories = a.newQueue(1, advisoryLimit)
	return a
}

// newQueue makes a queue whose jobs publish in the account.
func (a *account) newQueue(workers, bound int) *queue {
	newOut := func() (*publisher, error) { return newPublisher(a.svc.opts.Bus, a.name) }
	return &queue{workers: workers, bound: bound, newOut: newOut}
}

// open subscribes to the API subjects.
func (a *account) open() error {
	s, err := a.svc.opts.Bus.Open(bus.KindService, bus.Identity{Account: a.name}, a)
	if err != nil {
		return fmt.Errorf("account %s: %w", a.name, err)
	}
	a.api = s
	for i, f := range jsapi.APIFilters() {
		if err := subscribeBoth(s, fmt.Sprint("a", i), f, "", a.svc.opts.Domain); err != nil {
			return fmt.Errorf("account %s: %w", a.name, err)
		}
	}
	if a.svc.opts.Domain == "" || a.outsider {
		return nil
	}
	if a.views, err = a.openViews(); err != nil {
		return fmt.Errorf("account %s: %w", a.name, err)
	}
	return nil
}

// subscribeBoth subscribes to an API filter and, if there is a domain, to its form in the domain. The sid of the second
// has a "d" appended.
func subscribeBoth(s bus.Session, sid, filter, queueGroup, domain string) error {
	if _, err := s.Subscribe(sid, filter, queueGroup); err != nil {
		return err
	}
	if domain == "" {
		return nil
	}
	_, err := s.Subscribe(sid+"d", jsapi.InDomain(domain, filter), queueGroup)
	return err
}

// Deliver implements bus.Sink.
func (a *account) Deliver(batch []bus.Delivery) <-chan struct{} {
	return a.DeliverFrom(bus.Identity{Account: a.name}, batch)
}

// DeliverFrom implements bus.OriginSink: it copies each request into the queue it is served from.
func (a *account) DeliverFrom(from bus.Identity, batch []bus.Delivery) <-chan struct{} {
	for i := range batch {
		a.accept(from, &batch[i].Msg)
	}
	return nil
}

func (a *account) accept(from bus.Identity, m *bus.Msg) {
	if a.copied(from) {
		return
	}
	r := a.newRequest(from, m)
	r.show()
	rt := findRoute(r.tokens)
	if a.outsider && a.name == a.svc.opts.System {
		rt = rt.inSystem()
	}
	if serve := a.whole(rt); serve != nil {
		a.enqueue(a.wholes, r, serve)
		return
	}
	q := a.reads
	if rt.write {
		q = a.writes
	}
	a.enqueue(q, r, rt.serve)
}

// newRequest copies what is needed of m, which from published.
func (a *account) newRequest(from bus.Identity, m *bus.Msg) *request {
	r := &request{
		svc: a.svc, acc: a, from: from,
		subject: jsapi.Canonical(a.svc.opts.Domain, string(m.Subject)),
		reply:   string(m.Reply),
		header:  bytes.Clone(m.Header),
		body:    bytes.Clone(m.Data),
	}
	r.tokens = apiTokens(r.subject)
	return r
}

// enqueue queues a request, or its refusal.
func (a *account) enqueue(q *queue, r *request, serve func(*request, *publisher)) {
	a.inflight.Add(1)
	served := func(out *publisher) {
		defer a.inflight.Add(-1)
		serve(r, out)
	}
	if q.push(served) {
		return
	}
	a.inflight.Add(-1)
	a.svc.refused.Add(1)
	if !a.rejects.push(func(out *publisher) { r.reject(out) }) {
		a.dropped.Add(1)
	}
}

// reject answers a request that found its queue full.
func (r *request) reject(out *publisher) {
	if r.token(0) == "DIRECT" {
		out.send(r.reply, []byte("NATS/1.0 429 Too Many Requests\r\n\r\n"), nil)
		return
	}
	resp := jsapi.Response{Type: server.JSApiOverloadedType, Error: server.NewJSStreamTooManyRequestsError()}
	r.resp, r.head = &resp, &resp
	r.done(out)
}

// countAPI counts an API call, and as an error if errs is 1.
func (a *account) countAPI(errs uint64) {
	if a.outsider {
		return
	}
	a.apiTotal.Add(1)
	a.svc.apiTotal.Add(1)
	a.apiErrors.Add(errs)
	a.svc.apiErrors.Add(errs)
}

// stream returns a stream by name, or the error to answer with if it is not there or does not serve.
func (a *account) stream(name string) (*streamEntry, *jsapi.Error) {
	a.mu.RLock()
	e, standby := a.streams[name], a.standbys[name] != nil
	a.mu.RUnlock()
	if standby {
		return nil, errStandby
	}
	if e == nil {
		return nil, server.NewJSStreamNotFoundError()
	}
	if e.offline != nil {
		return nil, server.NewJSStreamOfflineReasonError(e.offline)
	}
	return e, nil
}

// consumer returns a consumer by name, or the error to answer with.
func (a *account) consumer(stream, name string) (*consumerEntry, *jsapi.Error) {
	e, apiErr := a.stream(stream)
	if apiErr != nil {
		return nil, apiErr
	}
	a.mu.RLock()
	c := e.consumers[name]
	a.mu.RUnlock()
	if c == nil {
		return nil, server.NewJSConsumerNotFoundError()
	}
	if c.offline != nil {
		return nil, server.NewJSConsumerOfflineReasonError(c.offline)
	}
	return c, nil
}

// sortedStreams returns the streams whose subjects overlap filter ("": all), by name.
func (a *account) sortedStreams(filter string) []*streamEntry {
	a.mu.RLock()
	out := make([]*streamEntry, 0, len(a.streams))
	for _, e := range a.streams {
		if filter == "" || e.overlaps(filter) {
			out = append(out, e)
		}
	}
	a.mu.RUnlock()
	slices.SortFunc(out, func(x, y *streamEntry) int { return strings.Compare(x.name, y.name) })
	return out
}

// sortedConsumers returns a stream's consumers that are shown to clients, by name.
func (a *account) sortedConsumers(e *streamEntry) []*consumerEntry {
	a.mu.RLock()
	out := make([]*consumerEntry, 0, len(e.consumers))
	for _, c := range e.consumers {
		if !c.config().Direct {
			out = append(out, c)
		}
	}
	a.mu.RUnlock()
	slices.SortFunc(out, func(x, y *consumerEntry) int { return strings.Compare(x.name, y.name) })
	return out
}

// stopServing ends the API of the account and waits for the requests that were queued; their answers may still wait for
// the disk.
func (a *account) stopServing() {
	if a.api != nil {
		a.api.Close()
	}
	if a.views != nil {
		a.views.close()
	}
	for _, q := range []*queue{a.writes, a.reads, a.wholes, a.rejects} {
		q.close()
	}
	a.transfers.close()
}

// stopAnswering ends the answers and advisories; nothing comes to wait for the disk any more.
func (a *account) stopAnswering() {
	a.answers.close()
	a.advisories.close()
}

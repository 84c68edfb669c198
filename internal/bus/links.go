package bus

import (
	"slices"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/subjects"
)

// Links are what an account takes from other accounts, and how it renames what its clients publish. The Router trusts
// them: who may import what is settled before.
type Links struct {
	Streams  []StreamImport
	Services []ServiceImport
	// Map renames what clients of the account (see Renamer) and importers' requests are sent to. Nil: no renaming. It
	// returns false for a subject that stays as it is, and an empty one for what is to be lost. Safe for concurrent
	// use.
	Map func(subject []byte) (to []byte, changed bool)
	// TraceTo is where the account wants to hear of messages that are part of a distributed trace, so many per cent of
	// them. Empty: nowhere.
	TraceTo    string
	TraceShare int
}

// empty reports whether there is nothing in l.
func (l *Links) empty() bool {
	return l == nil || len(l.Streams) == 0 && len(l.Services) == 0 && l.Map == nil && l.TraceTo == ""
}

// StreamImport brings messages of another account here.
type StreamImport struct {
	Account string // whose messages
	From    string // the filter there
	To      string // the filter that stands for it here
	// In turns a subject there into the subject here, and Out a filter here, within To, into the filter there. Nil:
	// they are the same, or To is a literal.
	In, Out func(string) string
	Trace   bool // traces go on to who hears it here
}

// local is the subject here of a message that was sent to subject there.
func (im *StreamImport) local(subject []byte) []byte {
	return translate(im.In, im.From, im.To, subject)
}

// translate is subject on the other side of an import: what fn makes of it, itself if from is to, else to.
func translate(fn func(string) string, from, to string, subject []byte) []byte {
	switch {
	case fn != nil:
		return []byte(fn(string(subject)))
	case from == to:
		return subject
	}
	return []byte(to)
}

// remote is the filter there for a subscription to filter here, false if they have no subject in common.
func (im *StreamImport) remote(filter string) (string, bool) {
	if !subjects.Overlap(filter, im.To) {
		return "", false
	}
	common := intersection(filter, im.To)
	switch {
	case common == im.To:
		return im.From, true
	case im.Out != nil:
		return im.Out(common), true
	}
	return common, true
}

// intersection is the filter that selects what both a and b select. They overlap.
func intersection(a, b string) string {
	var out []string
	for {
		x, restA, moreA := strings.Cut(a, ".")
		y, restB, moreB := strings.Cut(b, ".")
		switch {
		case x == ">" && !moreA:
			return strings.Join(append(out, b), ".")
		case y == ">" && !moreB:
			return strings.Join(append(out, a), ".")
		case x == "*":
			out = append(out, y)
		default:
			out = append(out, x)
		}
		if !moreA {
			return strings.Join(out, ".")
		}
		a, b = restA, restB
	}
}

// ResponseType says how many answers a request of a service may have.
type ResponseType uint8

// The response types.
const (
	// Singleton is one answer.
	Singleton ResponseType = iota
	// Streamed is any number of answers, ended by an empty one or by time.
	Streamed
	// Chunked is one answer in parts; here as Streamed.
	Chunked
)

// DefaultThreshold is how long an answer may take where the export says nothing.
const DefaultThreshold = 2 * time.Minute

// ServiceImport lets this account's parties send requests to a service of another account. Its identity matters: the
// same export imported twice is the same *Export.
type ServiceImport struct {
	From   string // the filter here
	To     string // the subject or filter there
	Map    func(string) string
	Share  bool // tell the service all about who asks
	Export *Export
}

// Export is a service as its account offers it.
type Export struct {
	Account   string
	Response  ResponseType
	Threshold time.Duration // how long an answer is waited for; 0: DefaultThreshold
	Trace     bool          // traces of requests go on in the service's account
	Latency   *LatencyExport
}

func (e *Export) threshold() time.Duration {
	if e.Threshold <= 0 {
		return DefaultThreshold
	}
	return e.Threshold
}

// LatencyExport says that a service is measured.
type LatencyExport struct {
	Results string // the subject of the measurements in the service's account
	// Sample decides, by the header block of a request, whether it is measured. trace goes into the measurement.
	Sample func(header []byte) (trace any, sampled bool)
}

// remote is the subject there of a request that was sent to subject here.
func (im *ServiceImport) remote(subject []byte) []byte {
	return translate(im.Map, im.From, im.To, subject)
}

// link is what a subscription is that stands for an import: one of the two.
type link struct {
	// of is the subscription that an imported stream's messages are for; stream says how they look there.
	of     *Subscription
	stream *StreamImport
	// service is a service of another account.
	service *ServiceImport
	from    string   // the account of the subscription
	to      *account // the other one
}

// linked is what an account's links have become. It is changed as a whole.
type linked struct {
	streams []StreamImport
	mapping func([]byte) ([]byte, bool)

	traceTo    string
	traceShare int
	exporter   []*account // of streams
	services   []*Subscription
}

// SetLinks replaces what account takes from others; nil for nothing. Subscriptions that stand follow.
func (r *Router) SetLinks(account string, l *Links) {
	a := r.account(orDefault(account))
	a.linking.Lock()
	n := a.unlink()
	if !l.empty() {
		n = append(n, a.link(r, l)...)
	}
	a.linking.Unlock()
	n.tell()
}

// unlink ends all that links did. a.linking is held.
func (a *account) unlink() news {
	old := a.links.Load()
	if old == nil {
		return nil
	}
	n := a.remove(old.services...)
	for sub := range a.shadows {
		n = append(n, a.dropShadows(sub)...)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.links.Store(nil)
	a.generations.all.Add(1)
	return n
}

// link begins what l says. a.linking is held.
func (a *account) link(r *Router, l *Links) news {
	now := &linked{
		streams: slices.Clone(l.Streams), mapping: l.Map, traceTo: l.TraceTo, traceShare: l.TraceShare,
	}
	for i := range now.streams {
		now.exporter = append(now.exporter, r.account(now.streams[i].Account))
	}
	var n news
	owner := &party{kind: KindService, id: Identity{Account: a.name}, account: a}
	for i := range l.Services {
		im := l.Services[i]
		sub := &Subscription{Filter: im.From, owner: owner, link: &link{
			service: &im, from: a.name, to: r.account(im.Export.Account),
		}}
		told, err := a.insert(sub)
		if err != nil {
			continue // not a filter: nothing can be sent to it
		}
		n, now.services = append(n, told...), append(now.services, sub)
	}
	a.mu.Lock()
	a.links.Store(now) // from here on, who subscribes makes its own shadows
	a.mu.Unlock()
	if len(now.streams) == 0 {
		return n
	}
	for _, sub := range a.all() {
		n = append(n, a.addShadows(sub)...)
	}
	return n
}

// importsStreams reports whether subscriptions may have shadows.
func (a *account) importsStreams() bool {
	l := a.links.Load()
	return l != nil && len(l.streams) > 0
}

// shadow makes a new subscription hear what is imported.
func (a *account) shadow(sub *Subscription) news {
	a.linking.Lock()
	defer a.linking.Unlock()
	return a.addShadows(sub)
}

func (a *account) addShadows(sub *Subscription) news {
	l := a.links.Load()
	if l == nil || sub.link != nil || a.shadows[sub] != nil {
		return nil
	}
	var n news
	for i := range l.streams {
		im := &l.streams[i]
		filter, ok := im.remote(sub.Filter)
		if !ok {
			continue
		}
		s := &Subscription{
			SID: sub.SID, Filter: filter, Queue: sub.Queue, owner: sub.owner,
			link: &link{of: sub, stream: im, to: l.exporter[i]},
		}
		told, err := l.exporter[i].insert(s)
		if err != nil {
			continue // the mapping makes no filter of it
		}
		if a.shadows == nil {
			a.shadows = make(map[*Subscription][]*Subscription)
		}
		n, a.shadows[sub] = append(n, told...), append(a.shadows[sub], s)
	}
	return n
}

// unshadow ends the shadows of subscriptions that ended.
func (a *account) unshadow(subs ...*Subscription) news {
	a.linking.Lock()
	defer a.linking.Unlock()
	var n news
	for _, sub := range subs {
		n = append(n, a.dropShadows(sub)...)
	}
	return n
}

func (a *account) dropShadows(sub *Subscription) news {
	var n news
	for _, s := range a.shadows[sub] {
		n = append(n, s.link.to.remove(s)...)
	}
	delete(a.shadows, sub)
	return n
}

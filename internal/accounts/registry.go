package accounts

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Registry knows all accounts and keeps a bus in step with what they offer and take. Safe for concurrent use.
type Registry struct {
	cluster string
	system  string // name of the system account; empty: none
	apply   func(account string, links *bus.Links)
	warn    func(account string, err error)

	mu       sync.Mutex
	accounts map[string]*Account
	linked   map[string]bool // those that have links
	exports  map[*Export]*bus.Export
	ends     map[string]time.Time // when the next activation of an account ends
	expiry   *time.Timer
}

// NewRegistry returns an empty Registry for a server in cluster (may be empty) with this system account (empty: none),
// whose services all accounts are given. apply puts an account's links in force,
// nil for none; warn is told of what brings nothing, and why.
func NewRegistry(
	cluster, system string, apply func(string, *bus.Links), warn func(account string, err error),
) *Registry {
	return &Registry{
		cluster: cluster, system: system, apply: apply, warn: warn,
		accounts: map[string]*Account{}, linked: map[string]bool{}, exports: map[*Export]*bus.Export{},
		ends: map[string]time.Time{},
	}
}

// Replace makes list all the accounts there are. The links of those that stay as they are, and take from none that
// changes, are not touched: nothing that passes through them meanwhile is lost.
func (r *Registry) Replace(list []*Account) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.accounts
	r.accounts = make(map[string]*Account, len(list))
	changed := map[string]bool{}
	for _, a := range list {
		now := r.equip(a)
		if was := old[a.Name]; was != nil && reflect.DeepEqual(was, now) {
			now = was // with it, its exports stay the same ones
		} else {
			changed[a.Name] = true
			r.dropExports(was)
		}
		r.accounts[a.Name] = now
	}
	for name, was := range old {
		if r.accounts[name] == nil {
			changed[name] = true
			r.dropExports(was)
			r.link(name)
		}
	}
	for name, a := range r.accounts {
		if changed[name] || a.importsFrom(func(from string) bool { return changed[from] }) {
			r.link(name)
		}
	}
	r.schedule()
}

// dropExports forgets the exports of an account that changes; nil: there was none.
func (r *Registry) dropExports(a *Account) {
	if a == nil {
		return
	}
	for i := range a.Exports {
		delete(r.exports, &a.Exports[i])
	}
}

// Set puts one account in force, in the place of the one of that name.
func (r *Registry) Set(a *Account) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropExports(r.accounts[a.Name])
	r.accounts[a.Name] = r.equip(a)
	r.link(a.Name)
	for name, other := range r.accounts {
		if name != a.Name && other.importsFrom(func(from string) bool { return from == a.Name }) {
			r.link(name)
		}
	}
	r.schedule()
}

// importsFrom reports whether a takes something from an account that which selects.
func (a *Account) importsFrom(which func(account string) bool) bool {
	return slices.ContainsFunc(a.Imports, func(im Import) bool { return which(im.Account) })
}

// Get returns an account, nil if there is none of that name.
func (r *Registry) Get(name string) *Account {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accounts[name]
}

// link puts an account's links in force. mu is held.
func (r *Registry) link(name string) {
	delete(r.ends, name)
	a := r.accounts[name]
	if a == nil || len(a.Imports)+len(a.Mappings) == 0 && a.TraceTo == "" {
		if r.linked[name] {
			delete(r.linked, name)
			r.apply(name, nil)
		}
		return
	}
	r.linked[name] = true
	r.apply(name, r.links(a))
}

// links is what a takes and renames. What is not allowed or not possible is left out.
func (r *Registry) links(a *Account) *bus.Links {
	l := &bus.Links{TraceTo: a.TraceTo, TraceShare: a.TraceShare}
	now := time.Now()
	for i := range a.Imports {
		im := &a.Imports[i]
		if err := r.addImport(l, a, im, now); err != nil {
			r.warn(a.Name, fmt.Errorf("import of %q from account %q: %w", im.Subject, im.Account, err))
		}
	}
	var err error
	if l.Map, err = mapperOf(a.Mappings, r.cluster); err != nil {
		r.warn(a.Name, err)
	}
	return l
}

func (r *Registry) addImport(l *bus.Links, a *Account, im *Import, now time.Time) error {
	from := r.accounts[im.Account]
	if from == nil {
		return ErrUnknown
	}
	e, until, err := from.authorize(a, im, now)
	if err != nil {
		return err
	}
	if next, known := r.ends[a.Name]; !until.IsZero() && (!known || until.Before(next)) {
		r.ends[a.Name] = until
	}
	c, err := cross(im.Subject, im.Local)
	if err != nil {
		return err
	}
	if !im.Service {
		l.Streams = append(l.Streams, bus.StreamImport{
			Account: im.Account, From: im.Subject, To: c.local, In: c.in, Out: c.out, Trace: im.Trace,
		})
		return nil
	}
	l.Services = append(l.Services, bus.ServiceImport{
		From: c.local, To: im.Subject, Map: c.out, Share: im.Share, Export: r.export(im.Account, e),
	})
	return nil
}

// export is e as the bus knows it, the same one for all who import it.
func (r *Registry) export(account string, e *Export) *bus.Export {
	out := r.exports[e]
	if out != nil {
		return out
	}
	out = &bus.Export{
		Account: account, Response: bus.ResponseType(e.Response), Threshold: e.Threshold, Trace: e.Trace,
	}
	if e.Latency != nil {
		out.Latency = &bus.LatencyExport{Results: e.Latency.Results, Sample: sampler(e.Latency.Sampling)}
	}
	r.exports[e] = out
	return out
}

// schedule waits for the next activation that ends. mu is held.
func (r *Registry) schedule() {
	next := time.Time{}
	for _, until := range r.ends {
		if next.IsZero() || until.Before(next) {
			next = until
		}
	}
	if r.expiry != nil {
		r.expiry.Stop()
	}
	if !next.IsZero() {
		r.expiry = time.AfterFunc(time.Until(next), r.activationEnded)
	}
}

// activationEnded looks again at the accounts whose activations have ended.
func (r *Registry) activationEnded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for name, until := range r.ends {
		if !until.After(now) {
			r.link(name)
		}
	}
	r.schedule()
}

// Close ends the wait for activations.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.expiry != nil {
		r.expiry.Stop()
	}
}

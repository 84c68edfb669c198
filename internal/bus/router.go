package bus

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// Errors of Open and Subscribe.
var (
	ErrClosed         = errors.New("session is closed")
	ErrInvalidSubject = errors.New("invalid subject")
	ErrNoSink         = errors.New("a party without a sink cannot subscribe")
	ErrUnknownKind    = errors.New("unknown kind of party")
)

// Router is the Bus inside one process: it matches and hands over by itself, with no goroutine of its own.
//
// # How it works
//
// Every account has an index of its subscriptions (subjects.Index) under a lock that publishers only read. A session
// remembers what a subject matched (cache.go) for as long as no subscription came or went that could change it
// (generations.go), so a publish to a known subject takes no lock at all. What it matches is queued for each receiver's
// sink, and Flush calls each of those sinks once.
//
// # Where it is stricter or looser than the contract
//
//   - A session that has queued a great deal (maxQueued deliveries) without a Flush delivers early, inside Publish, so
//     that what is queued stays bounded however many subscribers a subject has. Order is kept; the stall is kept for
//     the next Flush.
//   - A subscription that is removed between a Publish and its Flush may still get the message. After a session's Close
//     returned, no Flush that begins later calls its sink.
//   - The last message of a subscription with a limit removes it in Publish, before the message is handed over.
//   - What a KindMirror party publishes is matched against services alone; its Publish reports interest among those.
type Router struct {
	mu       sync.RWMutex
	accounts map[string]*account // never shrinks: as many as are configured

	hooks   Hooks
	buffers sync.Pool // of *buffer
}

var _ Bus = (*Router)(nil)

// NewRouter returns a Router without parties.
func NewRouter() *Router {
	r := &Router{accounts: make(map[string]*account)}
	r.buffers.New = func() any { return &buffer{} }
	return r
}

// Open makes a party. The error is ErrUnknownKind.
func (r *Router) Open(kind Kind, id Identity, out Sink) (Session, error) {
	if kind < KindClient || kind > KindMirror {
		return nil, ErrUnknownKind
	}
	if id.Account == "" {
		id.Account = DefaultAccount
	}
	p := &party{kind: kind, id: id, account: r.account(id.Account)}
	if out != nil {
		p.out.Store(&out)
	}
	return &session{
		party:  p,
		router: r,
		rand:   rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
	}, nil
}

// HasInterest reports whether a message to subject in account would reach any subscription.
func (r *Router) HasInterest(account, subject string) bool {
	a := r.lookup(account)
	return a != nil && a.heard(subject, 0)
}

// ClientHears reports whether a client in account hears subject (see Bus).
func (r *Router) ClientHears(account, subject string) bool {
	a := r.lookup(account)
	if a == nil {
		return false
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	heard := false
	a.index.Match(bytesOf(subject), func(s *Subscription) bool {
		heard = s.owner.kind == KindClient
		return !heard
	})
	return heard
}

// Listens reports whether somebody subscribed to subject itself in the queue group (see Bus).
func (r *Router) Listens(account, subject, queue string) bool {
	a := r.lookup(account)
	if a == nil {
		return false
	}
	a, subject = a.resolve(subject)
	for _, s := range a.match(nil, []byte(subject)) {
		if s.Queue == queue && s.Filter == subject {
			return true
		}
	}
	return false
}

// WatchListeners calls changed whenever what Listens reports changes (see Bus).
func (r *Router) WatchListeners(account, subject, queue string, changed func(listens bool)) (cancel func()) {
	a, subject := r.account(orDefault(account)).resolve(subject)
	w := a.watch(subject, queue, changed)
	return sync.OnceFunc(func() { a.unwatch(w) })
}

// lookup returns the account, nil if nobody was ever in it.
func (r *Router) lookup(name string) *account {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.accounts[orDefault(name)]
}

// account returns the account, making it at first use.
func (r *Router) account(name string) *account {
	if a := r.lookup(name); a != nil {
		return a
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.accounts[name]
	if a == nil {
		a = newAccount(name)
		r.accounts[name] = a
	}
	return a
}

// party is the part of a session that others see. It outlives the session in publishers' caches, so it is small and
// lets go of its sink at Close.
type party struct {
	kind    Kind
	id      Identity
	account *account
	out     atomic.Pointer[Sink] // nil: it has none, or is closed
	closed  atomic.Bool

	mu     sync.Mutex // before account.mu
	subs   map[string]*Subscription
	cached int // size of its session's cache, as the account has it
}

// accepts reports whether what from publishes is for p at all.
func (p *party) accepts(from *party) bool {
	if p == from && p.id.NoEcho {
		return false
	}
	return from.kind != KindMirror || p.kind == KindService
}

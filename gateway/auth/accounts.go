package auth

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// Reasons why there is no such account.
var (
	ErrAccount        = errors.New("no such account")
	ErrAccountIssuer  = errors.New("the account is not signed by a trusted operator")
	ErrAccountInvalid = errors.New("the account's claims are not valid")
	ErrAccountExpired = errors.New("the account's claims have expired")
)

// AccountSource has the claims of accounts, as signed, by public key.
type AccountSource interface {
	Fetch(account string) (token string, err error)
}

// Account is an account of operator mode. Immutable: new claims make a new one.
type Account struct {
	// Claims are what the operator signed: limits, revocations, signing keys, and also imports, exports and mappings,
	// which internal/accounts reads.
	Claims *jwt.AccountClaims
	// Gone is an account that was deleted. Nobody can log in to it.
	Gone bool

	token    string
	defaults *Permissions // of users who have none
}

// Name returns the account's public key, which is its name everywhere.
func (a *Account) Name() string { return a.Claims.Subject }

// Label returns what people call the account: the name in its claims, else its key.
func (a *Account) Label() string { return cmp.Or(a.Claims.Name, a.Name()) }

// Token returns the claims as they were signed; empty for an account that has none.
func (a *Account) Token() string { return a.token }

// Expired reports whether the claims have expired at now.
func (a *Account) Expired(now time.Time) bool {
	return a.Claims.Expires != 0 && a.Claims.Expires <= now.Unix()
}

// Accounts are the accounts of operator mode: fetched when somebody asks for one, verified, and kept. Safe for
// concurrent use.
type Accounts struct {
	fetching chan struct{} // bounds the fetches at a time
	telling  sync.Mutex    // held while watchers hear of an account, taken before mu

	mu       sync.Mutex
	source   AccountSource
	trusted  map[string]bool // the keys of operators that may sign accounts
	system   string
	sentinel string
	proxies  proxies
	pinned   map[string]bool // the only accounts that may be used; nil: all
	loaded   map[string]*Account
	watchers []func(*Account)
}

// maxFetches is how many accounts are fetched at a time: strangers can ask for any.
const maxFetches = 16

// NewAccounts returns the accounts of the operators in o, nil if there are none. pinned, if not empty, are the only
// ones that may be used.
func NewAccounts(o *server.Options, source AccountSource, pinned []string) (*Accounts, error) {
	if len(o.TrustedOperators) == 0 && len(o.TrustedKeys) == 0 {
		return nil, nil //nolint:nilnil // not in operator mode
	}
	a := &Accounts{loaded: map[string]*Account{}, fetching: make(chan struct{}, maxFetches)}
	return a, a.settle(o, source, pinned)
}

// settle takes over what o says.
func (a *Accounts) settle(o *server.Options, source AccountSource, pinned []string) error {
	if source == nil {
		return errors.New("operators require an account resolver")
	}
	proxies, err := newProxies(o)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.source, a.trusted, a.sentinel, a.proxies = source, trustedKeys(o), o.DefaultSentinel, proxies
	a.system, a.pinned = o.SystemAccount, nil
	if len(pinned) > 0 {
		a.pinned = map[string]bool{a.system: true}
		for _, p := range pinned {
			a.pinned[p] = true
		}
	}
	return nil
}

// trustedKeys are the keys that may sign accounts: an operator with strict signing keys does not sign by itself.
func trustedKeys(o *server.Options) map[string]bool {
	out := map[string]bool{}
	for _, op := range o.TrustedOperators {
		if !op.StrictSigningKeyUsage {
			out[op.Subject] = true
		}
		for _, k := range op.SigningKeys {
			out[k] = true
		}
	}
	if len(o.TrustedOperators) == 0 {
		for _, k := range o.TrustedKeys {
			out[k] = true
		}
	}
	return out
}

// Reload takes over other options. Accounts in the memory of the source are looked at again; other sources tell of
// changes by themselves, and one that cannot be reached for a moment takes nothing away. An account whose operator is
// not trusted any more is gone.
func (a *Accounts) Reload(o *server.Options, source AccountSource, pinned []string) error {
	if err := a.settle(o, source, pinned); err != nil {
		return err
	}
	_, memory := source.(*server.MemAccResolver)
	for _, name := range a.Known() {
		acc := a.Loaded(name)
		var err error
		switch {
		case memory:
			_, err = a.fetch(name)
		case acc.token != "" && !a.Trusts(acc.Claims.Issuer):
			err = ErrAccountIssuer
		}
		if err != nil {
			a.Delete(name)
		}
	}
	return nil
}

// Known returns the names of the accounts that were asked for.
func (a *Accounts) Known() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.loaded))
}

// System returns the name of the system account; empty: there is none.
func (a *Accounts) System() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.system
}

// Watch has fn called with every account that is loaded or has new claims, one after the other and before anybody is
// let in by them. fn must not ask for accounts.
func (a *Accounts) Watch(fn func(*Account)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers = append(a.watchers, fn)
}

// Get returns an account, fetched if it is not known or its claims have expired.
func (a *Accounts) Get(name string) (*Account, error) {
	a.mu.Lock()
	acc := a.loaded[name]
	a.mu.Unlock()
	if acc != nil && !acc.Gone && !acc.Expired(time.Now()) {
		return acc, nil
	}
	acc, err := a.fetch(name)
	if err == nil {
		a.FetchImported(acc)
	}
	return acc, err
}

// FetchImported makes the accounts that acc imports from known, and those that they import from, so that what is
// imported is there for who logs in. One that cannot be fetched offers nothing.
func (a *Accounts) FetchImported(acc *Account) {
	for _, im := range acc.Claims.Imports {
		if a.Loaded(im.Account) == nil {
			_, _ = a.Get(im.Account) // a stranger cannot reach this: acc is signed by an operator
		}
	}
}

func (a *Accounts) fetch(name string) (*Account, error) {
	if !nkeys.IsValidPublicAccountKey(name) {
		return nil, ErrAccount
	}
	a.mu.Lock()
	source, system := a.source, a.system
	a.mu.Unlock()
	a.fetching <- struct{}{}
	token, err := source.Fetch(name)
	<-a.fetching
	if err != nil {
		if name == system {
			return a.bootstrap()
		}
		return nil, fmt.Errorf("%w: %w", ErrAccount, err)
	}
	return a.Update(name, token)
}

// bootstrap stands for a system account that the source does not have yet: its own key signs for it, so that the
// operator can log in and bring it.
func (a *Accounts) bootstrap() (*Account, error) {
	a.mu.Lock()
	_, memory := a.source.(*server.MemAccResolver)
	name := a.system
	a.mu.Unlock()
	if memory {
		return nil, ErrAccount
	}
	return a.put(&Account{Claims: jwt.NewAccountClaims(name)}), nil
}

// Update puts the claims of token in force for the account called name.
func (a *Accounts) Update(name, token string) (*Account, error) {
	claims, err := a.verify(token)
	if err != nil {
		return nil, err
	}
	if claims.Subject != name {
		return nil, ErrAccountInvalid
	}
	defaults, err := NewPermissions(permissionsOf(&claims.DefaultPermissions))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAccountInvalid, err)
	}
	acc := a.put(&Account{Claims: claims, token: token, defaults: defaults})
	for _, i := range claims.Imports { // what it imports is there when its users are
		if a.Loaded(i.Account) == nil {
			_, _ = a.fetch(i.Account) // an import without its account brings nothing
		}
	}
	return acc, nil
}

// verify decodes the claims of an account, which checks their signature, and looks whether we trust who signed.
func (a *Accounts) verify(token string) (*jwt.AccountClaims, error) {
	claims, err := jwt.DecodeAccountClaims(token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAccountInvalid, err)
	}
	a.mu.Lock()
	trusted := a.trusted[claims.Issuer]
	a.mu.Unlock()
	if !trusted {
		return nil, ErrAccountIssuer
	}
	vr := jwt.CreateValidationResults()
	claims.Validate(vr)
	if vr.IsBlocking(true) {
		return nil, ErrAccountInvalid
	}
	return claims, nil
}

// Verify reports what is wrong with the claims in token, nothing if they could be put in force.
func (a *Accounts) Verify(token string) error {
	_, err := a.verify(token)
	return err
}

// Trusts reports whether key is one that may sign accounts.
func (a *Accounts) Trusts(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.trusted[key]
}

// put makes acc the one of its name and tells the watchers, unless nothing has changed.
func (a *Accounts) put(acc *Account) *Account {
	a.telling.Lock()
	defer a.telling.Unlock()
	a.mu.Lock()
	was := a.loaded[acc.Name()]
	if was != nil && was.token == acc.token && was.Gone == acc.Gone {
		a.mu.Unlock()
		return was
	}
	a.loaded[acc.Name()] = acc
	watchers := a.watchers
	a.mu.Unlock()
	for _, fn := range watchers {
		fn(acc)
	}
	return acc
}

// Delete makes an account one that nobody can use, if it is known.
func (a *Accounts) Delete(name string) {
	a.mu.Lock()
	was := a.loaded[name]
	a.mu.Unlock()
	if was == nil || was.Gone {
		return
	}
	gone := *was
	gone.Gone = true
	a.put(&gone)
}

// Loaded returns an account that is known already, nil if it is not.
func (a *Accounts) Loaded(name string) *Account {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.loaded[name]
}

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/monitor"
	"github.com/noetl/ehdb-gateway/gateway/resolver"
	"github.com/noetl/ehdb-gateway/internal/accounts"
	"github.com/noetl/ehdb-gateway/internal/config"
	"github.com/noetl/ehdb-gateway/jetstreamapi"
)

// operator is what there is in operator mode: accounts that come with JWTs, and JetStream for those that may have it.
type operator struct {
	accounts *auth.Accounts
	dir      *resolver.Dir // nil: claims are in memory or behind a URL
	service  *resolver.Service
	log      *slog.Logger

	mu      sync.Mutex         // guards what follows
	streams *streams           // nil: JetStream is off, or not up yet
	links   *accounts.Registry // nil: not yet
	limits  map[string]config.AccountLimits
	tiers   map[string]jetstreamapi.Tiers
	without map[string]bool // accounts that have no JetStream
}

// newOperator returns nil if the configuration names no operator.
func newOperator(cfg *config.Config, log *slog.Logger) (*operator, error) {
	if !cfg.OperatorMode() {
		return nil, nil
	}
	o := &operator{
		log: log, limits: map[string]config.AccountLimits{}, without: map[string]bool{},
		tiers: map[string]jetstreamapi.Tiers{},
	}
	source := auth.AccountSource(cfg.Server.AccountResolver)
	if r := cfg.Resolver; r.Kind != "" {
		dir, err := resolver.OpenDir(resolver.DirConfig{
			Kind: resolver.Kind(r.Kind), Path: r.Dir, Limit: r.Limit, TTL: r.TTL, Delete: r.Delete, Hard: r.Hard,
		}, o.claimsChanged)
		if err != nil {
			return nil, err
		}
		o.dir, source = dir, dir
		log.Info("Managing accounts in {dir}", slog.String("dir", r.Dir))
	}
	known, err := auth.NewAccounts(cfg.Server, source, cfg.PinnedAccounts)
	if err != nil {
		o.stop()
		return nil, err
	}
	o.accounts = known
	known.Watch(o.accountChanged)
	return o, nil
}

// claimsChanged puts claims in force that are new in the directory, if anybody uses their account.
func (o *operator) claimsChanged(account string) {
	if o.accounts.Loaded(account) == nil {
		return
	}
	token, err := o.dir.Fetch(account)
	if err == nil {
		var now *auth.Account
		if now, err = o.accounts.Update(account, token); err == nil {
			o.accounts.FetchImported(now)
		}
	}
	if err != nil {
		o.log.Error("Update of account {account} failed: {error}",
			slog.String("account", account), slog.Any("error", err))
	}
}

// serve answers the requests about claims in the system account.
func (o *operator) serve(a *app) error {
	if o.accounts.System() == "" {
		return nil
	}
	if _, err := o.accounts.Get(o.accounts.System()); err != nil { // tools ask about it before anybody logs in to it
		o.log.Warn("The system account cannot be resolved: {error}", slog.Any("error", err))
	}
	so := resolver.Options{
		Bus: a.router, Accounts: o.accounts, Dir: o.dir, Logger: o.log, Identity: a.identity,
	}
	if ops := a.cfg.Server.TrustedOperators; len(ops) > 0 {
		so.Operator = ops[0]
	}
	var err error
	o.service, err = resolver.Start(so)
	return err
}

// identity is the server as answers in the system account name it.
func (a *app) identity() server.ServerInfo {
	s, o := a.gw.Stats(), a.cfg.Server
	return server.ServerInfo{
		Name: s.ServerName, Host: s.Host, ID: s.ServerID, Cluster: o.Cluster.Name, Domain: o.JetStreamDomain,
		Version: s.Version, Tags: o.Tags, Metadata: o.Metadata, FeatureFlags: monitor.FeatureFlags(),
		JetStream: o.JetStream, Time: time.Now().UTC(),
	}
}

// serveStreams gives the accounts JetStream from now on. Those that have streams are fetched, so that these are there
// before anybody logs in.
func (o *operator) serveStreams(s *streams) error {
	o.mu.Lock()
	o.streams = s
	o.mu.Unlock()
	stored, err := s.svc.StoredAccounts()
	if err != nil {
		return err
	}
	for _, name := range stored {
		if _, err := o.accounts.Get(name); err != nil {
			o.log.Warn("Account {account} has streams that are not served, since it cannot be resolved: {error}",
				slog.String("account", name), slog.Any("error", err))
		}
	}
	return o.setStreams()
}

// accountChanged follows the claims of an account.
func (o *operator) accountChanged(a *auth.Account) {
	limits, tiers, has := streamLimits(a)
	o.mu.Lock()
	if has {
		o.limits[a.Name()] = limits
		o.setTiers(a.Name(), tiers)
		delete(o.without, a.Name())
	} else {
		delete(o.limits, a.Name())
		o.setTiers(a.Name(), nil)
		o.without[a.Name()] = !linksOf(a).ImportsJetStream()
	}
	links := o.links
	o.mu.Unlock()
	if links != nil {
		links.Set(linksOf(a))
	}
	if err := o.setStreams(); err != nil {
		o.log.Error("Error configuring JetStream for account {account}: {error}",
			slog.String("account", a.Name()), slog.Any("error", err))
	}
}

// setTiers notes an account's limits by tier; nil: it has none. o.mu is held.
func (o *operator) setTiers(account string, tiers jetstreamapi.Tiers) {
	if tiers == nil {
		delete(o.tiers, account)
		return
	}
	o.tiers[account] = tiers
}

// linksOf is what an account offers and takes; nothing once it is gone.
func linksOf(a *auth.Account) *accounts.Account {
	if a.Gone {
		return &accounts.Account{Name: a.Name()}
	}
	return accounts.FromClaims(a.Claims)
}

// serveLinks puts in force what accounts offer each other, from now on.
func (o *operator) serveLinks(r *accounts.Registry) {
	o.mu.Lock()
	o.links = r
	o.mu.Unlock()
	for _, name := range o.accounts.Known() {
		r.Set(linksOf(o.accounts.Loaded(name)))
	}
}

// setStreams makes JetStream follow.
func (o *operator) setStreams() error {
	o.mu.Lock()
	s, limits, tiers := o.streams, maps.Clone(o.limits), maps.Clone(o.tiers)
	var without []string
	for name, is := range o.without {
		if is {
			without = append(without, name)
		}
	}
	o.mu.Unlock()
	if s == nil || !s.up() {
		return nil
	}
	slices.Sort(without)
	s.svc.SetTiers(tiers)
	return s.svc.SetAccounts(limits, without)
}

// streamLimits returns the JetStream limits in an account's claims, by tier if they are; false: it has no JetStream.
func streamLimits(a *auth.Account) (limits config.AccountLimits, tiers jetstreamapi.Tiers, has bool) {
	l := a.Claims.Limits
	if a.Gone || !l.IsJSEnabled() {
		return limits, nil, false
	}
	if len(l.JetStreamTieredLimits) == 0 {
		return limitsOf(l.JetStreamLimits), nil, true
	}
	tiers = jetstreamapi.Tiers{}
	for name, tier := range l.JetStreamTieredLimits {
		tiers[name] = limitsOf(tier)
	}
	return tiers.Here(), tiers, true
}

func limitsOf(l jwt.JetStreamLimits) config.AccountLimits {
	orNone := func(n int64) int64 {
		if n > 0 {
			return n
		}
		return -1
	}
	return config.AccountLimits{
		MaxMemory: l.MemoryStorage, MaxStore: l.DiskStorage, MaxStreams: int(l.Streams), MaxConsumers: int(l.Consumer),
		MemoryMaxStreamBytes: orNone(l.MemoryMaxStreamBytes), StoreMaxStreamBytes: orNone(l.DiskMaxStreamBytes),
		MaxBytesRequired: l.MaxBytesRequired, MaxAckPending: int(orNone(l.MaxAckPending)),
	}
}

// reload takes over a new configuration, which keeps to the same resolver.
func (o *operator) reload(next *config.Config) error {
	if o.dir == nil {
		return o.accounts.Reload(next.Server, next.Server.AccountResolver, next.PinnedAccounts)
	}
	return errors.Join(o.dir.Reload(), o.accounts.Reload(next.Server, o.dir, next.PinnedAccounts))
}

// sameResolver is an error if next keeps claims in another kind of place.
func sameResolver(now, next *config.Config) error {
	none := func(c *config.Config) bool { return c.Server.AccountResolver == nil }
	if now.OperatorMode() != next.OperatorMode() || none(now) != none(next) {
		return errors.New("config reload does not support moving to or from an account resolver")
	}
	if now.Resolver != next.Resolver {
		return fmt.Errorf("config reload not supported for resolver: old=%v, new=%v", now.Resolver, next.Resolver)
	}
	return nil
}

func (o *operator) stop() {
	if o.service != nil {
		o.service.Stop()
	}
	if o.dir != nil {
		o.dir.Close()
	}
}

package main

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/gateway/monitor"
	"github.com/noetl/ehdb-gateway/gateway/system"
	"github.com/noetl/ehdb-gateway/internal/accounts"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/config"
)

// newLinks puts in force what the accounts offer each other: those of the configuration, or in operator mode those that
// are known, as they become so.
func newLinks(a *app) *accounts.Registry {
	a.router.SetHooks(bus.Hooks{Describe: a.gw.RequestInfo, Measured: a.measured})
	warn := func(account string, err error) {
		tell := a.log.Warn
		if errors.Is(err, accounts.ErrUnknown) {
			tell = a.log.Debug // in operator mode, accounts become known one after the other
		}
		tell("Account {account}: {error}", slog.String("account", account), slog.Any("error", err))
	}
	r := accounts.NewRegistry(a.cfg.Server.Cluster.Name, systemAccount(a.cfg.Server), a.router.SetLinks, warn)
	if a.tenants != nil {
		a.tenants.serveLinks(r)
	} else {
		r.Replace(allAccounts(a.cfg))
	}
	return r
}

// allAccounts are the accounts of a configuration, those that say nothing of imports and exports included.
func allAccounts(cfg *config.Config) []*accounts.Account {
	out := slices.Clone(cfg.Accounts)
	names := []string{server.DEFAULT_GLOBAL_ACCOUNT, systemAccount(cfg.Server)}
	for _, a := range cfg.Server.Accounts {
		names = append(names, a.Name)
	}
	for _, name := range names {
		known := func(a *accounts.Account) bool { return a.Name == name }
		if name != "" && !slices.ContainsFunc(out, known) {
			out = append(out, &accounts.Account{Name: name})
		}
	}
	return out
}

// systemAccount is the name of the system account, empty if there is none.
func systemAccount(o *server.Options) string {
	if o.SystemAccount == "" && !o.NoSystemAccount {
		return server.DEFAULT_SYSTEM_ACCOUNT
	}
	return o.SystemAccount
}

// startSystem serves the system account, where this server is the one that clients talk to.
func (a *app) startSystem() error {
	account := systemAccount(a.cfg.Server)
	if account == "" || a.nats != nil {
		return nil
	}
	s := system.New(system.Options{
		Bus: a.router, Account: account, Gateway: a.gw, Monitor: a.monitor, Identity: a.identity, Reload: a.reload,
		Logger: a.log.Logger,
	})
	if err := s.Start(); err != nil {
		return err
	}
	a.system.Store(s)
	return nil
}

// Observe implements gateway.Observer.
func (a *app) Observe(kind gateway.EventKind, account string, describe func() gateway.Event) {
	if s := a.system.Load(); s != nil {
		s.Observe(kind, account, describe)
	}
}

// measured passes measurements of services on.
func (a *app) measured(l bus.Latency) {
	if s := a.system.Load(); s != nil {
		s.Measured(l)
	}
}

// shownLinks is what an account offers and takes, as monitoring shows it.
func (a *app) shownLinks(account string) monitor.Links {
	acc := a.links.Get(account)
	if acc == nil {
		return monitor.Links{}
	}
	l := monitor.Links{Mappings: server.ExtMap{}}
	for i := range acc.Exports {
		l.Exports = append(l.Exports, shownExport(&acc.Exports[i]))
	}
	for i := range acc.Imports {
		im := &acc.Imports[i]
		out := server.ExtImport{Share: im.Share, Import: jwt.Import{
			Subject: jwt.Subject(im.Subject), Account: im.Account, Type: jwt.Stream,
			LocalSubject: jwt.RenamingSubject(im.LocalFilter()),
		}}
		if im.Service {
			out.Type = jwt.Service
			out.To = jwt.Subject(im.LocalFilter()) //nolint:staticcheck // nats-server shows it of services, though old
		}
		l.Imports = append(l.Imports, out)
	}
	for _, m := range acc.Mappings {
		for _, d := range m.Destinations {
			weight := uint8(d.Weight) //nolint:gosec // per cent
			l.Mappings[m.Subject] = append(l.Mappings[m.Subject],
				&server.MapDest{Subject: d.Subject, Weight: weight, Cluster: d.Cluster})
		}
	}
	return l
}

func shownExport(e *accounts.Export) server.ExtExport {
	out := server.ExtExport{ApprovedAccounts: e.Approved, Export: jwt.Export{
		Subject: jwt.Subject(e.Subject), Type: jwt.Stream, TokenReq: e.TokenRequired,
	}}
	if e.Service {
		out.Type = jwt.Service
		out.ResponseType = []jwt.ResponseType{
			jwt.ResponseTypeSingleton, "Streamed", jwt.ResponseTypeChunked, // as nats-server's pages call them
		}[e.Response]
	}
	if e.Latency != nil {
		out.Latency = &jwt.ServiceLatency{
			Sampling: jwt.SamplingRate(e.Latency.Sampling), Results: jwt.Subject(e.Latency.Results),
		}
	}
	for who, at := range e.Revoked {
		if out.RevokedAct == nil {
			out.RevokedAct = map[string]time.Time{}
		}
		out.RevokedAct[who] = time.Unix(at, 0)
	}
	return out
}

package main

import (
	"log/slog"

	"github.com/noetl/ehdb-gateway/internal/accounts"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// newLinks puts in force what the accounts of the configuration offer each other.
func newLinks(a *app) *accounts.Registry {
	a.router.SetHooks(bus.Hooks{Describe: a.gw.RequestInfo})
	r := accounts.NewRegistry(a.cfg.Server.Cluster.Name, a.router.SetLinks, func(account string, err error) {
		a.log.Warn("account {account}: {error}", slog.String("account", account), slog.Any("error", err))
	})
	r.Replace(a.cfg.Accounts)
	return r
}

package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/noetl/ehdb-gateway/internal/accounts"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// newLinks puts in force what the accounts offer each other: those of the configuration, or in operator mode those that
// are known, as they become so.
func newLinks(a *app) *accounts.Registry {
	a.router.SetHooks(bus.Hooks{Describe: a.gw.RequestInfo})
	r := accounts.NewRegistry(a.cfg.Server.Cluster.Name, a.router.SetLinks, func(account string, err error) {
		level := slog.LevelWarn
		if errors.Is(err, accounts.ErrUnknown) {
			level = slog.LevelDebug // in operator mode, accounts become known one after the other
		}
		a.log.Log(context.Background(), level, "Account {account}: {error}",
			slog.String("account", account), slog.Any("error", err))
	})
	if a.tenants != nil {
		a.tenants.serveLinks(r)
	} else {
		r.Replace(a.cfg.Accounts)
	}
	return r
}

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/internal/config"
)

// reload reads the configuration again and puts it in force. On an error everything stays as it was.
func (a *app) reload() error {
	a.reloads.Lock()
	defer a.reloads.Unlock()
	if a.cfg.Server.ConfigFile == "" {
		return errors.New("can only reload config when a file is provided using -c or --config")
	}
	next, err := config.Load(a.args, config.Environ)
	if err != nil {
		return err
	}
	if err := errors.Join(settled(a.cfg, next), sameResolver(a.cfg, next)); err != nil {
		return err
	}
	a.gw.SetLimits(connLimits(next))
	if err := a.gw.SetOptions(next.Server); err != nil {
		return err
	}
	if a.tenants == nil {
		a.links.Replace(allAccounts(next))
	}
	a.monitor.SetOptions(next.Server)
	a.log.SetLevels(next.Server.Debug, next.Server.Trace)
	if a.tenants != nil {
		if err := a.tenants.reload(next); err != nil {
			return fmt.Errorf("limits are in force, accounts are as they were: %w", err)
		}
	}
	if a.streams != nil {
		a.streams.svc.SetMaxPayload(int64(next.Server.MaxPayload))
	}
	if a.streams != nil && a.tenants == nil {
		if err := a.streams.svc.SetAccounts(next.JetStreamAccounts, outsiders(next)); err != nil {
			return fmt.Errorf("limits and users are in force, accounts with JetStream are not: %w", err)
		}
	}
	a.cfg = next
	for _, w := range next.Warnings {
		a.log.Warn("{warning}", slog.String("warning", w))
	}
	return nil
}

// connLimits are the limits of accounts in the file as the gateway takes them.
func connLimits(cfg *config.Config) map[string]auth.Limits {
	out := make(map[string]auth.Limits, len(cfg.Limits))
	for name, l := range cfg.Limits {
		limits := auth.NoLimits()
		limits.MaxPayload, limits.MaxSubs = l.MaxPayload, l.MaxSubs
		out[name] = limits
	}
	return out
}

// settled is an error if next differs from now in what is settled at the start.
func settled(now, next *config.Config) error {
	o, n := now.Server, next.Server
	if o.JetStreamKey != n.JetStreamKey || cipherOf(o) != cipherOf(n) { // their values are nobody's business
		return errors.New("config reload not supported for jetstream.key and jetstream.cipher: restart to change them")
	}
	type setting struct {
		key      string
		old, new any
	}
	for _, s := range []setting{
		{"host", o.Host, n.Host},
		{"port", o.Port, n.Port},
		{"http_host", o.HTTPHost, n.HTTPHost},
		{"http_port", o.HTTPPort, n.HTTPPort},
		{"https_port", o.HTTPSPort, n.HTTPSPort},
		{"http_base_path", o.HTTPBasePath, n.HTTPBasePath},
		{"prof_port", o.ProfPort, n.ProfPort},
		{"server_name", o.ServerName, n.ServerName},
		{"client_advertise", o.ClientAdvertise, n.ClientAdvertise},
		{"websocket", beyondTLS(o.Websocket), beyondTLS(n.Websocket)},
		{"pid_file", o.PidFile, n.PidFile},
		{"ports_file_dir", o.PortsFileDir, n.PortsFileDir},
		{"log_file", o.LogFile, n.LogFile},
		{"logtime", o.Logtime, n.Logtime},
		{"syslog", o.Syslog, n.Syslog},
		{"remote_syslog", o.RemoteSyslog, n.RemoteSyslog},
		{"jetstream", o.JetStream, n.JetStream},
		{"store_dir", now.DataDir, next.DataDir},
		{"jetstream.domain", o.JetStreamDomain, n.JetStreamDomain},
		{"jetstream.max_memory_store", o.JetStreamMaxMemory, n.JetStreamMaxMemory},
		{"jetstream.max_file_store", o.JetStreamMaxStore, n.JetStreamMaxStore},
		{"jetstream.limits", o.JetStreamLimits, n.JetStreamLimits},
		{"bus.mode", now.Bus.Mode, next.Bus.Mode},
		{"bus.upstream", now.Bus.Upstream, next.Bus.Upstream},
		{"bus.monitor", now.Bus.Monitor, next.Bus.Monitor},
		{"bus.connect_timeout", now.Bus.ConnectTimeout, next.Bus.ConnectTimeout},
		{"bus.proxy_protocol", now.Bus.ProxyProtocol, next.Bus.ProxyProtocol},
		{"ehdb", now.EHDB, next.EHDB},
	} {
		if reflect.DeepEqual(s.old, s.new) {
			continue
		}
		if s.key == "ehdb" {
			return errors.New("config reload not supported for ehdb: restart to change it")
		}
		return fmt.Errorf("config reload not supported for %s: old=%v, new=%v", s.key, s.old, s.new)
	}
	return nil
}

// beyondTLS is what a reload cannot change of the websocket block.
func beyondTLS(w server.WebsocketOpts) server.WebsocketOpts {
	w.TLSConfig, w.TLSPinnedCerts, w.TLSMap = nil, nil, false
	return w
}

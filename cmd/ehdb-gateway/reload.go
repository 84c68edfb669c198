package main

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/internal/config"
	"github.com/noetl/ehdb-gateway/internal/logging"
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
	if err := sameResolver(a.cfg, next); err != nil {
		return err
	}
	if err := settled(a.cfg, next); err != nil {
		return err
	}
	var newLog *logging.Prepared // nil: it stays
	if logSettingsOf(a.cfg.Server) != logSettingsOf(next.Server) {
		if newLog, err = a.log.Prepare(logOptions(next)); err != nil {
			return err
		}
	}
	a.gw.SetLimits(connLimits(next))
	if err := a.gw.SetOptions(next.Server); err != nil {
		if newLog != nil {
			err = errors.Join(err, newLog.Discard())
		}
		return err
	}
	if newLog != nil {
		a.complain(newLog.Use())
	}
	a.moveFiles(next.Server)
	if a.tenants == nil {
		a.links.Replace(allAccounts(next))
	}
	a.monitor.SetOptions(next.Server)
	a.log.SetLevels(next.Server.Debug, next.Server.Trace)
	if rate := next.Server.ProfBlockRate; rate != a.cfg.Server.ProfBlockRate {
		runtime.SetBlockProfileRate(rate)
	}
	if err := a.reloadAccounts(next); err != nil {
		return err
	}
	a.cfg = next
	for _, w := range next.Warnings {
		a.log.Warn("{warning}", slog.String("warning", w))
	}
	return nil
}

// reloadAccounts puts the accounts of next in force, and what their streams may hold.
func (a *app) reloadAccounts(next *config.Config) error {
	if a.tenants != nil {
		if err := a.tenants.reload(next); err != nil {
			return fmt.Errorf("limits are in force, accounts are as they were: %w", err)
		}
	}
	if a.streams == nil {
		return nil
	}
	a.streams.svc.SetMaxPayload(int64(next.Server.MaxPayload))
	a.streams.svc.SetMaxStorage(next.Server.JetStreamMaxMemory, next.Server.JetStreamMaxStore)
	if a.tenants != nil {
		return nil
	}
	if err := a.streams.svc.SetAccounts(next.JetStreamAccounts, outsiders(next)); err != nil {
		return fmt.Errorf("limits and users are in force, accounts with JetStream are not: %w", err)
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

// settled is an error if next differs from now in what is settled at the start: what nats-server does not reload
// either, with its text, and what is ours.
func settled(now, next *config.Config) error {
	o, n := now.Server, next.Server
	for _, s := range settings(now, next) {
		if !reflect.DeepEqual(s.old, s.new) {
			return fmt.Errorf("config reload not supported for %s: old=%v, new=%v", s.name, s.old, s.new)
		}
	}
	switch {
	case now.DataDir != next.DataDir:
		return errors.New("config reload not supported for jetstream storage directory")
	case !reflect.DeepEqual(now.EHDB, next.EHDB):
		return errors.New("config reload not supported for ehdb: restart to change it")
	}
	if err := raised(o.JetStreamMaxMemory, n.JetStreamMaxMemory); err != nil {
		return err
	}
	return raised(o.JetStreamMaxStore, n.JetStreamMaxStore)
}

// raised is an error, in nats-server's words, unless a limit on what JetStream stores stays or is raised. Negative:
// worked out from the machine.
func raised(now, next int64) error {
	switch {
	case next == now, now >= 0 && next > now:
		return nil
	case now < 0:
		return errors.New("config reload not supported for jetstream dynamic max memory and store")
	case next < 0:
		return errors.New("config reload not supported for jetstream max memory and max store")
	}
	return errors.New("config reload not supported for decreasing jetstream max memory and store")
}

// setting is something that only a start settles.
type setting struct {
	name     string // nats-server's
	old, new any
}

// settings are what only a start settles, as it is and as it would be.
func settings(now, next *config.Config) []setting {
	o, n := now.Server, next.Server
	return []setting{
		{"Host", o.Host, n.Host},
		{"Port", o.Port, n.Port},
		{"HTTPHost", o.HTTPHost, n.HTTPHost},
		{"HTTPPort", o.HTTPPort, n.HTTPPort},
		{"HTTPSPort", o.HTTPSPort, n.HTTPSPort},
		{"HTTPBasePath", o.HTTPBasePath, n.HTTPBasePath},
		{"ProfPort", o.ProfPort, n.ProfPort},
		{"ServerName", o.ServerName, n.ServerName},
		{"SystemAccount", o.SystemAccount, n.SystemAccount},
		{"NoSystemAccount", o.NoSystemAccount, n.NoSystemAccount},
		{"NoAuthUser", o.NoAuthUser, n.NoAuthUser},
		{"NoHeaderSupport", o.NoHeaderSupport, n.NoHeaderSupport},
		{"MaxSubs", o.MaxSubs, n.MaxSubs},
		{"MaxSubTokens", o.MaxSubTokens, n.MaxSubTokens},
		{"MaxPending", o.MaxPending, n.MaxPending},
		{"MaxClosedClients", o.MaxClosedClients, n.MaxClosedClients},
		{"WriteTimeout", o.WriteTimeout, n.WriteTimeout},
		{"LameDuckDuration", o.LameDuckDuration, n.LameDuckDuration},
		{"LameDuckGracePeriod", o.LameDuckGracePeriod, n.LameDuckGracePeriod},
		{"ProxyProtocol", o.ProxyProtocol, n.ProxyProtocol},
		{"Websocket", beyondTLS(o.Websocket), beyondTLS(n.Websocket)},
		{"LogSizeLimit", o.LogSizeLimit, n.LogSizeLimit},
		{"LogMaxFiles", o.LogMaxFiles, n.LogMaxFiles},
		{"JetStream", o.JetStream, n.JetStream},
		{"JetStreamDomain", o.JetStreamDomain, n.JetStreamDomain},
		{"JetStreamLimits", o.JetStreamLimits, n.JetStreamLimits},
		{"JetStreamRequestQueueLimit", o.JetStreamRequestQueueLimit, n.JetStreamRequestQueueLimit},
		{"NoJetStreamStrict", o.NoJetStreamStrict, n.NoJetStreamStrict},
		{"SyncInterval", o.SyncInterval, n.SyncInterval},
		{"SyncAlways", o.SyncAlways, n.SyncAlways},
		{"JetStreamKey", unshown{o.JetStreamKey}, unshown{n.JetStreamKey}},
		{"JetStreamOldKey", unshown{o.JetStreamOldKey}, unshown{n.JetStreamOldKey}},
		{"JetStreamCipher", o.JetStreamCipher, n.JetStreamCipher},
		{"JetStreamUniqueTag", o.JetStreamUniqueTag, n.JetStreamUniqueTag},
		{"JetStreamExtHint", o.JetStreamExtHint, n.JetStreamExtHint},
		{"JetStreamMaxCatchup", o.JetStreamMaxCatchup, n.JetStreamMaxCatchup},
		{"JetStreamInfoQueueLimit", o.JetStreamInfoQueueLimit, n.JetStreamInfoQueueLimit},
		{"StreamMaxBufferedMsgs", o.StreamMaxBufferedMsgs, n.StreamMaxBufferedMsgs},
		{"StreamMaxBufferedSize", o.StreamMaxBufferedSize, n.StreamMaxBufferedSize},
		{"JsAccDefaultDomain", o.JsAccDefaultDomain, n.JsAccDefaultDomain},
		{"NoSublistCache", o.NoSublistCache, n.NoSublistCache},
		{"FeatureFlags", o.FeatureFlags, n.FeatureFlags},
		{"AllowNonTLS", o.AllowNonTLS, n.AllowNonTLS},
		{"TLSMap", o.TLSMap, n.TLSMap},
		{"TLSRateLimit", o.TLSRateLimit, n.TLSRateLimit},
		{"ProxyRequired", o.ProxyRequired, n.ProxyRequired},
		{"AuthCallout", unshown{o.AuthCallout}, unshown{n.AuthCallout}},
		{"TrustedOperators", unshown{o.TrustedOperators}, unshown{n.TrustedOperators}},
		{"bus.mode", now.Bus.Mode, next.Bus.Mode},
		{"bus.upstream", now.Bus.Upstream, next.Bus.Upstream},
		{"bus.monitor", now.Bus.Monitor, next.Bus.Monitor},
		{"bus.hooks", now.Bus.Hooks.Dir(), next.Bus.Hooks.Dir()},
		{"bus.hook_timeout", now.Bus.Hooks.Timeout(), next.Bus.Hooks.Timeout()},
		{"bus.connect_timeout", now.Bus.ConnectTimeout, next.Bus.ConnectTimeout},
		{"bus.outage_logins", now.Bus.OutageLogins, next.Bus.OutageLogins},
		{"bus.proxy_protocol", now.Bus.ProxyProtocol, next.Bus.ProxyProtocol},
	}
}

// unshown is a value that is compared and not shown: a secret, or nothing that people can read.
type unshown struct{ value any }

func (unshown) String() string { return "(not shown)" }

// logSettings are what a reload can change of the log, besides its levels.
type logSettings struct {
	file, remote      string
	syslog, time, utc bool
}

func logSettingsOf(o *server.Options) logSettings {
	return logSettings{o.LogFile, o.RemoteSyslog, o.Syslog, o.Logtime, o.LogtimeUTC}
}

// moveFiles writes the files that tell others about this process where next wants them. What is wrong with that keeps
// nothing from going on.
func (a *app) moveFiles(next *server.Options) {
	o := a.cfg.Server
	if o.PidFile != next.PidFile {
		a.complain(errors.Join(writePid(next.PidFile), removePid(o.PidFile)))
	}
	if o.PortsFileDir != next.PortsFileDir {
		old := a.ports
		a.ports = portsFile(next.PortsFileDir)
		a.complain(errors.Join(a.writePorts(), removeFile(old)))
	}
}

func (a *app) complain(err error) {
	if err != nil {
		a.log.Error("{error}", slog.Any("error", err))
	}
}

// beyondTLS is what a reload cannot change of the websocket block.
func beyondTLS(w server.WebsocketOpts) server.WebsocketOpts {
	w.TLSConfig, w.TLSPinnedCerts, w.TLSMap = nil, nil, false
	return w
}

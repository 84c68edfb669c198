package main

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/monitor"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/metrics"
)

// core shows the client side to the monitor and to metrics.
type core struct {
	gw      *gateway.Server
	router  *bus.Router
	streams func() []string                    // the accounts with JetStream
	claims  func(account string) *auth.Account // of operator mode; nil: none are known
}

var errNotListening = errors.New("nats-server: not ready for connections yet")

// Ready implements monitor.Core.
func (c core) Ready() error {
	if c.gw.Addr() == nil {
		return errNotListening
	}
	return nil
}

// Info implements monitor.Core.
func (c core) Info() monitor.Info {
	s := c.gw.Stats()
	port := s.Port
	if port == 0 { // not listening yet
		port = c.gw.ServerOptions().Port
	}
	return monitor.Info{
		ID: s.ServerID, Name: s.ServerName, GitCommit: s.GitCommit, Host: s.Host, Port: port,
		AuthRequired: s.AuthRequired, Start: s.Start, Version: s.Version,
	}
}

// Counters implements monitor.Core.
func (c core) Counters() monitor.Counters {
	s := c.gw.Stats()
	return monitor.Counters{
		Connections: s.Connections, TotalConnections: s.TotalConnections,
		Subscriptions: uint32(c.router.Stats().Subscriptions), //nolint:gosec // in RAM, so there are fewer
		InMsgs:        s.InMsgs, InBytes: s.InBytes, OutMsgs: s.OutMsgs, OutBytes: s.OutBytes,
		SlowPending: uint64(s.SlowPending), SlowDeadline: uint64(s.SlowDeadline), //nolint:gosec // counters
		Stale: uint64(s.Stale), Stalls: uint64(s.Stalls), //nolint:gosec // counters
	}
}

// gatewayMetrics is what metrics show of the client side.
func (c core) gatewayMetrics() metrics.Gateway {
	s := c.gw.Stats()
	ended := make(map[string]uint64, len(s.Closed))
	for reason, n := range s.Closed {
		ended[string(reason)] = n
	}
	return metrics.Gateway{
		Disconnects: ended, Talkers: talkers(c.gw.Talkers()),
		Connections: uint64(s.Connections), Subscriptions: uint64(s.Subscriptions), //nolint:gosec // counters
		TotalConnections: s.TotalConnections,
		InMsgs:           uint64(s.InMsgs), OutMsgs: uint64(s.OutMsgs), //nolint:gosec // counters
		InBytes: uint64(s.InBytes), OutBytes: uint64(s.OutBytes), //nolint:gosec // counters
		SlowPending: uint64(s.SlowPending), SlowDeadline: uint64(s.SlowDeadline), //nolint:gosec // counters
		Stale: uint64(s.Stale), Stalled: uint64(s.Stalls), //nolint:gosec // counters
	}
}

// talkers are t as metrics take them.
func talkers(t gateway.Talkers) metrics.Talkers {
	list := func(from []gateway.Talker) []metrics.Talker {
		out := make([]metrics.Talker, len(from))
		for i, one := range from {
			out[i] = metrics.Talker(one)
		}
		return out
	}
	return metrics.Talkers{
		AccountMsgs: list(t.AccountMsgs), AccountBytes: list(t.AccountBytes), UserMsgs: list(t.UserMsgs),
		UserBytes: list(t.UserBytes), SubjectMsgs: list(t.SubjectMsgs), SubjectBytes: list(t.SubjectBytes),
	}
}

// Connections implements monitor.Core.
func (c core) Connections(want monitor.Wanted) []monitor.Connection {
	list := c.gw.Connections()
	if want.Closed {
		list = c.gw.ClosedConnections()
	}
	out := make([]monitor.Connection, 0, len(list))
	for _, ci := range list {
		if want.Subs && !want.Closed {
			full, connected := c.gw.ConnectionSubs(ci.CID)
			if !connected {
				continue
			}
			ci = full
		}
		out = append(out, connection(&ci))
	}
	return out
}

// connection is ci as the monitor takes it.
func connection(ci *gateway.ConnInfo) monitor.Connection {
	out := monitor.Connection{User: ci.User, Account: ci.Account, ConnInfo: server.ConnInfo{
		Cid: ci.CID, Kind: "Client", Type: "nats", IP: ci.IP, Port: ci.Port,
		Start: ci.Start, LastActivity: ci.LastActivity, RTT: ci.RTT.String(), Pending: int(ci.PendingBytes),
		InMsgs: ci.InMsgs, OutMsgs: ci.OutMsgs, InBytes: ci.InBytes, OutBytes: ci.OutBytes, Stalls: ci.Stalls,
		NumSubs: uint32(ci.NumSubs), //nolint:gosec // in RAM, so there are fewer
		Name:    ci.Name, Lang: ci.Lang, Version: ci.Version, Reason: string(ci.Reason),
		JWT: ci.JWT, IssuerKey: ci.IssuerKey, NameTag: ci.AccountLabel, Tags: ci.Tags, TLSFirst: ci.TLSFirst,
	}}
	if ci.Websocket {
		out.Type = "websocket"
	}
	if ci.TLS != nil {
		out.TLSVersion = strings.TrimPrefix(tls.VersionName(ci.TLS.Version), "TLS ")
		out.TLSCipher = tls.CipherSuiteName(ci.TLS.CipherSuite)
		for _, cert := range ci.TLS.PeerCertificates {
			key, whole := sha256.Sum256(cert.RawSubjectPublicKeyInfo), sha256.Sum256(cert.Raw)
			out.TLSPeerCerts = append(out.TLSPeerCerts, &server.TLSPeerCert{
				Subject: cert.Subject.String(), SubjectPKISha256: hex.EncodeToString(key[:]),
				CertSha256: hex.EncodeToString(whole[:]),
			})
		}
	}
	if !ci.Stop.IsZero() {
		out.Stop = &ci.Stop
	}
	for _, s := range ci.Subs {
		out.Subs = append(out.Subs, server.SubDetail{
			Subject: s.Subject, Queue: s.Queue, Sid: s.SID, Msgs: s.Msgs, Max: s.Max, Cid: ci.CID,
		})
	}
	return out
}

// Accounts implements monitor.Core.
func (c core) Accounts() []monitor.Account {
	js := c.streams()
	list := c.gw.Accounts()
	out := make([]monitor.Account, 0, len(list))
	for _, a := range list {
		shown := monitor.Account{
			Name: a.Name, Label: a.Name, System: a.System, JetStream: slices.Contains(js, a.Name),
			Subscriptions: uint32(c.router.NumSubscriptions(a.Name)), //nolint:gosec // in RAM, so there are fewer
			Connections:   a.Connections, TotalConnections: a.TotalConnections, SlowConsumers: a.SlowConsumers,
			InMsgs: a.InMsgs, InBytes: a.InBytes, OutMsgs: a.OutMsgs, OutBytes: a.OutBytes,
		}
		if claims := c.claims(a.Name); claims != nil {
			shown.Claims, shown.Token, shown.Label = claims.Claims, claims.Token(), claims.Label()
		}
		out = append(out, shown)
	}
	return out
}

// Matching implements monitor.Core.
func (c core) Matching(account string) server.SublistStats {
	s := c.router.Stats()
	if account != "" {
		s = c.router.AccountStats(account)
	}
	return server.SublistStats{
		NumSubs: uint32(s.Subscriptions), NumCache: uint32(s.Cached), //nolint:gosec // in RAM, so there are fewer
		NumInserts: uint64(s.Inserts), NumRemoves: uint64(s.Removes), //nolint:gosec // counters
		NumMatches: uint64(s.Matches), MaxFanout: uint32(s.MaxFanout), //nolint:gosec // counters
		CacheHitRate: s.CacheHitRate(), AvgFanout: s.AvgFanout(),
	}
}

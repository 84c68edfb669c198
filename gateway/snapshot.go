package gateway

import (
	"crypto/tls"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway/auth"
)

// ConnInfo is what is known about a connection at one moment.
type ConnInfo struct {
	CID          uint64
	IP           string
	Port         int
	Start        time.Time
	LastActivity time.Time
	RTT          time.Duration // 0: not known
	PendingBytes int64
	InMsgs       int64
	OutMsgs      int64
	InBytes      int64
	OutBytes     int64
	Stalls       int64
	NumSubs      int
	Subs         []SubInfo // only of ConnectionSubs and of closed connections
	Name         string
	Lang         string
	Version      string
	User         string
	Account      string
	Nkey         string
	JWT          string               // the user's claims; empty if they are a secret
	IssuerKey    string               // see auth.Login
	Tags         []string             // of the user's claims
	AccountLabel string               // what people call the account; empty: not logged in
	TLS          *tls.ConnectionState // nil: none
	TLSFirst     bool                 // the handshake came before INFO
	Websocket    bool

	Stop   time.Time   // zero: connected
	Reason CloseReason // empty: connected
}

// Uptime returns how long the connection has lasted at now, or did last.
func (c *ConnInfo) Uptime(now time.Time) time.Duration { return c.until(now).Sub(c.Start) }

// Idle returns how long nothing has happened at now, or had not at the end.
func (c *ConnInfo) Idle(now time.Time) time.Duration { return c.until(now).Sub(c.LastActivity) }

func (c *ConnInfo) until(now time.Time) time.Time {
	if !c.Stop.IsZero() {
		return c.Stop
	}
	return now
}

// SubInfo is one subscription of a connection.
type SubInfo struct {
	Subject, Queue, SID string
	Msgs, Max           int64 // Max 0: no limit
}

// Stats are the server's totals and state.
type Stats struct {
	ServerID, ServerName, Version, GitCommit string
	XKey                                     string
	Start                                    time.Time
	Host                                     string
	Port                                     int
	AuthRequired, JetStream, LameDuck        bool

	Connections      int
	TotalConnections uint64
	Subscriptions    int
	InMsgs, InBytes  int64
	OutMsgs          int64
	OutBytes         int64
	SlowPending      int64 // slow consumers by max_pending
	SlowDeadline     int64 // slow consumers by write_deadline
	Stale            int64 // connections that did not answer PING
	Stalls           int64 // pauses of producers
	AuthFailures     int64
	Refused          int64 // connections beyond max_connections
	AcceptErrors     int64
	ClosedTotal      uint64                 // connections that ended, also those no longer remembered
	Closed           map[CloseReason]uint64 // the same by reason; those that did not happen yet are there, at 0
	Upstream         UpstreamStats
}

// Leaving reports whether the server is in lame duck mode.
func (s *Server) Leaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == stateLameDuck
}

// UpstreamStats are the totals of a server that passes its clients on to others.
type UpstreamStats struct {
	Connections       int   // clients that are connected upstream
	BytesIn, BytesOut int64 // from and to the servers upstream
	Refused           int64 // clients turned away because no server could be reached
	Lost              int64 // clients closed because their connection upstream ended
	Stale             int64 // those among them whose server did not answer any more

	Remembered   int       // logins
	Alone        int       // clients that are served from here, since no server can be reached
	Outage       time.Time // since when that is so; zero: it is not
	Unremembered int64     // of Refused: nobody remembered them, or nothing of their account is served from here
	RefusedAlone int64     // messages of clients that are served from here alone, for what is not served here
}

// SlowConsumers returns the number of slow consumers of either kind.
func (s *Stats) SlowConsumers() int64 { return s.SlowPending + s.SlowDeadline }

// Stats returns the server's totals and state.
func (s *Server) Stats() Stats {
	set := s.settings.Load()
	out := Stats{
		Closed:   make(map[CloseReason]uint64, len(CloseReasons)),
		ServerID: s.id, ServerName: s.name, Version: s.options.Version, GitCommit: s.options.GitCommit, XKey: s.xkey,
		Start: s.start, Host: set.Host, AuthRequired: set.auth.Required(), JetStream: s.options.JetStream,
		TotalConnections: s.connections.Load(),
		InMsgs:           s.inMsgs.Load(), InBytes: s.inBytes.Load(),
		OutMsgs: s.outMsgs.Load(), OutBytes: s.outBytes.Load(),
		SlowPending: s.slowPending.Load(), SlowDeadline: s.slowDeadline.Load(), Stale: s.stale.Load(),
		Stalls: s.stalls.Load(), AuthFailures: s.authFailures.Load(), Refused: s.connectionsRefused.Load(),
		AcceptErrors: s.acceptErrors.Load(),
		Upstream: UpstreamStats{
			BytesIn: s.upstreamIn.Load(), BytesOut: s.upstreamOut.Load(), Refused: s.upstreamRefused.Load(),
			Lost: s.upstreamLost.Load(), Stale: s.upstreamStale.Load(),
			Unremembered: s.unremembered.Load(), RefusedAlone: s.refusedAlone.Load(),
		},
	}
	out.Upstream.Alone, out.Upstream.Outage = s.outage.state()
	if m := s.options.Memory; m != nil {
		out.Upstream.Remembered = m.Len()
	}
	if up := s.upstreamInfo.Load(); up != nil {
		out.Version, out.JetStream, out.AuthRequired = up.Version, up.JetStream, up.AuthRequired
	}
	s.mu.Lock()
	out.Port, out.LameDuck = s.port, s.state == stateLameDuck
	out.Connections, out.ClosedTotal = len(s.clients), s.closed.total
	for _, r := range CloseReasons {
		out.Closed[r] = s.closed.by[r]
	}
	s.mu.Unlock()
	for _, c := range s.connected() {
		if p := c.currentPassage(); p != nil {
			out.Subscriptions += p.subs.count()
			out.Upstream.Connections++
		} else if session := c.currentSession(); session != nil {
			out.Subscriptions += session.NumSubscriptions()
		}
	}
	return out
}

// AccountStats are the totals of one account.
type AccountStats struct {
	Name             string
	System           bool // the system account
	Connections      int
	TotalConnections int // since the start
	Subscriptions    int
	InMsgs, InBytes  int64
	OutMsgs          int64
	OutBytes         int64
	SlowConsumers    int64
}

// Accounts returns all accounts by name: those that are configured, the two that always exist, and any other that was
// used.
func (s *Server) Accounts() []AccountStats {
	o := s.settings.Load().Options
	system := systemAccount(o)
	subs := make(map[string]int)
	for _, c := range s.connected() {
		if session := c.currentSession(); session != nil {
			subs[c.accountName()] += session.NumSubscriptions()
		}
	}
	s.accountCounters(auth.GlobalAccount)
	if system != "" {
		s.accountCounters(system)
	}
	for _, a := range o.Accounts {
		s.accountCounters(a.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]AccountStats, 0, len(s.accounts))
	for name, a := range s.accounts {
		out = append(out, AccountStats{
			Name: name, System: name == system, Subscriptions: subs[name],
			Connections: int(a.connections.Load()), TotalConnections: int(a.total.Load()),
			InMsgs: a.inMsgs.Load(), InBytes: a.inBytes.Load(),
			OutMsgs: a.outMsgs.Load(), OutBytes: a.outBytes.Load(), SlowConsumers: a.slow.Load(),
		})
	}
	slices.SortFunc(out, func(a, b AccountStats) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func systemAccount(o *server.Options) string {
	if o.SystemAccount == "" && !o.NoSystemAccount {
		return auth.SystemAccount
	}
	return o.SystemAccount
}

// accountName returns the account that the client is in.
func (c *client) accountName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.login != nil {
		return c.login.Account
	}
	return auth.GlobalAccount
}

// ServerOptions returns the options in force. They must not be changed.
func (s *Server) ServerOptions() *server.Options { return s.settings.Load().Options }

// Connections returns the current connections by cid, without their subscriptions.
func (s *Server) Connections() []ConnInfo {
	clients := s.connected()
	out := make([]ConnInfo, 0, len(clients))
	for _, c := range clients {
		info := c.snapshot()
		info.Subs = nil
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b ConnInfo) int { return int(int64(a.CID) - int64(b.CID)) })
	return out
}

// ConnectionSubs returns a connection with its subscriptions; false if cid is not connected.
func (s *Server) ConnectionSubs(cid uint64) (ConnInfo, bool) {
	s.mu.Lock()
	c := s.clients[cid]
	s.mu.Unlock()
	if c == nil {
		return ConnInfo{}, false
	}
	return c.snapshot(), true
}

// ClosedConnections returns the connections that ended, as far as they are remembered, the oldest first.
func (s *Server) ClosedConnections() []ConnInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.closed
	if len(r.ring) < r.limit || r.limit <= 0 {
		return slices.Clone(r.ring)
	}
	at := int(r.total % uint64(r.limit))
	return slices.Concat(r.ring[at:], r.ring[:at])
}

// Kick ends a connection and reports whether there was one.
func (s *Server) Kick(cid uint64) bool {
	s.mu.Lock()
	c := s.clients[cid]
	s.mu.Unlock()
	if c == nil {
		return false
	}
	c.close(ReasonKicked)
	return true
}

// snapshot returns what is known about c.
func (c *client) snapshot() ConnInfo {
	at := c.remote()
	out := ConnInfo{
		CID: c.cid, IP: at.host, Port: int(at.port), Start: c.start, Websocket: c.web,
		LastActivity: time.Unix(0, c.lastActivity.Load()),
		InMsgs:       c.inMsgs.Load(), InBytes: c.inBytes.Load(), Stalls: c.stalls.Load(),
	}
	c.out.mu.Lock()
	out.PendingBytes, out.OutMsgs, out.OutBytes = c.out.pending, c.outMsgs, c.outBytes
	c.out.mu.Unlock()
	c.mu.Lock()
	session := c.session
	out.RTT, out.Account = c.rtt, auth.GlobalAccount
	out.Name, out.Lang, out.Version, out.Nkey = c.told.Name, c.told.Lang, c.told.Version, c.told.Nkey
	out.User, out.TLS = c.told.User, c.tls
	out.TLSFirst = c.tlsFirst
	if c.login != nil {
		out.Account = c.login.Account
		out.IssuerKey, out.Tags = c.login.IssuerKey(), c.login.Tags
		if c.login.ProvedKey() {
			out.JWT = c.told.JWT
		}
		if c.login.Nkey != "" {
			out.Nkey = c.login.Nkey
		}
		if c.login.User != "" {
			out.User = c.login.User
		}
	}
	p, known := c.passage, c.login != nil
	c.mu.Unlock()
	if known {
		out.AccountLabel = c.server.accountLabel(out.Account)
	}
	if p != nil {
		p.describe(&out)
	}
	if session == nil {
		return out
	}
	for _, s := range session.Subscriptions() {
		out.Subs = append(out.Subs, SubInfo{
			Subject: s.Filter, Queue: s.Queue, SID: string(s.SID), Msgs: s.Delivered(), Max: s.Max(),
		})
	}
	out.NumSubs = len(out.Subs)
	return out
}

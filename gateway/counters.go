package gateway

import (
	"sync/atomic"
)

// counters are the server's totals since its start.
type counters struct {
	connections        atomic.Uint64 // ever accepted
	inMsgs, inBytes    atomic.Int64
	outMsgs, outBytes  atomic.Int64
	slowPending        atomic.Int64
	slowDeadline       atomic.Int64
	stale              atomic.Int64
	stalls             atomic.Int64
	authFailures       atomic.Int64
	acceptErrors       atomic.Int64
	connectionsRefused atomic.Int64
	upstreamIn         atomic.Int64 // bytes from servers upstream
	upstreamOut        atomic.Int64 // bytes to them
	upstreamRefused    atomic.Int64 // clients turned away because none could be reached
	unremembered       atomic.Int64 // those among them that would have been served from here, had they been known
	refusedAlone       atomic.Int64 // messages of clients that are served from here alone, for what is not served here
	upstreamLost       atomic.Int64 // clients closed because their connection upstream ended
	upstreamStale      atomic.Int64 // those among them whose server did not answer any more
}

// accountCounters are the totals of one account since the server's start.
type accountCounters struct {
	name              string
	connections       atomic.Int64 // current
	total             atomic.Int64 // connections ever
	inMsgs, inBytes   atomic.Int64
	outMsgs, outBytes atomic.Int64
	slow              atomic.Int64
}

// accountCounters returns the counters of an account, made at first use.
func (s *Server) accountCounters(name string) *accountCounters {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[name]
	if a == nil {
		a = &accountCounters{name: name}
		s.accounts[name] = a
	}
	return a
}

// join counts the client to an account, and no longer to the one it was in. Nothing happens once it is closed. False:
// the account has as many connections as it may have.
func (c *client) join(account string) bool {
	a := c.server.accountCounters(account)
	limit, limited := c.server.settings.Load().connLimit(account)
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.account == a || c.out.reason != "" {
		return true
	}
	if n := a.connections.Add(1); limited && n > int64(limit) {
		a.connections.Add(-1)
		return false
	}
	if c.account != nil {
		c.account.connections.Add(-1)
	}
	c.account = a
	a.total.Add(1)
	return true
}

// joined returns the account that the client counts to; empty: none yet.
func (c *client) joined() string {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.account == nil {
		return ""
	}
	return c.account.name
}

package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway/auth"
)

// errMoved refuses a client whose user belongs to another account since a reload.
var errMoved = errors.New("the user is in another account now")

// SetLimits changes Options.Limits, with the next SetOptions.
func (s *Server) SetLimits(limits map[string]auth.Limits) { s.limits.Store(&limits) }

// SetOptions puts other options in force, as a reload of the configuration does. Limits and timeouts count from now on.
// Clients that would not be let in any more are closed; the others get their new permissions, and lose subscriptions
// that are no longer permitted. Where to listen and what the server is called do not change. On an error nothing has
// changed.
func (s *Server) SetOptions(o *server.Options) error {
	next := Options{
		Server: o, Bus: s.options.Bus, Upstream: s.options.Upstream, Logger: s.log, Accounts: s.options.Accounts,
		host: s.options.host, Limits: *s.limits.Load(),
	}
	if s.customAuth {
		next.Auth = s.options.Auth
	}
	if err := next.settle(); err != nil {
		return err
	}
	old := s.settings.Load()
	next.Server.Host, next.Server.Port, next.Server.ServerName = old.Host, old.Port, old.ServerName
	set := newSettings(&next)
	if old.ClientAdvertise != set.ClientAdvertise {
		s.mu.Lock()
		err := s.advertise(set.ClientAdvertise)
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	s.settings.Store(set)
	clients := s.connected()
	if over := len(clients) - max(set.MaxConn, 0); over > 0 {
		for _, c := range clients[:over] {
			c.fault("maximum connections exceeded")
			c.expel(errMaxConnections, ReasonMaxConnections)
		}
		s.log.Info("Closed {count} connections to fall within max_connections", slog.Int("count", over))
		clients = clients[over:]
	}
	for _, c := range set.beyond(clients) {
		c.fault(errMaxAccountConns)
		c.expel(errMaxAccountConns, ReasonMaxAccountConns)
	}
	for _, c := range clients {
		c.do(func() { c.reload(set) })
	}
	return nil
}

// beyond returns the connections that their accounts may not have any more: of each account the newest.
func (set *settings) beyond(clients []*client) []*client {
	if len(set.maxConns) == 0 && set.accounts == nil {
		return nil
	}
	slices.SortFunc(clients, func(a, b *client) int { return cmp.Compare(a.cid, b.cid) })
	kept := map[string]int{}
	var over []*client
	for _, c := range clients {
		account := c.joined()
		limit, limited := set.connLimit(account)
		if !limited {
			continue
		}
		if kept[account]++; kept[account] > limit {
			over = append(over, c)
		}
	}
	return over
}

// do has the reader run task between two reads.
func (c *client) do(task func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tasks = append(c.tasks, task)
	select {
	case c.tasked <- struct{}{}:
	default:
	}
	if !c.fronting {
		_ = c.conn.SetReadDeadline(longPast) // a read that waits ends now
	}
}

// longPast as a deadline ends a read or write that waits.
var longPast = time.Unix(1, 0)

// runTasks runs what do has left. False: the connection has ended.
func (c *client) runTasks() bool {
	c.mu.Lock()
	tasks := c.tasks
	c.tasks = nil
	err := c.conn.SetReadDeadline(time.Time{})
	c.mu.Unlock()
	if c.closing.Load() { // the writer may be reading what is left, for a moment
		_ = c.conn.SetReadDeadline(time.Now().Add(lingerTime))
		return false
	}
	for _, task := range tasks {
		if c.closing.Load() {
			return false
		}
		task()
	}
	return err == nil && !c.closing.Load()
}

// reload makes set hold for the client. The reader calls it.
func (c *client) reload(set *settings) {
	c.traced.Store(set.Trace)
	if c.passage != nil {
		return // upstream decides
	}
	c.out.mu.Lock()
	c.out.max = set.MaxPending
	c.out.mu.Unlock()
	if !c.connected {
		c.applyLimits(nil, set)
		c.reloadStranger(set)
		return
	}
	c.mu.Lock()
	was := c.login
	c.mu.Unlock()
	login, err := set.authOf(c).Renew(c.credentials(), was)
	if err == nil && login.Account != was.Account {
		err = errMoved
	}
	if err != nil {
		c.renewFailed(err)
		return
	}
	c.stopAuthTimer()
	c.admitLogin(login)
	c.checkSubscriptions(login)
	if limit, limited := c.maxSubs(set); limited && c.bus != nil && c.bus.NumSubscriptions() > limit {
		c.fault(errMaxSubscriptions)
		c.expel(errMaxSubscriptions, ReasonMaxSubscriptions)
	}
}

// renewFailed ends the connection of a client that is in and would not be let in any more.
func (c *client) renewFailed(err error) {
	switch {
	case errors.Is(err, auth.ErrRevoked):
		c.debug(errAuthRevoked)
		c.expel(errAuthRevoked, ReasonCredentialsRevoked)
	case errors.Is(err, auth.ErrAccount), errors.Is(err, auth.ErrAccountExpired):
		c.accountExpired()
	default:
		c.authFailed(err)
	}
}

// accountChanged makes the new claims of an account hold for its clients, those that log in just now among them.
func (s *Server) accountChanged(a *auth.Account) {
	set := s.settings.Load()
	var affected []*client
	for _, c := range s.connected() {
		c.mu.Lock()
		login := c.login
		c.mu.Unlock()
		if login == nil || login.Account == a.Name() {
			affected = append(affected, c)
		}
	}
	for _, c := range set.beyond(affected) {
		c.fault(errMaxAccountConns)
		c.expel(errMaxAccountConns, ReasonMaxAccountConns)
	}
	for _, c := range affected {
		c.do(func() { c.reload(s.settings.Load()) })
	}
}

// reloadStranger is reload for a client that has not sent a CONNECT.
func (c *client) reloadStranger(set *settings) {
	if !set.authOf(c).Required() {
		c.awaiting = false
		c.established.Store(true)
		c.stopAuthTimer()
		return
	}
	if !c.awaiting && set.authOf(c).Anonymous(c.connectionType()) == nil {
		c.authFailed(auth.ErrCredentials)
	}
}

// checkSubscriptions ends the subscriptions that login does not permit.
func (c *client) checkSubscriptions(login *auth.Login) {
	if login.Permissions == nil || c.bus == nil {
		return
	}
	for _, sub := range c.bus.Subscriptions() {
		if login.Permissions.MaySubscribe(sub.Filter, sub.Queue) {
			c.guardDelivery(sub.Filter, sub.Queue)
			continue
		}
		sid := string(sub.SID)
		c.bus.Unsubscribe(sid, 0)
		c.replySub = nil
		queue := ""
		if sub.Queue != "" {
			queue = fmt.Sprintf(" using queue %q", sub.Queue)
		}
		c.sendErr(fmt.Sprintf("Permissions Violation for Subscription to %q%s (sid %q)", sub.Filter, queue, sid))
		c.notice("Removed sub {subject} (sid {sid}) - not authorized",
			quoted("subject", sub.Filter), quoted("sid", sid))
	}
}

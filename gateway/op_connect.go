package gateway

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/wire"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// mayBegin checks the first command of a client that has to log in. Only a CONNECT may come, unless a user is
// configured for those who do not say who they are.
func (c *client) mayBegin() bool {
	first, ok := c.parser.Peek()
	if !ok || first == 'C' || first == 'c' {
		return true
	}
	login := c.server.settings.Load().authOf(c).Anonymous(c.connectionType())
	if login == nil {
		c.authFailed(auth.ErrCredentials)
		return false
	}
	c.awaiting, c.connected = false, true
	c.stopAuthTimer()
	c.admitLogin(login)
	c.observe(EventConnected, "")
	return true
}

// connect handles CONNECT. False ends the connection.
func (c *client) connect(arg []byte) bool {
	if !c.stopAuthTimer() {
		return false // the timer has fired and closes the connection
	}
	now := time.Now()
	c.touch(now)
	if err := json.Unmarshal(arg, &c.options); err != nil {
		c.fault("CONNECT is not valid JSON: {error}", slog.Any("error", err))
		c.close(ReasonProtocolViolation)
		return false
	}
	c.useCookies()
	again := c.connected
	c.connected, c.awaiting = true, false
	if again {
		c.offences.now += offencesConnect // it costs much, and clients say it once
		c.dropSession()
	}
	c.remember(now)
	if !c.authenticate() {
		return false
	}
	if !again {
		c.observe(EventConnected, "")
	}
	return c.agree()
}

// redacted is what is shown of a token.
const redacted = "[REDACTED]"

// remember keeps what the client told for monitoring and starts measuring the round trip.
func (c *client) remember(now time.Time) {
	set := c.server.settings.Load()
	first := firstPing(set)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = c.options
	c.told.Pass, c.told.Sig, c.told.ProxySig = "", "", ""
	if c.told.Token != "" {
		c.told.Token = redacted
	}
	c.rtt = max(now.Sub(c.start), 1)
	stopTimer(c.pingTimer)
	if !c.closing.Load() {
		c.pingTimer = time.AfterFunc(first, c.pingDue)
	}
}

// firstPingInterval is when a client is pinged first, to learn the round trip time, plus up to a fifth.
const firstPingInterval = 2 * time.Second

func firstPing(set *settings) time.Duration {
	d := set.PingInterval
	if !set.DisableShortFirstPing {
		d = min(d, firstPingInterval)
	}
	return d + time.Duration(rand.Int64N(max(int64(d/5), 1))) //nolint:mnd,gosec // spreads pings, no secret
}

// authenticate decides who the client is.
func (c *client) authenticate() bool {
	o := &c.options
	login, err := c.server.settings.Load().authOf(c).Authenticate(c.credentials())
	if err == nil && (o.Account != "" || o.NewAccount) {
		err = errors.New("clients cannot choose an account")
	}
	if err != nil {
		c.authFailed(err)
		return false
	}
	if c.lone != nil && !c.attendAlone(login) {
		return false
	}
	c.admitLogin(login)
	return true
}

// credentials returns what the client offered.
func (c *client) credentials() *auth.Credentials {
	o := &c.options
	c.mu.Lock()
	state := c.tls
	c.mu.Unlock()
	return &auth.Credentials{
		User: o.User, Password: o.Pass, Token: o.Token, Nkey: o.Nkey, Sig: o.Sig, JWT: o.JWT, ProxySig: o.ProxySig,
		Nonce: c.nonce, Type: c.connectionType(), Host: c.remote().host, TLS: state,
		ID: c.cid, Name: o.Name, Lang: o.Lang, Version: o.Version, Protocol: o.Protocol,
	}
}

func (c *client) authFailed(err error) {
	if c.lone != nil {
		c.turnAway(err)
		return
	}
	c.server.authFailures.Add(1)
	if c.options.User != "" {
		c.fault("authentication error - User {user}: {error}", quoted("user", c.options.User), slog.Any("error", err))
	} else {
		c.fault("authentication error: {error}", slog.Any("error", err))
	}
	c.flush()
	reason := ReasonAuthFailure
	switch {
	case errors.Is(err, auth.ErrProxyRequired):
		reason = ReasonProxyRequired
	case errors.Is(err, auth.ErrProxyNotTrusted):
		reason = ReasonProxyNotTrusted
	}
	c.expel(errAuthorization, reason)
	c.observe(EventAuthFailed, reason)
}

// admitLogin makes login the client's identity.
func (c *client) admitLogin(login *auth.Login) {
	set := c.server.settings.Load()
	c.applyLimits(login, set)
	trust(c.stream, set)
	g := newGuard(login.Permissions)
	c.out.mu.Lock()
	c.guard = g
	c.out.mu.Unlock()
	c.established.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.login = login
	stopTimer(c.authTimer)
	c.authTimer = nil
	end, expired := login.Deadline, c.loginExpired
	if d := login.AccountDeadline; !d.IsZero() && (end.IsZero() || d.Before(end)) {
		end, expired = d, c.accountExpired
	}
	if !end.IsZero() && !c.closing.Load() {
		c.authTimer = time.AfterFunc(time.Until(end), expired)
	}
}

// applyLimits makes the tighter of the server's limits and those of the login, which may be nil, hold.
func (c *client) applyLimits(login *auth.Login, set *settings) {
	limits := c.parser.Limits()
	limits.MaxPayload = int(c.maxPayload(login, set))
	c.parser.SetLimits(limits)
}

// maxPayload is the largest message that the client, with this login, which may be nil, may send.
func (c *client) maxPayload(login *auth.Login, set *settings) int32 {
	if c.lone != nil { // as the servers have said, of which this one holds the place
		return c.server.upstreamInfo.Load().MaxPayload
	}
	return set.maxPayload(login)
}

// maxPayload is the largest message that a client with this login, which may be nil, may send.
func (set *settings) maxPayload(login *auth.Login) int32 {
	n := set.limitsOf(login).MaxPayload
	if n < 0 {
		return set.MaxPayload
	}
	return int32(min(n, int64(set.MaxPayload))) //nolint:gosec // not above max_payload
}

// limitsOf returns what is granted to a login, which may be nil.
func (set *settings) limitsOf(login *auth.Login) auth.Limits {
	out := auth.NoLimits()
	if login == nil {
		return out
	}
	if login.Limits != nil {
		out = *login.Limits
	}
	if l, limited := set.limits[login.Account]; limited {
		out = out.Tighter(l)
	}
	return out
}

// maxSubs is how many subscriptions the client may have; false: any number.
func (c *client) maxSubs(set *settings) (int, bool) {
	c.mu.Lock()
	login := c.login
	c.mu.Unlock()
	limit, limited := set.MaxSubs, set.MaxSubs > 0
	if n := set.limitsOf(login).MaxSubs; n >= 0 && (!limited || n < int64(limit)) {
		return int(n), true
	}
	return limit, limited
}

// agree settles the protocol features.
func (c *client) agree() bool {
	o := &c.options
	set := c.server.settings.Load()
	headers := o.Headers && !set.NoHeaderSupport
	c.out.mu.Lock()
	c.headers = headers
	c.out.mu.Unlock()
	limits := c.parser.Limits()
	limits.Headers = headers
	c.parser.SetLimits(limits)
	switch {
	case o.Protocol < wire.ProtoZero || o.Protocol > wire.ProtoInfo:
		c.expel(errClientProtocol, ReasonBadProtocolVersion)
		return false
	case o.NoResponders && !headers:
		c.expel(errNoRespondersNeedHdrs, ReasonNoRespondersNoHdrs)
		return false
	}
	if !c.openSession() {
		return false
	}
	c.ok()
	return true
}

// stopAuthTimer stops the timer that waits for a CONNECT. False means that it has fired.
func (c *client) stopAuthTimer() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.authTimer
	c.authTimer = nil
	return t == nil || t.Stop()
}

// identity returns what the bus has to know about the client.
func (c *client) identity() bus.Identity {
	id := bus.Identity{Account: auth.GlobalAccount, ID: c.cid, NoEcho: !c.options.Echo}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.login != nil {
		id.Account, id.User = c.login.Account, c.login.User
	}
	return id
}

// openSession opens the client's session on the bus. A session that was opened before the CONNECT is replaced, with its
// subscriptions, if the client is somebody else now. False ends the connection.
func (c *client) openSession() bool {
	id := c.identity()
	if c.bus != nil && c.opened == id {
		return true
	}
	if !c.join(id.Account) {
		c.fault(errMaxAccountConns)
		c.expel(errMaxAccountConns, ReasonMaxAccountConns)
		return false
	}
	session, err := c.server.options.Bus.Open(bus.KindClient, id, c)
	if err != nil {
		c.fault("open of a session failed: {error}", slog.Any("error", err))
		c.close(ReasonInternal)
		return false
	}
	old := c.bus
	c.mu.Lock()
	c.session = session
	c.mu.Unlock()
	c.bus, c.opened = session, id
	c.renamer, _ = session.(bus.Renamer)
	c.tracer, _ = session.(bus.Tracer)
	if c.closing.Load() {
		session.Close()
		return false
	}
	if old != nil {
		c.move(old, session)
	}
	return true
}

// move takes the subscriptions of one session over to another.
func (c *client) move(from, to bus.Session) {
	for _, s := range from.Subscriptions() {
		if _, err := to.Subscribe(string(s.SID), s.Filter, s.Queue); err != nil {
			c.fault("subscription to {subject} lost at CONNECT: {error}",
				quoted("subject", s.Filter), slog.Any("error", err))
			continue
		}
		if limit := s.Max(); limit > 0 {
			to.Unsubscribe(string(s.SID), limit-s.Delivered())
		}
	}
	from.Close()
}

// dropSession ends the session, and with it all subscriptions.
func (c *client) dropSession() {
	c.mu.Lock()
	session := c.session
	c.session = nil
	c.mu.Unlock()
	c.bus, c.replySub, c.opened = nil, nil, bus.Identity{}
	if session != nil {
		session.Close()
	}
}

// isSystem reports whether the client is in the system account.
func (c *client) isSystem() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.login != nil && c.login.IsSystem
}

// ignoreInfo takes an INFO from a client, which has to be JSON and means nothing.
func (c *client) ignoreInfo(arg []byte) bool {
	if json.Valid(arg) {
		return true
	}
	c.fault("INFO is not valid JSON")
	c.close(ReasonProtocolViolation)
	return false
}

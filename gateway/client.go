package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/wire"
	"github.com/noetl/ehdb-gateway/gateway/ws"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// client is one connection.
type client struct {
	server *Server
	conn   net.Conn // the socket: for deadlines and its end
	stream net.Conn // what is read and written: conn, or TLS over it; settled before the reader and the writer run
	cid    uint64
	peer   atomic.Pointer[peer]
	start  time.Time

	web           bool // came by WebSocket
	piped         bool // is of this process
	writeDeadline time.Duration
	noStall       bool
	traced        atomic.Bool   // the log takes the raw protocol
	lines         *rate.Limiter // of the log
	gone          chan struct{} // closed at the end
	tasked        chan struct{} // of one: there are tasks
	guided        *passage      // nil: no Director has a say; settled before the reader runs
	lone          *lone         // nil: it does not stand alone; settled before the reader runs
	closing       atomic.Bool
	established   atomic.Bool  // a CONNECT came, or none is needed
	lastActivity  atomic.Int64 // Unix nanoseconds
	lastInput     atomic.Int64 // Unix nanoseconds: messages, subscriptions, PINGs
	inMsgs        atomic.Int64
	inBytes       atomic.Int64
	stalls        atomic.Int64

	out outbound
	// The following are guarded by out.mu.
	headers           bool   // the client understands header blocks
	guard             *guard // nil: no permissions to enforce
	outMsgs, outBytes int64
	account           *accountCounters // nil before the client has a session

	reader
	vector [][]byte // the writer's
	inline inline

	mu sync.Mutex
	// The following are guarded by mu.
	session   bus.Session // nil before the first use
	login     *auth.Login
	told      wire.Connect // of the last CONNECT
	nonce     []byte
	authTimer *time.Timer
	pingTimer *time.Timer
	pingsOut  int
	pingSent  time.Time
	rtt       time.Duration
	tasks     []func() // for the reader
	unproxied bool     // the header of the proxy was not read yet; settled before the reader and the writer run
	fronting  bool     // what precedes the protocol is going on, see negotiate
	tls       *tls.ConnectionState
	tlsFirst  bool        // it was there before INFO
	request   *ws.Request // that a WebSocket client began with; settled before the reader and the writer run
	passage   *passage    // nil: this server serves the client itself; settled before the reader runs
}

func newClient(s *Server, conn net.Conn, web bool) *client {
	set := s.settings.Load()
	c := &client{
		server: s, conn: conn, stream: conn, cid: s.lastCID.Add(1), start: time.Now(),
		gone: make(chan struct{}), tasked: make(chan struct{}, 1),
		web: web, writeDeadline: set.WriteDeadline, noStall: set.NoFastProducerStall,
		lines: rate.NewLimiter(clientPerSecond, clientLinesBurst),
	}
	c.traced.Store(set.Trace || s.tracing())
	c.peer.Store(&peer{})
	if host, port, err := net.SplitHostPort(conn.RemoteAddr().String()); err == nil {
		p, _ := strconv.ParseUint(port, 10, 16)
		c.peer.Store(&peer{host, uint16(p)})
	}
	c.out.init(&s.pool, set.MaxPending)
	c.inline.init(conn)
	c.initReader(set)
	c.touch(c.start)
	return c
}

// log writes a line about the connection. msg may name attrs in braces, which the log fills in.
func (c *client) log(level slog.Level, msg string, attrs ...slog.Attr) {
	ctx := context.Background() //nolint:forbidigo // nothing cancels a line of the log
	if !c.server.log.Enabled(ctx, level) || level >= slog.LevelInfo && !c.server.lines.allow(c.lines) {
		return
	}
	attrs = append(attrs, slog.String("client", c.String()))
	//nolint:sloglint // the callers' messages are constant
	c.server.log.LogAttrs(ctx, level, "{client} - "+msg, attrs...)
}

func (c *client) debug(msg string, attrs ...slog.Attr)  { c.log(slog.LevelDebug, msg, attrs...) }
func (c *client) notice(msg string, attrs ...slog.Attr) { c.log(slog.LevelInfo, msg, attrs...) }
func (c *client) fault(msg string, attrs ...slog.Attr)  { c.log(slog.LevelError, msg, attrs...) }

// quoted is an attribute in Go quotes: what a client sent cannot pass for something else in the log.
// Of what is long it shows the beginning.
func quoted[T string | []byte](key string, value T) slog.Attr {
	if len(value) > maxQuoted {
		return slog.String(key, fmt.Sprintf("%q… (%d bytes)", value[:maxQuoted], len(value)))
	}
	return slog.String(key, strconv.Quote(string(value)))
}

// String names the connection as nats-server's log does.
func (c *client) String() string {
	at := c.remote()
	name := net.JoinHostPort(at.host, strconv.Itoa(int(at.port)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.request != nil && c.request.Forwarded != "" {
		name = c.request.Forwarded + "/" + name
	}
	if c.web {
		name += fmt.Sprintf(" - wid:%d", c.cid)
	} else {
		name += fmt.Sprintf(" - cid:%d", c.cid)
	}
	var lang []string
	for _, part := range []string{c.told.Version, c.told.Lang, c.told.Name} {
		if part != "" {
			lang = append(lang, part)
		}
	}
	if c.told.Version != "" {
		lang[0] = "v" + lang[0]
	}
	if len(lang) > 0 {
		told := strings.Join(lang, ":")
		name += fmt.Sprintf(" - %q", told[:min(len(told), maxQuoted)])
	}
	if who := c.who(); who != "" {
		name += fmt.Sprintf(" - %q", who[:min(len(who), maxQuoted)])
	}
	return name
}

// who is the account and the user as nats-server's log names them; empty for a client that did not say who it is. With
// c.mu held.
func (c *client) who() string {
	if c.login == nil {
		return ""
	}
	user := c.told.User
	if c.login.User != "" && c.login.Issued == 0 { // no claims: of a certificate, or no_auth_user, whatever was told
		user = c.login.User
	}
	switch t := &c.told; {
	case t.Nkey != "":
		return c.login.Account + "/nkey:" + t.Nkey
	case user != "":
		return c.login.Account + "/user:" + user
	case t.JWT != "":
		return c.login.Account + "/jwt:" + c.login.Nkey
	case t.Token != "":
		return c.login.Account + "/token"
	}
	return ""
}

func (c *client) touch(now time.Time) { c.lastActivity.Store(now.UnixNano()) }

// greet sends INFO and takes the connection in. False means that it was refused and is closed.
func (c *client) greet() bool {
	s := c.server
	set := s.settings.Load()
	refused := s.admit(c)
	if c.web && !c.upgrade(set) {
		c.writeLoop()
		return false
	}
	if refused == "" {
		refused = c.openPassage()
	}
	info := c.firstInfo(set)
	c.established.Store(!set.authOf(c).Required())
	frontless := c.web || c.piped || set.frontless()
	c.unproxied = !frontless && set.ProxyProtocol
	switch {
	case frontless:
		c.enqueue(string(c.infoLine(info)))
	case set.TLSHandshakeFirst: // INFO comes after the handshake
	case !c.sendNow(c.infoLine(info)):
		c.dropPassage()
		c.writeLoop()
		return false
	}
	if refused != "" && refused != ReasonUpstreamUnreachable {
		text := ""
		if refused == ReasonMaxConnections {
			s.connectionsRefused.Add(1)
			c.fault("maximum connections exceeded")
			text = errMaxConnections
		}
		c.expel(text, refused)
		c.writeLoop()
		return false
	}
	c.debug("Client connection created")
	ok := frontless || c.negotiate(set, info)
	if ok && refused != "" { // not before TLS: the client would not understand it
		c.expel(errUnreachable, refused)
		ok = false
	}
	if !ok || !c.startTimers(set) {
		c.dropPassage()
		c.writeLoop()
		return false
	}
	s.running.Go(c.writeLoop)
	return true
}

// firstInfo is what the first INFO says.
func (c *client) firstInfo(set *settings) wire.Info {
	info := c.server.currentInfo()
	info.AuthRequired = set.announced(c)
	if set.authOf(c).NonceRequired() {
		c.nonce = newNonce()
		info.Nonce = string(c.nonce)
	}
	if c.server.options.Upstream != nil {
		info = c.passageInfo()
	}
	if set.TLSConfig != nil && set.TLSHandshakeFirst {
		info.TLSRequired = true
	}
	if c.piped {
		info.TLSRequired, info.TLSAvailable, info.TLSVerify = false, false, false
	}
	return info
}

// startTimers waits for a CONNECT, if one is required, and for the first ping. False: the connection has ended already.
func (c *client) startTimers(set *settings) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing.Load() {
		return false
	}
	if c.passage != nil {
		c.pingTimer = time.AfterFunc(set.PingInterval, c.checkUpstream)
		return true
	}
	if set.authOf(c).Required() {
		c.authTimer = time.AfterFunc(seconds(set.authTimeout(c)), c.authTimedOut)
	}
	c.pingTimer = time.AfterFunc(set.PingInterval, c.pingDue)
	return true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// enqueue queues p for the client.
func (c *client) enqueue(p string) {
	if c.traced.Load() {
		c.traceOut(p)
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.reason == "" {
		c.out.line(p)
		c.out.wake.Signal()
	}
}

// sendErr queues an -ERR.
func (c *client) sendErr(text string) {
	c.enqueue(string(wire.AppendErr(nil, text)))
}

// close ends the connection for reason, unless it has ended. What is queued is still sent, as far as that makes sense.
// It does not wait for that. Any goroutine may call it, holding no lock of the client.
func (c *client) close(reason CloseReason) { c.expel("", reason) }

// expel is close with an -ERR as the last word, unless text is empty. The two are one step: a client that reacts to the
// -ERR at once cannot make the reason another one.
func (c *client) expel(text string, reason CloseReason) {
	c.out.mu.Lock()
	if c.out.reason != "" {
		c.out.mu.Unlock()
		return
	}
	if text != "" && !c.out.torn {
		defer c.traceLast(text)
		c.out.append(string(wire.AppendErr(nil, text)))
	}
	c.out.reason = reason
	c.closing.Store(true)
	close(c.gone)
	c.out.release()
	c.out.wake.Signal()
	if c.account != nil {
		c.account.connections.Add(-1)
	}
	c.out.mu.Unlock()

	c.debug("Client connection closed: {reason}", slog.String("reason", string(reason)))
	if reason == ReasonStale {
		c.server.stale.Add(1)
	}
	c.mu.Lock()
	stopTimer(c.authTimer)
	stopTimer(c.pingTimer)
	session := c.session
	if c.fronting {
		_ = c.conn.SetDeadline(longPast)
	}
	c.mu.Unlock()
	last := c.snapshot()
	last.Stop, last.Reason = time.Now(), reason
	last.Subs = slices.Clone(last.Subs[:min(len(last.Subs), maxClosedSubs)])
	if session != nil {
		session.Close()
	}
	c.server.remove(c, last)
	c.observe(EventDisconnected, reason)
	if p := c.guided; p != nil {
		p.guide.Closed()
		c.leave(p)
	}
	if l := c.standsAlone(); l != nil {
		l.end()
		c.server.outage.leaves(c)
	}
}

func stopTimer(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

// currentSession returns the session, nil if there is none yet.
func (c *client) currentSession() bus.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

func (c *client) authTimedOut() {
	c.debug("Authentication Timeout")
	c.expel(errAuthTimeout, ReasonAuthTimeout)
}

func (c *client) accountExpired() {
	c.debug(errAccountExpired)
	c.expel(errAccountExpired, ReasonAuthExpired)
}

func (c *client) loginExpired() {
	c.debug("User Authentication Expired")
	c.expel(errAuthExpired, ReasonAuthExpired)
}

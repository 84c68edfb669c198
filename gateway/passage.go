package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// Upstream opens connections to the servers that this one stands in front of.
type Upstream interface {
	// Open connects to one of them for the client whose connection is from and to the given addresses. info is the
	// document of its first INFO; conn goes on behind it. It ends in bounded time.
	Open(ctx context.Context, from, to net.Addr) (conn net.Conn, info []byte, err error)
	// Probe reports whether one of them can be reached. It tries each of them once, in bounded time.
	Probe(ctx context.Context) error
	// Sign returns the signature that proves to a server with this nonce that its client comes by a proxy it trusts;
	// empty: there is nothing to prove.
	Sign(nonce string) string
	// Passed takes the round trip time to a server, as measured now and then on each connection.
	Passed(rtt time.Duration)
}

// Bounds of a passage, in bytes.
const (
	// passagePending is what may wait for a client before no more is read for it from upstream. What comes then waits
	// there, and the server upstream decides when a consumer is too slow.
	passagePending = 1 << 20
	// passageInfo bounds a line from upstream; an INFO with many URLs is long.
	passageInfo = 1 << 20
)

// passage is the way of one client's bytes to a server upstream and back. Both sides have the last word about nothing:
// the server upstream judges what the client sends, as if there were no gateway between them.
type passage struct {
	conn net.Conn
	up   *wire.Frames // from the client; the reader's
	down *wire.Frames // from the server upstream; the other goroutine's
	subs passageSubs

	guide Guide // nil: all passes
	g     guidance

	connected bool // a CONNECT has passed; the reader's
	headers   bool // the client and upstream have agreed on headers; the reader's
	pings     passagePings

	// blame is the reason of a connection whose client has sent what makes upstream hang up, with or without a word.
	blame      atomic.Pointer[CloseReason]
	offer      atomic.Pointer[auth.Offer] // what the client logs in with; nil: nothing that is to be remembered
	maxPayload atomic.Int64               // of a message, as upstream says
	lastHeard  atomic.Int64               // when something came from upstream, in Unix nanoseconds

	mu sync.Mutex
	// The following are guarded by mu.
	info    wire.Info // the last from upstream
	account string    // that the client is in, as far as upstream has said
	lastErr string    // the text of the last -ERR
	silent  int       // checks in a row without a sound from upstream since the one before
	checked time.Time // the last of them
	ended   bool      // there is nothing more to send to upstream
	learned bool      // the login is remembered
	left    bool      // the connection of the client has ended
}

// openPassage opens the connection upstream of a gateway that has one. The reason says why the client cannot stay.
func (c *client) openPassage() CloseReason {
	s := c.server
	if s.options.Upstream == nil {
		return ""
	}
	if s.outage.joins(c) {
		c.stand()
		return ""
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // ends with the client
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	s.running.Go(func() {
		select {
		case <-c.gone:
			cancel()
		case <-stop:
		}
	})
	conn, doc, err := s.options.Upstream.Open(ctx, c.conn.RemoteAddr(), c.conn.LocalAddr())
	var info wire.Info
	if err == nil {
		if err = json.Unmarshal(doc, &info); err != nil {
			_ = conn.Close()
		}
	}
	if err != nil && ctx.Err() == nil && c.standAlone(err) {
		return ""
	}
	if err != nil {
		s.upstreamRefused.Add(1)
		c.fault("no server upstream: {error}", slog.Any("error", err))
		return ReasonUpstreamUnreachable
	}
	set := s.settings.Load()
	p := &passage{
		conn: conn, info: info,
		up:   wire.NewFrames(wire.FromClient, int(set.MaxControlLine), &s.pool),
		down: wire.NewFrames(wire.FromServer, passageInfo, &s.pool),
	}
	s.upstreamInfo.Store(&info)
	p.maxPayload.Store(int64(info.MaxPayload))
	p.lastHeard.Store(time.Now().UnixNano())
	c.out.mu.Lock()
	if c.server.options.Director == nil {
		c.out.max = passagePending / 3 * 4
	}
	c.out.mu.Unlock()
	c.mu.Lock()
	c.passage = p
	c.mu.Unlock()
	c.attend(p)
	return ""
}

// rewritten is an INFO of the server upstream as the client gets to see it: nothing in it leads past this gateway, and
// what it says about connections is true of the client's.
func (s *Server) rewritten(info wire.Info) wire.Info {
	own := s.currentInfo()
	info.ServerID, info.ServerName, info.Host, info.Port = own.ServerID, own.ServerName, own.Host, own.Port
	info.ConnectURLs, info.WSConnectURLs = own.ConnectURLs, own.WSConnectURLs
	info.TLSRequired, info.TLSAvailable, info.TLSVerify = own.TLSRequired, own.TLSAvailable, own.TLSVerify
	info.LameDuck = info.LameDuck || own.LameDuck
	return info
}

// passageInfo is the first INFO of a client whose bytes go upstream.
func (c *client) passageInfo() wire.Info {
	if c.lone != nil {
		return c.loneInfo()
	}
	if c.passage == nil {
		info := c.server.currentInfo()
		info.Nonce = string(newNonce()) // without one some clients do not wait for the reason
		return info
	}
	return c.server.rewritten(c.passage.lastInfo())
}

func (p *passage) lastInfo() wire.Info {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.info
}

// describe adds what is known about the client of the passage.
func (p *passage) describe(out *ConnInfo) {
	out.Subs = p.subs.all()
	out.NumSubs = len(out.Subs)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.account != "" {
		out.Account = p.account
	}
}

// currentPassage returns the passage, nil if there is none.
func (c *client) currentPassage() *passage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passage
}

// dropPassage ends a passage that was never used.
func (c *client) dropPassage() {
	if p := c.passage; p != nil {
		p.up.Close()
		p.down.Close()
		_ = p.conn.Close()
	}
}

// run lets both directions pass until the connection ends. It returns when the client's has.
func (p *passage) run(c *client) {
	c.server.running.Go(func() { c.passDown(p) })
	c.passUp(p)
}

// finish says upstream that nothing more comes, and lets it say a last word.
func (p *passage) finish() {
	p.mu.Lock()
	ended := p.ended
	p.ended = true
	p.mu.Unlock()
	if ended {
		return
	}
	_ = p.conn.SetDeadline(time.Now().Add(closeFlushDeadline))
	if half, ok := p.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the other goroutine meets the error
	}
}

// The last words of a server upstream that say why it ends a connection.
var lastWords = map[string]CloseReason{
	errAuthorization:        ReasonAuthFailure,
	errAuthTimeout:          ReasonAuthTimeout,
	errAuthExpired:          ReasonAuthExpired,
	errAccountExpired:       ReasonAuthExpired,
	errAuthRevoked:          ReasonCredentialsRevoked,
	errMaxConnections:       ReasonMaxConnections,
	errMaxAccountConns:      ReasonMaxAccountConns,
	errMaxPayload:           ReasonMaxPayload,
	errMaxControlLine:       ReasonMaxControlLine,
	errClientProtocol:       ReasonBadProtocolVersion,
	errNoRespondersNeedHdrs: ReasonNoRespondersNoHdrs,
	errUnknownOp:            ReasonProtocolViolation,
	errStale:                ReasonStale,
	errThrottled:            ReasonMaxConnections,
}

// upstreamEnded ends the client's connection because upstream has ended its own.
func (c *client) upstreamEnded(p *passage, err error) {
	if c.closing.Load() {
		return
	}
	p.mu.Lock()
	last := p.lastErr
	p.mu.Unlock()
	if reason, known := lastWords[last]; known {
		c.close(reason)
		return
	}
	if reason := p.blame.Load(); reason != nil {
		c.close(*reason)
		return
	}
	c.server.upstreamLost.Add(1)
	c.fault("connection upstream to {upstream} lost: {error}",
		slog.String("upstream", p.conn.RemoteAddr().String()), slog.Any("error", err))
	c.close(ReasonUpstreamLost)
}

// errText is the text of a -ERR line.
func errText(arg []byte) string { return strings.Trim(strings.TrimSpace(string(arg)), "'") }

// errSilent is a server upstream that does not answer any more.
var errSilent = errors.New("no answer to PING")

// checkUpstream pings the server upstream, or gives the connection up when it has not answered often enough. PINGs of
// the client and of the server pass to the other side as they are; this one is the gateway's own, so that a half-open
// connection upstream is noticed whatever the client does.
func (c *client) checkUpstream() {
	if c.closing.Load() {
		return
	}
	p := c.passage
	set := c.server.settings.Load()
	p.mu.Lock()
	if time.Unix(0, p.lastHeard.Load()).After(p.checked) {
		p.silent = 0
	} else {
		p.silent++
	}
	p.checked = time.Now()
	stale := p.silent > set.MaxPingsOut
	p.mu.Unlock()
	if stale {
		c.server.upstreamStale.Add(1)
		c.upstreamEnded(p, errSilent)
		_ = p.conn.Close()
		return
	}
	c.mu.Lock()
	c.pingTimer = time.AfterFunc(set.PingInterval, c.checkUpstream)
	c.mu.Unlock()
	c.do(func() {
		p.pings.ping(c, p)
		c.askAgain(p)
	})
	if c.closing.Load() { // it may have ended before it could stop the new timer
		c.mu.Lock()
		stopTimer(c.pingTimer)
		c.mu.Unlock()
	}
}

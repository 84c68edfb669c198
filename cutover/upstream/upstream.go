package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nkeys"
)

// Options configure an Upstream.
type Options struct {
	// URLs of the servers: nats://host:port, or tls:// for those that must speak TLS, and nothing else in them. A
	// server that requires TLS gets it whatever its scheme.
	URLs []*url.URL
	// Timeout bounds one Open in all: lookups, attempts and the pauses between them. It has to be below the time that
	// clients wait for an INFO, so that they hear a reason.
	Timeout time.Duration
	// TLS is for connections that use it; nil: the system's authorities, no certificate.
	TLS *tls.Config
	// HandshakeFirst starts TLS before INFO, for servers with handshake_first.
	HandshakeFirst bool
	// ProxyProtocol tells the servers the clients' addresses, for those with proxy_protocol.
	ProxyProtocol bool
	// ProxyKey proves to servers that name its public key in proxies {} that clients come by this gateway; nil: none.
	ProxyKey nkeys.KeyPair
	// Dial connects to an address; nil: as net.Dialer does.
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Events Events
}

// Events are called when something happens, if they are not nil. They must not block.
type Events struct {
	// Dialed is one attempt to connect to a server, up to its INFO.
	Dialed func(server string, took time.Duration, err error)
	// RoundTrip is the time that a server took to answer a PING.
	RoundTrip func(time.Duration)
}

// DefaultTimeout is below the two seconds that nats.go waits for an INFO.
const DefaultTimeout = 1500 * time.Millisecond

// The pauses of one Open between its rounds, and how long a server that failed is left aside.
const (
	minPause    = 20 * time.Millisecond
	maxPause    = 250 * time.Millisecond
	minLeft     = 100 * time.Millisecond
	maxLeft     = 5 * time.Second
	checkExpiry = time.Second
)

// Upstream opens connections. Safe for concurrent use.
type Upstream struct {
	o Options

	mu      sync.Mutex
	servers []*upstreamServer

	check       sync.Mutex // held while a check runs
	checked     time.Time  // when the last one ended
	checkResult error
}

// upstreamServer is one server and what is known about it. It is guarded by Upstream.mu, but for what never changes.
type upstreamServer struct {
	name     string // for logs and metrics: without credentials
	addr     string // host:port
	host     string
	tls      bool
	failed   int       // times in a row
	leftTill time.Time // not to be tried before, if there is another
	stats    ServerStats
}

// ServerStats are what is known about a server.
type ServerStats struct {
	Name            string
	Dials, Failures uint64 // attempts, and those among them that failed
	LastErr         string // why the last one failed; empty: it did not
}

// ErrUnreachable is in the errors of Open and Check when no server could be reached.
var ErrUnreachable = errors.New("no server can be reached")

// New returns an Upstream. It fails when there are no URLs.
func New(o Options) (*Upstream, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("upstream: no URLs")
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext // looks the name up, and tries all its addresses
	}
	u := &Upstream{o: o}
	for _, at := range o.URLs {
		s := &upstreamServer{
			name: at.Scheme + "://" + at.Host, addr: net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "4222")),
			host: at.Hostname(), tls: at.Scheme == "tls",
		}
		s.stats.Name = s.name
		u.servers = append(u.servers, s)
	}
	return u, nil
}

// Stats returns what is known about the servers, in the order of the URLs.
func (u *Upstream) Stats() []ServerStats {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]ServerStats, 0, len(u.servers))
	for _, s := range u.servers {
		out = append(out, s.stats)
	}
	return out
}

// Passed implements gateway.Upstream.
func (u *Upstream) Passed(rtt time.Duration) {
	if f := u.o.Events.RoundTrip; f != nil {
		f(rtt)
	}
}

// Sign implements gateway.Upstream.
func (u *Upstream) Sign(nonce string) string {
	if u.o.ProxyKey == nil || nonce == "" {
		return ""
	}
	sig, err := u.o.ProxyKey.Sign([]byte(nonce))
	if err != nil { // the server will say that the client does not come by a proxy
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(sig)
}

// Open connects to one of the servers for a client whose connection is from and to these addresses. It goes through the
// servers until one answers or the time is over. It returns the connection, which goes on behind the server's first
// INFO, and the document of that.
func (u *Upstream) Open(ctx context.Context, from, to net.Addr) (net.Conn, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, u.o.Timeout)
	defer cancel()
	var err error
	for pause := minPause; ; pause = min(2*pause, maxPause) { //nolint:mnd // doubles
		conn, info, failure := u.round(ctx, from, to)
		if failure == nil {
			return conn, info, nil
		}
		if err == nil || ctx.Err() == nil { // that the time was over says less than why the round before failed
			err = failure
		}
		select {
		case <-ctx.Done():
			return nil, nil, err
		case <-time.After(rand.N(pause) + pause/2): //nolint:mnd // spread around the pause
		}
	}
}

// round tries each server once.
func (u *Upstream) round(ctx context.Context, from, to net.Addr) (net.Conn, []byte, error) {
	errs := []error{ErrUnreachable}
	end, _ := ctx.Deadline()
	list := u.order(time.Now())
	for i, s := range list {
		// A server that does not answer must leave time for the others.
		share := time.Until(end) / time.Duration(len(list)-i)
		conn, info, err := u.attempt(ctx, s, share, from, to)
		if err == nil {
			return conn, info, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, nil, errors.Join(errs...)
}

// order returns the servers in the order in which to try them: the good ones by chance, to spread the load, then those
// that failed lately. A server whose time has come again is tried first, by one caller only.
func (u *Upstream) order(now time.Time) []*upstreamServer {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := slices.Clone(u.servers)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	rank := make(map[*upstreamServer]int, len(list))
	again := false
	for _, s := range list {
		switch {
		case s.failed == 0:
			rank[s] = 1
		case !again && now.After(s.leftTill):
			again = true
			s.leftTill = now.Add(u.o.Timeout)
		default:
			rank[s] = 2
		}
	}
	slices.SortStableFunc(list, func(a, b *upstreamServer) int { return rank[a] - rank[b] })
	return list
}

// attempt connects to s within the time limit and notes how it went.
func (u *Upstream) attempt(
	ctx context.Context, s *upstreamServer, limit time.Duration, from, to net.Addr,
) (net.Conn, []byte, error) {
	dialCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	conn, info, err := u.dial(dialCtx, s, from, to)
	took := time.Since(start)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return nil, nil, err // the client went away: nothing is known about the server
	}
	u.mu.Lock()
	s.stats.Dials++
	if err == nil {
		s.failed, s.stats.LastErr = 0, ""
	} else {
		s.failed++
		s.stats.Failures++
		s.stats.LastErr = err.Error()
		const most = 10 // doublings, more than maxLeft has room for
		s.leftTill = time.Now().Add(min(minLeft<<min(s.failed-1, most), maxLeft))
	}
	u.mu.Unlock()
	if f := u.o.Events.Dialed; f != nil {
		f(s.name, took, err)
	}
	return conn, info, err
}

// Probe implements gateway.Upstream.
func (u *Upstream) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, u.o.Timeout)
	defer cancel()
	conn, _, err := u.round(ctx, nil, nil)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// Check reports whether a server can be reached now, as far as that was not found out a moment ago. It is for probes.
func (u *Upstream) Check(ctx context.Context) error {
	u.check.Lock()
	defer u.check.Unlock()
	if time.Since(u.checked) < checkExpiry {
		return u.checkResult
	}
	err := u.Probe(ctx)
	u.checked, u.checkResult = time.Now(), err
	return err
}

package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// Server accepts client connections.
type Server struct {
	options Options
	log     *slog.Logger
	lines   *lines // of log, about clients
	id      string // public key of the server
	name    string
	xkey    string // public curve key
	start   time.Time
	pool    wire.Pool
	counters
	settings atomic.Pointer[settings]
	limits   atomic.Pointer[map[string]auth.Limits] // for the next settings
	// upstreamInfo is the last INFO of a server upstream; nil: none yet, or this server serves the clients itself.
	upstreamInfo atomic.Pointer[wire.Info]
	customAuth   bool // options.Auth was given
	talkers      *talkers
	lastCID      atomic.Uint64

	outage outage

	stopped  chan struct{}  // closed when a shutdown begins
	done     chan struct{}  // closed when one is over
	running  sync.WaitGroup // accept loop, connections
	lameDuck chan struct{}  // closed when lame duck mode begins

	mu       sync.Mutex
	state    state
	info     wire.Info // of no connection in particular
	listener net.Listener
	port     int
	// webListener is that of WebSocket clients; nil without them.
	webListener net.Listener
	clients     map[uint64]*client
	accounts    map[string]*accountCounters // never shrinks: as many as are configured
	closed      closedRing
}

// settings are what may change while the server runs.
type settings struct {
	*server.Options
	auth     auth.Authenticator
	webAuth  auth.Authenticator     // of WebSocket clients
	maxConns map[string]int         // of the accounts that have a limit
	accounts *auth.Accounts         // of operator mode; nil: not in it
	limits   map[string]auth.Limits // of accounts, see Options
	throttle *throttle              // of TLS handshakes; nil: no limit
}

// newSettings returns the settings of settled options.
func newSettings(o *Options) *settings {
	set := &settings{
		Options: o.Server, auth: o.Auth, webAuth: o.webAuth, accounts: o.Accounts, limits: o.Limits,
		maxConns: map[string]int{},
		throttle: newThrottle(o.Server.TLSRateLimit),
	}
	for _, a := range o.Server.Accounts {
		if n := a.MaxActiveConnections(); n >= 0 {
			set.maxConns[a.Name] = n
		}
	}
	return set
}

// connLimit returns how many connections an account may have; false: any number.
func (set *settings) connLimit(account string) (int, bool) {
	if set.accounts != nil {
		acc := set.accounts.Loaded(account)
		if acc == nil || acc.Claims.Limits.Conn < 0 {
			return 0, false
		}
		return int(acc.Claims.Limits.Conn), true
	}
	n, limited := set.maxConns[account]
	return n, limited
}

// state is where in its life a server is.
type state uint8

const (
	stateNew state = iota
	stateRunning
	stateLameDuck
	stateStopped
)

// Errors of Start.
var (
	ErrStarted = errors.New("gateway: server was started before")
	ErrStopped = errors.New("gateway: server was shut down")
	// ErrNoClient is of requests about a connection that is not there.
	ErrNoClient = errors.New("gateway: no such connection")
)

// New returns a server that does not listen yet. It fails on options that make no sense or that it cannot honour.
func New(o Options) (*Server, error) {
	customAuth := o.Auth != nil
	s := &Server{
		start: time.Now(), customAuth: customAuth,
		stopped: make(chan struct{}), done: make(chan struct{}), lameDuck: make(chan struct{}),
		clients: make(map[uint64]*client), accounts: make(map[string]*accountCounters),
		talkers: newTalkers(o.TopTalkers, o.TopSubjectTokens),
	}
	if err := s.makeKeys(&o); err != nil {
		return nil, err
	}
	if err := o.settle(); err != nil {
		return nil, err
	}
	s.options, s.log, s.name = o, o.Logger, o.Server.ServerName
	s.lines = newLines(s.log)
	if s.name == "" {
		s.name = s.id
	}
	s.closed.limit = o.Server.MaxClosedClients
	s.limits.Store(&o.Limits)
	s.settings.Store(newSettings(&o))
	if o.Accounts != nil {
		o.Accounts.Watch(s.accountChanged)
	}
	return s, nil
}

// makeKeys makes the server's keys, one of which is its id.
func (s *Server) makeKeys(o *Options) error {
	key, err := nkeys.CreateServer()
	if err != nil {
		return fmt.Errorf("create server key: %w", err)
	}
	if s.id, err = key.PublicKey(); err != nil {
		return fmt.Errorf("public server key: %w", err)
	}
	curve, err := nkeys.CreateCurveKeys()
	if err != nil {
		return fmt.Errorf("create server curve key: %w", err)
	}
	if s.xkey, err = curve.PublicKey(); err != nil {
		return fmt.Errorf("public server curve key: %w", err)
	}
	o.host = &auth.Host{Key: key, XKey: curve, ID: jwt.ServerID{ID: s.id}, Call: s.call}
	return nil
}

// Start listens and returns; the server then runs until Shutdown. It fails if the address cannot be listened on.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case stateNew:
	case stateStopped:
		return ErrStopped
	case stateRunning, stateLameDuck:
		return ErrStarted
	}
	o := s.options.Server
	l, err := listenTCP(o.Host, o.Port, "choose another port with -p")
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	s.listener = l
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		s.port = a.Port
	}
	err = s.initInfo()
	if err == nil {
		err = s.listenWebsocket()
	}
	if err != nil {
		s.stopListening()
		return err
	}
	s.state = stateRunning
	s.log.Info("Listening for client connections on {addr}",
		slog.String("addr", net.JoinHostPort(o.Host, strconv.Itoa(s.port))))
	s.running.Go(func() { s.acceptLoop(l, false) })
	return nil
}

// listenTCP listens on a TCP port, any if it is -1. When the port is taken the error says what to do, other among it.
func listenTCP(host string, port int, other string) (net.Listener, error) {
	if port == server.RANDOM_PORT {
		port = 0
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), //nolint:forbidigo // listening does not block
		"tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: another process listens there; stop it, or %s", err, other)
	}
	return l, err
}

// Addr returns the address that clients connect to, nil before Start and after Shutdown.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// ClientURL returns a nats:// URL for the listening address.
func (s *Server) ClientURL() string {
	host := s.options.Server.Host
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return "nats://" + net.JoinHostPort(host, strconv.Itoa(s.port))
}

// The pauses after errors of accept.
const (
	acceptMinPause = 10 * time.Millisecond
	acceptMaxPause = time.Second
)

// acceptLoop runs until l is closed. web says that its clients come by WebSocket.
func (s *Server) acceptLoop(l net.Listener, web bool) {
	pause := acceptMinPause
	for {
		conn, err := l.Accept()
		if err == nil {
			pause = acceptMinPause
			s.accept(newClient(s, conn, web))
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		s.acceptErrors.Add(1)
		s.log.Error("Temporary Client Accept Error ({error}), sleeping {pause}",
			slog.Any("error", err), slog.Duration("pause", pause))
		select {
		case <-time.After(pause):
		case <-s.stopped:
			return
		}
		pause = min(pause*2, acceptMaxPause) //nolint:mnd // doubles
	}
}

// accept starts the goroutines of a new connection, or refuses it.
func (s *Server) accept(c *client) {
	s.connections.Add(1)
	s.running.Go(func() {
		switch {
		case !c.greet():
		case c.passage != nil:
			c.passage.run(c)
		default:
			c.run()
		}
	})
}

// admit registers c, unless the server is full or going away.
func (s *Server) admit(c *client) (reason CloseReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateRunning {
		return ReasonShutdown
	}
	limit := s.settings.Load().MaxConn
	if limit < 0 || len(s.clients) >= limit {
		return ReasonMaxConnections
	}
	s.clients[c.cid] = c
	return ""
}

// remove forgets c and keeps what is known about it for a while.
func (s *Server) remove(c *client, last ConnInfo) {
	account, user, msgs, size := c.traffic()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, c.cid)
	s.closed.add(last)
	s.talkers.ended(account, user, msgs, size)
}

// connected returns the current connections in no order.
func (s *Server) connected() []*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*client, 0, len(s.clients))
	for _, c := range s.clients {
		out = append(out, c)
	}
	return out
}

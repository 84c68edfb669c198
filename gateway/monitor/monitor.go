package monitor

import (
	"context"
	"crypto/tls"
	"errors"
	"expvar"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
)

// Core is what the client side of the server knows.
type Core interface {
	// Info returns the facts of INFO.
	Info() Info
	// Ready returns nil once clients are accepted.
	Ready() error
	// Counters returns the totals.
	Counters() Counters
	// Connections returns the open connections, or those closed lately.
	Connections(Wanted) []Connection
	// Accounts returns every account by name.
	Accounts() []Account
	// Matching returns how subscriptions were matched in an account; in all of them if it is empty.
	Matching(account string) server.SublistStats
}

// JetStream is what the streams know.
type JetStream interface {
	// Known is an error while the figures of streams are not known, or are about to become wrong.
	Known() error
	Jsz(*server.JSzOptions) (*server.JSInfo, error)
	Healthz(*server.HealthzOptions) *server.HealthStatus
}

// Upstream are the servers that serve the clients in this one's place.
type Upstream interface {
	// Check is an error when none of them can be reached.
	Check() error
	// Bus is shown in varz as "bus".
	Bus() any
}

// UnavailableError is an error of a provider that does not know the answer now. The page says so with status 503, as
// text: scalers would take JSON for figures.
type UnavailableError struct{ Err error }

// Error implements error.
func (e *UnavailableError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Info is what the server calls itself.
type Info struct {
	ID, Name     string
	GitCommit    string
	Host         string
	Port         int // as listened on
	AuthRequired bool
	ConnectURLs  []string
	Start        time.Time
	Version      string // of the NATS server whose behaviour clients meet; empty: that of this server
}

// Counters are totals since the start, but for Connections and Subscriptions, which are current.
type Counters struct {
	Connections      int
	TotalConnections uint64
	Subscriptions    uint32

	InMsgs, OutMsgs, InBytes, OutBytes int64

	SlowPending, SlowDeadline uint64 // clients closed as slow consumers, by reason
	Stale                     uint64 // clients closed as stale
	Stalls                    uint64 // pauses of clients whose messages could not be taken fast enough
}

// Wanted says which connections to list, and how.
type Wanted struct {
	Closed bool // those that ended
	Subs   bool // with their subscriptions
}

// Connection is one connection.
type Connection struct {
	server.ConnInfo
	User, Account string
	Subs          []server.SubDetail
}

// Account is one account.
type Account struct {
	Name                               string
	Label                              string // what people call it
	System, JetStream                  bool
	Connections                        int
	TotalConnections                   int // since the start
	Subscriptions                      uint32
	InMsgs, OutMsgs, InBytes, OutBytes int64
	SlowConsumers                      int64

	Claims *jwt.AccountClaims // of operator mode
	Token  string             // the claims as signed
}

// Links are what an account offers to others, takes from them, and renames.
type Links struct {
	Exports  []server.ExtExport
	Imports  []server.ExtImport
	Mappings server.ExtMap
}

// Options make a Server.
type Options struct {
	Server    *server.Options // nats-server's options: ports, limits and what varz shows of them
	Core      Core
	JetStream JetStream                  // nil: off
	Links     func(account string) Links // nil: there are none
	Metrics   http.Handler               // served at /metrics
	// Upstream is given when other servers serve the clients.
	Upstream Upstream
	Logger   *slog.Logger
	// MetricsPort serves /metrics on one more port: -1 any free one, 0 none.
	MetricsPort int
	// Read is told of requests for pages; may be nil.
	Read func(page string, r *http.Request)
	// Extra are further pages, by path.
	Extra map[string]http.Handler
}

// Server serves the pages.
type Server struct {
	o       Options
	started time.Time
	options atomic.Pointer[server.Options] // in force; o.Server is what was started with
	loaded  atomic.Int64                   // when they came into force, in Unix nanoseconds
	kept    kept

	mu       sync.Mutex // guards requests
	requests map[string]uint64

	servers []*http.Server
	addrs   []net.Addr
	done    sync.WaitGroup
}

// New makes a Server that does not listen yet.
func New(o Options) *Server {
	s := &Server{o: o, started: time.Now(), requests: map[string]uint64{}}
	s.SetOptions(o.Server)
	return s
}

// SetOptions shows other options from now on, as after a reload. Where to listen does not change.
func (s *Server) SetOptions(o *server.Options) {
	s.options.Store(o)
	s.loaded.Store(time.Now().UnixNano())
}

// Start listens. Without a port in the options there is nothing to do.
func (s *Server) Start() error {
	o := s.o.Server
	if o.HTTPPort != 0 && o.HTTPSPort != 0 {
		return fmt.Errorf("can't specify both HTTP (%v) and HTTPs (%v) ports", o.HTTPPort, o.HTTPSPort)
	}
	if o.HTTPPort != 0 {
		addr, err := s.listen(o.HTTPPort, s.Handler(), nil, "can't listen to the monitor port: %w")
		if err != nil {
			return err
		}
		s.o.Logger.Info("Starting http monitor on {addr}", slog.String("addr", s.shown(addr)))
	}
	if o.HTTPSPort != 0 {
		if o.TLSConfig == nil {
			return errNoCertificate
		}
		addr, err := s.listen(o.HTTPSPort, s.Handler(), s.secureConfig(), "can't listen to the monitor port: %w")
		if err != nil {
			return err
		}
		s.o.Logger.Info("Starting https monitor on {addr}", slog.String("addr", s.shown(addr)))
	}
	if s.o.MetricsPort != 0 && s.o.Metrics != nil {
		mux := http.NewServeMux()
		mux.Handle("/metrics", s.o.Metrics)
		addr, err := s.listen(s.o.MetricsPort, mux, nil, "can't listen to the metrics port: %w")
		if err != nil {
			return errors.Join(err, s.Close())
		}
		s.o.Logger.Info("Starting metrics on {addr}", slog.String("addr", s.shown(addr)))
	}
	return nil
}

// shown is addr with the host as configured: 0.0.0.0 reads better than [::].
func (s *Server) shown(addr net.Addr) string {
	_, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return net.JoinHostPort(s.o.Server.HTTPHost, port)
}

// errNoCertificate is a secure port without tls {}.
var errNoCertificate = errors.New("TLS cert and key required for HTTPS: https_port needs a tls {} block")

// protocols are what a secure port speaks. HTTP/2 lets a browser have more than six feeds open.
var protocols = []string{"h2", "http/1.1"}

// secureConfig asks no certificate of who looks at the pages, and follows a reload.
func (s *Server) secureConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := s.options.Load().TLSConfig
			if now == nil {
				return nil, errNoCertificate
			}
			now = now.Clone()
			now.ClientAuth, now.NextProtos = tls.NoClientCert, protocols
			return now, nil
		},
	}
}

// listen serves h on port, with TLS if secure is not nil.
func (s *Server) listen(port int, h http.Handler, secure *tls.Config, failure string) (net.Addr, error) {
	hp := net.JoinHostPort(s.o.Server.HTTPHost, strconv.Itoa(max(port, 0)))
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", hp) //nolint:forbidigo // ends with Close
	if err != nil {
		return nil, fmt.Errorf(failure, err)
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	srv := &http.Server{
		Handler:           h,
		MaxHeaderBytes:    1 << 20,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
	}
	s.servers, s.addrs = append(s.servers, srv), append(s.addrs, l.Addr())
	s.done.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.o.Logger.Error("Monitor stopped", slog.Any("error", err))
		}
	})
	return l.Addr(), nil
}

// Addrs returns the addresses listened on: the monitor's, then that of the metrics port, as far as there are such.
func (s *Server) Addrs() []net.Addr { return s.addrs }

// Close ends all connections and waits for the servers to end.
func (s *Server) Close() error {
	var errs []error
	for _, srv := range s.servers {
		errs = append(errs, srv.Close())
	}
	s.done.Wait()
	s.kept.close()
	return errors.Join(errs...)
}

// Handler serves all pages.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	pages := map[string]http.HandlerFunc{
		server.VarzPath:         s.varz,
		server.ConnzPath:        s.connz,
		server.GatewayzPath:     s.gatewayz,
		server.LeafzPath:        s.leafz,
		server.SubszPath:        s.subsz,
		server.StackszPath:      s.stacksz,
		server.AccountzPath:     s.accountz,
		server.AccountStatzPath: s.accstatz,
		server.JszPath:          s.jsz,
		server.HealthzPath:      s.healthz,
	}
	for p, h := range pages {
		mux.HandleFunc(s.path(p), s.counted(p, h))
	}
	mux.HandleFunc(s.path(server.RootPath), s.root)
	mux.HandleFunc(s.path(server.RoutezPath), s.routez)
	mux.HandleFunc(s.path(server.IPQueuesPath), s.ipqueuesz)
	mux.HandleFunc(s.path(server.RaftzPath), s.raftz)
	mux.Handle(s.path(server.ExpvarzPath), expvar.Handler())
	mux.HandleFunc(s.path("/subscriptionsz"), s.counted(server.SubszPath, s.subsz))
	if s.o.Metrics != nil {
		mux.Handle(s.path("/metrics"), s.o.Metrics)
	}
	for p, h := range s.o.Extra {
		mux.Handle(s.path(p), h)
	}
	return mux
}

// path is p below http_base_path.
func (s *Server) path(p string) string {
	base := s.o.Server.HTTPBasePath
	if !strings.HasPrefix(base, "/") {
		base = "/" + base
	}
	return path.Join(base, p)
}

// counted counts a page's requests for varz.
func (s *Server) counted(page string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.count(page)
		if s.o.Read != nil {
			s.o.Read(page, r)
		}
		h(w, r)
	}
}

func (s *Server) count(page string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[page]++
}

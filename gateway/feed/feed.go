package feed

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/noetl/ehdb-gateway/gateway/auth"
)

// Path is where feeds are, as a pattern of http.ServeMux.
const Path = "/feed/{account}/{stream}"

// Defaults of Options.
const (
	DefaultMaxConnections = 1024
	DefaultHeartbeat      = 15 * time.Second
	DefaultWriteDeadline  = 10 * time.Second
)

// Options make a Server.
type Options struct {
	// Source has the streams, and Auth returns who decides about logins now: those of this server.
	Source Source
	Auth   func() auth.Authenticator
	// Visit, if it is not nil, takes the place of both: others let clients in and have the streams. The error wraps
	// ErrLogin or ErrForbidden, or says why nobody can be let in now.
	Visit func(ctx context.Context, c *auth.Credentials) (Visitor, error)
	// MaxConnections bounds the feeds that are open at a time, of all clients together.
	MaxConnections int
	// Heartbeat is how often a feed is sent a comment, and a login looked at again.
	Heartbeat time.Duration
	// WriteDeadline is how long a client may take nothing of what is sent to it.
	WriteDeadline time.Duration
	// Origins are the web pages (https://host) that may read feeds besides those of the host they ask; "*": all.
	Origins []string
	// Cookie is the name of a cookie that may hold the token or JWT; empty: none.
	Cookie string
	// LameDuck is closed when the server is about to stop: feeds end with a hint when to come back.
	LameDuck <-chan struct{}
	Logger   *slog.Logger
}

// Server serves feeds.
type Server struct {
	o     Options
	slots chan struct{} // holds one for each feed that is open

	refusals *rate.Limiter // of lines in the log about refused logins

	closeOnce sync.Once
	closing   chan struct{} // closed by Close

	stats struct {
		connections                          atomic.Int64
		opened, resumed, events, bytes, gaps atomic.Uint64
		slow                                 atomic.Uint64
		mu                                   sync.Mutex
		refused                              map[string]uint64
	}
}

// Stats are counts since the start, but for Connections.
type Stats struct {
	Connections     uint64 // feeds that are open
	Opened, Resumed uint64 // feeds, and those of them that went on behind an event
	Events, Bytes   uint64 // messages, and all that was written
	Gaps            uint64 // events that told of missing messages
	Slow            uint64 // feeds ended because the client did not read
	Refused         map[string]uint64
}

// Reasons for a refusal, as counted in Stats.
const (
	refusedRequest     = "request"     // 400, 405, 413
	refusedLogin       = "login"       // 401
	refusedPermission  = "permission"  // 403: other account, subject not permitted
	refusedOrigin      = "origin"      // 403
	refusedUnknown     = "unknown"     // 404
	refusedConnections = "connections" // 503: max_connections
	refusedUnavailable = "unavailable" // 503: recovering, stopping
)

// New makes a Server.
func New(o Options) *Server {
	o.MaxConnections = cmp.Or(o.MaxConnections, DefaultMaxConnections)
	o.Heartbeat = cmp.Or(o.Heartbeat, DefaultHeartbeat)
	o.WriteDeadline = cmp.Or(o.WriteDeadline, DefaultWriteDeadline)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, slots: make(chan struct{}, o.MaxConnections), closing: make(chan struct{})}
	s.refusals = rate.NewLimiter(refusalsPerSecond, refusalsAtOnce)
	s.stats.refused = map[string]uint64{
		refusedRequest: 0, refusedLogin: 0, refusedPermission: 0, refusedOrigin: 0, refusedUnknown: 0,
		refusedConnections: 0, refusedUnavailable: 0,
	}
	return s
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	c := &s.stats
	c.mu.Lock()
	refused := maps.Clone(c.refused)
	c.mu.Unlock()
	return Stats{
		Connections: uint64(max(c.connections.Load(), 0)), //nolint:gosec // not negative
		Opened:      c.opened.Load(), Resumed: c.resumed.Load(), Events: c.events.Load(), Bytes: c.bytes.Load(),
		Gaps: c.gaps.Load(), Slow: c.slow.Load(), Refused: refused,
	}
}

// Close ends all feeds with a hint when to come back, opens no more, and waits until they have ended or ctx does.
func (s *Server) Close(ctx context.Context) {
	s.closeOnce.Do(func() { close(s.closing) })
	for range cap(s.slots) {
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// ServeHTTP serves Path.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.shareWith(w, r); err != nil {
		s.refuse(w, http.StatusForbidden, refusedOrigin, err)
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions:
		s.preflight(w)
		return
	default:
		w.Header().Set("Allow", allowedMethods)
		s.refuse(w, http.StatusMethodNotAllowed, refusedRequest, errors.New("a feed can only be read: use GET"))
		return
	}
	q, err := parseRequest(r, s.o.Cookie)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, refusedRequest, err)
		return
	}
	if end, reason, err := s.unavailable(); err != nil {
		s.later(w, r, end, reason, err)
		return
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		s.later(w, r, endFull, refusedConnections, errors.New("as many feeds are open as may be "+
			"(ehdb.feed.max_connections)"))
		return
	}
	s.serve(w, r, q)
}

var errStopping = errors.New("not ready: the server stops")

// unavailable returns why no feed is opened now.
func (s *Server) unavailable() (ending, string, error) {
	select {
	case <-s.closing:
		return endShutdown, refusedUnavailable, errStopping
	case <-s.o.LameDuck:
		return endLameDuck, refusedUnavailable, errStopping
	default:
	}
	if s.o.Source == nil {
		return "", "", nil
	}
	if err := s.o.Source.Ready(); err != nil {
		return endNotReady, refusedUnavailable, err
	}
	return "", "", nil
}

// serve opens the feed and runs it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, q *request) {
	g, err := s.admit(r.Context(), q)
	if err != nil {
		s.refuseError(w, r, err)
		return
	}
	defer g.end()
	if err := g.check(q); err != nil {
		s.refuseError(w, r, err)
		return
	}
	reader, reset, err := openReader(g.source, q)
	if err != nil {
		s.refuseError(w, r, err)
		return
	}
	defer reader.Close()
	setHeaders(w.Header())
	if r.Method == http.MethodHead {
		return
	}
	s.stats.opened.Add(1)
	if q.resumes {
		s.stats.resumed.Add(1)
	}
	s.stats.connections.Add(1)
	defer s.stats.connections.Add(-1)
	c := newConn(s, w, r, q, g, reader)
	if reset != nil {
		c.buf = reset.append(c.buf)
	}
	why := c.run()
	s.o.Logger.Debug("A feed ended", slog.String("account", q.account), slog.String("stream", q.stream),
		slog.String("client", r.RemoteAddr), slog.String("reason", string(why)))
}

// openReader opens the stream where q asks for it. reset is not nil if the stream ends before what the client has seen:
// then it begins anew.
func openReader(source Source, q *request) (Reader, *reset, error) {
	r, err := source.Open(q.account, q.stream, &q.from)
	if err != nil || !q.resumes || q.from.Seq <= r.Last()+1 {
		return r, nil, err
	}
	told := &reset{LastEventID: q.from.Seq - 1, LastSeq: r.Last()}
	r.Close()
	r, err = source.Open(q.account, q.stream, &From{Policy: DeliverAll, Filters: q.from.Filters})
	return r, told, err
}

// refusal is an error with its status.
type refusal struct {
	status int
	reason string
	error
}

func (s *Server) refuseError(w http.ResponseWriter, r *http.Request, err error) {
	if known, ok := errors.AsType[*refusal](err); ok {
		s.refuse(w, known.status, known.reason, err)
		return
	}
	switch {
	case errors.Is(err, ErrUnknown):
		s.refuse(w, http.StatusNotFound, refusedUnknown, err)
	case errors.Is(err, ErrForbidden):
		s.refuse(w, http.StatusForbidden, refusedPermission, err)
	case errors.Is(err, ErrTooMany):
		s.refuse(w, http.StatusRequestEntityTooLarge, refusedRequest, err)
	default:
		s.later(w, r, endNotReady, refusedUnavailable, err)
	}
}

// refuse answers in plain text. An EventSource that gets any status but 200 does not come back by itself.
func (s *Server) refuse(w http.ResponseWriter, status int, reason string, err error) {
	s.count(reason)
	if status == http.StatusUnauthorized {
		w.Header().Add("WWW-Authenticate", `Basic realm="ehdb-gateway", charset="UTF-8"`)
		w.Header().Add("WWW-Authenticate", `Bearer realm="ehdb-gateway"`)
	}
	http.Error(w, err.Error(), status)
}

// later refuses for now. Clients that ask for events get some: a 503 would end an EventSource for good.
func (s *Server) later(w http.ResponseWriter, r *http.Request, end ending, reason string, err error) {
	if !strings.Contains(r.Header.Get("Accept"), contentType) {
		w.Header().Set("Retry-After", "2")
		s.refuse(w, http.StatusServiceUnavailable, reason, err)
		return
	}
	s.count(reason)
	setHeaders(w.Header())
	if r.Method == http.MethodGet {
		_, _ = w.Write(end.append(nil, err.Error())) // who asked has gone
	}
}

func (s *Server) count(reason string) {
	s.stats.mu.Lock()
	s.stats.refused[reason]++
	s.stats.mu.Unlock()
}

package monitor

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func (s *Server) jsz(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	o := &server.JSzOptions{
		Account:          q.text("acc"),
		Accounts:         q.boolean("accounts"),
		Streams:          q.boolean("streams"),
		Consumer:         q.boolean("consumers"),
		DirectConsumer:   q.boolean("direct-consumers"),
		Config:           q.boolean("config"),
		Offset:           q.number("offset"),
		Limit:            q.number("limit"),
		LeaderOnly:       q.boolean("leader-only"),
		RaftGroups:       q.boolean("raft"),
		StreamLeaderOnly: q.boolean("stream-leader-only"),
	}
	if q.err != nil {
		s.badRequest(w, q.err)
		return
	}
	body, err := s.jszPage(o)
	if unavailable := (*UnavailableError)(nil); errors.As(err, &unavailable) {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if err != nil {
		s.badRequest(w, err)
		return
	}
	s.send(w, http.StatusOK, body)
}

// jszPage is the body of /jsz. Whether the figures are known at all is asked each time; the figures themselves may be
// those of a kept answer.
func (s *Server) jszPage(o *server.JSzOptions) ([]byte, error) {
	draw := func() ([]byte, error) {
		j, err := s.Jsz(o)
		if err != nil {
			return nil, err
		}
		return json.MarshalIndent(j, "", "  ")
	}
	if s.o.JetStream == nil || s.o.Upstream != nil { // there is nothing to keep, or it is kept there
		return draw()
	}
	if err := s.o.JetStream.Known(); err != nil {
		return nil, &UnavailableError{err}
	}
	return s.kept.get(fmt.Sprintf("%+v", *o), draw)
}

// Jsz tells about JetStream, as far as o asks.
func (s *Server) Jsz(o *server.JSzOptions) (*server.JSInfo, error) {
	if s.o.JetStream == nil {
		return &server.JSInfo{ID: s.o.Core.Info().ID, Now: time.Now().UTC(), Disabled: true}, nil
	}
	return s.o.JetStream.Jsz(o)
}

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	o := &server.HealthzOptions{
		JSEnabledOnly: q.boolean("js-enabled-only") || q.boolean("js-enabled"), // the latter is its older name
		JSServerOnly:  q.boolean("js-server-only"),
		JSMetaOnly:    q.boolean("js-meta-only"),
		Account:       q.text("account"),
		Stream:        q.text("stream"),
		Consumer:      q.text("consumer"),
		Details:       q.boolean("details"),
	}
	if q.err != nil {
		s.badRequest(w, q.err)
		return
	}
	h := *s.Healthz(o)
	code := h.StatusCode
	h.StatusCode = 0 // it is in the status line
	b, err := json.Marshal(h)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.send(w, code, b)
}

// Healthz tells whether the server serves: clients first, then, as far as o asks, the streams.
func (s *Server) Healthz(o *server.HealthzOptions) *server.HealthStatus {
	switch {
	case o.Account == "" && o.Stream != "":
		return unhealthy(o, http.StatusBadRequest, server.HealthzErrorBadRequest,
			`"account" must not be empty when checking stream health`)
	case o.Stream == "" && o.Consumer != "":
		return unhealthy(o, http.StatusBadRequest, server.HealthzErrorBadRequest,
			`"stream" must not be empty when checking consumer health`)
	}
	if err := s.o.Core.Ready(); err != nil {
		return unhealthy(o, http.StatusInternalServerError, server.HealthzErrorConn, err.Error())
	}
	if s.o.Upstream != nil && !o.JSEnabledOnly { // a restart, which that one asks for, would not help
		if err := s.o.Upstream.Check(); err != nil {
			return unhealthy(o, http.StatusServiceUnavailable, server.HealthzErrorConn, err.Error())
		}
	}
	if o.JSServerOnly || s.o.JetStream == nil {
		return &server.HealthStatus{Status: "ok", StatusCode: http.StatusOK}
	}
	return s.o.JetStream.Healthz(o)
}

func unhealthy(o *server.HealthzOptions, code int, kind server.HealthZErrorType, msg string) *server.HealthStatus {
	h := &server.HealthStatus{Status: "error", StatusCode: code}
	if o.Details {
		h.Errors = []server.HealthzError{{Type: kind, Error: msg}}
	} else {
		h.Error = msg
	}
	return h
}

// routez, gatewayz and leafz read their arguments, so that a mistake is told, and have nothing to select by them from.
func (s *Server) routez(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	q.subscriptions()
	if q.err != nil {
		s.badRequest(w, q.err)
		return
	}
	s.count(server.RoutezPath) // as there, not before
	s.answer(w, s.Routez())
}

func (s *Server) gatewayz(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	q.subscriptions()
	q.boolean("accs")
	if q.err != nil {
		s.badRequest(w, q.err)
		return
	}
	s.answer(w, s.Gatewayz())
}

func (s *Server) leafz(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	q.boolean("subs")
	if q.err != nil {
		s.badRequest(w, q.err)
		return
	}
	s.answer(w, s.Leafz())
}

// Routez lists routes, as Gatewayz and Leafz list their kinds of connections: a single server has none.
func (s *Server) Routez() *server.Routez {
	i := s.o.Core.Info()
	return &server.Routez{ID: i.ID, Name: i.Name, Now: time.Now().UTC(), Routes: []*server.RouteInfo{}}
}

// Gatewayz is as Routez.
func (s *Server) Gatewayz() *server.Gatewayz {
	return &server.Gatewayz{
		ID: s.o.Core.Info().ID, Now: time.Now().UTC(),
		OutboundGateways: map[string]*server.RemoteGatewayz{}, InboundGateways: map[string][]*server.RemoteGatewayz{},
	}
}

// Leafz is as Routez.
func (s *Server) Leafz() *server.Leafz {
	return &server.Leafz{ID: s.o.Core.Info().ID, Now: time.Now().UTC(), Leafs: []*server.LeafInfo{}}
}

// ipqueuesz lists the queues between nats-server's parts, of which this server has none.
func (s *Server) ipqueuesz(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	q.boolean("all")
	if q.err != nil {
		s.badRequest(w, q.err)
		return
	}
	s.answer(w, server.IpqueueszStatus{})
}

// raftz lists Raft groups; a server alone has none.
func (s *Server) raftz(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNotFound)
	s.write(w, []byte("No Raft nodes registered"))
}

func (s *Server) stacksz(w http.ResponseWriter, _ *http.Request) {
	buf := make([]byte, 1<<20)
	s.send(w, http.StatusOK, buf[:runtime.Stack(buf, true)])
}

// root lists the pages.
func (s *Server) root(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != s.path(server.RootPath) {
		http.NotFound(w, r)
		return
	}
	s.count(server.RootPath)
	var b strings.Builder
	b.WriteString("<!doctype html>\n<html lang=\"en\">\n<title>ehdb-gateway</title>\n<h1>ehdb-gateway</h1>\n")
	fmt.Fprintf(&b, "<p>%s, speaking NATS %s</p>\n<ul>\n", html.EscapeString(s.o.Core.Info().Name), server.VERSION)
	for _, l := range []struct{ path, name string }{
		{server.VarzPath, "General"},
		{server.JszPath, "JetStream"},
		{server.ConnzPath, "Connections"},
		{server.AccountzPath, "Accounts"},
		{server.AccountStatzPath, "Account statistics"},
		{server.SubszPath, "Subscriptions"},
		{server.HealthzPath, "Health"},
		{"/metrics", "Metrics"},
	} {
		fmt.Fprintf(&b, "<li><a href=\".%s\">%s</a></li>\n", html.EscapeString(s.path(l.path)), l.name)
	}
	b.WriteString("</ul>\n")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	s.write(w, []byte(b.String()))
}

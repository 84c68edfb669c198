package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/time/rate"

	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/upstream"
	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/monitor"
	"github.com/noetl/ehdb-gateway/internal/config"
	"github.com/noetl/ehdb-gateway/internal/metrics"
)

// upstreams are the NATS servers that serve the clients in bus mode nats, as the parts of the server see them.
type upstreams struct {
	*upstream.Upstream
	cfg   *config.Bus
	pages *upstream.Monitor
	gw    *gateway.Server
}

// newUpstreams returns nil in a mode that needs none.
func newUpstreams(a *app) (*upstreams, error) {
	cfg := &a.cfg.Bus
	if !cfg.Passes() {
		return nil, nil //nolint:nilnil // there are none
	}
	for _, at := range cfg.Upstream {
		if own(a.cfg.Server, at.Hostname(), at.Port()) {
			return nil, fmt.Errorf("bus.upstream %s is this gateway itself", at)
		}
	}
	warn := &rate.Sometimes{First: 10, Interval: time.Second} // every client that comes meets the same
	o := upstream.Options{
		URLs: cfg.Upstream, Timeout: cfg.ConnectTimeout, TLS: cfg.TLS, HandshakeFirst: cfg.HandshakeFirst,
		ProxyProtocol: cfg.ProxyProtocol, ProxyKey: cfg.ProxyKey,
		Events: upstream.Events{
			Dialed: func(server string, took time.Duration, err error) {
				if err != nil {
					warn.Do(func() {
						a.log.Warn("Upstream {server} can't be reached: {error}",
							slog.String("server", server), slog.Any("error", err))
					})
					return
				}
				a.metrics.UpstreamDialed(took)
			},
			RoundTrip: a.metrics.UpstreamRoundTrip,
		},
	}
	if cfg.Drills {
		a.cut = drill.NewCut()
		o.Dial = a.cut.DialContext
	}
	u, err := upstream.New(o)
	if err != nil {
		return nil, err
	}
	return &upstreams{Upstream: u, cfg: cfg}, nil
}

// newMemory returns what remembers the logins that the servers have accepted; nil: nothing does.
func newMemory(b *config.Bus) *auth.Memory {
	if b.OutageLogins == 0 {
		return nil
	}
	return auth.NewMemory(b.OutageLogins, b.ProxyProtocol)
}

// own tells the address that the gateway itself listens on.
func own(o *server.Options, host, port string) bool {
	if port == "" {
		port = strconv.Itoa(server.DEFAULT_PORT)
	}
	if port != strconv.Itoa(o.Port) {
		return false
	}
	if strings.EqualFold(host, o.Host) {
		return true
	}
	listen := net.ParseIP(o.Host)
	everywhere := o.Host == "" || listen != nil && listen.IsUnspecified()
	ip := net.ParseIP(host)
	return (everywhere || listen != nil && listen.IsLoopback()) &&
		(strings.EqualFold(host, "localhost") || ip != nil && (ip.IsLoopback() || ip.IsUnspecified()))
}

// serve begins to answer for gw.
func (u *upstreams) serve(gw *gateway.Server) {
	u.gw = gw
	u.pages = upstream.NewMonitor(u.cfg.Monitor, gw.Stats().ServerName)
}

// banner says where clients are passed on to.
func (u *upstreams) banner(log *slog.Logger) {
	for _, s := range u.Stats() {
		log.Info("  Upstream: {server}", slog.String("server", s.Name))
	}
}

// Check implements monitor.Upstream. Whoever keeps clients away from a server that is not ready must not do so while
// they are served from here alone.
func (u *upstreams) Check() error {
	err := u.Upstream.Check(context.Background())
	if err != nil && u.gw.ServesAlone() {
		return nil
	}
	return err
}

// busVarz is "bus" in varz.
type busVarz struct {
	Mode        config.Mode  `json:"mode"`
	Connections int          `json:"upstream_connections"`
	Refused     int64        `json:"upstream_refused"`
	Lost        int64        `json:"upstream_lost"`
	Stale       int64        `json:"upstream_stale"`
	Outage      *outageVarz  `json:"outage,omitempty"`
	Remembered  int          `json:"logins_remembered"`
	Unknown     int64        `json:"logins_unknown"`
	Servers     []serverVarz `json:"upstream"`
}

// outageVarz is a time in which no server upstream can be reached, and clients are served from here alone.
type outageVarz struct {
	Since   time.Time `json:"since"`
	Clients int       `json:"clients"`
}

// serverVarz is one server upstream.
type serverVarz struct {
	URL       string `json:"url"`
	Dials     uint64 `json:"dials"`
	Failures  uint64 `json:"failures"`
	LastError string `json:"last_error,omitempty"`
}

// Bus implements monitor.Upstream.
func (u *upstreams) Bus() any {
	s := u.gw.Stats().Upstream
	v := busVarz{
		Mode: u.cfg.Mode, Connections: s.Connections, Refused: s.Refused, Lost: s.Lost, Stale: s.Stale,
		Remembered: s.Remembered, Unknown: s.Unremembered,
	}
	if !s.Outage.IsZero() {
		v.Outage = &outageVarz{s.Outage.UTC(), s.Alone}
	}
	for _, up := range u.Stats() {
		v.Servers = append(v.Servers, serverVarz{up.Name, up.Dials, up.Failures, up.LastErr})
	}
	return v
}

// Known implements monitor.JetStream. Whether the servers upstream answer is seen when they are asked.
func (u *upstreams) Known() error { return nil }

// Jsz implements monitor.JetStream.
func (u *upstreams) Jsz(o *server.JSzOptions) (*server.JSInfo, error) {
	j, err := u.pages.Jsz(context.Background(), o)
	if err != nil {
		return nil, &monitor.UnavailableError{Err: err}
	}
	named := *j
	named.ID = u.gw.Stats().ServerID
	return &named, nil
}

// Healthz implements monitor.JetStream. That a server can be reached was found before.
func (u *upstreams) Healthz(o *server.HealthzOptions) *server.HealthStatus {
	if o.Account == "" {
		return &server.HealthStatus{Status: "ok", StatusCode: http.StatusOK}
	}
	j, err := u.pages.Jsz(context.Background(), &server.JSzOptions{Account: o.Account, Streams: true, Consumer: true})
	if err != nil {
		return healthOf(o, []server.HealthzError{{Type: server.HealthzErrorJetStream, Error: err.Error()}})
	}
	return healthOf(o, missing(j, o))
}

// missing is what o asks about and j does not have.
func missing(j *server.JSInfo, o *server.HealthzOptions) []server.HealthzError {
	for _, a := range j.AccountDetails {
		if a.Name != o.Account && a.Id != o.Account {
			continue
		}
		if o.Stream == "" {
			return nil
		}
		for i := range a.Streams {
			if a.Streams[i].Name == o.Stream {
				return missingConsumer(&a.Streams[i], o)
			}
		}
		return []server.HealthzError{{
			Type: server.HealthzErrorStream, Account: o.Account, Stream: o.Stream,
			Error: server.NewJSStreamNotFoundError().Description,
		}}
	}
	return []server.HealthzError{{
		Type: server.HealthzErrorAccount, Account: o.Account,
		Error: fmt.Sprintf("JetStream account %q not found", o.Account),
	}}
}

func missingConsumer(s *server.StreamDetail, o *server.HealthzOptions) []server.HealthzError {
	if o.Consumer == "" {
		return nil
	}
	for _, c := range s.Consumer {
		if c.Name == o.Consumer {
			return nil
		}
	}
	return []server.HealthzError{{
		Type: server.HealthzErrorConsumer, Account: o.Account, Stream: o.Stream, Consumer: o.Consumer,
		Error: server.NewJSConsumerNotFoundError().Description,
	}}
}

// measured is what metrics show.
func (u *upstreams) measured() metrics.Upstream {
	s := u.gw.Stats().Upstream
	out := metrics.Upstream{
		//nolint:gosec // counters
		Connections: uint64(s.Connections), BytesIn: uint64(s.BytesIn), BytesOut: uint64(s.BytesOut),
		Refused: uint64(s.Refused), Lost: uint64(s.Lost), Stale: uint64(s.Stale), //nolint:gosec // counters
		Outage: !s.Outage.IsZero(), Alone: uint64(s.Alone), Remembered: uint64(s.Remembered), //nolint:gosec // counts
		Unremembered: uint64(s.Unremembered), RefusedAlone: uint64(s.RefusedAlone), //nolint:gosec // counters
	}
	for _, up := range u.Stats() {
		out.Servers = append(out.Servers, metrics.UpstreamServer{
			Name: up.Name, Dials: up.Dials, Failures: up.Failures, Reachable: up.Dials > 0 && up.LastErr == "",
		})
	}
	return out
}

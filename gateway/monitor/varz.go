package monitor

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"math"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/pse"
)

// protocol is the version of the client protocol that INFO announces.
const protocol = 1

func (s *Server) varz(w http.ResponseWriter, _ *http.Request) {
	v := s.Varz()
	if s.o.Upstream == nil {
		s.answer(w, v)
		return
	}
	s.answer(w, struct {
		*server.Varz
		Bus any `json:"bus"`
	}{v, s.o.Upstream.Bus()})
}

// Varz returns the facts of the server.
func (s *Server) Varz() *server.Varz {
	v := s.configured()
	s.addIdentity(v)
	s.addProcess(v)
	s.addCounters(v)
	s.mu.Lock()
	v.HTTPReqStats = maps.Clone(s.requests)
	s.mu.Unlock()
	s.addJetStream(v)
	return v
}

// configured is what the options say.
func (s *Server) configured() *server.Varz {
	o := s.options.Load()
	return &server.Varz{
		Proto: protocol, Version: server.VERSION,
		MaxConn: o.MaxConn, MaxSubs: o.MaxSubs, PingInterval: o.PingInterval, MaxPingsOut: o.MaxPingsOut,
		HTTPHost: o.HTTPHost, HTTPPort: o.HTTPPort, HTTPBasePath: o.HTTPBasePath, HTTPSPort: o.HTTPSPort,
		AuthTimeout: o.AuthTimeout, MaxControlLine: o.MaxControlLine, MaxPayload: int(o.MaxPayload),
		MaxPending: o.MaxPending, TLSTimeout: o.TLSTimeout,
		TLSRequired: o.TLSConfig != nil && !o.AllowNonTLS, TLSVerify: verifies(o),
		WriteDeadline: o.WriteDeadline, WriteTimeout: o.WriteTimeout.String(),
		Cluster: server.ClusterOptsVarz{
			WriteDeadline: o.Cluster.WriteDeadline, WriteTimeout: o.Cluster.WriteTimeout.String(),
		},
		Gateway: server.GatewayOptsVarz{
			WriteDeadline: o.Cluster.WriteDeadline, WriteTimeout: o.Cluster.WriteTimeout.String(),
		},
		LeafNode: server.LeafNodeOptsVarz{
			WriteDeadline: o.Cluster.WriteDeadline, WriteTimeout: o.Cluster.WriteTimeout.String(),
		},
		ConfigLoadTime: time.Unix(0, s.loaded.Load()).UTC(), ConfigDigest: o.ConfigDigest(),
		Tags: o.Tags, Metadata: o.Metadata, FeatureFlags: FeatureFlags(),
		TLSCertNotAfter: notAfter(o.TLSConfig), TrustedOperatorsClaim: o.TrustedOperators,
		Websocket: websocket(&o.Websocket), Proxies: proxies(o),
		SystemAccount:        systemAccount(o),
		StaleConnectionStats: &server.StaleConnectionStats{}, SlowConsumersStats: &server.SlowConsumersStats{},
		DiskIOWaitStats: &server.DiskIOWaitStats{},
	}
}

// notAfter is when the first certificate of c ends that does; zero: there is none.
func notAfter(c *tls.Config) (first time.Time) {
	if c == nil {
		return first
	}
	for _, cert := range c.Certificates {
		leaf := cert.Leaf
		if leaf == nil && len(cert.Certificate) > 0 {
			leaf, _ = x509.ParseCertificate(cert.Certificate[0]) // TLS would not have started with a broken one
		}
		if leaf != nil && (first.IsZero() || leaf.NotAfter.Before(first)) {
			first = leaf.NotAfter
		}
	}
	return first
}

func websocket(o *server.WebsocketOpts) server.WebsocketOptsVarz {
	out := server.WebsocketOptsVarz{
		Host: o.Host, Port: o.Port, Advertise: o.Advertise, NoAuthUser: o.NoAuthUser, JWTCookie: o.JWTCookie,
		HandshakeTimeout: o.HandshakeTimeout, AuthTimeout: o.AuthTimeout, NoTLS: o.NoTLS, TLSMap: o.TLSMap,
		SameOrigin: o.SameOrigin, AllowedOrigins: o.AllowedOrigins, Compression: o.Compression,
		TLSCertNotAfter: notAfter(o.TLSConfig),
	}
	for sum := range o.TLSPinnedCerts {
		out.TLSPinnedCerts = append(out.TLSPinnedCerts, sum)
	}
	slices.Sort(out.TLSPinnedCerts)
	return out
}

func proxies(o *server.Options) *server.ProxiesOptsVarz {
	if o.Proxies == nil {
		return nil
	}
	out := &server.ProxiesOptsVarz{}
	for _, p := range o.Proxies.Trusted {
		out.Trusted = append(out.Trusted, &server.ProxyOptsVarz{Key: p.Key})
	}
	return out
}

// verifies reports whether clients have to show a certificate.
func verifies(o *server.Options) bool {
	return o.TLSConfig != nil && o.TLSConfig.ClientAuth == tls.RequireAndVerifyClientCert
}

// FeatureFlags are nats-server's switches for changes of its own; this server has made none of them.
func FeatureFlags() map[string]bool {
	return map[string]bool{
		server.FeatureFlagJsAckFormatV2: false, server.FeatureFlagJsAPIReplyFormatV2: false,
		server.FeatureFlagJsRaftDeleteRange: false, server.FeatureFlagJsSnapshotSources: false,
	}
}

// systemAccount is the name of the system account; empty when there is none.
func systemAccount(o *server.Options) string {
	if o.SystemAccount == "" && !o.NoSystemAccount {
		return server.DEFAULT_SYSTEM_ACCOUNT
	}
	return o.SystemAccount
}

func (s *Server) addIdentity(v *server.Varz) {
	i := s.o.Core.Info()
	v.ID, v.Name, v.GitCommit, v.GoVersion = i.ID, i.Name, i.GitCommit, runtime.Version()
	v.Host, v.Port, v.AuthRequired, v.ClientConnectURLs = i.Host, i.Port, i.AuthRequired, i.ConnectURLs
	if i.Version != "" {
		v.Version = i.Version
	}
	v.Start, v.Now = i.Start.UTC(), time.Now().UTC()
	v.Uptime = uptime(v.Now.Sub(v.Start))
}

func (s *Server) addProcess(v *server.Varz) {
	var virtual int64
	// An error leaves zeroes, which is what a page without the figures should show.
	_ = pse.ProcUsage(&v.CPU, &v.Mem, &virtual)
	v.Cores, v.MaxProcs = runtime.NumCPU(), runtime.GOMAXPROCS(0)
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		v.MemLimit = limit
	}
}

func (s *Server) addCounters(v *server.Varz) {
	c := s.o.Core.Counters()
	v.Connections, v.TotalConnections, v.Subscriptions = c.Connections, c.TotalConnections, c.Subscriptions
	v.InMsgs, v.InBytes, v.OutMsgs, v.OutBytes = c.InMsgs, c.InBytes, c.OutMsgs, c.OutBytes
	v.InClientMsgs, v.InClientBytes, v.OutClientMsgs, v.OutClientBytes = c.InMsgs, c.InBytes, c.OutMsgs, c.OutBytes
	slow := c.SlowPending + c.SlowDeadline
	v.SlowConsumers, v.SlowConsumersStats.Clients = int64(slow), slow
	v.StaleConnections, v.StaleConnectionStats.Clients = int64(c.Stale), c.Stale
	v.StalledClients = int64(c.Stalls)
}

func (s *Server) addJetStream(v *server.Varz) {
	if s.o.JetStream == nil {
		return
	}
	j, err := s.o.JetStream.Jsz(&server.JSzOptions{})
	if err != nil || j.Disabled {
		return
	}
	v.JetStream = server.JetStreamVarz{Config: &j.Config, Stats: &j.JetStreamStats, Limits: j.Limits}
}

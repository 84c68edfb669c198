package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/ws"
)

// checkWebsocket refuses what a websocket block must not say. upstream: others decide about logins.
func checkWebsocket(o *server.Options, upstream bool) error {
	w := &o.Websocket
	switch {
	case w.Port == 0:
		return nil
	case w.TLSConfig == nil && !w.NoTLS:
		return errors.New("websocket requires TLS configuration: add tls to the block, or no_tls: true for clear text")
	case w.JWTCookie != "" && !upstream && len(o.TrustedOperators)+len(o.TrustedKeys) == 0:
		return fmt.Errorf("trusted operators or trusted keys configuration is required for JWT authentication "+
			"via cookie %q", w.JWTCookie)
	case w.Token != "" && (w.Username != "" || w.Password != ""):
		return errors.New("websocket authorization has a token and a user: only one of the two can be")
	case (w.Token != "" || w.Username != "") && len(o.Users)+len(o.Nkeys) > 0:
		return errors.New("websocket authorization cannot be combined with users and nkeys: " +
			"restrict users with allowed_connection_types")
	case len(w.TLSPinnedCerts) > 0 && w.TLSConfig == nil:
		return errors.New("websocket: pinned_certs need tls")
	}
	for _, origin := range w.AllowedOrigins {
		if u, err := url.ParseRequestURI(origin); err != nil || u.Host == "" {
			return fmt.Errorf("unable to parse allowed origin %q: it has to be a URL, as https://example.com", origin)
		}
	}
	return nil
}

// newWebsocketAuth returns who decides about logins over WebSocket: as for all, unless the block has its own users.
func newWebsocketAuth(o *server.Options, all auth.Authenticator) (auth.Authenticator, error) {
	w := &o.Websocket
	if _, ok := all.(*auth.Configured); !ok || w.Port == 0 {
		return all, nil
	}
	own := o.Clone()
	if w.Username != "" || w.Token != "" {
		own.Username, own.Password, own.Authorization = w.Username, w.Password, w.Token
	}
	if w.NoAuthUser != "" {
		own.NoAuthUser = w.NoAuthUser
	}
	return auth.NewConfigured(own)
}

// WebAuth returns who decides now about the logins of those who come by the web.
func (s *Server) WebAuth() auth.Authenticator { return s.settings.Load().webAuth }

// listenWebsocket starts to accept WebSocket connections if the options ask for it. s.mu is held.
func (s *Server) listenWebsocket() error {
	o := &s.options.Server.Websocket
	if o.Port == 0 {
		return nil
	}
	l, err := listenTCP(o.Host, o.Port, "choose another port in the websocket block")
	if err != nil {
		return fmt.Errorf("listen for websocket clients: %w", err)
	}
	s.webListener = l
	scheme := "ws"
	if o.TLSConfig != nil {
		scheme = "wss"
	} else {
		s.log.Warn("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")
	}
	host := o.Host
	if host == "" {
		host = server.DEFAULT_HOST
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		s.log.Info("Listening for websocket clients on {url}",
			slog.String("url", scheme+"://"+net.JoinHostPort(host, strconv.Itoa(a.Port))))
	}
	s.running.Go(func() { s.acceptLoop(l, true) })
	return nil
}

// WebsocketAddr returns the address that WebSocket clients connect to, nil if there is none.
func (s *Server) WebsocketAddr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.webListener == nil {
		return nil
	}
	return s.webListener.Addr()
}

// authOf returns who decides about the client's login.
func (set *settings) authOf(c *client) auth.Authenticator {
	if c.lone != nil {
		return c.server.options.Memory
	}
	if c.web {
		return set.webAuth
	}
	return set.auth
}

// announced reports whether INFO asks the client to log in. As in nats-server the no_auth_user of the websocket block
// does not show.
func (set *settings) announced(c *client) bool {
	if c.web {
		return set.webAuth.Required() && set.NoAuthUser == ""
	}
	return set.auth.Announced()
}

// authTimeout is how many seconds a client has to log in.
func (set *settings) authTimeout(c *client) float64 {
	if c.web && set.Websocket.AuthTimeout > 0 {
		return set.Websocket.AuthTimeout
	}
	return set.AuthTimeout
}

// connectionType is what users may be restricted to.
func (c *client) connectionType() string {
	if c.web {
		return auth.TypeWebSocket
	}
	return auth.TypeStandard
}

// upgrade does what precedes the protocol of a WebSocket client: TLS and the HTTP request. False means that the
// connection is over.
func (c *client) upgrade(set *settings) bool {
	o := &set.Websocket
	if !c.beginFront() {
		return false
	}
	if o.TLSConfig != nil && !c.secure(tlsFront{o.TLSConfig, o.HandshakeTimeout, o.TLSPinnedCerts}, set.throttle) {
		return false
	}
	if !c.limit(o.HandshakeTimeout) {
		return false
	}
	conn, req, err := ws.Upgrade(c.stream, &ws.Options{
		SameOrigin: o.SameOrigin, AllowedOrigins: o.AllowedOrigins, Compression: o.Compression, Headers: o.Headers,
		Secure: o.TLSConfig != nil, WriteDeadline: c.writeDeadline, MaxCompressed: strangerCompressed,
	})
	if err != nil {
		c.fault("websocket handshake error: {error}", quoted("error", err.Error()))
		c.close(ReasonProtocolViolation)
		return false
	}
	if !set.webAuth.Required() {
		trust(conn, set)
	}
	c.stream, c.inline = conn, inline{}
	c.mu.Lock()
	c.request = req
	c.mu.Unlock()
	return c.endFront()
}

// strangerCompressed bounds a compressed message, which is kept until it is whole, of a client that has not logged in.
const strangerCompressed = 64 << 10

// trust lets a WebSocket client send compressed messages of the size that messages have.
func trust(conn net.Conn, set *settings) {
	if w, ok := conn.(*ws.Conn); ok {
		w.SetMaxCompressed(max(2*int(set.MaxPayload), 8<<20)) //nolint:mnd // several messages
	}
}

// cookieLogin returns what cookies say about the login, by the name of its field in CONNECT.
func (c *client) cookieLogin() map[string]string {
	out := map[string]string{}
	if c.request == nil {
		return out
	}
	w := &c.server.settings.Load().Websocket
	for field, cookie := range map[string]string{
		"jwt": w.JWTCookie, "user": w.UsernameCookie, "pass": w.PasswordCookie, "auth_token": w.TokenCookie,
	} {
		if value := c.request.Cookies[cookie]; cookie != "" && value != "" {
			out[field] = value
		}
	}
	return out
}

// useCookies fills in what CONNECT left out and cookies say.
func (c *client) useCookies() {
	if c.request == nil {
		return
	}
	w := &c.server.settings.Load().Websocket
	for _, f := range []struct {
		to     *string
		cookie string
	}{
		{&c.options.JWT, w.JWTCookie},
		{&c.options.User, w.UsernameCookie},
		{&c.options.Pass, w.PasswordCookie},
		{&c.options.Token, w.TokenCookie},
	} {
		if *f.to == "" && f.cookie != "" {
			*f.to = c.request.Cookies[f.cookie]
		}
	}
}

// Status codes of RFC 6455, section 7.4.1.
const (
	statusNormal         = 1000
	statusGoingAway      = 1001
	statusProtocolError  = 1002
	statusPolicy         = 1008
	statusTooBig         = 1009
	statusInternal       = 1011
	statusHandshakeError = 1015
)

// websocketStatus is how a CLOSE frame tells the reason.
//
//nolint:exhaustive // what has no code of its own is an error of the server's
func (r CloseReason) websocketStatus() uint16 {
	switch r {
	case ReasonClientClosed:
		return statusNormal
	case ReasonShutdown:
		return statusGoingAway
	case ReasonAuthTimeout, ReasonAuthFailure, ReasonSlowPending, ReasonSlowDeadline, ReasonMaxConnections,
		ReasonMaxAccountConns, ReasonMaxSubscriptions:
		return statusPolicy
	case ReasonTLSHandshake:
		return statusHandshakeError
	case ReasonParseError, ReasonProtocolViolation:
		return statusProtocolError
	case ReasonMaxPayload, ReasonMaxControlLine:
		return statusTooBig
	default:
		return statusInternal
	}
}

// farewell tells a WebSocket client why this is the end, after the last bytes.
func (c *client) farewell(reason CloseReason) {
	if w, ok := c.stream.(*ws.Conn); ok {
		_ = w.CloseWith(reason.websocketStatus(), string(reason)) // the connection ends in any case
	}
}

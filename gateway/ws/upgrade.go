package ws

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gobwas/httphead"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsflate"
)

// Options say which requests are answered, and how.
type Options struct {
	SameOrigin     bool              // a browser's page must come from the host it connects to
	AllowedOrigins []string          // URLs; a browser's page must come from one of them. Empty: from anywhere
	Compression    bool              // grant compression to those who ask for it
	Headers        map[string]string // added to the answer
	Secure         bool              // the connection is a TLS one
	MaxCompressed  int               // bytes of a compressed message; default 8 MiB
	WriteDeadline  time.Duration     // of answers to PING and CLOSE frames; default 10 s
}

const (
	defaultMaxCompressed = 8 << 20
	defaultWriteDeadline = 10 * time.Second

	maxHeaders   = 100
	maxHeader    = 16 << 10 // bytes of the request line or of one header
	maxRequest   = 64 << 10 // bytes of all headers
	maskHeader   = "Nats-No-Masking"
	clientHeader = "X-Forwarded-For"
)

// Request is what a client said when it connected.
type Request struct {
	Cookies   map[string]string
	Forwarded string // the address that the first proxy saw; empty without one
	Masked    bool   // its frames are masked
}

// handshake collects what the request says while it is parsed.
type handshake struct {
	o       *Options
	req     Request
	host    string
	origin  string
	headers int
	bytes   int // of headers
	flate   wsflate.Extension
}

// Upgrade reads the request that conn begins with and answers it. A request that is refused gets an HTTP answer that
// says why, and the error says the same; the caller closes conn. Deadlines are the caller's.
func Upgrade(conn net.Conn, o *Options) (*Conn, *Request, error) {
	h := &handshake{o: o, req: Request{Cookies: map[string]string{}, Masked: true}}
	u := ws.Upgrader{
		ReadBufferSize: maxHeader,
		OnRequest:      h.path,
		OnHost:         func(host []byte) error { h.host = string(host); return nil },
		OnHeader:       h.header,
		OnBeforeUpgrade: func() (ws.HandshakeHeader, error) {
			return h.answer()
		},
	}
	if o.Compression {
		h.flate.Parameters = wsflate.Parameters{ServerNoContextTakeover: true, ClientNoContextTakeover: true}
		u.Negotiate = h.negotiate
	}
	if _, err := u.Upgrade(conn); err != nil {
		return nil, nil, err
	}
	_, compressed := h.flate.Accepted()
	return newConn(conn, o, h.req.Masked, compressed), &h.req, nil
}

func refuse(status int, format string, args ...any) error {
	return ws.RejectConnectionError(ws.RejectionStatus(status), ws.RejectionReason(fmt.Sprintf(format, args...)))
}

// path refuses what other protocols than that of clients ask for.
func (h *handshake) path(uri []byte) error {
	u, err := url.ParseRequestURI(string(uri))
	if err != nil {
		return refuse(http.StatusBadRequest, "bad request path")
	}
	switch u.Path {
	case "/leafnode", "/mqtt":
		return refuse(http.StatusNotFound, "%s is not served here: connect NATS clients to /", u.Path)
	}
	return nil
}

func (h *handshake) header(key, value []byte) error {
	if h.headers++; h.headers > maxHeaders {
		return refuse(http.StatusRequestHeaderFieldsTooLarge, "more than %d headers", maxHeaders)
	}
	if h.bytes += len(key) + len(value); h.bytes > maxRequest {
		return refuse(http.StatusRequestHeaderFieldsTooLarge, "headers of more than %d bytes", maxRequest)
	}
	switch http.CanonicalHeaderKey(string(key)) {
	case "Origin":
		h.origin = string(value)
	case "Sec-Websocket-Origin": // of browsers from before the standard
		h.origin = cmp.Or(h.origin, string(value))
	case maskHeader:
		h.req.Masked = string(value) != "true"
	case clientHeader:
		first, _, _ := strings.Cut(string(value), ",")
		if ip := net.ParseIP(strings.TrimSpace(first)); ip != nil {
			h.req.Forwarded = ip.String()
		}
	case "Cookie":
		cookies, err := http.ParseCookie(string(value))
		if err != nil {
			return nil //nolint:nilerr // others' cookies need not be well-formed
		}
		for _, c := range cookies {
			h.req.Cookies[c.Name] = c.Value
		}
	}
	return nil
}

// negotiate grants compression as often as it is asked for, in the only form there is: each message by itself.
func (h *handshake) negotiate(opt httphead.Option) (httphead.Option, error) {
	if string(opt.Name) != wsflate.ExtensionName {
		return httphead.Option{}, nil
	}
	if _, done := h.flate.Accepted(); done {
		return httphead.Option{}, nil
	}
	return h.flate.Negotiate(opt)
}

// answer decides about the request as a whole and returns the headers of the answer.
func (h *handshake) answer() (ws.HandshakeHeader, error) {
	if err := h.checkOrigin(); err != nil {
		return nil, refuse(http.StatusForbidden, "origin not allowed: %v", err)
	}
	header := http.Header{}
	for k, v := range h.o.Headers {
		header.Set(k, v)
	}
	if !h.req.Masked {
		header.Set(maskHeader, "true")
	}
	return ws.HandshakeHeaderHTTP(header), nil
}

// checkOrigin refuses pages of other origins. Only browsers name one.
func (h *handshake) checkOrigin() error {
	if h.origin == "" || !h.o.SameOrigin && len(h.o.AllowedOrigins) == 0 {
		return nil
	}
	origin, err := parseOrigin(h.origin)
	if err != nil {
		return err
	}
	if h.o.SameOrigin {
		host, port := splitHost(h.host, h.o.Secure)
		if origin.host != host || origin.port != port || (origin.scheme == "https") != h.o.Secure {
			return errors.New("not same origin")
		}
	}
	if len(h.o.AllowedOrigins) == 0 {
		return nil
	}
	for _, allowed := range h.o.AllowedOrigins {
		if a, err := parseOrigin(allowed); err == nil && a == origin {
			return nil
		}
	}
	return errors.New("not in the allowed list")
}

// origin is where a page comes from.
type origin struct{ scheme, host, port string }

func parseOrigin(s string) (origin, error) {
	u, err := url.ParseRequestURI(s)
	if err != nil || u.Host == "" {
		return origin{}, fmt.Errorf("%q is no origin", s)
	}
	host, port := splitHost(u.Host, strings.EqualFold(u.Scheme, "https"))
	return origin{strings.ToLower(u.Scheme), host, port}, nil
}

// splitHost parts host and port, which has the scheme's default.
//
//nolint:revive // secure is a scheme
func splitHost(s string, secure bool) (host, port string) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.Trim(s, "[]"), "80"
		if secure {
			port = "443"
		}
	}
	return strings.ToLower(host), port
}

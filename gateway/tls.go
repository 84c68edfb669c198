package gateway

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/time/rate"
)

// errNotPinned refuses a client certificate that is none of pinned_certs.
var errNotPinned = errors.New("certificate not pinned")

// throttle bounds the TLS handshakes of a second.
type throttle struct {
	allowed *rate.Limiter
	logged  rate.Sometimes
}

// newThrottle returns nil without a limit.
func newThrottle(perSecond int64) *throttle {
	if perSecond <= 0 {
		return nil
	}
	return &throttle{
		allowed: rate.NewLimiter(rate.Limit(perSecond), int(perSecond)), logged: rate.Sometimes{Interval: time.Second},
	}
}

// tlsFront is how a kind of clients does TLS.
type tlsFront struct {
	config  *tls.Config
	timeout time.Duration // of the handshake
	pins    server.PinnedCertSet
}

// secure makes the connection a TLS one. False means that it is over.
func (c *client) secure(front tlsFront, t *throttle) bool {
	if t != nil && !t.allowed.Allow() {
		t.logged.Do(func() { c.server.log.Warn("Rejecting connections due to TLS rate limiting") })
		c.server.connectionsRefused.Add(1)
		c.expel(errThrottled, ReasonMaxConnections)
		return false
	}
	c.debug("Starting TLS client connection handshake")
	if !c.limit(front.timeout) {
		return false
	}
	conn := tls.Server(c.stream, front.config)
	err := conn.Handshake()
	state := conn.ConnectionState()
	if err == nil && !pinned(front.pins, &state) {
		err = errNotPinned
	}
	if err != nil {
		c.handshakeFailed(err)
		return false
	}
	c.debug("TLS handshake complete, version {version}, cipher suite {suite}",
		slog.String("version", tls.VersionName(state.Version)),
		slog.String("suite", tls.CipherSuiteName(state.CipherSuite)))
	c.stream = conn
	c.inline = inline{} // it writes past TLS
	c.mu.Lock()
	c.tls = &state
	c.mu.Unlock()
	return true
}

// handshakeFailed ends the connection. Who only opened it, as probes do, is not worth an error in the log.
func (c *client) handshakeFailed(err error) {
	level := slog.LevelError
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
		level = slog.LevelDebug
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.log(level, "TLS handshake timeout")
	} else {
		c.log(level, "TLS handshake error: {error}{detail}",
			slog.Any("error", err), slog.String("detail", refusedCertificates(err)))
	}
	c.close(ReasonTLSHandshake)
}

// refusedCertificates names the certificates that a handshake failed for.
func refusedCertificates(err error) string {
	var verify *tls.CertificateVerificationError
	if !errors.As(err, &verify) {
		return ""
	}
	var names []string
	for _, cert := range verify.UnverifiedCertificates {
		names = append(names, fmt.Sprintf("%q SHA-256: %x", cert.Subject.String(), sha256.Sum256(cert.Raw)))
	}
	return " (" + strings.Join(names, "; ") + ")"
}

// pinned reports whether the client's certificate has one of the keys in pins; all have when there are none.
func pinned(pins map[string]struct{}, state *tls.ConnectionState) bool {
	if pins == nil {
		return true
	}
	if len(state.PeerCertificates) == 0 {
		return false
	}
	sum := sha256.Sum256(state.PeerCertificates[0].RawSubjectPublicKeyInfo)
	_, ok := pins[hex.EncodeToString(sum[:])]
	return ok
}

package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// maxInfo bounds the first line of a server.
const maxInfo = 1 << 20

// dial connects to s and reads its INFO.
func (u *Upstream) dial(ctx context.Context, s *upstreamServer, from, to net.Addr) (net.Conn, []byte, error) {
	raw, err := u.o.Dial(ctx, "tcp", s.addr)
	if err != nil {
		return nil, nil, err
	}
	// A context that ends interrupts what is going on.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	conn, info, err := u.begin(ctx, raw, s, from, to)
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	if err != nil {
		stop()
		_ = raw.Close()
		return nil, nil, fmt.Errorf("%s: %w", raw.RemoteAddr(), err)
	}
	return conn, info, nil
}

// begin does what precedes the client's first word.
func (u *Upstream) begin(
	ctx context.Context, raw net.Conn, s *upstreamServer, from, to net.Addr,
) (net.Conn, []byte, error) {
	if u.o.ProxyProtocol {
		if _, err := raw.Write(proxyHeader(from, to)); err != nil {
			return nil, nil, err
		}
	}
	conn := raw
	if u.o.HandshakeFirst {
		var err error
		if conn, err = u.secure(ctx, conn, s); err != nil {
			return nil, nil, err
		}
	}
	doc, rest, err := readInfo(conn)
	if err != nil {
		return nil, nil, err
	}
	var info wire.Info
	if err := json.Unmarshal(doc, &info); err != nil {
		return nil, nil, fmt.Errorf("its INFO is not valid: %w", err)
	}
	switch {
	case u.o.HandshakeFirst:
	case info.TLSRequired, s.tls && info.TLSAvailable:
		if conn, err = u.secure(ctx, conn, s); err != nil {
			return nil, nil, err
		}
	case s.tls:
		return nil, nil, errors.New("it does not offer TLS")
	}
	if len(rest) > 0 {
		conn = &begun{Conn: conn, pre: rest}
	}
	return conn, doc, nil
}

// secure starts TLS on conn.
func (u *Upstream) secure(ctx context.Context, conn net.Conn, s *upstreamServer) (net.Conn, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if u.o.TLS != nil {
		cfg = u.o.TLS.Clone()
	}
	if cfg.ServerName == "" {
		cfg.ServerName = s.host
	}
	secured := tls.Client(conn, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secured, nil
}

// readInfo reads a server's first line and returns its document, and what came behind the line.
func readInfo(conn net.Conn) (doc, rest []byte, err error) {
	buf := make([]byte, 0, 1<<10)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, make([]byte, len(buf))...)[:len(buf)]
		}
		n, err := conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		line, rest, whole := bytes.Cut(buf, []byte("\r\n"))
		if whole {
			doc, ok := bytes.CutPrefix(line, []byte("INFO "))
			if !ok {
				return nil, nil, notNATS(line)
			}
			return doc, rest, nil
		}
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("waiting for its INFO: %w", err)
		case len(buf) > maxInfo, len(buf) >= len("INFO ") && !bytes.HasPrefix(buf, []byte("INFO ")):
			return nil, nil, notNATS(buf)
		}
	}
}

// notNATS is the error of a server that does not begin with INFO.
func notNATS(line []byte) error {
	const shown = 40
	return fmt.Errorf("this is not a NATS server: it begins with %q", line[:min(len(line), shown)])
}

// begun is a connection of which more was read than its reader knows.
type begun struct {
	net.Conn
	pre []byte
}

// Read returns the bytes that were read before, then those of the connection.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.pre) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.pre)
	b.pre = b.pre[n:]
	return n, nil
}

// CloseWrite ends the direction to the server.
func (b *begun) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Parts of a PROXY protocol header, version 2.
const (
	proxySignature = "\r\n\r\n\x00\r\nQUIT\n"
	proxyLocal     = 0x20 // version 2, a connection of the proxy's own
	proxyProxied   = 0x21 // version 2, a connection for somebody
	proxyTCP4      = 0x11
	proxyTCP6      = 0x21
)

// proxyHeader tells the server whose connection this is. Without addresses it is the gateway's own.
func proxyHeader(from, to net.Addr) []byte {
	src, ok1 := from.(*net.TCPAddr)
	dst, ok2 := to.(*net.TCPAddr)
	if !ok1 || !ok2 {
		return append([]byte(proxySignature), proxyLocal, 0, 0, 0)
	}
	family, a, b := byte(proxyTCP4), src.IP.To4(), dst.IP.To4()
	if a == nil || b == nil {
		family, a, b = proxyTCP6, src.IP.To16(), dst.IP.To16()
	}
	out := append([]byte(proxySignature), proxyProxied, family)
	out = binary.BigEndian.AppendUint16(out, uint16(len(a)+len(b)+4)) //nolint:gosec,mnd // two ports; small
	out = append(append(out, a...), b...)
	out = binary.BigEndian.AppendUint16(out, uint16(src.Port))  //nolint:gosec // a port
	return binary.BigEndian.AppendUint16(out, uint16(dst.Port)) //nolint:gosec // a port
}

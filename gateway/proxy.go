package gateway

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/pires/go-proxyproto"
)

// peer is who a client is on the network.
type peer struct {
	host string
	port uint16
}

// remote returns the client's address: the one that its proxy names, if there is one.
func (c *client) remote() peer { return *c.peer.Load() }

// proxyTimeout is how long the header of a proxy may take, as in nats-server.
const proxyTimeout = 5 * time.Second

// The bounds of a header: version 1 is a line, version 2 has a length in a fixed part.
const (
	proxyLineMax  = 107
	proxyFixed    = 16
	proxyMaxV2    = 4096
	proxyLengthAt = 14
)

// proxyLineStart is how a header of version 1 begins.
var proxyLineStart = []byte("PROXY ")

// Faults of a proxy's header.
var (
	errProxyTooLong = errors.New("header is too long")
	errProxyAddress = errors.New("header names no TCP address")
)

// unproxy reads the header that a proxy puts before what the client sends, if there is one. False means that the
// connection is over.
func (c *client) unproxy() bool {
	if !c.limit(proxyTimeout) {
		return false
	}
	read, err := c.readProxyHeader()
	if err == nil {
		var rest []byte
		if rest, err = c.takeHeader(read); err == nil {
			if len(rest) > 0 {
				c.stream = &replayConn{Conn: c.conn, pre: rest}
			} else {
				c.stream = c.conn
			}
			c.unproxied = false
			return true
		}
	}
	if c.server.lines.allow(c.lines) {
		c.server.log.Warn("Error reading PROXY protocol header from {addr}: {error}",
			slog.String("addr", c.conn.RemoteAddr().String()), quoted("error", err.Error()))
	}
	c.close(ReasonProtocolViolation)
	return false
}

// readProxyHeader reads until a header is whole or what came is none.
func (c *client) readProxyHeader() ([]byte, error) {
	read := bytes.Clone(c.head())
	var buf [proxyLineMax]byte
	for {
		more, err := unfinishedHeader(read)
		if err != nil || !more {
			return read, err
		}
		n, err := c.conn.Read(buf[:])
		read = append(read, buf[:n]...)
		if n == 0 && err != nil {
			return read, nil //nolint:nilerr // no more is coming: whoever reads next meets the error
		}
	}
}

// unfinishedHeader reports whether b is the beginning of a header, or may be.
func unfinishedHeader(b []byte) (bool, error) {
	switch {
	case isPrefix(b, proxyLineStart):
		if bytes.IndexByte(b, '\n') >= 0 {
			return false, nil
		}
		if len(b) >= proxyLineMax {
			return false, errProxyTooLong
		}
		return true, nil
	case isPrefix(b, proxyproto.SIGV2):
		if len(b) < proxyFixed {
			return true, nil
		}
		n := int(binary.BigEndian.Uint16(b[proxyLengthAt:]))
		if n > proxyMaxV2 {
			return false, errProxyTooLong
		}
		return len(b) < proxyFixed+n, nil
	}
	return false, nil
}

// isPrefix reports whether one of a and b begins with the other.
func isPrefix(a, b []byte) bool {
	n := min(len(a), len(b))
	return bytes.Equal(a[:n], b[:n])
}

// takeHeader takes the client's address from the header that b begins with and returns what follows.
func (c *client) takeHeader(b []byte) ([]byte, error) {
	from, rest, err := parseProxyHeader(b)
	if from != nil {
		c.peer.Store(from)
	}
	return rest, err
}

// parseProxyHeader returns the address in the header that b begins with, nil if the proxy speaks for itself or there is
// no header, and what follows.
func parseProxyHeader(b []byte) (*peer, []byte, error) {
	if !bytes.HasPrefix(b, proxyLineStart) && !bytes.HasPrefix(b, proxyproto.SIGV2) {
		return nil, b, nil
	}
	r := bufio.NewReaderSize(bytes.NewReader(b), max(len(b), proxyFixed))
	h, err := proxyproto.Read(r)
	if err != nil {
		return nil, nil, err
	}
	rest, err := r.Peek(r.Buffered())
	if err != nil {
		return nil, nil, err
	}
	if h.Command.IsLocal() {
		return nil, rest, nil
	}
	addr, ok := h.SourceAddr.(*net.TCPAddr)
	if !ok {
		return nil, nil, errProxyAddress
	}
	return &peer{addr.IP.String(), uint16(addr.Port)}, rest, nil //nolint:gosec // a port
}

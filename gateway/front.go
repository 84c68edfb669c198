package gateway

import (
	"bytes"
	"net"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// sniffBytes is how much of a connection's start is read to learn whether it begins with TLS.
const sniffBytes = 6

// tlsRecord is the first byte of a TLS handshake.
const tlsRecord = 0x16

// replayConn is a connection whose first bytes were read already and come again.
type replayConn struct {
	net.Conn
	pre []byte
}

// Read returns the bytes that were read before, then those of the connection.
func (r *replayConn) Read(p []byte) (int, error) {
	if len(r.pre) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.pre)
	r.pre = r.pre[n:]
	return n, nil
}

// tlsRequired and tlsAvailable are what INFO says of TLS.
func (set *settings) tlsRequired() bool  { return set.TLSConfig != nil && !set.AllowNonTLS }
func (set *settings) tlsAvailable() bool { return set.TLSConfig != nil && set.AllowNonTLS }

// frontless reports whether connections speak the protocol from the first byte on.
func (set *settings) frontless() bool { return set.TLSConfig == nil && !set.ProxyProtocol }

// negotiate does what comes before the protocol: the header of a proxy and TLS, in the order that the options demand.
// Nothing but info was sent before. False means that the connection is over. It runs before the writer does.
func (c *client) negotiate(set *settings, info wire.Info) bool {
	if !c.beginFront() {
		return false
	}
	f := front{client: c, set: set, info: info, first: set.TLSConfig != nil && set.TLSHandshakeFirst}
	if !f.fallBack() {
		return false
	}
	// Behind a proxy the first bytes were those of the proxy.
	if set.ProxyProtocol && (!c.unproxy() || !f.fallBack()) {
		return false
	}
	secure := info.TLSRequired
	if !f.first && set.tlsAvailable() {
		secure = c.sniff(seconds(set.TLSTimeout)) && c.head()[0] == tlsRecord
	}
	if secure && !c.secure(tlsFront{set.TLSConfig, seconds(set.TLSTimeout), set.TLSPinnedCerts}, set.throttle) {
		return false
	}
	if f.first {
		c.mu.Lock()
		c.tlsFirst = true
		c.mu.Unlock()
		if !c.sendNow(c.infoLine(f.info)) {
			return false
		}
	}
	return c.endFront()
}

// front is how far a negotiation is.
type front struct {
	client *client
	set    *settings
	info   wire.Info
	first  bool // TLS comes before INFO
}

// fallBack gives up on TLS before INFO if the options say when and the client is silent: then it waits for INFO. False
// means that the connection is over.
func (f *front) fallBack() bool {
	wait := f.set.TLSHandshakeFirstFallback
	if !f.first || wait <= 0 || f.client.sniff(wait) {
		return true
	}
	f.first = false
	f.info.TLSRequired = f.set.tlsRequired()
	return f.client.sendNow(f.client.infoLine(f.info))
}

// beginFront lets a close interrupt what precedes the protocol. False: the connection has ended already.
func (c *client) beginFront() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fronting = true
	return !c.closing.Load()
}

// endFront ends it. What was to be done meanwhile is for the read loop.
func (c *client) endFront() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fronting = false
	if c.closing.Load() || c.conn.SetDeadline(time.Time{}) != nil {
		return false
	}
	if len(c.tasks) > 0 {
		_ = c.conn.SetReadDeadline(longPast)
	}
	return true
}

// limit bounds the reads and writes that precede the protocol. False: the connection has ended.
func (c *client) limit(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closing.Load() && c.conn.SetDeadline(time.Now().Add(d)) == nil
}

// sniff waits for the first bytes of the client, which will be read again. False: there are none yet.
func (c *client) sniff(wait time.Duration) bool {
	if len(c.head()) > 0 {
		return true
	}
	if !c.limit(wait) {
		return false
	}
	var pre [sniffBytes]byte
	n, _ := c.stream.Read(pre[:]) // whoever reads next meets the error
	if n == 0 {
		return false
	}
	c.stream = &replayConn{Conn: c.stream, pre: bytes.Clone(pre[:n])}
	return true
}

// head returns what sniff has found and nobody has read yet.
func (c *client) head() []byte {
	if r, ok := c.stream.(*replayConn); ok {
		return r.pre
	}
	return nil
}

// sendNow writes p to the client before there is a writer. False: the connection is over.
func (c *client) sendNow(p []byte) bool {
	if !c.limit(c.writeDeadline) {
		return false
	}
	if c.traced.Load() {
		c.traceOut(string(p))
	}
	if _, err := c.stream.Write(p); err != nil {
		c.close(ReasonWriteError)
		return false
	}
	return true
}

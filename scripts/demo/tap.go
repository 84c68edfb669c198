package main

import (
	"bytes"
	"net"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// tap notes when deliveries arrive, as nats.CustomDialer of a connection. A client library keeps what arrives until
// the program takes it: only the arrival tells whether a delivery was sent before an ack was confirmed, or behind it.
// Both come by the same connection, so their order is that of who sent them.
type tap struct {
	mu      sync.Mutex
	arrived map[string][]time.Time // by where the delivery is acknowledged
}

func newTap() *tap { return &tap{arrived: make(map[string][]time.Time)} }

// Dial implements nats.CustomDialer.
func (t *tap) Dial(network, address string) (net.Conn, error) {
	const patience = 2 * time.Second
	c, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return nil, err
	}
	const maxLine = 64 << 10
	return &tapped{Conn: c, t: t, frames: wire.NewFrames(wire.FromServer, maxLine, new(wire.Pool))}, nil
}

// take returns when the oldest delivery with that reply subject that was not taken yet arrived.
func (t *tap) take(reply string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.arrived[reply]
	if len(list) == 0 {
		return time.Time{}
	}
	if len(list) == 1 {
		delete(t.arrived, reply)
	} else {
		t.arrived[reply] = list[1:]
	}
	return list[0]
}

// tapped is a connection that is read by one goroutine.
type tapped struct {
	net.Conn
	t      *tap
	frames *wire.Frames
}

var ackPrefix = []byte("$JS.ACK.")

// Read implements net.Conn.
func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	now := time.Now()
	var f wire.Frame
	for rest := b[:n]; len(rest) > 0; {
		room := copy(c.frames.Space(), rest)
		c.frames.Filled(room)
		rest = rest[room:]
		for c.frames.Next(&f) {
			if (f.Op == wire.OpMsg || f.Op == wire.OpHMsg) && bytes.HasPrefix(f.Reply, ackPrefix) {
				c.t.mu.Lock()
				c.t.arrived[string(f.Reply)] = append(c.t.arrived[string(f.Reply)], now)
				c.t.mu.Unlock()
			}
		}
	}
	return n, err
}

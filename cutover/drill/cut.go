package drill

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// Cut is a network that can be cut: all its connections are closed then, and none can be made for a while. Safe for
// concurrent use.
type Cut struct {
	mu    sync.Mutex
	until time.Time
	conns map[*cutConn]struct{}
}

// NewCut returns a network that is whole.
func NewCut() *Cut { return &Cut{conns: make(map[*cutConn]struct{})} }

// cutConn has all that a TCP connection has, so that whoever writes to it loses no short cut of the system.
type cutConn struct {
	*net.TCPConn
	of *Cut
}

// Close implements net.Conn.
func (c *cutConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.TCPConn.Close()
}

// DialContext connects as net.Dialer does.
func (c *Cut) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	raw, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	tcp, ok := raw.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("%s is no TCP connection, and could not be cut: %w", network, raw.Close())
	}
	conn := &cutConn{tcp, c}
	c.mu.Lock()
	c.conns[conn] = struct{}{}
	c.mu.Unlock()
	if err := c.err(); err != nil { // it was cut meanwhile
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// dialTimeout bounds Dial, which has no context.
const dialTimeout = 5 * time.Second

// Dial implements nats.CustomDialer.
func (c *Cut) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout) //nolint:forbidigo // the caller has none
	defer cancel()
	return c.DialContext(ctx, network, address)
}

func (c *Cut) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := time.Until(c.until); left > 0 {
		return fmt.Errorf("a drill has cut the network to the servers, for %v more", left.Round(time.Millisecond))
	}
	return nil
}

// For cuts the network for a while, and returns how many connections were closed.
func (c *Cut) For(d time.Duration) int {
	c.mu.Lock()
	c.until = time.Now().Add(d)
	list := make([]*cutConn, 0, len(c.conns))
	for conn := range c.conns {
		list = append(list, conn)
	}
	c.mu.Unlock()
	for _, conn := range list {
		_ = conn.Close() // who reads or writes meets the end
	}
	return len(list)
}

package gateway

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// maxVector is the number of buffers in one writev.
const maxVector = 1024

// closeFlushDeadline bounds the last write of a connection.
const closeFlushDeadline = time.Second

// writeLoop sends what is queued until the connection ends, then closes the socket.
func (c *client) writeLoop() {
	defer func() {
		_ = c.conn.Close()
		c.out.drain()
	}()
	var spare [][]byte
	for {
		chain, reason := c.out.take(spare)
		if reason != "" {
			if !reason.losesOutput() && c.send(chain) == nil {
				c.farewell(reason)
				c.linger(reason)
			}
			c.out.recycle(chain)
			return
		}
		err := c.send(chain)
		c.out.recycle(chain)
		if err != nil {
			c.writeFailed(err)
			return
		}
		spare = chain
		if cap(spare) > maxVector {
			spare = nil
		}
	}
}

// The bounds of linger.
const (
	lingerTime  = 250 * time.Millisecond
	lingerBytes = 4 << 20
)

// linger waits a moment for the client to read why it is thrown out: closing a socket that still has unread input makes
// the system drop what was sent.
func (c *client) linger(reason CloseReason) {
	if !reason.explained() {
		return
	}
	if half, ok := c.stream.(*tls.Conn); ok {
		_ = half.CloseWrite() // tells the client that this is the end, and not a cut
	}
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || c.conn.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c.conn, lingerBytes)
}

// deadline returns when a write that starts now has to be over.
func (c *client) deadline() time.Time {
	limit := c.writeDeadline
	if c.closing.Load() {
		limit = min(limit, closeFlushDeadline)
	}
	return time.Now().Add(limit)
}

// send writes chain to the socket.
func (c *client) send(chain [][]byte) error {
	for len(chain) > 0 {
		part := chain[:min(len(chain), maxVector)]
		chain = chain[len(part):]
		if err := c.sendPart(part); err != nil {
			return err
		}
	}
	return nil
}

// sendPart writes the buffers of part within the write deadline each time.
func (c *client) sendPart(part [][]byte) error {
	if len(part) == 1 {
		return c.sendOne(part[0])
	}
	c.vector = append(c.vector[:0], part...)
	todo := net.Buffers(c.vector)
	for len(todo) > 0 {
		if err := c.conn.SetWriteDeadline(c.deadline()); err != nil {
			return err
		}
		n, err := todo.WriteTo(c.stream)
		c.out.sent(n)
		if err != nil && !c.retryWrite(err, n) {
			return err
		}
	}
	clear(c.vector)
	return nil
}

func (c *client) sendOne(b []byte) error {
	for len(b) > 0 {
		if err := c.conn.SetWriteDeadline(c.deadline()); err != nil {
			return err
		}
		n, err := c.stream.Write(b)
		c.out.sent(int64(n))
		b = b[n:]
		if err != nil && !c.retryWrite(err, int64(n)) {
			return err
		}
	}
	return nil
}

// retryWrite reports whether to go on after err, which happened when n bytes were written. A timeout counts as a slow
// consumer either way.
func (c *client) retryWrite(err error, n int64) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 {
		return false
	}
	if c.server.settings.Load().WriteTimeout != server.WriteTimeoutPolicyRetry {
		return false
	}
	c.slowConsumer(ReasonSlowDeadline)
	return true
}

// writeFailed ends the connection after a failed write.
func (c *client) writeFailed(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if c.established.Load() && !c.closing.Load() {
			c.slowConsumer(ReasonSlowDeadline)
		}
		c.close(ReasonSlowDeadline)
		return
	}
	c.debug("Error flushing: {error}", slog.Any("error", err))
	c.close(ReasonWriteError)
}

// slowConsumer counts and logs a client that does not keep up.
func (c *client) slowConsumer(reason CloseReason) {
	c.out.mu.Lock()
	account := c.account
	c.out.mu.Unlock()
	if account != nil {
		account.slow.Add(1)
	}
	if reason == ReasonSlowDeadline {
		c.server.slowDeadline.Add(1)
		c.notice("Slow Consumer Detected: WriteDeadline of {deadline} exceeded",
			slog.Duration("deadline", c.writeDeadline))
		return
	}
	c.server.slowPending.Add(1)
	c.notice("Slow Consumer Detected: MaxPending of {max_pending} Exceeded", slog.Int64("max_pending", c.out.max))
}

// drain drops what was queued after the end.
func (o *outbound) drain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recycle(o.chain)
	o.chain, o.pending = nil, 0
	o.release()
}

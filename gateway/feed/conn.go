package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"
)

// Bounds of what a feed holds in memory, beyond one message.
const (
	fillBytes  = 32 << 10 // gathered before a write
	writeBytes = 64 << 10 // written under one deadline: a client that takes so much in that time is not too slow
)

// conn is an open feed.
type conn struct {
	s      *Server
	ctx    context.Context //nolint:containedctx // the request's
	w      http.ResponseWriter
	rc     *http.ResponseController
	q      *request
	grant  *grant
	reader Reader
	beat   *time.Ticker
	expiry *time.Timer

	buf  []byte
	id   uint64 // the last id sent
	upto uint64 // everything up to here was given
}

func newConn(s *Server, w http.ResponseWriter, r *http.Request, q *request, g *grant, reader Reader) *conn {
	c := &conn{
		s: s, ctx: r.Context(), w: w, rc: http.NewResponseController(w), q: q, grant: g, reader: reader,
		beat: time.NewTicker(s.o.Heartbeat), expiry: time.NewTimer(time.Hour),
	}
	c.watchExpiry()
	return c
}

// watchExpiry sets the timer of the login's end.
func (c *conn) watchExpiry() {
	c.expiry.Stop()
	if end := c.grant.expires(); !end.IsZero() {
		c.expiry.Reset(time.Until(end))
	}
}

// run sends until something ends the feed, and returns what did.
func (c *conn) run() ending {
	defer c.beat.Stop()
	defer c.expiry.Stop()
	c.prime()
	for {
		more, err := c.fill()
		if end := c.flush(); end != "" {
			return end
		}
		if err != nil {
			return c.bye(endOf(err), err.Error())
		}
		if end, text := c.wait(more); end == endGone {
			return end
		} else if end != "" {
			return c.bye(end, text)
		}
	}
}

// endOf is how a feed ends whose stream cannot be read on.
func endOf(err error) ending {
	if errors.Is(err, ErrLost) {
		return endNotReady
	}
	return endClosed
}

// bye tells the client why the feed ends.
func (c *conn) bye(end ending, text string) ending {
	c.buf = end.append(c.buf, text)
	return cmp.Or(c.flush(), end)
}

// prime tells how long to wait before coming back, and where to go on if nothing else comes before.
func (c *conn) prime() {
	c.buf = fmt.Appendf(c.buf, "retry: %d\n", minRetry+rand.IntN(retryJitter)) //nolint:gosec // no secret
	if seq, ok := c.reader.Position(); ok {
		c.buf = appendID(c.buf, seq)
		c.id, c.upto = seq, seq
	}
	c.buf = append(c.buf, '\n')
}

// fill puts what comes next into the buffer. more is false if that is all there is for now.
func (c *conn) fill() (more bool, err error) {
	for len(c.buf) < fillBytes {
		step, err := c.reader.Next()
		if err != nil {
			return false, err
		}
		c.upto = max(c.upto, step.Upto)
		switch m := step.Message; {
		case m == nil && step.Missing == 0:
			return false, nil
		case m == nil:
			c.buf = appendGap(c.buf, step.Missing, step.Upto)
			c.id = step.Upto
			c.s.stats.gaps.Add(1)
		case c.grant.mayReceive(m.Subject):
			c.buf = appendMessage(c.buf, m, c.q.format)
			c.id = m.Seq
			c.s.stats.events.Add(1)
		}
	}
	return true, nil
}

// ready is what a feed waits for that has more to send.
var ready = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// wait returns when there is more to do, or with why the feed ends.
func (c *conn) wait(more bool) (ending, string) { //nolint:revive // more: do not wait
	wake := c.reader.Wake()
	if more {
		wake = ready
	}
	select {
	case <-c.ctx.Done():
		return endGone, ""
	case <-c.s.closing:
		return endShutdown, ""
	case <-c.s.o.LameDuck:
		return endLameDuck, ""
	case <-c.expiry.C:
		return endLogin, "the login has expired"
	case now := <-c.beat.C:
		return c.heartbeat(now)
	case <-c.grant.gone():
		return c.renew()
	case <-wake:
		return "", ""
	}
}

// heartbeat shows the client, and all that is between, that the feed is alive. The id moves past what was not sent, so
// that a client that comes back is not told of gaps that do not concern it.
func (c *conn) heartbeat(now time.Time) (ending, string) {
	if end, text := c.renew(); end != "" {
		return end, text
	}
	c.watchExpiry()
	c.buf = fmt.Appendf(c.buf, ": hb %d\n", now.Unix())
	if c.upto > c.id {
		c.id = c.upto
		c.buf = appendID(c.buf, c.id)
	}
	c.buf = append(c.buf, '\n')
	return "", ""
}

// renew looks at the login again, and returns how the feed ends if it does.
func (c *conn) renew() (ending, string) {
	err := c.grant.renew(c.s.o.Auth, &c.q.login)
	switch {
	case err == nil:
		return "", ""
	case errors.Is(err, ErrLost), errors.Is(err, ErrUnknown):
		return endOf(err), err.Error()
	}
	c.s.o.Logger.Info("A login to a feed is no longer good: {error}", slog.String("account", c.q.account),
		slog.String("client", c.q.login.Host), slog.Any("error", err))
	return endLogin, "the login is no longer good"
}

// flush sends what is in the buffer. A client that takes nothing for the write deadline is disconnected: it finds
// everything in the stream when it comes back.
func (c *conn) flush() ending {
	if len(c.buf) == 0 {
		return ""
	}
	for b := c.buf; len(b) > 0; {
		n := min(len(b), writeBytes)
		start := time.Now()
		_ = c.rc.SetWriteDeadline(start.Add(c.s.o.WriteDeadline)) // every server of net/http has it
		_, err := c.w.Write(b[:n])
		if err == nil && n == len(b) {
			err = c.rc.Flush()
		}
		if err != nil {
			if time.Since(start) < c.s.o.WriteDeadline {
				return endGone
			}
			c.s.stats.slow.Add(1)
			return endSlow
		}
		c.s.stats.bytes.Add(uint64(n)) //nolint:gosec // a length
		b = b[n:]
	}
	_ = c.rc.SetWriteDeadline(time.Time{}) // with HTTP/2 it would end the feed also while nothing is written
	if c.buf = c.buf[:0]; cap(c.buf) > 2*writeBytes {
		c.buf = nil
	}
	return ""
}

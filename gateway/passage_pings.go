package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// passagePings tells the PINGs of the gateway's own from those of the client, by counting: a server answers in order.
type passagePings struct {
	mu sync.Mutex
	// The following are guarded by mu.
	sent, answered uint64
	own            map[uint64]func() // unanswered, by their number: what to do then
	waiting        []func()          // lines to say once the message that is coming in is over
	measuring      bool              // one of own measures the round trip
}

// client counts a PING of the client.
func (q *passagePings) client() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sent++
}

// pong takes a PONG from upstream and reports whether it answers a PING of the gateway's own.
func (q *passagePings) pong() bool {
	q.mu.Lock()
	q.answered++
	done := q.own[q.answered]
	delete(q.own, q.answered)
	q.mu.Unlock()
	if done == nil {
		return false
	}
	done()
	return true
}

// send sends a PING and has done called when it is answered. The reader calls it, between frames.
func (q *passagePings) send(c *client, p *passage, done func()) {
	q.mu.Lock()
	q.sent++
	if q.own == nil {
		q.own = make(map[uint64]func())
	}
	q.own[q.sent] = done
	q.mu.Unlock()
	c.writeUp(p, []byte(wire.Ping)) // if it cannot be, the next read or write meets the same
}

// ping measures the round trip to the server upstream. The reader calls it.
func (q *passagePings) ping(c *client, p *passage) {
	q.mu.Lock()
	busy := q.measuring
	q.mu.Unlock()
	if busy || !p.connected {
		return
	}
	p.say(func() {
		q.mu.Lock()
		q.measuring = true
		q.mu.Unlock()
		since := time.Now()
		q.send(c, p, func() {
			q.mu.Lock()
			q.measuring = false
			q.mu.Unlock()
			c.server.options.Upstream.Passed(time.Since(since))
		})
	})
}

// say calls a function that writes something of the gateway's own upstream, now or once the message that is coming in
// is over. The reader calls it.
func (p *passage) say(write func()) {
	if p.up.Opaque() {
		return
	}
	if p.up.Between() || p.g.keptUp() {
		write()
		return
	}
	p.pings.waiting = append(p.pings.waiting, write)
}

// sayBehind is say, behind a message that is coming in for the own bus.
func (p *passage) sayBehind(write func()) {
	if u := &p.g.up; u.open && u.course == CourseLocal {
		p.pings.waiting = append(p.pings.waiting, write)
		return
	}
	p.say(write)
}

// between says what waits to be said, if this is a moment for it. The reader calls it.
func (p *passage) between() {
	if len(p.pings.waiting) == 0 || !p.up.Between() {
		return
	}
	list := p.pings.waiting
	p.pings.waiting = nil
	for _, write := range list {
		write()
	}
}

// UpstreamAddrs returns the addresses, on this side, of the connections to the servers upstream.
func (s *Server) UpstreamAddrs() map[string]bool {
	out := make(map[string]bool)
	for _, c := range s.connected() {
		if p := c.currentPassage(); p != nil {
			out[p.conn.LocalAddr().String()] = true
		}
	}
	return out
}

// Barrier waits until the servers upstream have taken everything that clients sent and that was passed on before, and
// the own bus what a guide sent there before. A connection that ends meanwhile has nothing on its way any more.
func (s *Server) Barrier(ctx context.Context) error {
	var waits []<-chan struct{}
	for _, c := range s.connected() {
		p := c.currentPassage()
		alone := c.standsAlone() != nil
		if p == nil && !alone {
			continue
		}
		done := make(chan struct{})
		if alone { // what its reader has decided is on the own bus once it comes to this
			c.do(func() {
				c.flush()
				close(done)
			})
			waits = append(waits, either(done, c.gone))
			continue
		}
		c.do(func() {
			if !p.connected {
				close(done)
				return
			}
			p.sayBehind(func() { p.pings.send(c, p, func() { close(done) }) })
		})
		waits = append(waits, either(done, c.gone))
	}
	for _, w := range waits {
		select {
		case <-w:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// either closes when one of two does.
func either(a, b <-chan struct{}) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		defer close(out)
		select {
		case <-a:
		case <-b:
		}
	}()
	return out
}

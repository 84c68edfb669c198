package gateway

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// outage is a time in which no server upstream can be reached, and clients are served from here alone: those of which
// it is remembered who they are, as far as this server has the say about something of their account. It begins when a
// client finds no server. From then on nobody waits for one, but it is probed whether one is there again; then the
// clients are closed, so that they come back by way of it. It also ends when nobody is remembered any more.
type outage struct {
	mu sync.Mutex
	// The following are guarded by mu.
	on      bool
	since   time.Time
	clients map[*client]struct{} // those that stand alone, logged in or not
}

// The pauses between two probes.
const (
	minProbe = 100 * time.Millisecond
	maxProbe = 2 * time.Second
)

// joins adds a client if the outage is going on.
func (o *outage) joins(c *client) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.on {
		o.clients[c] = struct{}{}
	}
	return o.on
}

// begins adds a client that has found no server, and reports whether it is the first.
func (o *outage) begins(c *client) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if first = !o.on; first {
		o.on, o.since, o.clients = true, time.Now(), make(map[*client]struct{})
	}
	o.clients[c] = struct{}{}
	return first
}

// leaves takes a client off that has ended.
func (o *outage) leaves(c *client) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.clients, c)
}

// ends ends it, and returns whom it has left to close and how long it has lasted.
func (o *outage) ends() (left []*client, lasted time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.clients {
		left = append(left, c)
	}
	o.on, o.clients = false, nil
	return left, time.Since(o.since)
}

// state is how many clients stand alone, and since when; zero: there is no outage.
func (o *outage) state() (clients int, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.on {
		return 0, time.Time{}
	}
	return len(o.clients), o.since
}

// ServesAlone reports whether there is something that clients are served from here while no server upstream can be
// reached, and somebody of whom it is remembered who it is.
func (s *Server) ServesAlone() bool {
	m, d := s.options.Memory, s.options.Director
	return m != nil && d != nil && s.upstreamInfo.Load() != nil && d.Serves("") && m.Len() > 0
}

// standAlone serves a client that has no server upstream from here, as far as that can be. False: it cannot.
func (c *client) standAlone(why error) bool {
	s := c.server
	if !s.ServesAlone() {
		return false
	}
	c.stand()
	first := s.outage.begins(c)
	if c.closing.Load() { // it has left before
		s.outage.leaves(c)
	}
	if first {
		s.log.Warn("No server upstream can be reached: clients are served from here as far as streams were moved here "+
			"and their logins are remembered", slog.Any("error", why))
		s.running.Go(s.probe)
	}
	return true
}

// probe waits for a server upstream, and then has the clients that stand alone come back by way of it.
func (s *Server) probe() {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // ends with the server
	defer cancel()
	s.running.Go(func() {
		select {
		case <-s.stopped:
			cancel()
		case <-ctx.Done():
		}
	})
	for pause := minProbe; ; pause = min(2*pause, maxProbe) { //nolint:mnd // doubles
		if !s.sleep(rand.N(pause/2) + pause/2) { //nolint:mnd,gosec // spread around the pause
			return
		}
		if s.options.Upstream.Probe(ctx) == nil {
			s.handBack()
			return
		}
		if n, _ := s.outage.state(); n == 0 && !s.ServesAlone() { // nobody is left who could come
			s.outage.ends()
			return
		}
	}
}

// handBack ends the outage.
func (s *Server) handBack() {
	left, lasted := s.outage.ends()
	s.log.Info("The outage of the servers upstream is over: {clients} clients that were served from here alone are "+
		"closed, to come back by way of a server", slog.Int("clients", len(left)), slog.Duration("lasted", lasted))
	for i, c := range left {
		c.do(c.comeBack)
		if i%handBackBatch == handBackBatch-1 && !s.sleep(handBackPause) {
			return
		}
	}
}

// The clients come back in batches, so that the servers are not overrun.
const (
	handBackBatch = 100
	handBackPause = 50 * time.Millisecond
)

// answersTime is how long a client that is closed gets answers to what it has sent.
const answersTime = 50 * time.Millisecond

// comeBack closes a client that stood alone, between two reads: nothing more of it is taken, and what was taken is
// answered, as far as that is a matter of a moment. The reader calls it.
func (c *client) comeBack() {
	c.flush()
	t := time.NewTimer(answersTime)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.gone:
	}
	c.notice("a server upstream can be reached again")
	c.close(ReasonUpstreamBack)
}

package gateway

import (
	"math/rand/v2"
	"net"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// Shutdown closes the listener and all connections and waits until everything has ended. Safe to call more than once.
func (s *Server) Shutdown() {
	s.mu.Lock()
	if s.state == stateStopped {
		s.mu.Unlock()
		<-s.done
		return
	}
	s.state = stateStopped
	s.stopListening()
	close(s.stopped)
	s.mu.Unlock()
	for _, c := range s.connected() {
		c.close(ReasonShutdown)
		_ = c.conn.SetWriteDeadline(time.Now().Add(closeFlushDeadline)) // for a write that hangs already
	}
	s.running.Wait()
	s.lines.flush()
	close(s.done)
}

// Done is closed when a shutdown is over.
func (s *Server) Done() <-chan struct{} { return s.done }

// stopListening closes the listeners. s.mu is held.
func (s *Server) stopListening() {
	for _, l := range []*net.Listener{&s.listener, &s.webListener} {
		if *l != nil {
			_ = (*l).Close()
			*l = nil
		}
	}
}

// LameDuck refuses new connections, tells the clients to go elsewhere, gives them the grace period, closes them one by
// one over the lame duck duration and shuts down. It returns when that is done; a Shutdown cuts it short.
func (s *Server) LameDuck() {
	s.mu.Lock()
	if s.state != stateRunning {
		s.mu.Unlock()
		return
	}
	s.state = stateLameDuck
	s.stopListening()
	s.mu.Unlock()
	s.log.Info("Entering lame duck mode, stop accepting new clients")
	close(s.lameDuck)

	clients := s.connected()
	if len(clients) == 0 {
		s.Shutdown()
		return
	}
	rand.Shuffle(len(clients), func(i, j int) { clients[i], clients[j] = clients[j], clients[i] })
	s.announceLameDuck(clients)
	set := s.settings.Load()
	grace := set.LameDuckGracePeriod
	if grace < 0 {
		grace = -grace
	}
	if !s.sleep(grace) {
		return
	}
	s.log.Info("Closing existing clients")
	if s.closeSlowly(clients, set.LameDuckDuration-grace) {
		s.Shutdown()
	}
}

// LameDuckBegan is closed when lame duck mode begins.
func (s *Server) LameDuckBegan() <-chan struct{} { return s.lameDuck }

// announceLameDuck sends an INFO to the clients that understand one.
func (s *Server) announceLameDuck(clients []*client) {
	info := s.currentInfo()
	for _, c := range clients {
		c.mu.Lock()
		wants := c.told.Protocol >= wire.ProtoInfo && (c.login != nil || c.passage != nil)
		passage, lone := c.passage, c.lone
		c.mu.Unlock()
		switch {
		case wants && passage != nil:
			c.enqueue(string(c.infoLine(s.rewritten(passage.lastInfo()))))
		case wants && lone != nil:
			c.enqueue(string(c.infoLine(c.loneInfo())))
		case wants:
			c.enqueue(string(c.infoLine(info)))
		}
	}
}

// closeSlowly closes clients spread over period, at most a second apart. False: a shutdown came.
func (s *Server) closeSlowly(clients []*client, period time.Duration) bool {
	if period <= 0 {
		period = time.Second
	}
	step := min(period/time.Duration(len(clients)), time.Second)
	batch := 1
	if step < time.Nanosecond {
		step, batch = time.Nanosecond, max(len(clients)/int(period), 1)
	}
	for i, c := range clients {
		c.close(ReasonShutdown)
		if i == len(clients)-1 {
			break
		}
		if i%batch == 0 && !s.sleep(max(rand.N(step), step/2)) { //nolint:mnd // at least half a step
			return false
		}
	}
	return true
}

// sleep waits for d. False: a shutdown came.
func (s *Server) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.stopped:
		return false
	}
}

package gateway

import "net"

// Pipe returns the client's end of a connection within this process. The server takes it for one that comes from that
// address, but for TLS and the header of a proxy, which it does without. The error is ErrStopped when there are no new
// connections.
func (s *Server) Pipe(from net.Addr) (net.Conn, error) {
	near, far := net.Pipe()
	c := newClient(s, &pipeConn{far, from, s.Addr()}, false)
	c.piped = true
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateRunning { // seen under the lock, so a shutdown waits for what begins here
		_, _ = near.Close(), far.Close()
		return nil, ErrStopped
	}
	s.accept(c)
	return near, nil
}

// pipeConn is the server's end of a pipe.
type pipeConn struct {
	net.Conn
	from, to net.Addr
}

// RemoteAddr is where the one is who is served by the pipe.
func (p *pipeConn) RemoteAddr() net.Addr { return p.from }

// LocalAddr is where clients connect to.
func (p *pipeConn) LocalAddr() net.Addr { return p.to }

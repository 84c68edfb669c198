package gateway

import (
	"net"
	"syscall"
)

// inline writes to a socket without waiting, for publishers: to wake the writer for a few bytes costs more than to
// send them. It is used by whoever has claimed the outbound queue.
type inline struct {
	conn syscall.RawConn // nil: not possible
	try  func(fd uintptr)
	data []byte
	sent int
}

// init prepares for conn. Only a plain TCP connection is written to this way.
func (w *inline) init(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	w.conn = raw
	w.try = func(fd uintptr) {
		n, err := syscall.Write(int(fd), w.data) // Go's sockets do not block
		if err != nil {
			n = 0
		}
		w.sent = n
	}
}

// write makes one attempt to send b and returns how many bytes went. When it fails the writer will meet the same
// error and act on it.
func (w *inline) write(b []byte) int {
	w.data, w.sent = b, 0
	// Control, not Write: this one takes no notice of the deadline of an earlier write.
	_ = w.conn.Control(w.try) // closed: nothing was sent
	w.data = nil
	return w.sent
}

// claim is outbound.claim if the connection can be written to inline. c.out.mu is held.
func (c *client) claim() []byte {
	if c.inline.conn == nil {
		return nil
	}
	b, _ := c.out.claim()
	return b
}

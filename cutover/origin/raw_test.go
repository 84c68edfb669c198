package origin

import (
	"bufio"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// rawConn speaks the protocol by hand.
type rawConn struct {
	net.Conn
	r *bufio.Reader
}

func dialRaw(s *server.Server) (*rawConn, error) {
	conn, err := net.DialTimeout("tcp", s.Addr().String(), patience)
	if err != nil {
		return nil, err
	}
	c := &rawConn{conn, bufio.NewReader(conn)}
	return c, c.say("CONNECT {\"verbose\":false,\"headers\":true}\r\n")
}

// say sends text and waits until the server has taken it.
func (c *rawConn) say(text string) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(text + "PING\r\n")); err != nil {
		return err
	}
	for {
		line, err := c.r.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "PONG") {
			return err
		}
	}
}

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// leanPublish is syncPublish with clients that speak just enough of the protocol to publish and to await the answer. A
// full client costs more of a small machine's time than the server does, and then both servers wait for it: this
// one leaves the machine to the server.
func leanPublish(conns int) func(url string, p params) (time.Duration, int, error) {
	return func(url string, p params) (took time.Duration, n int, err error) {
		each := max(1, p.msgs/conns)
		err = withStream(url, func(jetstream.JetStream, jetstream.Stream) error {
			took, err = fromManyLean(strings.TrimPrefix(url, "nats://"), conns, each, p.size)
			return err
		})
		return took, each * conns, err
	}
}

func fromManyLean(addr string, conns, each, size int) (time.Duration, error) {
	clients := make([]*leanClient, conns)
	for i := range clients {
		c, err := dialLean(addr, i)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		clients[i] = c
	}
	errs := make(chan error, conns)
	var wg sync.WaitGroup
	start := time.Now()
	for i, c := range clients {
		wg.Go(func() {
			msg := fmt.Appendf(nil, "PUB %s _INBOX.lean.%d %d\r\n%s\r\n", subject, i, size, strings.Repeat("x", size))
			for range each {
				if err := c.publish(msg); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	select {
	case err := <-errs:
		return 0, err
	default:
		return took, nil
	}
}

// leanClient is a connection that is subscribed to its inbox.
type leanClient struct {
	net.Conn
	r *bufio.Reader
}

func dialLean(addr string, inbox int) (*leanClient, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &leanClient{conn, bufio.NewReader(conn)}
	_, err = fmt.Fprintf(c, "CONNECT {\"verbose\":false,\"lang\":\"lean\"}\r\nSUB _INBOX.lean.%d 1\r\nPING\r\n", inbox)
	for err == nil {
		var line []byte
		if line, err = c.r.ReadSlice('\n'); string(line) == "PONG\r\n" {
			return c, conn.SetDeadline(time.Now().Add(time.Minute))
		}
	}
	conn.Close()
	return nil, err
}

// publish sends msg and waits for its acknowledgement.
func (c *leanClient) publish(msg []byte) error {
	if _, err := c.Write(msg); err != nil {
		return err
	}
	for {
		line, err := c.r.ReadSlice('\n')
		switch {
		case err != nil:
			return err
		case bytes.HasPrefix(line, []byte("MSG ")):
			if line, err = c.r.ReadSlice('\n'); err == nil && !bytes.Contains(line, []byte(`"seq":`)) {
				err = fmt.Errorf("publish was answered with %q", line)
			}
			return err
		case string(line) == "PING\r\n":
			if _, err := c.Write([]byte("PONG\r\n")); err != nil {
				return err
			}
		case bytes.HasPrefix(line, []byte("-ERR")):
			return fmt.Errorf("server said %q", line)
		}
	}
}

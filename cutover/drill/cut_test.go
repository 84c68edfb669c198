package drill

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestCut: a network that is cut ends all its connections and makes none, until it is whole again.
func TestCut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	cut := NewCut()
	dial := func() (net.Conn, error) { return cut.Dial("tcp", l.Addr().String()) }
	a, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	gone, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.(interface{ CloseWrite() error }); !ok {
		t.Error("the connection cannot end one direction")
	}
	echo := func(c net.Conn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	if err := echo(a); err != nil {
		t.Fatal(err)
	}
	const long = 300 * time.Millisecond
	began := time.Now()
	if n := cut.For(long); n != 1 {
		t.Errorf("%d connections closed", n)
	}
	if echo(a) == nil {
		t.Error("something passes")
	}
	for {
		c, err := dial()
		if err == nil {
			if time.Since(began) < long {
				t.Error("a connection was made")
			}
			if err := echo(c); err != nil {
				t.Error(err)
			}
			_ = c.Close()
			return
		}
		if !strings.Contains(err.Error(), "a drill has cut the network") {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

package lease

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestFresh: what was seen of the lease counts for a while, and what waits goes on when it was looked at again.
func TestFresh(t *testing.T) {
	var f freshness
	f.init()
	if f.wait() != nil {
		t.Error("it waits before anything was looked at: servers that cannot be reached would keep clients waiting")
	}
	f.until(time.Now().Add(time.Hour))
	if f.wait() != nil {
		t.Error("it waits though it was looked at")
	}
	f.until(time.Now().Add(-time.Millisecond)) // the process did not run for a while
	w := f.wait()
	if w == nil {
		t.Fatal("it does not wait")
	}
	select {
	case <-w:
		t.Fatal("it goes on, and nobody has looked")
	default:
	}
	f.until(time.Now().Add(time.Hour))
	<-w
	if f.wait() != nil {
		t.Error("it waits though it was looked at again")
	}
}

// TestServersAreGone: a process that runs goes on without the servers, for as long as they are gone; one that did not
// run lets nothing pass until it has looked.
func TestServersAreGone(t *testing.T) {
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	conn, err := nats.Connect(ns.ClientURL(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l, err := New(Options{
		Dir: t.TempDir(), Conn: conn, Server: "S", Logger: slog.New(slog.DiscardHandler),
		Standing: func() Standing { return Standing{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns.Shutdown()
	ns.WaitForShutdown()
	for conn.IsConnected() {
		time.Sleep(time.Millisecond)
	}
	soon := time.Now().Add(300 * time.Millisecond)
	l.fresh.until(soon)
	if err := l.look(t.Context()); !errors.Is(err, nats.ErrDisconnected) {
		t.Fatal(err)
	}
	time.Sleep(time.Until(soon) + time.Millisecond)
	if l.Wait() != nil {
		t.Error("clients wait for servers that are gone")
	}
	l.fresh.until(time.Now().Add(-time.Millisecond))
	if err := l.look(t.Context()); !errors.Is(err, nats.ErrDisconnected) {
		t.Fatal(err)
	}
	if l.Wait() == nil {
		t.Error("a process that did not run goes on, and has not looked")
	}
}

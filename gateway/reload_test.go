package gateway

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// A reload has the same effect on connected clients as one of nats-server.
func TestParityReload(t *testing.T) {
	conf := func(list string) func() *server.Options {
		return config(t, `authorization { users = [`+list+`] }`)
	}
	before := conf(`{user: a, password: x, permissions {subscribe: ["foo.>", "bar"]}}, {user: b, password: x}`)
	after := conf(`{user: a, password: x, permissions {subscribe: {allow: ["foo.>"], deny: "foo.secret"}, publish: "ok"}}, {user: b, password: y}`)
	up := func(u string) string {
		return `CONNECT {"verbose":false,"pedantic":false,"user":"` + u + `","pass":"x"}` + "\r\n"
	}
	run := func(addr string, reload func() error) (out []string) {
		conns := map[string]*rawConn{}
		for _, u := range []string{"a", "b"} {
			conns[u] = dialPlain(t, addr)
			defer conns[u].Close()
		}
		conns["a"].say(t, up("a")+"SUB foo.* 1\r\nSUB bar 2\r\nSUB bar q 3\r\nSUB foo.x 4\r\nPING\r\n")
		conns["b"].say(t, up("b")+"PING\r\n")
		for _, u := range []string{"a", "b"} {
			if got := listen(conns[u], 300*time.Millisecond); !strings.HasSuffix(got, "PONG\r\n") {
				t.Fatalf("%s: %q", u, got)
			}
		}
		check(t, reload())
		for _, u := range []string{"a", "b"} {
			lines := strings.SplitAfter(listen(conns[u], 500*time.Millisecond), "\r\n")
			slices.Sort(lines) // the order of subscriptions is not defined
			out = append(out, u+": "+strings.Join(lines, ""))
		}
		conns["a"].say(t, "PUB ok 1\r\nx\r\nPUB nok 1\r\nx\r\nSUB bar 5\r\nPING\r\n")
		out = append(out, listen(conns["a"], 300*time.Millisecond))
		return out
	}
	ns, s := oracle(t, before()), start(t, before())
	want := run(ns.Addr().String(), func() error {
		o := after()
		o.Host, o.Port, o.NoLog, o.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, true
		return ns.ReloadOptions(o)
	})
	got := run(s.Addr().String(), func() error { return s.SetOptions(after()) })
	if !slices.Equal(want, got) {
		t.Errorf("nats-server:\n%s\ngateway:\n%s", show(want), show(got))
	}
}

// Clients are told about lame duck mode as by nats-server.
func TestParityLameDuck(t *testing.T) {
	opts := func() *server.Options {
		return &server.Options{LameDuckDuration: 900 * time.Millisecond, LameDuckGracePeriod: 600 * time.Millisecond}
	}
	run := func(addr string, enter func()) (out []string) {
		a, b := dialPlain(t, addr), dialPlain(t, addr)
		defer a.Close()
		defer b.Close()
		a.say(t, `CONNECT {"verbose":false,"protocol":1}`+"\r\nPING\r\n")
		b.say(t, `CONNECT {"verbose":false,"protocol":0}`+"\r\nPING\r\n")
		for _, c := range []*rawConn{a, b} {
			out = append(out, listen(c, 200*time.Millisecond))
		}
		enter()
		return append(out, listen(a, 3*time.Second), listen(b, 3*time.Second))
	}
	ns, s := oracle(t, opts()), start(t, opts())
	want := run(ns.Addr().String(), func() { go ns.LameDuckShutdown() })
	got := run(s.Addr().String(), func() { go s.LameDuck() })
	if !slices.Equal(want, got) {
		t.Errorf("nats-server:\n%s\ngateway:\n%s", show(want), show(got))
	}
	<-s.Done()
}

// A client whose user is gone or has moved is told so and closed; one that has not logged in yet may still do it.
func TestReloadUsers(t *testing.T) {
	users := func(text string) *server.Options { return config(t, text)() }
	s := start(t, users(`accounts { A { users = [{user: a, password: x}, {user: b, password: x}, {user: c, password: x}] } }`))
	login := func(c *raw, user string) {
		t.Helper()
		c.send(t, `CONNECT {"verbose":false,"user":"`+user+`","pass":"x"}`+"\r\nPING\r\n")
		c.expect(t, "PONG")
	}
	a, b, c, late := dialRaw(t, s), dialRaw(t, s), dialRaw(t, s), dialRaw(t, s)
	login(a, "a")
	login(b, "b")
	login(c, "c")
	check(t, s.SetOptions(users(`accounts { A { users = [{user: a, password: x}] }, B { users = [{user: b, password: x}] } }`)))
	b.expect(t, "-ERR 'Authorization Violation'", "EOF")
	c.expect(t, "-ERR 'Authorization Violation'", "EOF")
	login(late, "b")
	a.send(t, "PING\r\n")
	a.expect(t, "PONG")
	check(t, s.SetOptions(&server.Options{})) // without authorization everybody is in $G, so a has moved
	a.expect(t, "-ERR 'Authorization Violation'", "EOF")
}

func TestReloadLimits(t *testing.T) {
	s := start(t, nil)
	a, b := connect(t, s, nats.NoReconnect()), connect(t, s, nats.NoReconnect())
	check(t, a.Flush()) // the INFO that follows a login has come
	check(t, b.Flush())
	check(t, s.SetOptions(&server.Options{MaxPayload: 100, MaxConn: 1}))
	eventually(t, "one is closed", func() bool { return a.IsClosed() != b.IsClosed() })
	if r := lastReason(t, s, 1); r != ReasonMaxConnections {
		t.Fatalf("reason %q", r)
	}
	left := a
	if a.IsClosed() {
		left = b
	}
	check(t, left.Flush())
	check(t, left.Publish("foo", make([]byte, 101)))
	if r := lastReason(t, s, 2); r != ReasonMaxPayload {
		t.Fatalf("reason %q", r)
	}
	if err := s.SetOptions(&server.Options{MaxPayload: 2, MaxPending: 1}); err == nil {
		t.Fatal("senseless options were accepted")
	}
	if got := s.ServerOptions().MaxPayload; got != 100 {
		t.Fatalf("max_payload %d after a refused reload", got)
	}
}

func TestReloadAccountLimit(t *testing.T) {
	limit := func(n int) *server.Options {
		return config(t, fmt.Sprintf(`accounts { A { users = [{user: a, password: x}], limits { max_conn: %d } } }`, n))()
	}
	s := start(t, limit(2))
	login := func() *raw {
		c := dialRaw(t, s)
		c.send(t, `CONNECT {"verbose":false,"user":"a","pass":"x"}`+"\r\nPING\r\n")
		return c
	}
	const beyond = "-ERR 'maximum account active connections exceeded'"
	old := login()
	old.expect(t, "PONG")
	newer := login()
	newer.expect(t, "PONG")
	login().expect(t, beyond, "EOF")
	check(t, s.SetOptions(limit(1)))
	newer.expect(t, beyond, "EOF")
	login().expect(t, beyond, "EOF")
	check(t, s.SetOptions(limit(2)))
	login().expect(t, "PONG")
	old.send(t, "PING\r\n")
	old.expect(t, "PONG")
	if r := lastReason(t, s, 3); r != ReasonMaxAccountConns {
		t.Errorf("reason %q", r)
	}
}

// Reloads while messages flow lose nothing.
func TestReloadUnderLoad(t *testing.T) {
	s := start(t, nil)
	nc := connect(t, s)
	sub, err := nc.SubscribeSync("foo")
	check(t, err)
	check(t, nc.Flush())
	const n = 20_000
	stop := make(chan struct{})
	reloads := make(chan int, 1)
	go func() {
		count := 0
		for {
			select {
			case <-stop:
				reloads <- count
				return
			case <-time.After(time.Millisecond):
				if s.SetOptions(&server.Options{}) == nil {
					count++
				}
			}
		}
	}()
	for range n {
		check(t, nc.Publish("foo", []byte("x")))
	}
	for range n {
		_, err := sub.NextMsg(10 * time.Second)
		check(t, err)
	}
	close(stop)
	if count := <-reloads; count == 0 {
		t.Fatal("nothing was reloaded")
	}
}

// TestReloadTurnsTracingOn: the protocol is logged, or is not any more, for those who are connected too.
func TestReloadTurnsTracingOn(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	var level slog.LevelVar
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, DisableShortFirstPing: true}
	s, err := New(Options{Bus: bus.NewRouter(), Server: o, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: &level}))})
	check(t, err)
	check(t, s.Start())
	defer s.Shutdown()
	c := dialRaw(t, s)
	said := func() int {
		c.send(t, "PING\r\n")
		c.expect(t, "PONG")
		return strings.Count(log.String(), "line=PING")
	}
	c.send(t, "CONNECT {\"verbose\":false}\r\n")
	if said() != 0 {
		t.Error("it is logged unasked")
	}
	level.Set(levelTrace)
	check(t, s.SetOptions(&server.Options{Trace: true, DisableShortFirstPing: true}))
	eventually(t, "tracing", func() bool { return said() > 0 })
	check(t, s.SetOptions(&server.Options{DisableShortFirstPing: true}))
	eventually(t, "the end of tracing", func() bool { n := said(); return said() == n })
}

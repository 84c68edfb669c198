package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

func TestMaxConnections(t *testing.T) {
	s := start(t, &server.Options{MaxConn: 2})
	a := connect(t, s)
	connect(t, s)
	if _, err := nats.Connect(s.ClientURL()); err == nil || !strings.Contains(err.Error(), "maximum connections exceeded") {
		t.Fatalf("got %v", err)
	}
	c := dialRaw(t, s)
	c.expect(t, "-ERR 'maximum connections exceeded'", "EOF")
	if r := lastReason(t, s, 2); r != ReasonMaxConnections {
		t.Fatalf("reason %q", r)
	}
	a.Close()
	eventually(t, "room for another", func() bool {
		nc, err := nats.Connect(s.ClientURL())
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}

// A subscriber that does not read is cut off at max_pending and nobody else notices.
func TestSlowConsumerPending(t *testing.T) {
	s := start(t, &server.Options{MaxPayload: 64 << 10, MaxPending: 1 << 20})
	slow := dialRaw(t, s)
	slow.send(t, "CONNECT {\"verbose\":false}\r\nSUB foo 1\r\nPING\r\n")
	slow.expect(t, "PONG")
	good, nc := connect(t, s), connect(t, s)
	sub, err := good.SubscribeSync("bar")
	check(t, err)
	check(t, good.Flush())
	payload := make([]byte, 64<<10)
	for i := range 1000 {
		check(t, nc.Publish("foo", payload))
		if i%100 == 0 {
			check(t, nc.Flush())
		}
		if len(s.ClosedConnections()) > 0 {
			break
		}
	}
	if r := lastReason(t, s, 1); r != ReasonSlowPending {
		t.Fatalf("reason %q", r)
	}
	st := s.Stats()
	if st.SlowPending != 1 || st.SlowConsumers() != 1 || st.Stalls == 0 {
		t.Fatalf("counted %+v", st)
	}
	check(t, nc.Publish("bar", nil))
	_, err = sub.NextMsg(5 * time.Second)
	check(t, err)
	if a := s.Accounts(); a[0].Name != "$G" || a[0].SlowConsumers != 1 || a[0].Connections != 2 {
		t.Fatalf("accounts %+v", a)
	}
}

func TestSlowConsumerDeadline(t *testing.T) {
	s := start(t, &server.Options{WriteDeadline: 100 * time.Millisecond})
	slow := dialRaw(t, s)
	slow.send(t, "CONNECT {\"verbose\":false}\r\nSUB foo 1\r\nPING\r\n")
	slow.expect(t, "PONG")
	nc := connect(t, s)
	payload := make([]byte, 512<<10)
	for range 60 {
		check(t, nc.Publish("foo", payload))
	}
	check(t, nc.Flush())
	if r := lastReason(t, s, 1); r != ReasonSlowDeadline {
		t.Fatalf("reason %q", r)
	}
	if st := s.Stats(); st.SlowDeadline != 1 || st.SlowPending != 0 {
		t.Fatalf("counted %+v", st)
	}
}

func TestStaleConnection(t *testing.T) {
	s := start(t, &server.Options{PingInterval: 100 * time.Millisecond, MaxPingsOut: 2})
	c := dialRaw(t, s)
	c.send(t, "CONNECT {\"verbose\":false}\r\n")
	c.expect(t, "PING", "PING", "-ERR 'Stale Connection'", "EOF")
	if r := lastReason(t, s, 1); r != ReasonStale || s.Stats().Stale != 1 {
		t.Fatalf("reason %q", r)
	}
	d := dialRaw(t, s) // one that answers lives
	d.send(t, "CONNECT {\"verbose\":false}\r\n")
	for range 5 {
		d.expect(t, "PING")
		d.send(t, "PONG\r\n")
	}
	if c := s.Connections(); len(c) != 1 || c[0].RTT <= 0 || c[0].RTT > 10*time.Second {
		t.Fatalf("connections %+v", c)
	}
}

func TestPingsAreSparedForBusyClients(t *testing.T) {
	s := start(t, &server.Options{PingInterval: 600 * time.Millisecond})
	c := dialRaw(t, s)
	c.send(t, "CONNECT {\"verbose\":false}\r\n")
	c.expect(t, "PING") // the first one measures the round trip
	c.send(t, "PONG\r\n")
	for range 20 {
		c.send(t, "PUB foo 1\r\nx\r\n")
		time.Sleep(50 * time.Millisecond)
	}
	c.send(t, "PING\r\n")
	c.expect(t, "PONG")
}

func TestLameDuck(t *testing.T) {
	s := start(t, &server.Options{LameDuckDuration: 400 * time.Millisecond, LameDuckGracePeriod: 100 * time.Millisecond})
	told := make(chan struct{}, 1)
	nc := connect(t, s, nats.LameDuckModeHandler(func(*nats.Conn) { told <- struct{}{} }), nats.NoReconnect())
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	connect(t, s, nats.NoReconnect())
	addr := s.Addr().String()
	begin := time.Now()
	go s.LameDuck()
	for what, ch := range map[string]<-chan struct{}{"told": told, "begun": s.LameDuckBegan()} {
		select {
		case <-ch:
		case <-time.After(5 * time.Second):
			t.Fatalf("not %s", what)
		}
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		_ = c.Close()
		t.Fatal("a new connection was taken")
	}
	if nc.IsClosed() {
		t.Fatal("closed within the grace period")
	}
	for what, ch := range map[string]<-chan struct{}{"closed": closed, "shut down": s.Done()} {
		select {
		case <-ch:
		case <-time.After(5 * time.Second):
			t.Fatalf("not %s", what)
		}
	}
	if d := time.Since(begin); d < 150*time.Millisecond {
		t.Fatalf("over after %v", d)
	}
	if r := lastReason(t, s, 2); r != ReasonShutdown {
		t.Fatalf("reason %q", r)
	}
}

func TestShutdownEndsLameDuckAndStuckClients(t *testing.T) {
	s := start(t, nil)
	stuck := dialRaw(t, s) // never reads
	stuck.send(t, "CONNECT {\"verbose\":false}\r\nSUB foo 1\r\nPING\r\n")
	stuck.expect(t, "PONG")
	nc := connect(t, s)
	for range 40 {
		check(t, nc.Publish("foo", make([]byte, 512<<10)))
	}
	check(t, nc.Flush())
	go s.LameDuck()
	<-s.LameDuckBegan()
	begin := time.Now()
	s.Shutdown()
	if d := time.Since(begin); d > 5*time.Second {
		t.Fatalf("took %v", d)
	}
	s.Shutdown()
	if err := s.Start(); !errors.Is(err, ErrStopped) {
		t.Fatalf("got %v", err)
	}
}

func TestKickAndClosedRing(t *testing.T) {
	s := start(t, &server.Options{MaxClosedClients: 3})
	for i := range 5 {
		c := dialRaw(t, s)
		c.send(t, fmt.Sprintf("CONNECT {\"verbose\":false,\"name\":\"n%d\"}\r\nSUB foo.%d q 1\r\nPING\r\n", i, i))
		c.expect(t, "PONG")
		cid := s.Connections()[0].CID
		if !s.Kick(cid) || s.Kick(cid) {
			t.Fatal("kick")
		}
		c.expect(t, "EOF")
	}
	closed := s.ClosedConnections()
	if len(closed) != 3 || s.Stats().ClosedTotal != 5 {
		t.Fatalf("%d closed of %d", len(closed), s.Stats().ClosedTotal)
	}
	for i, c := range closed {
		if want := fmt.Sprintf("n%d", i+2); c.Name != want || c.Reason != ReasonKicked || c.Stop.IsZero() || c.NumSubs != 1 {
			t.Errorf("%d: %+v", i, c)
		}
	}
}

func TestConnectionInfo(t *testing.T) {
	s := start(t, nil)
	nc := connect(t, s, nats.Name("me"))
	_, err := nc.Subscribe("foo", func(*nats.Msg) {})
	check(t, err)
	sub, err := nc.QueueSubscribe("bar", "q", func(*nats.Msg) {})
	check(t, err)
	check(t, sub.AutoUnsubscribe(5))
	check(t, nc.Publish("foo", []byte("12345")))
	check(t, nc.Publish("bar", []byte("123")))
	check(t, nc.Flush())
	eventually(t, "counted", func() bool { return s.Connections()[0].OutMsgs == 2 })
	c, ok := s.ConnectionSubs(s.Connections()[0].CID)
	if !ok || c.Name != "me" || c.Lang != "go" || c.Version != nats.Version || c.Account != "$G" || c.IP != "127.0.0.1" {
		t.Fatalf("%+v", c)
	}
	if c.InMsgs != 2 || c.InBytes != 8 || c.OutMsgs != 2 || c.OutBytes != 8 || c.RTT <= 0 || c.NumSubs != 2 {
		t.Fatalf("%+v", c)
	}
	if c.Uptime(time.Now()) < c.Idle(time.Now()) {
		t.Fatal("idle for longer than up")
	}
	for _, u := range c.Subs {
		if u.Subject == "bar" && (u.Queue != "q" || u.Max != 5 || u.Msgs != 1) {
			t.Fatalf("%+v", u)
		}
	}
	st := s.Stats()
	if st.Connections != 1 || st.TotalConnections != 1 || st.Subscriptions != 2 || st.InMsgs != 2 || st.OutBytes != 8 {
		t.Fatalf("%+v", st)
	}
	a := s.Accounts()
	if len(a) != 2 || a[0].InMsgs != 2 || a[0].Subscriptions != 2 || a[0].TotalConnections != 1 || !a[1].System {
		t.Fatalf("%+v", a)
	}
}

func TestReadErrorAndClientClosed(t *testing.T) {
	s := start(t, nil)
	c := dialRaw(t, s)
	check(t, c.Close())
	if r := lastReason(t, s, 1); r != ReasonClientClosed {
		t.Fatalf("reason %q", r)
	}
	d := dialRaw(t, s)
	tcp, ok := d.Conn.(*net.TCPConn)
	if !ok {
		t.Fatal("not TCP")
	}
	check(t, tcp.SetLinger(0))
	check(t, tcp.Close()) // resets
	if r := lastReason(t, s, 2); r != ReasonReadError {
		t.Fatalf("reason %q", r)
	}
}

func TestStartFailures(t *testing.T) {
	s := start(t, nil)
	if err := s.Start(); !errors.Is(err, ErrStarted) {
		t.Fatalf("got %v", err)
	}
	_, port, err := net.SplitHostPort(s.Addr().String())
	check(t, err)
	var n int
	_, err = fmt.Sscan(port, &n)
	check(t, err)
	other, err := New(Options{Server: &server.Options{Host: "127.0.0.1", Port: n}, Bus: bus.NewRouter()})
	check(t, err)
	if err := other.Start(); err == nil {
		t.Fatal("listened on a port in use")
	}
	other.Shutdown()
	for name, o := range map[string]*server.Options{
		"payload":    {MaxPayload: 100, MaxPending: 10},
		"lame duck":  {LameDuckDuration: 1, LameDuckGracePeriod: 2},
		"no user":    {NoAuthUser: "x"},
		"bad filter": {Users: []*server.User{{Username: "a", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"a..b"}}}}}},
	} {
		if _, err := New(Options{Server: o, Bus: bus.NewRouter()}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestClientAdvertise(t *testing.T) {
	for text, want := range map[string]string{"gw.example:7000": `"host":"gw.example","port":7000`, "gw.example": `"host":"gw.example","port":`} {
		s := start(t, &server.Options{ClientAdvertise: text})
		c, err := net.Dial("tcp", s.Addr().String())
		check(t, err)
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		check(t, err)
		check(t, c.Close())
		if !strings.Contains(string(buf[:n]), want) {
			t.Errorf("%s: %s", text, buf[:n])
		}
	}
}

// syncBuffer is a log for a test.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestLogNamesWhoItIs: as nats-server, also where the client did not say who it is: no_auth_user, a certificate.
func TestLogNamesWhoItIs(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	s, err := New(Options{
		Server: &server.Options{Host: "127.0.0.1", Port: -1, NoAuthUser: "guest", Users: []*server.User{{
			Username: "guest", Password: "g",
			Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{">"}}},
		}}},
		Bus: bus.NewRouter(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	check(t, err)
	check(t, s.Start())
	defer s.Shutdown()
	c := dialRaw(t, s)
	c.send(t, "CONNECT {\"verbose\":false}\r\nPUB foo 0\r\n\r\n")
	c.expect(t, `-ERR 'Permissions Violation for Publish to "foo"'`)
	eventually(t, "the log names the user", func() bool { return strings.Contains(log.String(), "$G/user:guest") })
}

func TestSecretsAreNotLogged(t *testing.T) {
	var log syncBuffer
	s, err := New(Options{
		Server: &server.Options{Host: "127.0.0.1", Port: -1, Users: []*server.User{{Username: "u", Password: "geheim"}}},
		Bus:    bus.NewRouter(),
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug - 4})),
	})
	check(t, err)
	check(t, s.Start())
	for _, connect := range []string{
		`{"user":"u","pass":"geheim"}`, `{"user":"u","pass":"geheimer"}`, `{"auth_token":"geheim"}`,
		`{"user":"u","pass":"geheim","sig":"geheim","jwt":"geheim"`, `{"pass":geheim}`, `{"protocol":7,"user":"u","pass":"geheim"}`,
	} {
		c := dialRaw(t, s)
		c.send(t, "CONNECT "+connect+"\r\nPUB foo 2\r\nab\r\nNOPE geheim\r\n")
		for c.line(t) != "EOF" {
		}
	}
	s.Shutdown()
	got := log.String()
	for _, want := range []string{"authentication error", "<<- [{line}]", "PUB foo 2", "MSG_PAYLOAD", "-ERR Authorization Violation", "REDACTED"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in the log", want)
		}
	}
	if strings.Contains(got, "geheim") {
		t.Fatalf("log:\n%s", got)
	}
}

package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a server on a random port until the test ends.
func start(tb testing.TB, o *server.Options) *Server {
	tb.Helper()
	if o == nil {
		o = &server.Options{}
	}
	return startWith(tb, Options{Server: o, TopTalkers: 10, TopSubjectTokens: 2}) // as the program does
}

// startWith is start with other options than nats-server's.
func startWith(tb testing.TB, o Options) *Server {
	tb.Helper()
	o.Server.Host, o.Server.Port, o.Bus = "127.0.0.1", server.RANDOM_PORT, bus.NewRouter()
	s, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Shutdown)
	return s
}

func connect(tb testing.TB, s *Server, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	nc, err := nats.Connect(s.ClientURL(), opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func TestPublishSubscribe(t *testing.T) {
	s := start(t, nil)
	a, b := connect(t, s), connect(t, s)
	sub, err := b.SubscribeSync("foo.*")
	check(t, err)
	check(t, b.Flush())
	const n = 10_000
	for i := range n {
		check(t, a.Publish("foo.bar", fmt.Appendf(nil, "%d", i)))
	}
	for i := range n {
		m, err := sub.NextMsg(5 * time.Second)
		check(t, err)
		if want := fmt.Sprint(i); string(m.Data) != want || m.Subject != "foo.bar" {
			t.Fatalf("got %s %q, want foo.bar %q", m.Subject, m.Data, want)
		}
	}
}

func TestRequestReply(t *testing.T) {
	s := start(t, nil)
	a, b := connect(t, s), connect(t, s)
	_, err := b.Subscribe("echo", func(m *nats.Msg) {
		out := nats.NewMsg(m.Reply)
		out.Header.Set("Was", m.Header.Get("Is"))
		out.Data = m.Data
		_ = m.RespondMsg(out)
	})
	check(t, err)
	check(t, b.Flush())
	m := nats.NewMsg("echo")
	m.Data = []byte("hi")
	m.Header.Set("Is", "x")
	r, err := a.RequestMsg(m, 5*time.Second)
	check(t, err)
	if string(r.Data) != "hi" || r.Header.Get("Was") != "x" {
		t.Fatalf("got %q %v", r.Data, r.Header)
	}
	if _, err := a.Request("nobody", nil, 5*time.Second); err != nats.ErrNoResponders { //nolint:errorlint // exact
		t.Fatalf("got %v, want no responders", err)
	}
}

package origin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/cutover"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// startServer starts a real nats-server, which ends with the test at the latest.
func startServer(tb testing.TB, change func(*server.Options)) *server.Server {
	tb.Helper()
	o := &server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: tb.TempDir(), ServerName: "S1", NoLog: true, NoSigs: true,
	}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		tb.Fatal("nats-server does not start")
	}
	tb.Cleanup(func() { stop(s) })
	return s
}

func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

func dial(tb testing.TB, o Options) *Conn {
	tb.Helper()
	o.Account, o.ServerName = "$G", "gw-1"
	c, err := Dial(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

func await(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// client is a user of the servers.
func client(tb testing.TB, s *server.Server) (*nats.Conn, nats.JetStreamContext) {
	tb.Helper()
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := nc.JetStream()
	if err != nil {
		tb.Fatal(err)
	}
	return nc, js
}

func check(tb testing.TB, errs ...error) {
	tb.Helper()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

func add(tb testing.TB, js nats.JetStreamContext, cfg *nats.StreamConfig) {
	tb.Helper()
	_, err := js.AddStream(cfg)
	check(tb, err)
}

// rawHeader is one that clients' libraries do not write like this.
const rawHeader = "NATS/1.0\r\nzz:last\r\nAA: first\r\nzz:  again \r\n\r\n"

// fill publishes n messages; those divisible by five have rawHeader.
func fill(tb testing.TB, nc *nats.Conn, s *server.Server, subject string, n int) {
	tb.Helper()
	raw := rawClient(tb, s)
	for i := range n {
		data := fmt.Sprint("m", i)
		if i%5 == 0 {
			raw(fmt.Sprintf("HPUB %s %d %d\r\n%s%s\r\n", subject, len(rawHeader), len(rawHeader)+len(data), rawHeader, data))
			continue
		}
		_, err := nc.Request(subject, []byte(data), patience)
		check(tb, err)
	}
}

// rawClient returns what sends text to a server and waits until it is served.
func rawClient(tb testing.TB, s *server.Server) func(string) {
	tb.Helper()
	conn, err := dialRaw(s)
	check(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	return func(text string) {
		tb.Helper()
		check(tb, conn.say(text))
	}
}

func all(tb testing.TB, s *Stream, from uint64) string {
	tb.Helper()
	var b strings.Builder
	err := s.Read(tb.Context(), from, func(r *cutover.Record, err error) bool {
		check(tb, err)
		fmt.Fprintf(&b, "%d:%s ", r.Seq, r.Data)
		return true
	})
	check(tb, err)
	return b.String()
}

// Records come as they are stored, to the byte of their headers, in order, over holes of any width.
func TestRead(t *testing.T) {
	srv := startServer(t, nil)
	nc, js := client(t, srv)
	c := dial(t, Options{URLs: []string{srv.ClientURL()}})
	await(t, "connected", func() bool { return c.Status().Connected })
	add(t, js, &nats.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	s := c.Stream("S")
	if got := all(t, s, 0); got != "" {
		t.Errorf("of an empty stream: %s", got)
	}
	fill(t, nc, srv, "s.a", 12)
	check(t, js.DeleteMsg("S", 3), js.DeleteMsg("S", 12))
	if got := all(t, s, 2); got != "2:m1 4:m3 5:m4 6:m5 7:m6 8:m7 9:m8 10:m9 11:m10 " {
		t.Errorf("read %s", got)
	}
	r, err := s.Get(t.Context(), 6)
	check(t, err)
	if string(r.Header) != rawHeader || string(r.Subject) != "s.a" || string(r.Data) != "m5" || r.Time == 0 {
		t.Errorf("record %+v", r)
	}
	for _, seq := range []uint64{0, 3, 13} {
		if _, err := s.Get(t.Context(), seq); !errors.Is(err, cutover.ErrNoRecord) {
			t.Errorf("record %d: %v", seq, err)
		}
	}
	var few []uint64
	check(t, s.ReadTo(t.Context(), 2, 5, func(r *cutover.Record, _ error) bool { few = append(few, r.Seq); return true }))
	if !slices.Equal(few, []uint64{2, 4, 5}) {
		t.Errorf("read %v", few)
	}
	st, err := s.State(t.Context(), true)
	check(t, err)
	if st.Msgs != 10 || fmt.Sprint(st.Deleted) != "[3]" && fmt.Sprint(st.Deleted) != "[3 12]" {
		t.Errorf("state %+v", st)
	}
	check(t, js.PurgeStream("S", &nats.StreamPurgeRequest{Sequence: 12}))
	for range 1500 {
		_, err := js.PublishAsync("s.hole", nil)
		check(t, err)
	}
	<-js.PublishAsyncComplete()
	_, err = js.Publish("s.b", []byte("behind"))
	check(t, err)
	check(t, js.PurgeStream("S", &nats.StreamPurgeRequest{Subject: "s.hole"}))
	if got := all(t, s, 0); got != "1513:behind " {
		t.Errorf("over a wide hole: %s", got)
	}
	if _, err := c.Stream("NONE").Info(t.Context()); !errors.Is(err, cutover.ErrNoStream) {
		t.Errorf("no stream: %v", err)
	}
	if list, err := s.Consumers(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("reading left consumers: %v, %v", list, err)
	}
	list, err := c.Streams(t.Context())
	if err != nil || len(list) != 1 || list[0].Config.Name != "S" {
		t.Errorf("streams %v, %v", list, err)
	}
}

// Follow gives everything once and in order, also of a work queue, over a restart of the server.
func TestFollow(t *testing.T) {
	for _, retention := range []nats.RetentionPolicy{nats.LimitsPolicy, nats.WorkQueuePolicy} {
		t.Run(retention.String(), func(t *testing.T) {
			dir := t.TempDir()
			start := func(port int) *server.Server {
				return startServer(t, func(o *server.Options) { o.StoreDir, o.Port = dir, port })
			}
			srv := start(-1)
			port := srv.Addr().(*net.TCPAddr).Port
			nc, js := client(t, srv)
			c := dial(t, Options{URLs: []string{srv.ClientURL()}, Timeout: time.Second})
			await(t, "connected", func() bool { return c.Status().Connected })
			add(t, js, &nats.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Retention: retention})
			fill(t, nc, srv, "s.a", 10)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			seqs := make(chan uint64, 1000)
			done := make(chan struct{})
			s := c.Stream("S")
			go func() {
				defer close(done)
				from := uint64(1)
				for ctx.Err() == nil {
					err := s.Follow(ctx, from, func(batch []cutover.Record, _ bool) error {
						for i := range batch {
							seqs <- batch[i].Seq
							from = batch[i].Seq + 1
						}
						return nil
					})
					if ctx.Err() == nil {
						t.Logf("it broke: %v", err)
						_ = pause(ctx, 50*time.Millisecond)
					}
				}
			}()
			want := uint64(0)
			expect := func(n uint64) {
				t.Helper()
				for want < n {
					select {
					case got := <-seqs:
						if want++; got != want {
							t.Fatalf("got %d, want %d", got, want)
						}
					case <-time.After(patience):
						t.Fatalf("%d does not come", want+1)
					}
				}
			}
			expect(10)
			_, err := js.Publish("s.a", nil) // nobody tells
			check(t, err)
			expect(11)
			begin := time.Now()
			_, err = js.Publish("s.a", nil)
			check(t, err)
			s.Nudge(12)
			expect(12)
			if took := time.Since(begin); took > pollEvery/2 {
				t.Logf("a nudge took %v", took)
			}
			stop(srv)
			await(t, "disconnected", func() bool { return !c.Status().Connected })
			if _, err := s.Info(t.Context()); err == nil || !strings.Contains(err.Error(), "S1") && !strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("without a server: %v", err)
			}
			start(port)
			await(t, "connected again", func() bool { return c.Status().Connected && c.Status().Reconnects > 0 })
			await(t, "the client", nc.IsConnected)
			_, err = js.Publish("s.a", nil)
			check(t, err)
			expect(13)
			cancel()
			<-done
		})
	}
}

// What is asked ends when the connection is interrupted, not when the time for an answer is over.
func TestAskedOfAServerThatEnds(t *testing.T) {
	srv := startServer(t, nil)
	nc, _ := client(t, srv)
	asked := make(chan struct{})
	_, err := nc.Subscribe(api+"NOTHING", func(*nats.Msg) { close(asked) })
	check(t, err, nc.Flush())
	c := dial(t, Options{URLs: []string{srv.ClientURL()}, Timeout: time.Hour})
	await(t, "connected", func() bool { return c.Status().Connected })
	answer := make(chan error, 1)
	go func() {
		_, err := c.Request(t.Context(), "NOTHING", nil)
		answer <- err
	}()
	<-asked
	stop(srv)
	select {
	case err := <-answer:
		if !errors.Is(err, nats.ErrDisconnected) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("it waits on")
	}
}

// Every way to log in works, and a failure to says why.
func TestCredentials(t *testing.T) {
	key, err := nkeys.CreateUser()
	check(t, err)
	public, err := key.PublicKey()
	check(t, err)
	seed, err := key.Seed()
	check(t, err)
	file := t.TempDir() + "/seed"
	check(t, os.WriteFile(file, seed, 0o600))
	for name, try := range map[string]struct {
		change func(*server.Options)
		with   Credentials
	}{
		"user": {
			func(o *server.Options) { o.Username, o.Password = "u", "p" }, Credentials{User: "u", Password: "p"},
		},
		"token": {func(o *server.Options) { o.Authorization = "t" }, Credentials{Token: "t"}},
		"nkey":  {func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} }, Credentials{Nkey: file}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := startServer(t, try.change)
			c := dial(t, Options{URLs: []string{srv.ClientURL()}, Credentials: try.with})
			await(t, "connected", func() bool { return c.Status().Connected })
			if _, err := c.Streams(t.Context()); err != nil {
				t.Error(err)
			}
			bad := dial(t, Options{URLs: []string{srv.ClientURL()}, Credentials: Credentials{User: "u", Password: "wrong"}})
			await(t, "refused", func() bool { return bad.Status().Err != nil })
			if _, err := bad.Streams(t.Context()); err == nil || !strings.Contains(strings.ToLower(err.Error()), "auth") {
				t.Errorf("with a wrong password: %v", err)
			}
		})
	}
	if _, err := Dial(Options{Account: "A", Credentials: Credentials{Nkey: "/none"}}); err == nil {
		t.Error("a seed that is not there")
	}
}

func TestSelects(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		name     string
		want     bool
	}{
		{nil, "X", true},
		{[]string{"ORDERS", "KV_*"}, "ORDERS", true},
		{[]string{"ORDERS", "KV_*"}, "KV_a", true},
		{[]string{"ORDERS", "KV_*"}, "ORDERS2", false},
	} {
		if got := Selects(c.patterns, c.name); got != c.want {
			t.Errorf("%v %s: %v", c.patterns, c.name, got)
		}
	}
}

// How fast a stream is read; run it with -bench.
func BenchmarkRead(b *testing.B) {
	srv := startServer(b, nil)
	_, js := client(b, srv)
	c := dial(b, Options{URLs: []string{srv.ClientURL()}})
	await(b, "connected", func() bool { return c.Status().Connected })
	add(b, js, &nats.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	const n = 20_000
	for range n {
		_, err := js.PublishAsync("s.a", make([]byte, 256))
		check(b, err)
	}
	<-js.PublishAsyncComplete()
	s := c.Stream("S")
	for b.Loop() {
		got := 0
		err := s.Read(b.Context(), 1, func(*cutover.Record, error) bool { got++; return true })
		if check(b, err); got != n {
			b.Fatal(got)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// site is a machine on which one server after another runs with the same configuration file.
type site struct {
	t     *testing.T
	conf  string
	pid   string // pid file
	store string // store_dir
	port  int
	http  int
	nats  string // nats-server's binary
	cli   string
	home  string // where backups go
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, store: t.TempDir(), port: freePort(t), http: freePort(t), home: t.TempDir()}
	s.pid = filepath.Join(t.TempDir(), "server.pid")
	s.conf = writeFile(t, "nats.conf", fmt.Sprintf(`
		server_name: site
		host: 127.0.0.1, port: %d, http: "127.0.0.1:%d", pid_file: %q
		jetstream { store_dir: %q }
		lame_duck_duration: "30s", lame_duck_grace_period: "100ms"
		accounts {
			A {
				jetstream: enabled
				users: [
					{user: app, password: app}
					{user: reader, password: reader, permissions: {publish: ["$JS.API.>", "$JS.ACK.>"], subscribe: ["_INBOX.>", "news.>"]}}
				]
				exports: [{stream: "news.>"}]
			}
			B { users: [{user: b, password: b}], imports: [{stream: {account: A, subject: "news.>"}}] }
			SYS { users: [{user: sys, password: sys}] }
		}
		system_account: SYS
	`, s.port, s.http, s.pid, s.store))
	s.nats = filepath.Join(t.TempDir(), "nats-server")
	if out, err := exec.Command("go", "build", "-o", s.nats, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		t.Fatalf("building nats-server: %v\n%s", err, out)
	}
	var err error
	s.cli, err = filepath.Abs(natsCLI)
	noErr(t, err)
	return s
}

// start starts a server with the configuration file.
func (s *site) start(bin string, args ...string) *process {
	s.t.Helper()
	p := &process{cmd: exec.Command(bin, append([]string{"-c", s.conf}, args...)...), done: make(chan struct{})}
	if err := p.start(); err != nil {
		s.t.Fatalf("%v\n%s", err, p.Log())
	}
	s.t.Cleanup(func() {
		p.Kill()
		if s.t.Failed() {
			s.t.Logf("log of %s:\n%s", filepath.Base(bin), p.Log())
		}
	})
	return p
}

// retire ends a server by the pid file, as a service manager does, in lame duck mode: clients are told and go.
func (s *site) retire(p *process) {
	s.t.Helper()
	b, err := os.ReadFile(s.pid)
	noErr(s.t, err)
	if got := strings.TrimSpace(string(b)); got != fmt.Sprint(p.cmd.Process.Pid) {
		s.t.Fatalf("the pid file says %q, the process is %d", got, p.cmd.Process.Pid)
	}
	p.Signal(syscall.SIGUSR2)
	select {
	case <-p.done:
	case <-time.After(40 * time.Second):
		s.t.Fatalf("lame duck mode does not end\n%s", p.Log())
	}
}

func (s *site) url(user string) string {
	return fmt.Sprintf("nats://%s:%s@127.0.0.1:%d", user, user, s.port)
}

// run runs a command line of the CLI as a user.
func (s *site) run(user, line string) string {
	s.t.Helper()
	out, err := runCLI(s.cli, s.home, s.url(user), line)
	if err != nil {
		s.t.Fatalf("nats %s: %v\n%s", line, err, out)
	}
	return out
}

// service are clients that were connected once and know nothing of what happens to the server.
type service struct {
	t                 *testing.T
	app, reader, b    *nats.Conn
	js                jetstream.JetStream
	worker            jetstream.Consumer
	heard, elsewhere  atomic.Int64
	refused           atomic.Int64 // what the reader may not publish
	published, worked int
}

func startService(t *testing.T, s *site) *service {
	t.Helper()
	stays := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond)}
	v := &service{t: t, app: connect(t, s.url("app"), stays...), b: connect(t, s.url("b"), stays...)}
	v.reader = connect(t, s.url("reader"), append(stays, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			v.refused.Add(1)
		}
	}))...)
	_, err := v.reader.Subscribe("news.>", func(*nats.Msg) { v.heard.Add(1) })
	noErr(t, err)
	_, err = v.b.Subscribe("news.>", func(*nats.Msg) { v.elsewhere.Add(1) })
	noErr(t, err)
	_, err = v.app.Subscribe("ask", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	noErr(t, err)
	v.js, err = jetstream.New(v.app)
	noErr(t, err)
	ctx := t.Context()
	_, err = v.js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}})
	noErr(t, err)
	_, err = v.js.CreateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{Durable: "work", AckPolicy: jetstream.AckExplicitPolicy})
	noErr(t, err)
	readerJS, err := jetstream.New(v.reader)
	noErr(t, err)
	v.worker, err = readerJS.Consumer(ctx, "ORDERS", "work")
	noErr(t, err)
	return v
}

// core demands that core messages flow to all who should have them, and requests are answered.
func (v *service) core() {
	v.t.Helper()
	await(v.t, "core traffic flows", func() bool {
		before, there := v.heard.Load(), v.elsewhere.Load()
		if v.app.Publish("news.x", nil) != nil {
			return false
		}
		_, err := v.app.Request("ask", nil, time.Second)
		return err == nil && v.b.FlushTimeout(time.Second) == nil && v.reader.FlushTimeout(time.Second) == nil &&
			v.heard.Load() > before && v.elsewhere.Load() > there
	})
	before := v.refused.Load()
	noErr(v.t, v.reader.Publish("forbidden", nil))
	await(v.t, "permissions hold", func() bool { return v.refused.Load() > before })
}

// work publishes n orders and works on all but the last.
func (v *service) work(n int) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), 30*time.Second)
	defer cancel()
	for range n {
		v.published++
		a, err := v.js.Publish(ctx, "orders.new", fmt.Appendf(nil, "order %d", v.published))
		noErr(v.t, err)
		if a.Sequence != uint64(v.published) {
			v.t.Fatalf("order %d is message %d", v.published, a.Sequence)
		}
	}
	for v.worked < v.published-1 {
		m, err := v.worker.Next(jetstream.FetchMaxWait(10 * time.Second))
		noErr(v.t, err)
		v.worked++
		if want := fmt.Sprintf("order %d", v.worked); string(m.Data()) != want {
			v.t.Fatalf("got %q, want %q", m.Data(), want)
		}
		noErr(v.t, m.DoubleAck(ctx))
	}
}

// TestReplaceANATSServer: a nats-server's configuration file, port, pid file and monitoring port serve a gateway, and a
// nats-server again. Clients reconnect by themselves. The nats-server's store_dir is refused as long as its streams are in
// it, and never touched; streams and consumers go over by backup and restore, both ways.
func TestReplaceANATSServer(t *testing.T) {
	t.Parallel()
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it takes both servers")
	}
	s := newSite(t)
	p := s.start(s.nats)
	v := startService(t, s)
	v.core()
	v.work(20)

	s.run("app", "account backup there --force")
	s.retire(p)
	theirs := filepath.Join(s.store, "jetstream")
	before := fingerprint(t, theirs)
	out, err := exec.Command(gatewayBin, "-c", s.conf, "--allow_tmp_store").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "nats-server's own data") || !strings.Contains(string(out), theirs) {
		t.Fatalf("with a nats-server's streams in store_dir: %v\n%s", err, out)
	}
	aside := filepath.Join(t.TempDir(), "jetstream")
	noErr(t, os.Rename(theirs, aside))

	p = s.start(gatewayBin, "--allow_tmp_store")
	v.core()
	if _, err := v.js.Publish(t.Context(), "orders.new", nil); !errors.Is(err, jetstream.ErrNoStreamResponse) {
		t.Errorf("a publish to a stream that was not restored yet: %v", err)
	}
	s.run("app", "account restore there")
	v.work(20)
	s.looksAlike()
	if got := fingerprint(t, aside); got != before {
		t.Error("the nats-server's files have changed")
	}

	s.run("app", "account backup back --force")
	s.retire(p)
	p = s.start(s.nats)
	v.core()
	s.run("app", "account restore back")
	v.work(20)
	s.looksAlike()
	if err := p.Stop(); err != nil && !strings.Contains(err.Error(), "exit status 1") { // which nats-server ends with
		t.Errorf("nats-server: %v", err)
	}

	noErr(t, os.RemoveAll(theirs)) // or back to what was before, as nobody has touched it
	noErr(t, os.Rename(aside, theirs))
	if got := fingerprint(t, theirs); got != before {
		t.Error("the nats-server's files have changed")
	}
	s.start(s.nats)
	if out := s.run("app", "stream info ORDERS --json"); !strings.Contains(out, `"messages": 20`) {
		t.Errorf("the nats-server's own stream: %s", out)
	}
}

// looksAlike demands what operators look at.
func (s *site) looksAlike() {
	s.t.Helper()
	for _, line := range []string{"rtt", "stream ls", "consumer report ORDERS", "server check jetstream", "server check stream --stream=ORDERS"} {
		s.run("app", line)
	}
	for _, line := range []string{"server ls 1", "server report connections", "server report jetstream"} {
		if out := s.run("sys", line); !strings.Contains(out, "site") && !strings.Contains(out, "app") {
			s.t.Errorf("nats %s: %s", line, out)
		}
	}
	for _, name := range []string{"/varz", "/connz", "/jsz", "/healthz", "/accountz"} {
		if status, body := page(s.t, fmt.Sprintf("http://127.0.0.1:%d%s", s.http, name)); status != 200 {
			s.t.Errorf("%s: %d %.200s", name, status, body)
		}
	}
}

// fingerprint is a hash of all files below dir and their names.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	n := 0
	noErr(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s\n", strings.TrimPrefix(path, dir), len(b), b)
		n++
		return err
	}))
	if n == 0 {
		t.Fatalf("no files in %s", dir)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

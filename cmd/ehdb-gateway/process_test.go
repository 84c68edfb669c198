package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// asServer makes a process of the test binary behave as the program itself.
const asServer = "EHDB_GATEWAY_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command is the program with args, in a process of its own.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), exe, args...)
	c.Env = append(os.Environ(), asServer+"=1")
	return c
}

// once runs the program to its end.
func once(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	c := command(t, args...)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// process is the program while it serves.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	dir   string // its files
	log   string
	ports server.Ports
	ended chan error
}

// start runs the program on free loopback ports and waits until it is ready.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := launch(t, args...)
	p.await("the ports file", func() bool {
		b, err := os.ReadFile(p.portsFile())
		return err == nil && json.Unmarshal(b, &p.ports) == nil
	})
	p.awaitLog("Server is ready")
	return p
}

// launch runs the program without waiting for it.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{t: t, dir: dir, log: filepath.Join(dir, "log"), ended: make(chan error, 1)}
	p.cmd = command(t, append([]string{
		"-a", "127.0.0.1", "-p", "-1", "-m", "-1", "-l", p.log, "-P", p.pidFile(),
		"--ports_file_dir", dir, "--allow_tmp_store",
	}, args...)...)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("log of %q:\n%s", args, p.logged())
		}
	})
	return p
}

func (p *process) pidFile() string { return filepath.Join(p.dir, "pid") }

func (p *process) portsFile() string {
	found, err := filepath.Glob(filepath.Join(p.dir, "*.ports"))
	if err != nil || len(found) != 1 {
		return ""
	}
	return found[0]
}

func (p *process) logged() string {
	b, _ := os.ReadFile(p.log)
	return string(b)
}

// await waits for what.
func (p *process) await(what string, done func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-p.ended:
			p.t.Fatalf("ended (%v) before %s", err, what)
		default:
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("no %s", what)
		}
	}
}

func (p *process) awaitLog(text string) {
	p.t.Helper()
	p.await(text+" in the log", func() bool { return strings.Contains(p.logged(), text) })
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the end, which must be an orderly one.
func (p *process) exit() {
	p.t.Helper()
	select {
	case err := <-p.ended:
		if err != nil {
			p.t.Fatalf("ended with %v", err)
		}
	case <-time.After(60 * time.Second):
		p.t.Fatal("does not end")
	}
}

func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.exit()
}

func (p *process) http() string { return p.ports.Monitoring[0] }

func (p *process) connect(opts ...nats.Option) *nats.Conn {
	p.t.Helper()
	nc, err := nats.Connect(p.ports.Nats[0], opts...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(nc.Close)
	return nc
}

func TestVersionHelpAndCheck(t *testing.T) {
	out, _, code := once(t, "-v")
	if first, _, _ := strings.Cut(out, "\n"); first != "nats-server: v2.15.2" || code != 0 || !strings.Contains(out, "\nehdb-gateway: ") {
		t.Errorf("-v: %q (%d)", out, code)
	}
	if out, _, code := once(t, "-h"); code != 0 || !strings.Contains(out, "--store_dir") {
		t.Errorf("-h: %q (%d)", out, code)
	}
	file := filepath.Join(t.TempDir(), "c.conf")
	if err := os.WriteFile(file, []byte("port: 4222\nehdb { shards: 2 }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := once(t, "-t", "-c", file); code != 0 ||
		!strings.HasPrefix(errs, "ehdb-gateway: configuration file "+file+" is valid (sha256:") {
		t.Errorf("-t: %q (%d)", errs, code)
	}
	if err := os.WriteFile(file, []byte("port: 4222\nehdb { shard: 2 }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := once(t, "-t", "-c", file); code != 1 || !strings.Contains(errs, `:2:8: unknown field "ehdb.shard"`) {
		t.Errorf("-t: %q (%d)", errs, code)
	}
	if _, errs, code := once(t, "-nonsense"); code != 1 || !strings.Contains(errs, "flag provided but not defined") {
		t.Errorf("bad flag: %q (%d)", errs, code)
	}
}

func TestModeThatCannotBeServedRefuses(t *testing.T) {
	for _, name := range []string{"EHDB_BUS", "NOETL_COMMAND_BUS"} {
		for mode, want := range map[string]string{
			"shadow": `bus mode "shadow" needs the NATS servers: bus { upstream:`,
			"kafka":  `bus mode "kafka" (from ` + name + ` in the environment) is not one of ehdb, nats, shadow`,
		} {
			t.Setenv(name, mode)
			if _, errs, code := once(t, "-p", "-1"); code != 1 || !strings.Contains(errs, want) {
				t.Errorf("%s=%s: %q (%d)", name, mode, errs, code)
			}
		}
		t.Setenv(name, "")
	}
}

func TestServesAndStopsCleanly(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := start(t)
		nc := p.connect()
		sub, err := nc.SubscribeSync("a")
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Publish("a", []byte("x")); err != nil {
			t.Fatal(err)
		}
		if m, err := sub.NextMsg(5 * time.Second); err != nil || string(m.Data) != "x" {
			t.Fatalf("got %v, %v", m, err)
		}
		if b, err := os.ReadFile(p.pidFile()); err != nil || string(b) == "" {
			t.Errorf("pid file: %q, %v", b, err)
		}
		u, err := url.Parse(p.ports.Nats[0])
		if err != nil || u.Hostname() != "127.0.0.1" || !strings.HasPrefix(p.http(), "http://127.0.0.1:") {
			t.Errorf("ports file: %+v", p.ports)
		}
		p.awaitLog("[INF] Listening for client connections on " + u.Host)
		p.awaitLog("[INF] Starting http monitor on ")
		ports := p.portsFile()
		p.signal(sig)
		p.exit()
		for _, f := range []string{ports, p.pidFile()} {
			if _, err := os.Stat(f); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still there", f)
			}
		}
		if !strings.HasSuffix(p.logged(), "[INF] Server Exiting..\n") {
			t.Errorf("the log ends otherwise:\n%s", p.logged())
		}
	}
}

func TestPortInUse(t *testing.T) {
	p := start(t)
	u, err := url.Parse(p.ports.Nats[0])
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	_, errs, code := once(t, "-a", "127.0.0.1", "-p", u.Port(), "-P", p.pidFile(), "-l", log)
	if code != 1 || !strings.Contains(errs, "address already in use") {
		t.Errorf("got %q (%d)", errs, code)
	}
	if b, err := os.ReadFile(log); err != nil || !strings.Contains(string(b), "[ERR] Start failed: listen for clients:") {
		t.Errorf("the log does not say why: %s %v", b, err)
	}
	if b, err := os.ReadFile(p.pidFile()); err != nil || string(b) == "" {
		t.Errorf("the second process took the pid file of the first: %v", err)
	}
	p.stop()
}

func TestReopen(t *testing.T) {
	p := start(t)
	moved := p.log + ".1"
	if err := os.Rename(p.log, moved); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGUSR1)
	p.awaitLog("File log re-opened")
	if _, errs, code := once(t, "-sl", "reopen="+p.pidFile()); code != 0 {
		t.Errorf("-sl reopen: %q (%d)", errs, code)
	}
	p.await("second reopen", func() bool { return strings.Count(p.logged(), "File log re-opened") == 2 })
	p.stop()
}

// A reload changes what it can, refuses what it cannot, and leaves everything as it was on an error.
func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.conf")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("authorization { user: a, password: one }\nmax_payload: 1000\n")
	p := start(t, "-c", file)
	nc := p.connect(nats.UserInfo("a", "one"))
	reload := func(text, want string) {
		t.Helper()
		put(text)
		n := strings.Count(p.logged(), want)
		p.signal(syscall.SIGHUP)
		p.await(want, func() bool { return strings.Count(p.logged(), want) > n })
	}
	const failed = "[ERR] Failed to reload server configuration: "
	reload("prot: 4222\n", failed+file+`:1:0: unknown field "prot"`)
	reload("ehdb { shards: 3 }\n", failed+"config reload not supported for ehdb")
	reload("http_base_path: /m\n", failed+"config reload not supported for HTTPBasePath: old=, new=/m")
	reload("tls { cert_file: x, key_file: y }\n", failed)
	if !nc.IsConnected() || nc.MaxPayload() != 1000 {
		t.Fatal("a reload that failed changed something")
	}
	reload("authorization { user: a, password: two }\nmax_payload: 2000\ndebug: true\n", "[INF] Reloaded server configuration (sha256:")
	if _, err := nats.Connect(p.ports.Nats[0], nats.UserInfo("a", "one")); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("the old password: %v", err)
	}
	if nc := p.connect(nats.UserInfo("a", "two")); nc.MaxPayload() != 2000 {
		t.Errorf("max_payload is %d", nc.MaxPayload())
	}
	if _, _, body := get(t, p.http()+"/varz"); !strings.Contains(body, `"max_payload": 2000`) {
		t.Error("varz shows the old options")
	}
	p.awaitLog("[DBG] ")
	p.stop()

	p = start(t)
	p.signal(syscall.SIGHUP)
	p.awaitLog(failed + "can only reload config when a file is provided")
	p.stop()
}

// A reload moves the log and the files that name the process, and what INFO names for the address.
func TestReloadMovesFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "c.conf")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("listen: \"127.0.0.1:-1\"\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	has := func(name, text string) func() bool {
		return func() bool { b, err := os.ReadFile(in(name)); return err == nil && strings.Contains(string(b), text) }
	}
	put(fmt.Sprintf("log_file: %q\npid_file: %q\n", in("log1"), in("pid1")))
	cmd := command(t, "-c", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, log: in("log1"), ended: make(chan error, 1)}
	go func() { p.ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	p.awaitLog("Server is ready")
	if err := os.Mkdir(in("ports"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(fmt.Sprintf("log_file: %q\npid_file: %q\nports_file_dir: %q\nlogtime: false\nclient_advertise: \"h:99\"\n",
		in("log2"), in("pid2"), in("ports")))
	p.signal(syscall.SIGHUP)
	pid := strconv.Itoa(cmd.Process.Pid)
	p.await("the other log", has("log2", "["+pid+"] [INF] Reloaded server configuration"))
	p.await("the other pid file", has("pid2", pid))
	if _, err := os.Stat(in("pid1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old pid file: %v", err)
	}
	ports, err := filepath.Glob(in("ports/*.ports"))
	if err != nil || len(ports) != 1 {
		t.Fatalf("%v %v", ports, err)
	}
	b, err := os.ReadFile(ports[0])
	if err := errors.Join(err, json.Unmarshal(b, &p.ports)); err != nil {
		t.Fatal(err)
	}
	nc := p.connect(nats.IgnoreDiscoveredServers())
	if info := nc.ConnectedUrl(); info == "" {
		t.Error("not connected")
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(p.ports.Nats[0], "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, `"host":"h","port":99`) {
		t.Errorf("%q %v", line, err)
	}
	put(fmt.Sprintf("log_file: %q\npid_file: %q\nports_file_dir: %q\nlogtime: false\n", in("none/log"), in("pid2"), in("ports")))
	p.signal(syscall.SIGHUP)
	p.await("a complaint", has("log2", "[ERR] Failed to reload server configuration: log file: "))
	p.signal(syscall.SIGTERM)
	p.exit()
	for _, name := range []string{"pid2", "ports/" + filepath.Base(ports[0])} {
		if _, err := os.Stat(in(name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there", name)
		}
	}
}

// In lame duck mode clients are told, new ones refused, and SIGTERM changes nothing.
func TestLameDuck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.conf")
	if err := os.WriteFile(file, []byte("lame_duck_grace_period: 2s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "-c", file)
	told, closed := make(chan bool, 1), make(chan bool, 1)
	p.connect(nats.LameDuckModeHandler(func(*nats.Conn) { told <- true }), nats.NoReconnect(),
		nats.ClosedHandler(func(*nats.Conn) { closed <- true }))
	if _, errs, code := once(t, "-sl", "ldm="+p.pidFile()); code != 0 {
		t.Errorf("-sl ldm: %q (%d)", errs, code)
	}
	<-told
	if nc, err := nats.Connect(p.ports.Nats[0]); err == nil {
		nc.Close()
		t.Error("a server in lame duck mode takes new clients")
	}
	p.signal(syscall.SIGTERM)
	p.awaitLog(`Trapped "terminated" signal`)
	select {
	case <-closed:
		t.Error("SIGTERM cut the grace period short")
	case <-time.After(500 * time.Millisecond):
	}
	<-closed
	p.exit()
}

func TestStoreOfANatsServerIsRefused(t *testing.T) {
	dir := t.TempDir()
	stream := filepath.Join(dir, "jetstream", "$G", "streams", "S")
	if err := os.MkdirAll(stream, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stream, "meta.inf"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errs, code := once(t, "-js", "-sd", dir, "--allow_tmp_store")
	if code != 1 || !strings.Contains(errs, "nats-server's own data") || !strings.Contains(errs, "cutover") {
		t.Errorf("got %q (%d)", errs, code)
	}
}

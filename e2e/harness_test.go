package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// The binaries under test, built once by TestMain, and the directory for such.
var gatewayBin, natsCLI, builtDir string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "ehdb-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		builtDir, gatewayBin = dir, filepath.Join(dir, "ehdb-gateway")
		natsCLI = filepath.Join("..", "bin", "nats")
		if other := os.Getenv("EHDB_E2E_BIN"); other != "" { // to check the cases themselves: run them on a nats-server
			gatewayBin = other
			return m.Run()
		}
		args := []string{"build", "-o", gatewayBin}
		if os.Getenv("EHDB_E2E_RACE") != "" {
			args = append(args, "-race")
		}
		if out, err := exec.Command("go", append(args, "../cmd/ehdb-gateway")...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the gateway: %v\n%s", err, out)
			return 1
		}
		if os.Getenv("EHDB_E2E_BUS") == "nats" { // to check that clients cannot tell: a gateway before a nats-server
			if err := putBefore(dir); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return m.Run()
	}())
}

// putBefore makes the binary under test one that is a gateway in bus mode nats and a nats-server upstream of it.
func putBefore(dir string) error {
	both := filepath.Join(dir, "proxied")
	for _, args := range [][]string{
		{"build", "-o", both, "../scripts/proxied"},
		{"build", "-o", filepath.Join(dir, "nats-server"), "github.com/nats-io/nats-server/v2"},
	} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %v: %w\n%s", args, err, out)
		}
	}
	gatewayBin = both
	return os.Setenv("EHDB_E2E_BIN", both) // which takes nats-server's configuration
}

// process is a running gateway.
type process struct {
	cmd     *exec.Cmd
	URL     string // nats://127.0.0.1:port
	Monitor string // http://127.0.0.1:port, when started with -m
	dir     string // its store directory

	mu   sync.Mutex
	log  strings.Builder
	done chan struct{} // closed when the process has ended
	err  error         // of Wait, once done is closed
}

var (
	clientLine  = regexp.MustCompile(`Listening for client connections on (?:127\.0\.0\.1|0\.0\.0\.0):(\d+)`)
	monitorLine = regexp.MustCompile(`Starting http monitor on (?:127\.0\.0\.1|0\.0\.0\.0):(\d+)`)
)

// startGateway starts the binary on random loopback ports with JetStream in dir and waits until it is ready. The process
// is killed at the end of the test, and its log printed if the test failed.
func startGateway(t testing.TB, dir string, extra ...string) *process {
	t.Helper()
	p, err := launch(dir, extra...)
	if err != nil {
		t.Fatalf("%v\n%s", err, p.Log())
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of the gateway:\n%s", p.Log())
		}
	})
	return p
}

func launch(dir string, extra ...string) (*process, error) {
	args := []string{"-a", "127.0.0.1", "-p", "-1", "-m", "-1", "-js", "-sd", dir}
	if os.Getenv("EHDB_E2E_BIN") == "" {
		args = append(args, "-c", looseConfig(dir))
	}
	args = append(args, extra...)
	p := &process{cmd: exec.Command(gatewayBin, args...), dir: dir, done: make(chan struct{})}
	return p, p.start()
}

// loose is what lets a test keep its store under the system's temp directory; nothing for a nats-server, which has no such
// key.
func loose() string {
	if os.Getenv("EHDB_E2E_BIN") != "" {
		return ""
	}
	return "ehdb { allow_tmp_store: true }\n"
}

// looseConfig makes the configuration that lets a test keep its store under the system's temp directory.
func looseConfig(dir string) string {
	path := filepath.Join(dir, "e2e.conf")
	if err := os.WriteFile(path, []byte(loose()), 0o600); err != nil {
		panic(err)
	}
	return path
}

func (p *process) start() error {
	out, err := p.cmd.StderrPipe()
	if err != nil {
		return err
	}
	p.cmd.Stdout = p.cmd.Stderr
	if err := p.cmd.Start(); err != nil {
		return err
	}
	ready := make(chan struct{})
	go p.read(out, ready)
	select {
	case <-ready:
		return nil
	case <-p.done:
		return fmt.Errorf("the gateway ended at start: %w", p.err)
	case <-time.After(30 * time.Second):
		p.Kill()
		return fmt.Errorf("the gateway was not ready after 30 s")
	}
}

// read follows the log: it learns the ports from it and closes ready at "Server is ready".
func (p *process) read(out io.Reader, ready chan struct{}) {
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := sc.Text()
		p.mu.Lock()
		p.log.WriteString(line + "\n")
		p.mu.Unlock()
		if m := clientLine.FindStringSubmatch(line); m != nil {
			p.URL = "nats://127.0.0.1:" + m[1]
		}
		if m := monitorLine.FindStringSubmatch(line); m != nil {
			p.Monitor = "http://127.0.0.1:" + m[1]
		}
		if ready != nil && strings.Contains(line, "Server is ready") {
			close(ready)
			ready = nil
		}
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

// Log returns what the process has written so far.
func (p *process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *process) Kill() { p.Signal(syscall.SIGKILL); <-p.done }

// Stop ends the process with SIGTERM and returns its exit error.
func (p *process) Stop() error { p.Signal(syscall.SIGTERM); <-p.done; return p.err }

// Signal sends sig to the process, if it still runs.
func (p *process) Signal(sig syscall.Signal) {
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(sig) // it may have ended already
	}
}

// startOracle starts a real nats-server in this process, with JetStream, on a random port.
func startOracle(t testing.TB, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{
		Host: "127.0.0.1", Port: -1, HTTPHost: "127.0.0.1", HTTPPort: -1, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: t.TempDir(), ServerName: "oracle",
	}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// connect dials url with nats.go and closes the connection at the end of the test.
func connect(t testing.TB, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{nats.Timeout(5 * time.Second)}, opts...)
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

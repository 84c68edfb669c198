package flip_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/origin"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/cutover/upstream"
	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// The test's binary is the processes, too: started again with this in its environment, it is a NATS server, or a gateway
// with an engine, until it is killed.
const roleEnv, dirEnv, portEnv, natsEnv = "FLIP_TEST_ROLE", "FLIP_TEST_DIR", "FLIP_TEST_PORT", "FLIP_TEST_NATS"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleEnv) {
	case "":
		os.Exit(m.Run())
	case "nats":
		err = beNATS()
	case "gateway":
		err = beGateway()
	}
	fmt.Println("failed", err)
	os.Exit(1)
}

func beNATS() error {
	port, err := strconv.Atoi(os.Getenv(portEnv))
	if err != nil {
		return err
	}
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, JetStream: true, StoreDir: os.Getenv(dirEnv),
	})
	if err != nil {
		return err
	}
	ns.Start()
	if !ns.ReadyForConnections(30 * time.Second) {
		return fmt.Errorf("not ready")
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin) // until the test ends
	return err
}

// beGateway takes commands: watch, flip, rollback, phase, "stop STEP" to wait at a step and "go" to go on.
func beGateway() error {
	dir, ctx := os.Getenv(dirEnv), context.Background()
	port, err := strconv.Atoi(os.Getenv(portEnv))
	if err != nil {
		return err
	}
	router, director := bus.NewRouter(), relay.New("")
	svc := jetstreamapi.New(jetstreamapi.Options{
		Bus: router, Storage: storage.Options{Dir: filepath.Join(dir, "data"), Shards: 1}, ServerName: "S", ServerID: "SID",
		MaxPayload: 1 << 20,
	})
	if err := svc.Start(ctx); err != nil {
		return err
	}
	to, err := url.Parse(os.Getenv(natsEnv))
	if err != nil {
		return err
	}
	up, err := upstream.New(upstream.Options{URLs: []*url.URL{to}})
	if err != nil {
		return err
	}
	gw, err := gateway.New(gateway.Options{
		Server: &server.Options{Host: "127.0.0.1", Port: port}, Bus: router, Upstream: up, Director: director,
		Memory: auth.NewMemory(time.Hour, false),
	})
	if err != nil {
		return err
	}
	own, err := origin.Dial(origin.Options{Account: "$G", URLs: []string{to.String()}, ServerName: "S"})
	if err != nil {
		return err
	}
	var stop atomic.Pointer[flip.Step]
	onward := make(chan struct{})
	engine, err := flip.Open(ctx, flip.Options{
		Dir: dir, Local: svc.Cutover(), Relay: director, Bus: router, Barrier: gw.Barrier,
		Site: func(string) (flip.Site, error) { return site{conn: own, local: svc.Cutover()}, nil },
		Step: func(s flip.Step) {
			if at := stop.Load(); at != nil && *at == s {
				stop.Store(nil)
				fmt.Println("at", s)
				<-onward
			}
		},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	if err := gw.Start(); err != nil {
		return err
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		command, arg, _ := strings.Cut(in.Text(), " ")
		switch command {
		case "watch":
			fmt.Println("done", engine.Watch(ctx, orders, "test"))
		case "phase":
			v, err := engine.View(orders)
			if err != nil {
				return err
			}
			fmt.Println("phase", v.Phase)
		case "stop":
			s := flip.Step(arg)
			stop.Store(&s)
		case "go":
			onward <- struct{}{}
		case "flip":
			go func() {
				_, err := engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 3, Fence: flip.MaxFence})
				fmt.Println("done", err)
			}()
		case "rollback":
			go func() {
				_, err := engine.Rollback(ctx, orders, flip.MoveOptions{By: "test", Retries: 3, Fence: flip.MaxFence})
				fmt.Println("done", err)
			}()
		}
	}
	return in.Err()
}

// child is a process of a role, which can be killed and started again.
type child struct {
	t    *testing.T
	env  []string
	cmd  *exec.Cmd
	in   io.WriteCloser
	said chan string
}

func newChild(t *testing.T, role, dir string, port int, more ...string) *child {
	t.Helper()
	c := &child{t: t, env: append(append(os.Environ(), more...), roleEnv+"="+role, dirEnv+"="+dir, fmt.Sprint(portEnv, "=", port))}
	c.start()
	t.Cleanup(c.kill)
	return c
}

func (c *child) start() {
	c.t.Helper()
	c.cmd = exec.Command(os.Args[0])
	c.cmd.Env, c.cmd.Stderr = c.env, os.Stderr
	var err error
	c.in, err = c.cmd.StdinPipe()
	check(c.t, err)
	out, err := c.cmd.StdoutPipe()
	check(c.t, err)
	check(c.t, c.cmd.Start())
	said := make(chan string, 100)
	c.said = said
	go func() {
		defer close(said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said <- lines.Text()
		}
	}()
	c.await("ready")
}

// kill is SIGKILL.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func (c *child) tell(command string) {
	c.t.Helper()
	_, err := io.WriteString(c.in, command+"\n")
	check(c.t, err)
}

// await waits for a line that begins with a word, and returns the rest.
func (c *child) await(word string) string {
	c.t.Helper()
	const patience = 30 * time.Second
	late := time.After(patience)
	for {
		select {
		case line, ok := <-c.said:
			if !ok {
				c.t.Fatalf("the process ended instead of saying %q", word)
			}
			if rest, ok := strings.CutPrefix(line, word); ok {
				return strings.TrimSpace(rest)
			}
			if strings.HasPrefix(line, "failed") {
				c.t.Fatal(line)
			}
		case <-late:
			c.t.Fatalf("no %q within %v", word, patience)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer func() { check(t, l.Close()) }()
	return l.Addr().(*net.TCPAddr).Port
}

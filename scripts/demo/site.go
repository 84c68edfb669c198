package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover/face"
)

// streams are those that the load uses.
var streams = []string{"ORDERS", "JOBS", "KV_COUNTERS", "OBJ_FILES"}

// site is the processes.
type site struct {
	o        *options
	dir      string
	nats, gw *exec.Cmd
	natsPort int
	monitor  int // of the nats-server
	port     int
	http     int
	mode     string
	quiet    bool

	moveKills int            // while a stream was moved
	killed    time.Time      // when the gateway, or the nats-server, was killed last
	natsKills []time.Time    // when the nats-server was
	copied    map[string]int // behind which of natsKills a stream was copied anew
	fences    []float64      // seconds
	overhead  time.Duration  // of a publish by the gateway in mode nats
}

func newSite(o *options) (*site, error) {
	dir, err := os.MkdirTemp("", "ehdb-demo-")
	if err != nil {
		return nil, err
	}
	s := &site{o: o, dir: dir, quiet: o.asJSON, copied: map[string]int{}}
	for _, to := range []*int{&s.natsPort, &s.monitor, &s.port, &s.http} {
		if *to, err = freePort(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}

func (s *site) say(format string, args ...any) {
	if !s.quiet {
		fmt.Printf(time.Now().Format("15:04:05.000 ")+format+"\n", args...)
	}
}

// start runs a process whose log goes to a file.
func (s *site) start(name string, env []string, bin string, args ...string) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := exec.Command(bin, args...) //nolint:gosec // the binaries of the demo
	c.Stdout, c.Stderr = log, log
	c.Env = append(os.Environ(), env...)
	return c, c.Start()
}

// startNATS starts the nats-server.
func (s *site) startNATS(ctx context.Context) error {
	conf := fmt.Sprintf(`host: 127.0.0.1
port: %d
http: "127.0.0.1:%d"
jetstream { store_dir: %q }
`, s.natsPort, s.monitor, filepath.Join(s.dir, "nats"))
	file := filepath.Join(s.dir, "nats-server.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return err
	}
	var err error
	if s.nats, err = s.start("nats-server", nil, s.o.nats, "-c", file); err != nil {
		return err
	}
	return await(ctx, "the nats-server", func() error { return s.ping(s.natsPort) })
}

func (s *site) ping(port int) error {
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", port), nats.Timeout(time.Second))
	if err != nil {
		return err
	}
	nc.Close()
	return nil
}

// startGateway starts the gateway in a mode.
func (s *site) startGateway(ctx context.Context, mode string) error {
	conf := fmt.Sprintf(`host: 127.0.0.1
port: %d
http: "127.0.0.1:%d"
server_name: demo
jetstream { store_dir: %q }
prof_port: %d
ehdb { allow_tmp_store: true }
bus { mode: nats, profile: drill, upstream: ["nats://127.0.0.1:%d"], monitor: ["http://127.0.0.1:%d"] }
`, s.port, s.http, filepath.Join(s.dir, "ehdb"), s.o.prof, s.natsPort, s.monitor)
	file := filepath.Join(s.dir, "gateway.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return err
	}
	var err error
	s.mode = mode
	if s.gw, err = s.start("gateway", []string{"EHDB_BUS=" + mode}, s.o.gateway, "-c", file); err != nil {
		return err
	}
	return await(ctx, "the gateway", func() error { return s.ping(s.port) })
}

// restart stops the gateway and starts it in another mode.
func (s *site) restart(ctx context.Context, mode string) error {
	if err := s.gw.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	_ = s.gw.Wait() // it was told to
	return s.startGateway(ctx, mode)
}

// kill kills the gateway and starts it again.
func (s *site) kill(ctx context.Context) error {
	if err := s.gw.Process.Kill(); err != nil {
		return err
	}
	_ = s.gw.Wait()
	s.killed = time.Now()
	return s.startGateway(ctx, s.mode)
}

// killNATS kills the nats-server and starts it again.
func (s *site) killNATS(ctx context.Context) error {
	if err := s.nats.Process.Kill(); err != nil {
		return err
	}
	_ = s.nats.Wait()
	s.killed = time.Now()
	s.natsKills = append(s.natsKills, s.killed)
	return s.startNATS(ctx)
}

// close ends the processes, and removes what they left unless something went wrong.
func (s *site) close(failure error) error {
	for _, c := range []*exec.Cmd{s.gw, s.nats} {
		if c != nil && c.Process != nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	if failure != nil {
		return fmt.Errorf("logs and data are in %s", s.dir)
	}
	return os.RemoveAll(s.dir)
}

// await tries until something works.
func await(ctx context.Context, what string, try func() error) error {
	const patience = 3 * time.Minute // gates compare beside the load, on a machine that may be busy
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-time.After(100 * time.Millisecond): //nolint:mnd // it has to be some time
		}
	}
}

// call asks the gateway's operator API.
func (s *site) call(ctx context.Context, method, path string, body, to any) error {
	doc, err := json.Marshal(body)
	if err != nil {
		return err
	}
	address := fmt.Sprintf("http://127.0.0.1:%d%s", s.http, path)
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(doc))
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(s.dir, "ehdb", "ehdb-cutover", face.TokenFile))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, bytes.TrimSpace(answer))
	}
	return json.Unmarshal(answer, to)
}

var errParity = errors.New("not compared yet")

// awaitParity waits until everything is compared and equal.
func (s *site) awaitParity(ctx context.Context) error {
	return await(ctx, "parity", func() error {
		var st face.Status
		if err := s.call(ctx, http.MethodGet, face.Base+"/status", nil, &st); err != nil {
			return err
		}
		if len(st.Streams) < len(streams) || !st.Controls.OK {
			return errParity
		}
		for i := range st.Streams {
			p := st.Streams[i].Parity
			switch {
			case p == nil || p.At.IsZero() || p.Counts.Examined == 0 && st.Streams[i].NATS.Messages > 0:
				return fmt.Errorf("%s: %w", st.Streams[i].Scope, errParity)
			case p.Counts.Diverged() > 0:
				return fmt.Errorf("%s: %d sequences differ", st.Streams[i].Scope, p.Counts.Diverged())
			}
		}
		return nil
	})
}

// rehearse runs the drill.
func (s *site) rehearse(ctx context.Context) error {
	var d face.Drill
	if err := s.call(ctx, http.MethodPost, face.Base+"/drill", map[string]any{
		"kind": "flip-and-back", "by": "demo", "scope": "$G/" + streams[0],
	}, &d); err != nil {
		return err
	}
	return await(ctx, "the rehearsal", func() error {
		var st face.Status
		if err := s.call(ctx, http.MethodGet, face.Base+"/status", nil, &st); err != nil {
			return err
		}
		last := st.Drills[len(st.Drills)-1]
		if last.State != "passed" {
			return fmt.Errorf("%s: %s", last.State, last.Result)
		}
		s.say("            %s", last.Result)
		return nil
	})
}

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// The servers that are compared.
const (
	natsDefault = "nats-server"
	natsAlways  = "nats-server sync:always"
	gateway     = "ehdb-gateway"

	natsModule = "github.com/nats-io/nats-server/v2@v2.15.2"
)

// serverSpec is a server that can be started.
type serverSpec struct {
	name, bin, work, conf string
}

// buildServers builds both binaries into work.
func buildServers(work string) ([]serverSpec, error) {
	work, err := filepath.Abs(work)
	if err != nil {
		return nil, err
	}
	install := exec.Command("go", "install", natsModule)
	install.Env = append(os.Environ(), "GOBIN="+work)
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building nats-server: %w\n%s", err, out)
	}
	own := filepath.Join(work, "ehdb-gateway")
	if out, err := exec.Command("go", "build", "-o", own, "./cmd/ehdb-gateway").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the gateway: %w\n%s", err, out)
	}
	peer := filepath.Join(work, "nats-server")
	return []serverSpec{
		{name: natsDefault, bin: peer, work: work, conf: "jetstream { store_dir: %q }"},
		{name: natsAlways, bin: peer, work: work, conf: "jetstream { store_dir: %q, sync: always }"},
		{name: gateway, bin: own, work: work, conf: "jetstream { store_dir: %q }"},
	}, nil
}

// running is a started server.
type running struct {
	url string
	dir string
	cmd *exec.Cmd
}

var listening = regexp.MustCompile(`Listening for client connections on 127\.0\.0\.1:(\d+)`)

// start starts the server on a random loopback port with an empty store.
func (s serverSpec) start() (*running, error) {
	dir, err := os.MkdirTemp(s.work, "store-")
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "server.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, s.conf, filepath.Join(dir, "data")), 0o600); err != nil {
		return nil, err
	}
	r := &running{dir: dir, cmd: exec.Command(s.bin, "-a", "127.0.0.1", "-p", "-1", "-c", conf)}
	out, err := r.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	if r.url, err = awaitReady(out); err != nil {
		r.stop()
		return nil, fmt.Errorf("starting %s: %w", s.name, err)
	}
	return r, nil
}

func (r *running) stop() {
	_ = r.cmd.Process.Kill() // it may have ended by itself
	_ = r.cmd.Wait()         // killed
	_ = os.RemoveAll(r.dir)  // the whole work folder goes at the end
}

// awaitReady reads the log until the server is ready and returns its URL; the rest of the log is read and dropped.
func awaitReady(log io.Reader) (string, error) {
	found := make(chan string, 1)
	go func() {
		defer close(found)
		var url string
		var seen strings.Builder
		sc := bufio.NewScanner(log)
		for sc.Scan() {
			seen.WriteString(sc.Text() + "\n")
			if m := listening.FindStringSubmatch(sc.Text()); m != nil {
				url = "nats://127.0.0.1:" + m[1]
			}
			if strings.Contains(sc.Text(), "Server is ready") {
				found <- url
				break
			}
		}
		_, _ = io.Copy(io.Discard, log) // until the process ends
	}()
	select {
	case url := <-found:
		if url == "" {
			return "", errors.New("it ended or never told its port")
		}
		return url, nil
	case <-time.After(20 * time.Second):
		return "", errors.New("not ready after 20 s")
	}
}

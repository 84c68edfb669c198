// Command proxied is a NATS server made of two: a gateway in bus mode nats, and a nats-server upstream of it. It takes
// nats-server's flags and configuration file, so that what tests a server tests the two together:
//
//	EHDB_E2E_BIN=.../proxied go test ./e2e -run Core
//	conformance/run .../proxied out.json
//
// The binaries are those in PROXIED_GATEWAY and PROXIED_NATS, by default ehdb-gateway and nats-server beside this one.
// With PROXIED_BUS=shadow the bus mode is shadow where it can be: with JetStream, and for clients without logins.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	runtime.LockOSThread() // the children end with the thread that started them
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "proxied:", err)
	}
	os.Exit(code)
}

// pair is what runs.
type pair struct {
	args           []string
	flags          *flag.FlagSet // those given
	file           string        // the configuration file; empty: none
	dir            string
	nats, gateway  *exec.Cmd
	natsBin, gwBin string
}

func run(args []string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	p := &pair{
		args:    args,
		natsBin: cmp.Or(os.Getenv("PROXIED_NATS"), filepath.Join(filepath.Dir(self), "nats-server")),
		gwBin:   cmp.Or(os.Getenv("PROXIED_GATEWAY"), filepath.Join(filepath.Dir(self), "ehdb-gateway")),
	}
	if err := p.parse(); err != nil {
		return 1, err
	}
	if p.given("v") || p.given("version") || p.given("h") || p.given("t") || p.given("sl") || p.given("signal") {
		return passed(exec.Command(p.natsBin, args...))
	}
	if p.dir, err = os.MkdirTemp("", "proxied-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(p.dir)
	url, err := p.startNATS()
	if err != nil {
		return 1, err
	}
	defer p.stop(p.nats)
	if err := p.startGateway(url); err != nil {
		return 1, err
	}
	return p.wait()
}

// passed runs a command in this one's place.
func passed(cmd *exec.Cmd) (int, error) {
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// parse reads the command line as nats-server does.
func (p *pair) parse() error {
	p.flags = flag.NewFlagSet("proxied", flag.ContinueOnError)
	p.flags.SetOutput(io.Discard)
	nothing := func() {}
	if _, err := server.ConfigureOptions(p.flags, nil, nothing, nothing, nothing); err != nil {
		return err
	}
	if err := p.flags.Parse(p.args); err != nil {
		return err
	}
	p.file = p.flags.Lookup("config").Value.String()
	return nil
}

func (p *pair) given(name string) (yes bool) {
	p.flags.Visit(func(f *flag.Flag) { yes = yes || f.Name == name })
	return yes
}

// The flags and the keys of a configuration file that are the gateway's business. nats-server gets all others, and of
// these those that limit clients.
var (
	gatewayFlags = []string{
		"a", "addr", "net", "p", "port", "m", "http_port", "ms", "https_port", "n", "name", "server_name", "P", "pid",
		"l", "log", "D", "debug", "V", "trace", "DV", "DVV", "VV", "T", "logtime", "client_advertise", "ports_file_dir",
		"tls", "tlscert", "tlskey", "tlsverify", "tlscacert",
	}
	gatewayKeys = []string{
		"host", "net", "listen", "port", "http", "http_port", "https", "https_port", "monitor_port", "http_base_path",
		"tls", "websocket", "server_name", "pidfile", "pid_file", "ports_file_dir", "log_file", "logfile", "debug",
		"trace", "logtime", "client_advertise", "lame_duck_duration", "lame_duck_grace_period",
	}
	sharedKeys = []string{
		"server_name", "debug", "trace", "logtime", "ping_interval", "ping_max", "write_deadline", "max_control_line",
		"max_payload", "max_pending", "lame_duck_duration", "lame_duck_grace_period", "allow_non_tls",
	}
)

func contains(list []string, name string) bool {
	for _, n := range list {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// split writes the two configuration files.
func (p *pair) split(url string) error {
	up, gw := map[string]any{}, map[string]any{}
	if p.file != "" {
		all, err := conf.ParseFile(p.file)
		if err != nil {
			return err
		}
		for k, v := range all {
			shared := contains(sharedKeys, k)
			if contains(gatewayKeys, k) || shared {
				gw[k] = v
			}
			if !contains(gatewayKeys, k) || shared {
				up[k] = v
			}
		}
	}
	maps.DeleteFunc(up, func(k string, _ any) bool { return contains([]string{"bus", "ehdb"}, k) })
	up["host"], up["port"] = "127.0.0.1", -1
	bus := map[string]any{"mode": "nats", "upstream": []string{url}}
	if os.Getenv("PROXIED_BUS") == "shadow" && p.shadows(up) {
		bus["mode"], bus["profile"] = "shadow", "drill"
		gw["jetstream"] = map[string]any{"store_dir": p.path("shadow")}
		gw["ehdb"] = map[string]any{"allow_tmp_store": true}
	}
	gw["bus"] = bus
	return errors.Join(write(p.path("nats.conf"), up), write(p.path("gateway.conf"), gw))
}

// shadows says whether the gateway can keep copies: the servers have JetStream, and it needs no login there.
func (p *pair) shadows(up map[string]any) bool {
	jetstream := p.given("js") || p.given("jetstream")
	for k := range up {
		jetstream = jetstream || strings.EqualFold(k, "jetstream")
		if contains([]string{"authorization", "accounts", "operator", "trusted_keys", "no_auth_user", "cluster"}, k) {
			return false
		}
	}
	return jetstream && !p.given("user") && !p.given("auth")
}

func (p *pair) path(name string) string { return filepath.Join(p.dir, name) }

// write writes m as a configuration file: JSON is one.
func write(path string, m map[string]any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // the format has other escapes
	enc.SetIndent("", "  ")
	if err := enc.Encode(m); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

// startNATS starts the nats-server and returns its URL.
func (p *pair) startNATS() (string, error) {
	if err := p.split("nats://127.0.0.1:1"); err != nil { // not known yet
		return "", err
	}
	args := []string{"-c", p.path("nats.conf"), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", p.dir}
	p.flags.Visit(func(f *flag.Flag) {
		switch {
		case f.Name == "c" || f.Name == "config":
		case !contains(gatewayFlags, f.Name), f.Name == "n", f.Name == "name", f.Name == "server_name",
			f.Name == "D", f.Name == "V", f.Name == "DV":
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	p.nats = exec.Command(p.natsBin, args...)
	log, err := os.Create(p.path("nats.log"))
	if err != nil {
		return "", err
	}
	defer log.Close() // the child writes to it
	p.nats.Stdout, p.nats.Stderr = log, log
	p.nats.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.nats.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- p.nats.Wait() }()
	for {
		select {
		case <-ended: //nolint:errcheck // what it said tells more
			said, _ := os.ReadFile(p.path("nats.log"))
			return "", fmt.Errorf("nats-server ended: %s", said)
		case <-time.After(5 * time.Millisecond):
		}
		var ports struct{ Nats []string }
		files, _ := filepath.Glob(p.path("*.ports"))
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && json.Unmarshal(b, &ports) == nil && len(ports.Nats) > 0 {
				return ports.Nats[0], nil
			}
		}
	}
}

// startGateway starts the gateway.
func (p *pair) startGateway(url string) error {
	if err := p.split(url); err != nil {
		return err
	}
	args := []string{"-c", p.path("gateway.conf")}
	p.flags.Visit(func(f *flag.Flag) {
		if contains(gatewayFlags, f.Name) {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	p.gateway = exec.Command(p.gwBin, args...)
	p.gateway.Stdout, p.gateway.Stderr = os.Stdout, os.Stderr
	p.gateway.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return p.gateway.Start()
}

// wait passes signals on until the gateway ends.
func (p *pair) wait() (int, error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP)
	ended := make(chan error, 1)
	go func() { ended <- p.gateway.Wait() }()
	for {
		select {
		case s := <-signals:
			switch s {
			case syscall.SIGHUP:
				p.reload()
			case os.Interrupt, syscall.SIGTERM:
				p.stop(p.nats) // first, so that clients hear its last words
			}
			_ = p.gateway.Process.Signal(s)
		case err := <-ended:
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				return max(exit.ExitCode(), 1), nil
			}
			return 0, err
		}
	}
}

// reload gives the nats-server what the file says now. The gateway's own part keeps what it was started with.
func (p *pair) reload() {
	url := ""
	if b, err := os.ReadFile(p.path("gateway.conf")); err == nil {
		var gw struct{ Bus struct{ Upstream []string } }
		if json.Unmarshal(b, &gw) == nil && len(gw.Bus.Upstream) > 0 {
			url = gw.Bus.Upstream[0]
		}
	}
	if err := p.split(url); err != nil {
		fmt.Fprintln(os.Stderr, "proxied: reload:", err)
		return
	}
	_ = p.nats.Process.Signal(syscall.SIGHUP)
}

// stop ends a child gently, then surely.
func (p *pair) stop(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if cmd.Process.Signal(syscall.Signal(0)) != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	_ = cmd.Process.Kill()
}

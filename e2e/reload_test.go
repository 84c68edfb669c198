package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// reloads holds a change of a configuration a line. DIR is a directory of the server's own.
const reloads = `
	port: 14999
	host: "127.0.0.2"
	http: "127.0.0.1:18999"
	server_name: other
	client_advertise: "1.2.3.4:4222"
	pid_file: "DIR/pid"
	ports_file_dir: "DIR"
	log_size_limit: 100000
	log_max_num: 3
	debug: true
	trace: true
	max_payload: 2000
	max_connections: 5
	max_subscriptions: 10
	max_sub_tokens: 4
	max_control_line: 2048
	max_pending: 2000000
	max_closed_clients: 7
	ping_interval: "10s"
	ping_max: 5
	write_deadline: "3s"
	write_timeout: retry
	lame_duck_duration: "40s"
	lame_duck_grace_period: "5s"
	server_tags: ["a"]
	server_metadata: {a: b}
	prof_port: 16001
	prof_block_rate: 5
	http_base_path: "/x"
	authorization {user: a, password: b}
	authorization {users: [{user: a, password: b}]}; no_auth_user: a
	accounts { A { users: [{user: a, password: b}] } }
	accounts { S {} }; system_account: S
	no_system_account: true
	no_header_support: true
	no_fast_producer_stall: true
	proxy_protocol: true
	connect_error_reports: 5
	mappings { a: b }
	max_traced_msg_len: 10
	websocket { port: -1, no_tls: true }
	jetstream { store_dir: "DIR", max_mem: 2000000 }
	jetstream { store_dir: "DIR", max_file: 20000000 }
	jetstream { store_dir: "DIR", domain: d }
	jetstream { store_dir: "DIR/other" }
	jetstream { store_dir: "DIR", sync_interval: "10s" }
	jetstream { store_dir: "DIR", strict: false }
	jetstream { store_dir: "DIR", request_queue_limit: 100 }
	nonsense: 1
	max_payload: x
`

// TestReloadRules: what a reload takes and what it refuses is nats-server's, with its text, and after either the server is
// as it was with the configuration as it was.
func TestReloadRules(t *testing.T) {
	start := func(own string) (file, dir string, with func(change string) string) {
		dir = t.TempDir()
		file = filepath.Join(dir, "c.conf")
		return file, dir, func(change string) string {
			change = strings.ReplaceAll(change, "DIR", dir)
			text := own
			if !strings.HasPrefix(change, "port") {
				text += "port: -1\n"
			}
			if !strings.HasPrefix(change, "host") {
				text += "host: \"127.0.0.1\"\n"
			}
			if !strings.HasPrefix(change, "http:") {
				text += "http: \"127.0.0.1:-1\"\n"
			}
			if !strings.HasPrefix(change, "jetstream") {
				text += fmt.Sprintf("jetstream { store_dir: %q }\n", dir)
			}
			return text + strings.ReplaceAll(change, "; ", "\n") + "\n"
		}
	}
	write := func(file, text string) { noErr(t, os.WriteFile(file, []byte(text), 0o600)) }
	// A difference from what was begins with names; what follows, old values, is not compared: defaults are shown differently.
	plain := func(dir, text string) string {
		text = strings.ReplaceAll(text, dir, "DIR")
		text, _, _ = strings.Cut(text, ": old=")
		return regexp.MustCompile(`:\d+:`).ReplaceAllString(text, ":N:")
	}

	theirFile, theirDir, theirs := start("")
	write(theirFile, theirs(""))
	o, err := server.ProcessConfigFile(theirFile)
	noErr(t, err)
	o.NoSigs, o.NoLog = true, true
	s, err := server.NewServer(o)
	noErr(t, err)
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	oracle := func(change string) string {
		write(theirFile, theirs(change))
		if err := s.Reload(); err != nil {
			return plain(theirDir, err.Error())
		}
		return "reloaded"
	}

	ourFile, ourDir, ours := start("ehdb { allow_tmp_store: true }\n")
	write(ourFile, ours(""))
	p := &process{cmd: exec.Command(gatewayBin, "-c", ourFile), dir: ourDir, done: make(chan struct{})}
	noErr(t, p.start())
	defer p.Kill()
	outcome := regexp.MustCompile(`(?s)\[(?:INF|ERR)\] (Reloaded server configuration|Failed to reload server configuration: (.*?)\n)`)
	gateway := func(change string) string {
		write(ourFile, ours(change))
		before := len(outcome.FindAllString(p.Log(), -1))
		p.Signal(syscall.SIGHUP)
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
			if all := outcome.FindAllStringSubmatch(p.Log(), -1); len(all) > before {
				if text := all[before][2]; text != "" {
					return plain(ourDir, text)
				}
				return "reloaded"
			}
		}
		t.Fatalf("%s: no answer", change)
		return ""
	}
	for change := range strings.Lines(reloads) {
		if change = strings.TrimSpace(change); change == "" {
			continue
		}
		want, got := oracle(change), gateway(change)
		if first, _, _ := strings.Cut(want, "\n"); !strings.HasPrefix(got, strings.TrimSpace(first)) && got != want {
			t.Errorf("%s: %s\nnats-server: %s", change, got, want)
		}
		if want, got := oracle(""), gateway(""); want != "reloaded" || got != "reloaded" {
			t.Fatalf("back from %s: %s\nnats-server: %s", change, got, want)
		}
	}
}

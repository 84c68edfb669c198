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
	logtime: false
	logtime_utc: true
	trace_verbose: true
	trace_headers: true
	disable_sublist_cache: true
	reconnect_error_reports: 5
	feature_flags: {js_ack_fc_v2: true}
	allow_non_tls: true
	default_sentinel: x
	tls { cert_file: "/no/such", key_file: "/no/such" }
	tls { cert_file: "CERT", key_file: "KEY" }
	tls { cert_file: "CERT", key_file: "KEY", timeout: 5, handshake_first: true }; allow_non_tls: true
	authorization {token: t}
	authorization {user: a, password: b, timeout: 5}
	authorization {users: [{nkey: "UDKTV7HZVYJFJN64LLMYQBUR6MTNNYCDC3LAZH4VHURW3GZLL3FULBXV"}]}
	authorization {users: [{user: a, password: b, permissions: {publish: "a", allow_responses: true}}]}
	authorization {default_permissions: {publish: "a..b"}}
	accounts { A { users: [{user: a, password: b}] } }; no_auth_user: a
	accounts { A { users: [{user: a, password: b}], exports: [{service: s}] }, B { imports: [{service: {account: A, subject: s}}] } }
	accounts { A { users: [{user: a, password: b}], limits: {max_conn: 5} } }
	accounts { A { jetstream: enabled, users: [{user: a, password: b}] } }
	proxies {trusted: [{key: "NBVDZDGBSL4LA3UXTJPX6BY5GP7QSJQIMYGEYYCKRPCHLA5UNJUTWYPL"}]}
	operator: "/no/such"
	resolver: MEMORY
	trusted_keys: ["x"]
	ocsp: true
	ocsp_cache: true
	https: "127.0.0.1:18998"
	syslog: x
	!"websocket requires TLS" websocket { port: -1 }
	jetstream { store_dir: "DIR", key: k, cipher: aes }
	jetstream { store_dir: "DIR", prev_key: k }
	jetstream { store_dir: "DIR", sync_interval: always }
	jetstream { store_dir: "DIR", max_buffered_size: 1MB }
	jetstream { store_dir: "DIR", extension_hint: no_extend }
	tls { cert_file: "CERT", key_file: "KEY", connection_rate_limit: 5 }
	tls { cert_file: "CERT", key_file: "KEY", ca_file: "CERT", verify: true }
	tls { cert_file: "CERT", key_file: "KEY", ca_file: "CERT", verify_and_map: true }
	tls { cert_file: "CERT", key_file: "KEY", pinned_certs: ["a8f407340dcc719864214b85ed96f98d16cbffa8f509d9fa4ca237b7bb3f9c32"] }
	authorization { proxy_required: true }
	accounts {A: {users: [{user: a, password: b}]}}; authorization {auth_callout: {issuer: "AB5UKNPVHDWBP5WODG742274I3OGY5FM3CBIFCYI4OFEH7Y23GNZPXFE", account: A, auth_users: [a]}}
	default_js_domain {A: hub}
	server_metadata {a: b}; server_tags: [a, b]
	jetstream { store_dir: "DIR", key: k }
	!"not supported for JetStreamLimits" jetstream { store_dir: "DIR", limits: {max_ack_pending: 5} }
	jetstream { store_dir: "DIR", max_buffered_msgs: 5 }
	jetstream { store_dir: "DIR", unique_tag: "az" }
	jetstream { store_dir: "DIR", max_outstanding_catchup: 1MB }
	jetstream { store_dir: "DIR", info_queue_limit: 5 }
	jetstream { store_dir: "DIR", meta_compact: 5 }
	!"not supported for JetStream" jetstream: false
	port: -2
	max_control_line: -1
	max_payload: 128MB
	!"is less than 0" max_closed_clients: -1
	lame_duck_duration: "29s"
	ping_interval: 10
	nonsense: 1
	max_payload: x
`

// TestReloadRules: what a reload takes and what it refuses is nats-server's, with its text (after !"words" ours has these, on purpose), and after either the server is
// as it was with the configuration as it was.
func TestReloadRules(t *testing.T) {
	certText, keyText := selfSigned(t)
	cert, key := writeFile(t, "cert.pem", certText), writeFile(t, "key.pem", keyText)
	start := func(own string) (file, dir string, with func(change string) string) {
		dir = t.TempDir()
		file = filepath.Join(dir, "c.conf")
		return file, dir, func(change string) string {
			change = strings.NewReplacer("DIR", dir, "CERT", cert, "KEY", key).Replace(change)
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
		words := ""
		if rest, differs := strings.CutPrefix(change, `!"`); differs {
			words, change, _ = strings.Cut(rest, `" `)
		}
		want, got := oracle(change), gateway(change)
		first, _, _ := strings.Cut(want, "\n")
		same := got == want || strings.HasPrefix(got, strings.TrimSpace(first))
		if differs := words != "" && strings.Contains(got, words) && !strings.Contains(want, words); !differs && (words != "" || !same) {
			t.Errorf("%s: %s\nnats-server: %s", change, got, want)
		}
		if want, got := oracle(""), gateway(""); want != "reloaded" || got != "reloaded" {
			t.Fatalf("back from %s: %s\nnats-server: %s", change, got, want)
		}
	}
}

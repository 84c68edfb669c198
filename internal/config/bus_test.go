package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/noetl/ehdb-gateway/cutover/hook"
)

func TestBusBlock(t *testing.T) {
	cert, key := certificate(t)
	pair, err := nkeys.CreateServer()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, `
		jetstream: enabled
		authorization { user: u, password: p }
		bus {
			upstream: ["nats://a:4222", "tls://b"], monitor: "http://a:8222", connect_timeout: "700ms", proxy_protocol: true
			tls { ca_file: '`+cert+`', cert_file: '`+cert+`', key_file: '`+key+`', handshake_first: true }
			proxy_key_file: '`+write(t, string(seed)+"\n")+`'
			accounts { "$G": { user: u, password: p }, B: { nkey: '`+write(t, string(seed))+`' } }, streams: [ORDERS, "KV_*"]
			waivers: "copy_unreadable until 2026-12-31: a disk: it is replaced"
		}`)
	b := c.Bus
	waived := Waiver{"copy_unreadable", "a disk: it is replaced", time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}
	if len(b.Waivers) != 1 || b.Waivers[0] != waived {
		t.Errorf("got waivers %+v", b.Waivers)
	}
	if len(b.Accounts) != 2 || b.Accounts[0] != (BusAccount{Name: "$G", User: "u", Password: "p"}) ||
		b.Accounts[1].Name != "B" || b.Accounts[1].Nkey == "" || strings.Join(b.Streams, " ") != "ORDERS KV_*" {
		t.Errorf("got accounts %+v, streams %v", b.Accounts, b.Streams)
	}
	if b.Mode != ModeNATS || len(b.Upstream) != 2 || b.Upstream[1].Scheme != "tls" || len(b.Monitor) != 1 ||
		b.ConnectTimeout != 700*time.Millisecond || !b.ProxyProtocol || !b.HandshakeFirst || b.ProxyKey == nil {
		t.Errorf("got %+v", b)
	}
	if b.TLS == nil || b.TLS.RootCAs == nil || len(b.TLS.Certificates) != 1 || b.TLS.InsecureSkipVerify {
		t.Errorf("got TLS %+v", b.TLS)
	}
	if c.Server.JetStream || c.DataDir != "" {
		t.Errorf("streams of its own in mode nats: %q", c.DataDir)
	}
	if len(c.Warnings) != 1 || !strings.HasSuffix(c.Warnings[0], "not used of this configuration: authorization, jetstream") {
		t.Errorf("warnings: %q", c.Warnings)
	}
}

// One file does for every mode: the mode is a matter of a variable.
func TestBusModeByVariable(t *testing.T) {
	file := write(t, `
		jetstream { store_dir: "/srv/ehdb-test" }
		bus { upstream: "nats://a:4222" }`)
	for name, tc := range map[string]struct {
		args []string
		env  func(string) (string, bool)
		mode Mode
		host string
	}{
		"unsaid":                 {nil, noEnv, ModeNATS, "a:4222"},
		"variable":               {nil, env("EHDB_BUS", "ehdb"), ModeEHDB, "a:4222"},
		"alias":                  {nil, env("NOETL_COMMAND_BUS", "ehdb"), ModeEHDB, "a:4222"},
		"flag":                   {[]string{"--bus", "nats"}, env("EHDB_BUS", "ehdb"), ModeNATS, "a:4222"},
		"servers by variable":    {nil, env("EHDB_UPSTREAM", "nats://b:1, nats://c:2"), ModeNATS, "b:1"},
		"servers by flag":        {[]string{"--upstream", "nats://d:3"}, env("EHDB_UPSTREAM", "nats://b:1"), ModeNATS, "d:3"},
		"an empty variable":      {nil, env("EHDB_UPSTREAM", " ", "EHDB_BUS", ""), ModeNATS, "a:4222"},
		"mode and servers apart": {nil, env("EHDB_UPSTREAM", "nats://b:1", "EHDB_BUS", "ehdb"), ModeEHDB, "b:1"},
	} {
		c, err := Load(append([]string{"-c", file}, tc.args...), tc.env)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.Bus.Mode != tc.mode || c.Bus.Upstream[0].Host != tc.host || c.Server.JetStream != (tc.mode == ModeEHDB) {
			t.Errorf("%s: mode %s, servers %v", name, c.Bus.Mode, c.Bus.Upstream)
		}
	}
}

func TestBusRefused(t *testing.T) {
	for text, want := range map[string]string{
		`proxy_protocol: true, bus { upstream: "nats://a", proxy_protocol: true }`: "set one of them",
		`bus { proxy_key_file: "/does/not/exist" }`:                                "no such file",
		`bus { proxy_key_file: "` + write(t, "nonsense") + `" }`:                   "does not hold an nkey seed",
		`bus { accounts: "$G" }`:                                                   "bus.accounts: expected a block",
		`bus { accounts { A: { user: u, token: t } } }`:                            "one way to log in",
		`bus { accounts { A: { password: p } } }`:                                  "a password without a user",
		`bus { accounts { A: { creds: "/does/not/exist" } } }`:                     "no such file",
		`bus { accounts { A: { pass: p } } }`:                                      `unknown field "bus.accounts.A.pass"`,
		`bus { streams: ["a.b"] }`:                                                 "is no name of a stream",
		`bus { tls: 5 }`:                                                           "bus.tls: expected a block",
		`bus { tls { ca: "x" } }`:                                                  `unknown field "bus.tls.ca"`,
	} {
		if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// Hooks are looked at when the configuration is: one that could not be run is an error, none at all a warning.
func TestBusHooks(t *testing.T) {
	dir := t.TempDir()
	conf := `bus { upstream: "nats://a", hooks: '` + dir + `', hook_timeout: "2s" }`
	if c := mustLoad(t, conf); len(c.Warnings) != 1 || c.Warnings[0] != "bus.hooks: there is no hook in "+dir {
		t.Errorf("%q", c.Warnings)
	}
	file := filepath.Join(dir, "on-before-flip")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, conf); err == nil || !strings.Contains(err.Error(), "bus.hooks: "+file+" is not executable") {
		t.Error(err)
	}
	if err := os.Chmod(file, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	c := mustLoad(t, conf)
	if got := c.Bus.Hooks; len(got.Found()) != 1 || got.Found()[0] != hook.BeforeFlip || got.Timeout() != 2*time.Second {
		t.Errorf("%v %v", got.Found(), got.Timeout())
	}
}

package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func noEnv(string) (string, bool) { return "", false }

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// write makes a configuration file and returns its name.
func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "gateway.conf")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// certificate makes the files of a certificate of its own.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, form, form, secret.Public(), secret)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	pemFile := func(kind string, der []byte) string {
		return write(t, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	return pemFile("CERTIFICATE", der), pemFile("PRIVATE KEY", keyDER)
}

// load loads text as a configuration file, with further flags.
func load(t *testing.T, text string, args ...string) (*Config, error) {
	t.Helper()
	return Load(append([]string{"-c", write(t, text)}, args...), noEnv)
}

func mustLoad(t *testing.T, text string, args ...string) *Config {
	t.Helper()
	c, err := load(t, text, args...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaults(t *testing.T) {
	c, err := Load(nil, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	o := c.Server
	if o.Port != 4222 || o.Host != "0.0.0.0" || o.HTTPPort != 0 || o.MaxPayload != 1<<20 || o.MaxConn != 64<<10 ||
		o.PingInterval != 2*time.Minute || o.WriteDeadline != 10*time.Second || o.JetStream || !o.Logtime {
		t.Errorf("not nats-server's defaults: %+v", o)
	}
	if c.DataDir != "" || c.JetStreamAccounts != nil || c.Bus.Mode != ModeEHDB || c.EHDB.LogFormat != "text" {
		t.Errorf("unexpected: %+v", c)
	}
	if o.ServerName != "" {
		t.Errorf("the server has a name that nobody gave it: %q", o.ServerName)
	}
}

func TestActions(t *testing.T) {
	file := write(t, "port: 4333")
	for _, tc := range []struct {
		args []string
		want Action
	}{
		{[]string{"-v"}, ShowVersion},
		{[]string{"--version"}, ShowVersion},
		{[]string{"version"}, ShowVersion},
		{[]string{"-h"}, ShowHelp},
		{[]string{"help"}, ShowHelp},
		{[]string{"--help_tls"}, ShowTLSHelp},
		{[]string{"-sl", "ldm=12"}, SendSignal},
		{[]string{"--signal=stop"}, SendSignal},
		{[]string{"-t", "-c", file}, CheckFile},
		{[]string{"-p", "4000"}, Run},
	} {
		c, err := Load(tc.args, noEnv)
		if err != nil || c.Action != tc.want {
			t.Errorf("%q: want action %v, got %+v (%v)", tc.args, tc.want, c, err)
		}
	}
}

func TestFlagsOverrideTheFile(t *testing.T) {
	c := mustLoad(t, `
		port: 4333, server_name: from_file, debug: false, trace: true
		http_port: 8222, max_payload: 2MB
		ehdb { shards: 3 }`,
		"-p", "4444", "-DV=false", "--user", "u", "--pass=p", "-m", "-1", "--logtime=false")
	o := c.Server
	if o.Port != 4444 || o.ServerName != "from_file" || o.Trace || o.Username != "u" || o.Password != "p" ||
		o.HTTPPort != -1 || o.Logtime || o.MaxPayload != 2<<20 || c.EHDB.Shards != 3 {
		t.Errorf("got %+v", o)
	}
	if c := mustLoad(t, "debug: false", "-DVV"); !c.Server.Debug || !c.Server.Trace || !c.Server.TraceVerbose {
		t.Errorf("-DVV is lost: %+v", c.Server)
	}
}

func TestRandomPortStaysRandom(t *testing.T) {
	if c := mustLoad(t, "port: -1"); c.Server.Port != -1 {
		t.Errorf("port is %d", c.Server.Port)
	}
	if c := mustLoad(t, "listen: 127.0.0.1:-1"); c.Server.Port != -1 || c.Server.HTTPHost != "127.0.0.1" {
		t.Errorf("port is %d, http host %q", c.Server.Port, c.Server.HTTPHost)
	}
}

func TestOwnBlocks(t *testing.T) {
	t.Setenv("SHARDS", "4")
	c := mustLoad(t, `
		EHDB {
			shards: $SHARDS
			queue_bytes: 64MiB, stall_bytes: 16MiB, window_bytes: 32MB
			memory: 128MiB, seal_max_age: "10s", seal_bytes: 8MiB
			metrics_port: 9102, log_format: json
			subjects: ["commands.*.shard.0", orders]
			map: [
				{ subject: "commands.*.shard.0", shard: 0 }
				{ subject: "commands.*.*.>", shards: "1-2", tokens: 2 }
				{ subject: "orders.*", shards: all, tokens: "2" }
			]
		}
		bus { mode: ehdb }`)
	e := c.EHDB
	if e.Shards != 4 || e.QueueBytes != 64<<20 || e.StallBytes != 16<<20 || e.WindowBytes != 32<<20 ||
		e.Memory != 128<<20 || e.SealMaxAge != 10*time.Second || e.SealBytes != 8<<20 ||
		e.MetricsPort != 9102 || e.LogFormat != "json" || len(e.Subjects) != 2 {
		t.Errorf("got %+v", e)
	}
	rules := e.Map.Rules()
	if len(rules) != 3 || rules[0].Shards[0] != 0 || len(rules[1].Shards) != 2 || len(rules[2].Shards) != 4 {
		t.Errorf("got rules %+v", rules)
	}
}

func TestIncludedFilesHaveTheirPlace(t *testing.T) {
	dir := t.TempDir()
	main := filepath.Join(dir, "main.conf")
	for name, text := range map[string]string{
		main:                           "port: 4333\ninclude 'own.conf'\n",
		filepath.Join(dir, "own.conf"): "# ours\nehdb {\n  shard: 3\n}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Load([]string{"-c", main}, noEnv)
	if want := filepath.Join(dir, "own.conf") + `:3:`; err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("want an error at %s, got %v", want, err)
	}
}

// Every bad input is refused with a message that says what and where.
func TestRefused(t *testing.T) {
	cert, key := certificate(t)
	for name, tc := range map[string]struct{ text, want string }{
		"unknown key":          {"port: 4222\nprot: 4223", `gateway.conf:2:1: unknown field "prot"`},
		"unknown nested key":   {"jetstream {\n  max_fil: 1G\n}", `:2:3: unknown field "max_fil"`},
		"our name, not ours":   {"jetstream {\n  ehdb: 1\n}", `:2:3: unknown field "ehdb"`},
		"unknown ehdb key":     {"ehdb {\n  shard: 1\n}", `:2:3: unknown field "ehdb.shard" (known in ehdb: allow_standalone,`},
		"unknown bus key":      {"bus { mod: ehdb }", `unknown field "bus.mod" (known in bus: accounts, change_window, connect_timeout, copy_rate, drills, hook_timeout, hooks, mode`},
		"no window":            {`bus { change_window: ["Mon 09:00-10:00", "weekdays"] }`, `bus.change_window[1]: "weekdays" is no window: give days, times and a zone`},
		"no waiver":            {`bus { waivers: "copy_unreadable: whatever" }`, `bus.waivers: "copy_unreadable: whatever" is no waiver: give "REASON until`},
		"unknown reason":       {`bus { waivers: ["unreadable until 2026-12-31: a disk"] }`, `with one of the reasons authority_unreadable and copy_unreadable`},
		"ehdb is no block":     {"ehdb: 5", `:1:0: ehdb: expected a block { ... }, got 5`},
		"bad shards":           {"ehdb { shards: 0 }", `ehdb.shards: 0 is not between 1 and 1024`},
		"shards is text":       {"ehdb { shards: many }", `ehdb.shards: expected a whole number, got many`},
		"small queue":          {"ehdb { queue_bytes: 10 }", `ehdb.queue_bytes: 10 is not between 1048576 and`},
		"queue is text":        {"ehdb { queue_bytes: big }", `ehdb.queue_bytes: expected a size such as 64MiB, got big`},
		"stall above queue":    {"ehdb { queue_bytes: 2MiB, stall_bytes: 3MiB }", `ehdb.stall_bytes (3145728) is above ehdb.queue_bytes (2097152)`},
		"bad log format":       {"ehdb { log_format: xml }", `ehdb.log_format: "xml" is not one of text, json`},
		"bad flag":             {"ehdb { allow_standalone: maybe }", `ehdb.allow_standalone: expected true or false, got maybe`},
		"bad subject":          {`ehdb { subjects: ["a..b"] }`, `ehdb.subjects[0]: "a..b" is not a valid subject`},
		"map without shards":   {`ehdb { map: [{subject: "a.*", shard: 0}] }`, `ehdb.map needs ehdb.shards`},
		"rule without subject": {`ehdb { shards: 2, map: [{shard: 0}] }`, `ehdb.map[0]`},
		"rule, unknown key":    {`ehdb { shards: 2, map: [{subject: "a", shard: 0, x: 1}] }`, `unknown field "ehdb.map[0].x"`},
		"rule, no such shard":  {`ehdb { shards: 2, map: [{subject: "a", shard: 2}] }`, `there is no shard 2`},
		"rule, no such token":  {`ehdb { shards: 2, map: [{subject: "a.b", shards: all, tokens: 3}] }`, `token 3`},
		"rule, no tokens":      {`ehdb { shards: 2, map: [{subject: "a.b", shards: "0,1"}] }`, `no token to choose by`},
		"rule never applies":   {`ehdb { shards: 2, map: [{subject: "a.>", shard: 0}, {subject: "a.b", shard: 1}] }`, `ehdb.map[1]`},
		"rule, bad range":      {`ehdb { shards: 2, map: [{subject: "a.b", shards: "1-x", tokens: 1}] }`, `ehdb.map[0].shards: expected shard numbers such as "0,2"`},
		"upstreams no block":   {`ehdb { upstreams: hub }`, `ehdb.upstreams: expected a block with one block for each`},
		"upstream without url": {`ehdb { upstreams { hub { user: a } } }`, `ehdb.upstreams.hub: needs a url`},
		"upstream, bad url":    {`ehdb { upstreams { hub { url: "hub" } } }`, `"hub" is not a URL such as nats://hub:4222`},
		"upstream, own api":    {`ehdb { upstreams { hub { url: "nats://h", api: "$JS.API" } } }`, `is this server's own`},
		"upstream, bad api":    {`ehdb { upstreams { hub { url: "nats://h", api: "a.*" } } }`, `"a.*" is not a subject prefix`},
		"upstream, no file":    {`ehdb { upstreams { hub { url: "nats://h", credentials: "/no/such" } } }`, `no such file`},
		"upstream, half a key": {`ehdb { upstreams { hub { url: "nats://h", cert_file: "/dev/null" } } }`, `go together`},
		"upstreams, same api":  {`ehdb { upstreams { a { url: "nats://h", api: "x" }, b { url: "nats://i", api: "x" } } }`, `a and b have the same api`},
		"upstream, unknown":    {`ehdb { upstreams { hub { url: "nats://h", x: 1 } } }`, `unknown field "ehdb.upstreams.hub.x"`},
		"rule is no block":     {`ehdb { shards: 2, map: [x] }`, `ehdb.map[0]: expected a block { ... }, got x`},
		"bad mode":             {"bus { mode: kafka }", `bus.mode: "kafka" is not one of ehdb, nats, shadow`},
		"mode nats alone":      {"bus { mode: nats }", `bus mode "nats" needs the NATS servers: bus { upstream:`},
		"mode shadow":          {"bus { mode: shadow, upstream: \"nats://a\" }", `bus mode "shadow" keeps copies of streams here: say where`},
		"bad upstream":         {"bus { upstream: \"http://a\" }", `bus.upstream: "http://a" is not one of nats://host:port`},
		"upstream with user":   {"bus { upstream: [\"nats://u:secret@a\"] }", `bus.upstream[0]: "nats://u:xxxxx@a" has credentials`},
		"upstream with path":   {"bus { upstream: [\"nats://a/b\"] }", `only scheme, host and port mean something here`},
		"no hooks":             {"bus { hooks: \"/no/such\" }", `bus.hooks: the folder with the hooks cannot be read`},
		"bad observe":          {"bus { observe: 48h }", `bus.observe: 48h0m0s is not between 0s and 24h0m0s`},
		"bad outage_logins":    {"bus { outage_logins: 1000h }", `bus.outage_logins: 1000h0m0s is not between 0s and 720h0m0s`},
		"no such gate":         {"bus { observe_gates: [G4, G24] }", `bus.observe_gates[1]: "G24" is no gate: there are G1 to G23`},
		"bad hook_timeout":     {"bus { hook_timeout: 3600 }", `bus.hook_timeout: 1h0m0s is not between 100ms and 10m0s`},
		"bad monitor":          {"bus { monitor: \"nats://a\" }", `bus.monitor: "nats://a" is not the URL of a monitoring port`},
		"feed without port":    {"ehdb { feed {} }", "ehdb.feed needs the monitoring port"},
		"feed not a block":     {"ehdb { feed: true }", "ehdb.feed: expected a block { ... }, got true"},
		"bad feed origin":      {`http: 8222, ehdb { feed { origins: ["app.example.com"] } }`, `ehdb.feed.origins[0]: "app.example.com" is not an origin`},
		"bad feed cookie":      {`http: 8222, ehdb { feed { cookie: "a b" } }`, `ehdb.feed.cookie: "a b" cannot be the name of a cookie`},
		"short feed heartbeat": {`http: 8222, ehdb { feed { heartbeat: "1ms" } }`, "ehdb.feed.heartbeat: 1ms is not between 1s and 1m0s"},
		"bad connect_timeout":  {"bus { connect_timeout: soon }", `bus.connect_timeout: expected a duration such as "1500ms", got soon`},
		"long connect_timeout": {"bus { connect_timeout: 90 }", `bus.connect_timeout: 1m30s is not between 100ms and 1m0s`},
		"bus.tls without file": {"bus { tls { ca_file: \"./nothing.pem\" } }", `nothing.pem`},

		"ocsp":             {"tls { cert_file: '" + cert + "', key_file: '" + key + "', ca_file: '" + cert + "', verify: true, ocsp_peer: true }", `"tls.ocsp_peer": OCSP is not served`},
		"callout defaults": {"accounts { A { default_permissions { publish: x }, users [{user: a, password: b}] } }\nauthorization { auth_callout { issuer: ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA, account: A, auth_users: [a] } }", `"accounts.A.default_permissions"`},
		"encryption":       {"jetstream { store_dir: /srv/x, tpm { keys_file: x } }", `"jetstream.tpm": encryption at rest with a key from a TPM is not served`},
		"cipher":           {"jetstream { store_dir: /srv/x, key: k, cipher: rot13 }", `Unknown cipher type: "rot13"`},
		"foreign route":    {"cluster { name: c, listen: \"127.0.0.1:6222\", routes: [\"nats://nats-1:6222\"] }", `cluster.routes names other servers (nats-1:6222)`},
		"leaf nodes":       {"leafnodes { port: 7422 }", `gateway.conf:1:0: "leafnodes": leaf nodes are not served by this build`},
		"leaf remotes":     {"leaf { remotes [{url: \"nats://hub:7422\"}] }", "set ehdb { allow_standalone: true } to start without"},
		"MQTT":             {"mqtt { port: 1883 }", `"mqtt": MQTT is not served by this build`},
		"other clusters":   {"gateway { name: a }", `"gateway": other clusters are not served by this build`},
		"tmp store":        {"jetstream { store_dir: /tmp/x }", `is below the system's temporary directory`},
		"default store":    {"jetstream: enabled", `is below the system's temporary directory`},
		"bad lame duck":    {"lame_duck_duration: 31s, lame_duck_grace_period: 40s", `lame duck grace period (40s) should be strictly lower`},
		"payload":          {"max_payload: 128MB", `max_payload (134217728) cannot be higher than max_pending`},
		"spaces":           {`server_name: "a b"`, `server name cannot contain spaces`},
		"two passwords":    {"authorization { user: a, password: b, token: c }", `Cannot have a user/pass and token`},
		"no such user":     {"no_auth_user: x\nauthorization { users [{user: a, password: b}] }", `no_auth_user`},
		"syntax":           {"port: {", `gateway.conf`},
		"bad value":        {"port: abc", `gateway.conf:1:0: `},
	} {
		_, err := load(t, tc.text)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: want an error with\n\t%s\ngot\n\t%v", name, tc.want, err)
		}
	}
}

func TestEveryComplaintAtOnce(t *testing.T) {
	_, err := load(t, "ehdb { shards: 0\n queue_bytes: x\n nonsense: 1 }")
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Fatalf("want three lines, got %v", err)
	}
}

func TestBadFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"flag provided but not defined: -nonsense":  {"-nonsense"},
		`unrecognized command: "serve"`:             {"serve"},
		"must specify [-c, --config] option":        {"-t"},
		"no such file":                              {"-c", "/does/not/exist.conf"},
		"solicited routes require cluster":          {"--routes", "nats://x:6222"},
		"TLS Server certificate must be present":    {"--tls"},
		`bus mode "nats" needs the NATS servers`:    {"--bus", "nats"},
		`the flag --upstream: "x"`:                  {"--upstream", "x"},
		`bus mode "shadow" needs the NATS servers`:  {"--bus", "shadow"},
		`bus mode "x" (from the flag --bus) is not`: {"--bus", "x"},
	} {
		if _, err := Load(args, noEnv); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want %q, got %v", args, want, err)
		}
	}
}

func TestModeFromTheEnvironment(t *testing.T) {
	for _, tc := range []struct {
		args []string
		env  func(string) (string, bool)
		want string // part of the error; "" means ehdb
	}{
		{nil, env("EHDB_BUS", "ehdb"), ""},
		{nil, env("NOETL_COMMAND_BUS", "EHDB"), ""},
		{nil, env("EHDB_BUS", "", "NOETL_COMMAND_BUS", "ehdb"), ""},
		{nil, env("EHDB_BUS", "nats"), `bus mode "nats" needs the NATS servers`},
		{nil, env("NOETL_COMMAND_BUS", "shadow"), `bus mode "shadow" needs the NATS servers`},
		{nil, env("EHDB_BUS", "ehdb", "NOETL_COMMAND_BUS", "nats"), `EHDB_BUS=ehdb and NOETL_COMMAND_BUS=nats contradict`},
		{nil, env("EHDB_BUS", "kafka"), `is not one of ehdb, nats, shadow`},
		{[]string{"--bus", "ehdb"}, env("EHDB_BUS", "nats"), ""},
	} {
		c, err := Load(tc.args, tc.env)
		switch {
		case tc.want == "" && (err != nil || c.Bus.Mode != ModeEHDB):
			t.Errorf("%q: got %v", tc.args, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("want %q, got %v", tc.want, err)
		}
	}
}

func TestLeftAsideIsOneWarning(t *testing.T) {
	c := mustLoad(t, `
		cluster { name: c, port: 6222 }
		leafnodes { port: 7422 }
		mqtt {}
		ehdb { allow_standalone: true }
		accounts {
			A { users [{user: a, password: a}], exports [{service: "x.>"}], jetstream: enabled }
			B { users [{user: b, password: b}], imports [{service: {account: A, subject: "x.>"}}] }
		}`)
	if len(c.Warnings) != 1 || c.Warnings[0] !=
		"Not served by this build and left aside: cluster, leafnodes" {
		t.Errorf("got %q", c.Warnings)
	}
}

func TestVerboseTracingIsLeftAside(t *testing.T) {
	for _, c := range []*Config{mustLoad(t, "trace_verbose: true"), mustLoad(t, "", "-VV"), mustLoad(t, "trace: false", "-DVV")} {
		if len(c.Warnings) == 0 || !strings.HasSuffix(c.Warnings[len(c.Warnings)-1], "left aside: trace_verbose") {
			t.Errorf("got %q", c.Warnings)
		}
	}
	if c := mustLoad(t, "trace: true, trace_headers: true, max_traced_msg_len: 10", "-DV"); len(c.Warnings) != 0 {
		t.Errorf("got %q", c.Warnings)
	}
}

func TestOwnRouteAndOverride(t *testing.T) {
	mustLoad(t, `cluster { name: c, listen: "127.0.0.1:6222", routes: ["nats://localhost:6222"] }`)
	mustLoad(t, `cluster { name: c, listen: "127.0.0.1:6222", routes: ["nats://nats-1:6222"] }
		ehdb { allow_standalone: true }`)
}

func TestJetStreamAccounts(t *testing.T) {
	own := "\nehdb { allow_tmp_store: true }\njetstream { store_dir: " + t.TempDir() + " }"
	if c := mustLoad(t, own); len(c.JetStreamAccounts) != 1 || c.JetStreamAccounts["$G"].MaxStreams != -1 {
		t.Errorf("got %+v", c.JetStreamAccounts)
	}
	c := mustLoad(t, `accounts {
		A { users [{user: a, password: a}], jetstream: enabled }
		B { users [{user: b, password: b}], jetstream { max_mem: 1MB, max_file: 2MB, max_streams: 3, max_consumers: 4,
			max_ack_pending: 5, mem_max_stream_bytes: 6, disk_max_stream_bytes: 7, max_bytes_required: true } }
		C { users [{user: c, password: c}], jetstream: disabled }
		D { users [{user: d, password: d}] }
		SYS { users [{user: s, password: s}] }
	}
	system_account: SYS`+own)
	want := server.JetStreamAccountLimits{
		MaxMemory: 1 << 20, MaxStore: 2 << 20, MaxStreams: 3, MaxConsumers: 4,
		MaxAckPending: 5, MemoryMaxStreamBytes: 6, StoreMaxStreamBytes: 7, MaxBytesRequired: true,
	}
	if len(c.JetStreamAccounts) != 2 || c.JetStreamAccounts["B"] != want {
		t.Errorf("got %+v", c.JetStreamAccounts)
	}
	if c := mustLoad(t, "jetstream: disabled"); c.JetStreamAccounts != nil || c.DataDir != "" {
		t.Errorf("got %+v", c)
	}
	_, err := load(t, "accounts { SYS { users [{user: s, password: s}], jetstream: enabled } }, system_account: SYS"+own)
	if err == nil || !strings.Contains(err.Error(), "system account") {
		t.Errorf("got %v", err)
	}
}

func TestDataDir(t *testing.T) {
	base := t.TempDir()
	tmp, kept := filepath.Join(base, "tmp"), filepath.Join(base, "kept")
	for _, d := range []string{tmp, kept} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", tmp)
	c, err := Load([]string{"-js", "-sd", kept}, noEnv)
	if err != nil || c.DataDir != filepath.Join(kept, "ehdb") || len(c.Warnings) != 0 {
		t.Errorf("got %+v, %v", c, err)
	}
	c, err = Load([]string{"-js", "--allow_tmp_store"}, noEnv)
	if err != nil || c.DataDir != filepath.Join(tmp, "nats", "ehdb") || len(c.Warnings) != 1 {
		t.Errorf("got %+v, %v", c, err)
	}
	// What a link points to counts, not where it lies.
	link := filepath.Join(kept, "link")
	if err := os.Symlink(tmp, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Load([]string{"-js", "-sd", filepath.Join(link, "new")}, noEnv); err == nil {
		t.Error("a link to the temporary directory passes")
	}
	t.Chdir(kept)
	if c, err := Load([]string{"-js", "-sd", "data"}, noEnv); err != nil || c.DataDir != filepath.Join(kept, "data", "ehdb") {
		t.Errorf("got %+v, %v", c, err)
	}
}

// A store that a nats-server wrote is refused, whether store_dir is given as that server had it or one level deeper.
func TestNatsServersOwnStoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := server.NewServer(&server.Options{Port: -1, Host: "127.0.0.1", JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server does not start")
	}
	start := func(dir string) error {
		_, err := Load([]string{"-js", "-sd", dir, "--allow_tmp_store"}, noEnv)
		return err
	}
	if err := start(dir); err != nil {
		t.Errorf("a store without streams is no reason: %v", err)
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Join(dir, "jetstream")} {
		err := start(d)
		if err == nil || !strings.Contains(err.Error(), "nats-server's own data") || !strings.Contains(err.Error(), "backup") ||
			!strings.Contains(err.Error(), "cutover") {
			t.Errorf("%s: got %v", d, err)
		}
	}
}

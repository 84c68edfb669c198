package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

// keyPair is a key and its public part.
type keyPair struct {
	nkeys.KeyPair
	pub string
}

func newKey(t *testing.T, create func() (nkeys.KeyPair, error)) keyPair {
	t.Helper()
	kp, err := create()
	if err != nil {
		t.Fatal(err)
	}
	pub, err := kp.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return keyPair{kp, pub}
}

func signed(t *testing.T, c jwt.Claims, by keyPair) string {
	t.Helper()
	token, err := c.Encode(by)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// company is an operator, its system account and a user of that.
type company struct {
	operator, system keyPair
	operatorJWT      string
	systemJWT        string
}

func newCompany(t *testing.T) *company {
	t.Helper()
	c := &company{operator: newKey(t, nkeys.CreateOperator), system: newKey(t, nkeys.CreateAccount)}
	op := jwt.NewOperatorClaims(c.operator.pub)
	op.SystemAccount = c.system.pub
	c.operatorJWT = signed(t, op, c.operator)
	sys := jwt.NewAccountClaims(c.system.pub)
	sys.Name = "SYS"
	c.systemJWT = signed(t, sys, c.operator)
	return c
}

// account returns signed claims of an account with JetStream.
func (c *company) account(t *testing.T, a keyPair, edit func(*jwt.AccountClaims)) string {
	t.Helper()
	claims := jwt.NewAccountClaims(a.pub)
	claims.Name = "tenant"
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: jwt.NoLimit, DiskStorage: 1 << 20, Streams: 2, Consumer: jwt.NoLimit,
	}
	if edit != nil {
		edit(claims)
	}
	return signed(t, claims, c.operator)
}

// creds writes a credentials file of a new user.
func creds(t *testing.T, account keyPair) (string, string) {
	t.Helper()
	user := newKey(t, nkeys.CreateUser)
	claims := jwt.NewUserClaims(user.pub)
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.FormatUserConfig(signed(t, claims, account), seed)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "user.creds")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, user.pub
}

func (c *company) config(t *testing.T, resolver string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	text := fmt.Sprintf("operator: %q\nsystem_account: %s\nresolver_preload { %s: %q }\n%s\n",
		c.operatorJWT, c.system.pub, c.system.pub, c.systemJWT, resolver)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// An operator brings accounts as nsc does, users come with credentials files, streams are theirs, and all of it is
// there after a restart.
func TestOperatorMode(t *testing.T) {
	c := newCompany(t)
	dir, store := filepath.Join(t.TempDir(), "jwt"), t.TempDir()
	file := c.config(t, fmt.Sprintf("resolver { type: full, dir: %q, allow_delete: true }\njetstream { store_dir: %q }", dir, store))
	p := start(t, "-c", file)
	admin, _ := creds(t, c.system)
	sys := p.connect(nats.UserCredentials(admin))
	tenant := newKey(t, nkeys.CreateAccount)
	user, userPub := creds(t, tenant)
	url := p.ports.Nats[0]
	if _, err := nats.Connect(url, nats.UserCredentials(user)); err == nil {
		t.Fatal("an account that nobody knows lets in")
	}
	ask(t, sys, "$SYS.REQ.CLAIMS.UPDATE", c.account(t, tenant, nil), `"message": "jwt updated"`)
	nc := p.connect(nats.UserCredentials(user), nats.NoReconnect())
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, name := range []string{"A", "B"} {
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "C", Subjects: []string{"C"}}); err == nil ||
		!strings.Contains(err.Error(), "maximum number of streams reached") {
		t.Errorf("a third stream: %v", err)
	}
	if _, err := js.Publish(ctx, "A", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	poor := newKey(t, nkeys.CreateAccount)
	ask(t, sys, "$SYS.REQ.ACCOUNT."+poor.pub+".CLAIMS.UPDATE", c.account(t, poor, func(a *jwt.AccountClaims) {
		a.Limits.JetStreamLimits = jwt.JetStreamLimits{}
	}), `"code": 200`)
	poorUser, _ := creds(t, poor)
	pjs, err := jetstream.New(p.connect(nats.UserCredentials(poorUser)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pjs.AccountInfo(ctx); err == nil || !strings.Contains(err.Error(), "not enabled for account") {
		t.Errorf("an account without JetStream: %v", err)
	}
	p.stop()

	p = start(t, "-c", file)
	sys = p.connect(nats.UserCredentials(admin))
	nc = p.connect(nats.UserCredentials(user), nats.NoReconnect())
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(ctx, "A")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := s.GetMsg(ctx, 1); err != nil || string(m.Data) != "kept" {
		t.Fatalf("%v %v", m, err)
	}
	ask(t, sys, "$SYS.REQ.CLAIMS.UPDATE", c.account(t, tenant, func(a *jwt.AccountClaims) { a.Revoke(userPub) }), `"code": 200`)
	p.await("the revocation", nc.IsClosed)
	user, _ = creds(t, tenant)
	nc = p.connect(nats.UserCredentials(user), nats.NoReconnect())
	del := jwt.NewGenericClaims(c.operator.pub)
	del.Data["accounts"] = []string{tenant.pub}
	ask(t, sys, "$SYS.REQ.CLAIMS.DELETE", signed(t, del, c.operator), `"message": "deleted 1 accounts"`)
	p.await("the deletion", nc.IsClosed)
	if _, err := nats.Connect(p.ports.Nats[0], nats.UserCredentials(user)); err == nil {
		t.Error("a deleted account lets in")
	}
	for _, f := range []string{admin, user} {
		for _, secret := range secretsOf(t, f) {
			if strings.Contains(p.logged(), secret) {
				t.Error("the log has a secret")
			}
		}
	}
}

// secretsOf are the parts of a credentials file that nobody else may see.
func secretsOf(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := jwt.ParseDecoratedNKey(b)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := seed.Seed()
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.ParseDecoratedJWT(b)
	if err != nil {
		t.Fatal(err)
	}
	return []string{string(raw), token[strings.LastIndex(token, ".")+1:]}
}

func ask(t *testing.T, nc *nats.Conn, subject, data, want string) {
	t.Helper()
	m, err := nc.Request(subject, []byte(data), 5*time.Second)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	var pretty map[string]any
	_ = json.Unmarshal(m.Data, &pretty)
	text, _ := json.MarshalIndent(pretty, "", " ")
	if !strings.Contains(string(text), want) {
		t.Fatalf("%s: %s, want %s", subject, text, want)
	}
}

// The requests about claims are answered as by nats-server.
func TestClaimRequestsAsNATSServer(t *testing.T) {
	for _, kind := range []string{
		"MEMORY", "{ type: full, dir: %q }", "{ type: full, dir: %q, allow_delete: true, limit: 3 }", "{ type: cache, dir: %q }",
	} {
		t.Run(kind, func(t *testing.T) { sameAnswers(t, kind) })
	}
}

func sameAnswers(t *testing.T, kind string) {
	t.Helper()
	c := newCompany(t)
	tenant, second, third := newKey(t, nkeys.CreateAccount), newKey(t, nkeys.CreateAccount), newKey(t, nkeys.CreateAccount)
	admin, _ := creds(t, c.system)
	user, _ := creds(t, tenant)
	bad := c.account(t, tenant, func(a *jwt.AccountClaims) { a.Limits.JetStreamTieredLimits = jwt.JetStreamTieredLimits{"": {}} })
	del := func(by keyPair, accounts ...string) string {
		g := jwt.NewGenericClaims(by.pub)
		g.Data["accounts"] = accounts
		return signed(t, g, by)
	}
	foreign := newCompany(t)
	requests := []struct{ subject, data string }{
		{"$SYS.REQ.CLAIMS.LIST", ""},
		{"$SYS.REQ.CLAIMS.UPDATE", c.account(t, tenant, nil)},
		{"$SYS.REQ.ACCOUNT." + second.pub + ".CLAIMS.UPDATE", c.account(t, second, nil)},
		{"$SYS.ACCOUNT." + tenant.pub + ".CLAIMS.UPDATE", c.account(t, tenant, func(a *jwt.AccountClaims) { a.Name = "other" })},
		{"$SYS.REQ.ACCOUNT." + second.pub + ".CLAIMS.UPDATE", c.account(t, tenant, nil)},
		{"$SYS.REQ.ACCOUNT." + c.system.pub + ".CLAIMS.UPDATE", c.systemJWT},
		{"$SYS.REQ.ACCOUNT." + c.system.pub + ".CLAIMS.UPDATE", "garbage"},
		{"$SYS.REQ.CLAIMS.UPDATE", "garbage"},
		{"$SYS.REQ.CLAIMS.UPDATE", ""},
		{"$SYS.REQ.CLAIMS.UPDATE", bad},
		{"$SYS.REQ.CLAIMS.UPDATE", c.account(t, third, nil)},
		{"$SYS.REQ.CLAIMS.LIST", ""},
		{"$SYS.REQ.ACCOUNT." + tenant.pub + ".CLAIMS.LOOKUP", ""},
		{"$SYS.REQ.ACCOUNT." + foreign.system.pub + ".CLAIMS.LOOKUP", ""},
		{"$SYS.REQ.CLAIMS.PACK", ""},
		{"$SYS.REQ.CLAIMS.DELETE", del(c.operator, second.pub)},
		{"$SYS.REQ.CLAIMS.DELETE", del(c.operator, c.system.pub)},
		{"$SYS.REQ.CLAIMS.DELETE", del(c.operator, "x")},
		{"$SYS.REQ.CLAIMS.DELETE", del(foreign.operator, second.pub)},
		{"$SYS.REQ.CLAIMS.DELETE", "garbage"},
		{"$SYS.REQ.CLAIMS.LIST", ""},
	}
	run := func(url string) (out []string) {
		sys, err := nats.Connect(url, nats.UserCredentials(admin))
		if err != nil {
			t.Fatal(err)
		}
		defer sys.Close()
		for i, r := range requests {
			m, err := sys.Request(r.subject, []byte(r.data), 400*time.Millisecond)
			out = append(out, fmt.Sprintf("%d %s: %v %s", i, r.subject, err, told(m)))
		}
		nc, err := nats.Connect(url, nats.UserCredentials(user))
		if nc != nil {
			nc.Close()
		}
		return append(out, fmt.Sprint(err))
	}
	resolver := func() string {
		if strings.Contains(kind, "%q") {
			return "resolver " + fmt.Sprintf(kind, filepath.Join(t.TempDir(), "jwt"))
		}
		return "resolver: " + kind
	}
	o, err := server.ProcessConfigFile(c.config(t, resolver()))
	if err != nil {
		t.Fatal(err)
	}
	o.Host, o.Port, o.NoLog, o.NoSigs = "127.0.0.1", -1, true, true
	ns, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	defer ns.Shutdown()
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	p := start(t, "-c", c.config(t, resolver()))
	want, got := run(ns.ClientURL()), run(p.ports.Nats[0])
	for i := range want {
		if want[i] != got[i] {
			t.Errorf("nats-server: %s\n     gateway:     %s", want[i], got[i])
		} else if testing.Verbose() {
			t.Log(got[i])
		}
	}
}

var packed = regexp.MustCompile(`^A[A-Z0-9]{55}\|`)

// told is what an answer says, without what differs between servers.
func told(m *nats.Msg) string {
	if m == nil {
		return ""
	}
	if packed.Match(m.Data) {
		return "a pack"
	}
	var doc map[string]any
	if json.Unmarshal(m.Data, &doc) != nil {
		return string(m.Data)
	}
	delete(doc, "server")
	if list, ok := doc["data"].([]any); ok {
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	}
	b, _ := json.Marshal(doc)
	return string(b)
}

// A reload puts new claims of a memory resolver in force.
func TestReloadOfPreloadedAccounts(t *testing.T) {
	c := newCompany(t)
	tenant := newKey(t, nkeys.CreateAccount)
	user, pub := creds(t, tenant)
	file := c.config(t, "resolver: MEMORY")
	put := func(edit func(*jwt.AccountClaims)) {
		text := fmt.Sprintf("operator: %q\nsystem_account: %s\nresolver: MEMORY\nresolver_preload { %s: %q, %s: %q }\n",
			c.operatorJWT, c.system.pub, c.system.pub, c.systemJWT, tenant.pub, c.account(t, tenant, edit))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(nil)
	p := start(t, "-c", file)
	nc := p.connect(nats.UserCredentials(user), nats.NoReconnect())
	put(func(a *jwt.AccountClaims) { a.Revoke(pub) })
	p.signal(syscall.SIGHUP)
	p.awaitLog("Reloaded server configuration")
	p.await("the revocation", nc.IsClosed)
	if _, err := nats.Connect(p.ports.Nats[0], nats.UserCredentials(user)); err == nil {
		t.Error("a revoked user comes in")
	}
	if err := os.WriteFile(file, []byte("port: -1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	p.awaitLog("Failed to reload server configuration: config reload does not support moving to or from an account resolver")
}

// Accounts come from a web server; only the pinned ones may be used.
func TestURLResolver(t *testing.T) {
	c := newCompany(t)
	tenant, unpinned := newKey(t, nkeys.CreateAccount), newKey(t, nkeys.CreateAccount)
	tokens := map[string]string{
		c.system.pub: c.systemJWT, tenant.pub: c.account(t, tenant, nil), unpinned.pub: c.account(t, unpinned, nil),
	}
	var asked atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/accounts/")
		if name == "" {
			return
		}
		asked.Add(1)
		token, ok := tokens[name]
		if !ok {
			http.NotFound(w, r)
		}
		_, _ = io.WriteString(w, token)
	}))
	defer web.Close()
	file := filepath.Join(t.TempDir(), "nats.conf")
	text := fmt.Sprintf("operator: %q\nsystem_account: %s\nresolver: URL(%s/accounts/)\nresolver_pinned_accounts: [%s]\n",
		c.operatorJWT, c.system.pub, web.URL, tenant.pub)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "-c", file)
	user, _ := creds(t, tenant)
	before := asked.Load()
	for range 3 {
		p.connect(nats.UserCredentials(user))
	}
	if n := asked.Load() - before; n != 1 {
		t.Errorf("the account was fetched %d times", n)
	}
	stranger, _ := creds(t, newKey(t, nkeys.CreateAccount))
	other, _ := creds(t, unpinned)
	for _, file := range []string{stranger, other} {
		if _, err := nats.Connect(p.ports.Nats[0], nats.UserCredentials(file)); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("not a pinned account: %v", err)
		}
	}
	if n := asked.Load() - before; n != 1 {
		t.Errorf("strangers made %d fetches", n-1)
	}
	admin, _ := creds(t, c.system)
	sys := p.connect(nats.UserCredentials(admin))
	ask(t, sys, "$SYS.REQ.ACCOUNT."+tenant.pub+".CLAIMS.UPDATE", c.account(t, tenant, func(a *jwt.AccountClaims) { a.Limits.Conn = 0 }), `"message": "jwt updated"`)
	if _, err := nats.Connect(p.ports.Nats[0], nats.UserCredentials(user)); err == nil {
		t.Error("an account without connections lets in")
	}
}

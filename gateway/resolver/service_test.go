package resolver

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newKey(t *testing.T, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
	t.Helper()
	kp, err := create()
	if err != nil {
		t.Fatal(err)
	}
	pub, err := kp.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return kp, pub
}

// answers keeps what comes.
type answers chan string

func (a answers) Deliver(batch []bus.Delivery) <-chan struct{} {
	for i := range batch {
		a <- string(batch[i].Msg.Data)
	}
	return nil
}

// setUp starts a service over a directory of the kind.
func setUp(t *testing.T, c DirConfig) (operator nkeys.KeyPair, ask func(subject, data string) string, dir *Dir) {
	t.Helper()
	operator, operatorPub := newKey(t, nkeys.CreateOperator)
	_, system := newKey(t, nkeys.CreateAccount)
	c.Path = filepath.Join(t.TempDir(), "jwt")
	dir, err := OpenDir(c, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dir.Close)
	accounts, err := auth.NewAccounts(&server.Options{TrustedKeys: []string{operatorPub}, SystemAccount: system}, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	router := bus.NewRouter()
	s, err := Start(Options{
		Bus: router, Accounts: accounts, Dir: dir, Logger: slog.New(slog.DiscardHandler),
		Identity: func() server.ServerInfo { return server.ServerInfo{ID: "me"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	in := make(answers, 4096)
	session, err := router.Open(bus.KindClient, bus.Identity{Account: system, ID: 1}, in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	if _, err := session.Subscribe("1", "inbox", ""); err != nil {
		t.Fatal(err)
	}
	return operator, func(subject, data string) string {
		t.Helper()
		session.Publish(&bus.Msg{Subject: []byte(subject), Reply: []byte("inbox"), Data: []byte(data)})
		session.Flush()
		select {
		case got := <-in:
			return got
		case <-time.After(20 * time.Second):
			t.Fatalf("no answer to %s", subject)
			return ""
		}
	}, dir
}

func sign(t *testing.T, c jwt.Claims, by nkeys.KeyPair) string {
	t.Helper()
	token, err := c.Encode(by)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// What a trusted operator did not sign is not kept, and what is kept is deleted only on its word.
func TestOnlyTheOperator(t *testing.T) {
	operator, ask, dir := setUp(t, DirConfig{Kind: Full, Delete: true})
	stranger, strangerPub := newKey(t, nkeys.CreateOperator)
	_, account := newKey(t, nkeys.CreateAccount)
	claims := jwt.NewAccountClaims(account)
	if got := ask("$SYS.REQ.CLAIMS.UPDATE", sign(t, claims, stranger)); !strings.Contains(got, "not signed by a trusted operator") {
		t.Fatal(got)
	}
	if _, err := dir.Fetch(account); err == nil {
		t.Fatal("claims of a stranger are kept")
	}
	if got := ask("$SYS.REQ.CLAIMS.UPDATE", sign(t, claims, operator)); !strings.Contains(got, "jwt updated") {
		t.Fatal(got)
	}
	deletion := func(by nkeys.KeyPair, pub string, accounts ...any) string {
		g := jwt.NewGenericClaims(pub)
		g.Data["accounts"] = accounts
		return sign(t, g, by)
	}
	operatorPub, err := operator.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, request := range map[string]string{
		"a stranger":            deletion(stranger, strangerPub, account),
		"in another's name":     deletion(stranger, operatorPub, account),
		"a path":                deletion(operator, operatorPub, "../"+account),
		"no account":            deletion(operator, operatorPub, operatorPub),
		"one of them no string": deletion(operator, operatorPub, account, 7),
		"nothing":               "",
	} {
		if got := ask("$SYS.REQ.CLAIMS.DELETE", request); !strings.Contains(got, `"error"`) {
			t.Errorf("%s: %s", name, got)
		}
		if _, err := dir.Fetch(account); err != nil {
			t.Fatalf("%s: deleted", name)
		}
	}
	if got := ask("$SYS.REQ.CLAIMS.DELETE", deletion(operator, operatorPub, account)); !strings.Contains(got, "deleted 1 accounts") {
		t.Fatal(got)
	}
	if _, err := dir.Fetch(account); err != fs.ErrNotExist { //nolint:errorlint // the very one
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir.config.Path, account+".jwt.deleted")); err != nil {
		t.Error("nothing is left of it")
	}
}

// Every request is answered, however many come and whatever is in them.
func TestEveryRequestIsAnswered(t *testing.T) {
	_, ask, _ := setUp(t, DirConfig{Kind: Full, Limit: 2})
	for i := range 300 {
		got := ask([]string{
			"$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.ACCOUNT.x.CLAIMS.UPDATE", "$SYS.ACCOUNT.x.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.DELETE",
		}[i%4], fmt.Sprint("garbage ", i))
		var doc server.ServerAPIClaimUpdateResponse
		if err := json.Unmarshal([]byte(got), &doc); err != nil || doc.Error == nil || doc.Server.ID != "me" {
			t.Fatalf("%v %s", err, got)
		}
	}
}

// FuzzNamed finds the account in a subject, without a panic.
func FuzzNamed(f *testing.F) {
	for _, s := range []string{"$SYS.REQ.ACCOUNT.A.CLAIMS.UPDATE", "$SYS.ACCOUNT.A.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.UPDATE"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, account string) {
		if strings.Contains(account, ".") {
			return
		}
		for _, form := range updates {
			if got := named(strings.Replace(form, "*", account, 1)); got != account {
				t.Fatalf("%q in %s is %q", account, form, got)
			}
		}
	})
}

package gateway

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/crypto/bcrypt"
)

// config returns a function that reads text as a configuration file.
func config(t *testing.T, text string) func() *server.Options {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	check(t, os.WriteFile(file, []byte(text), 0o600))
	return func() *server.Options {
		o, err := server.ProcessConfigFile(file)
		check(t, err)
		o.ConfigFile = "" // a reload must not change it
		return o
	}
}

func TestParityAuth(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	check(t, err)
	token := config(t, `authorization { token: "s3cret" }`)
	hashedToken := config(t, `authorization { token: "`+string(hash)+`" }`)
	user := config(t, `authorization { user: u, password: "`+string(hash)+`" }`)
	users := config(t, `authorization { users = [
		{user: a, password: a}
		{user: h, password: "`+string(hash)+`"}
		{user: ws, password: ws, allowed_connection_types: ["WEBSOCKET"]} ] }`)
	noAuth := config(t, `authorization { users = [ {user: a, password: a}, {user: b, password: b} ] }, no_auth_user: a`)
	accounts := config(t, `accounts { A { users = [{user: a, password: a}, {user: a2, password: a2}] }, B { users = [{user: b, password: b}] }, SYS { users = [{user: s, password: s}] } }, system_account: SYS`)
	sysOnly := config(t, `accounts { SYS { users = [{user: s, password: s}] } }, system_account: SYS`)
	sysDefault := config(t, `accounts { $SYS { users = [{user: s, password: s}] } }`)
	short := config(t, `authorization { token: x, timeout: 0.2 }`)
	few := config(t, `accounts { A { users = [{user: a, password: a}], limits { max_conn: 1 } }, B { users = [{user: b, password: b}], limits { max_connections: -1 } }, C { users = [{user: c, password: c}], limits { max_conn: 0 } } }`)
	connect := func(fields string) string {
		return `CONNECT {"verbose":false,"pedantic":false,"protocol":1,"headers":true,"no_responders":true` + fields + "}\r\n"
	}
	up := func(u, p string) string { return connect(`,"user":"` + u + `","pass":"` + p + `"`) }
	runParity(t, []script{
		{"token", token, []string{"a< " + connect(`,"auth_token":"s3cret"`) + "PING\r\n"}},
		{"wrong token", token, []string{"a< " + connect(`,"auth_token":"s3cret2"`) + "PING\r\n"}},
		{"no token", token, []string{"a< " + connect("") + "PING\r\n"}},
		{"token as user", token, []string{"a< " + up("s3cret", "") + "PING\r\n"}},
		{"hashed token", hashedToken, []string{"a< " + connect(`,"auth_token":"secret"`) + "PING\r\n"}},
		{"hashed token wrong", hashedToken, []string{"a< " + connect(`,"auth_token":"secret1"`) + "PING\r\n"}},
		{"single user", user, []string{"a< " + up("u", "secret") + "PING\r\n"}},
		{"single user wrong", user, []string{"a< " + up("u", "x") + "PING\r\n"}},
		{"single user other name", user, []string{"a< " + up("v", "secret") + "PING\r\n"}},
		{"users", users, []string{"a< " + up("a", "a") + "PING\r\n", "b< " + up("h", "secret") + "PING\r\n", "c< " + up("h", "x") + "PING\r\n", "d< " + up("nobody", "x") + "PING\r\n", "e< " + up("ws", "ws") + "PING\r\n", "f< " + connect("") + "PING\r\n", "g< " + up("", "a") + "PING\r\n"}},
		{"command before connect", users, []string{"a< PING\r\n", "b< SUB foo 1\r\n", "c< x"}},
		{"second connect wrong", users, []string{"a< " + up("a", "a") + "SUB foo 1\r\nPING\r\n", "a< " + up("a", "b") + "PING\r\n"}},
		{"second connect other user", users, []string{"a< " + up("a", "a") + "SUB foo 1\r\nPING\r\n", "a< " + up("h", "secret") + "PUB foo 1\r\na\r\nPING\r\n"}},
		{"second connect without user", users, []string{"a< " + up("a", "a") + "PING\r\n", "a< CONNECT {}\r\nPING\r\n"}},
		{"no auth user", noAuth, []string{"a< " + connect("") + "PING\r\n", "b< SUB foo 1\r\nPING\r\n", "c< " + up("b", "b") + "PING\r\n", "d< " + up("b", "x") + "PING\r\n"}},
		{"no auth user then connect", noAuth, []string{"b< SUB foo 1\r\nPING\r\n", "b< " + up("b", "b") + "PUB foo 1\r\nx\r\nPING\r\n"}},
		{"accounts", accounts, []string{"a< " + up("a", "a") + "SUB foo 1\r\nPING\r\n", "b< " + up("b", "b") + "SUB foo 2\r\nPING\r\n", "c< " + up("a2", "a2") + "PUB foo 1\r\nx\r\nPING\r\n", "d< " + up("s", "s") + "PING\r\n", "e< " + connect("") + "PING\r\n"}},
		{"only the system account", sysOnly, []string{"a< " + connect("") + "SUB foo 1\r\nPING\r\n", "b< SUB foo 1\r\nPING\r\n", "c< " + up("s", "s") + "PING\r\n", "d< " + up("s", "x") + "PING\r\n"}},
		{"only the default system account", sysDefault, []string{"a< " + connect("") + "SUB foo 1\r\nPING\r\n", "c< " + up("s", "s") + "PING\r\n"}},
		{"nobody required", nil, []string{"a< " + up("a", "a") + "PING\r\n"}},
		{"connections of an account", few, []string{"a< " + up("a", "a") + "PING\r\n", "b< " + up("a", "a") + "PING\r\n", "c< " + up("b", "b") + "PING\r\n", "d< " + up("b", "b") + "PING\r\n", "e< " + up("c", "c") + "PING\r\n"}},
		{"auth timeout", short, []string{"a< ", "a< ", "a< "}},
		{"auth timeout half a connect", short, []string{"a< CONN", "a< ", "a< "}},
	})
}

func TestParityPermissions(t *testing.T) {
	perms := config(t, `authorization {
		default_permissions { publish: "d.>", subscribe: ["d.>", "_INBOX.>"] }
		users = [
		{user: root, password: x, permissions { publish: ">", subscribe: ">" }}
		{user: d, password: x}
		{user: p, password: x, permissions { publish { allow: ["ok.>", "one.*"], deny: ["ok.not.>"] } }}
		{user: s, password: x, permissions { subscribe { allow: ["ok.>", "one.*", "q v1", "w v.*", "b", "b v1"], deny: ["ok.not.>", "ok.q dq"] } }}
		{user: w, password: x, permissions { subscribe { deny: ["foo.secret", "bar.> dq"] } }}
		{user: r, password: x, permissions { subscribe: "req", allow_responses: true }}
		{user: r2, password: x, permissions { subscribe: "req", publish: "other", allow_responses: { max: 2, expires: "300ms" } }}
		{user: n, password: x, permissions { publish: [], subscribe: [] }}
		{user: dp, password: x, permissions { publish { deny: "no.*" } }}
	] }`)
	up := func(u string) string {
		return `CONNECT {"verbose":false,"pedantic":false,"protocol":0,"headers":true,"no_responders":true,"user":"` + u + `","pass":"x"}` + "\r\n"
	}
	root := "z< " + up("root")
	runParity(t, []script{
		{"default permissions", perms, []string{"a< " + up("d") + "SUB d.x 1\r\nSUB e.x 2\r\nPUB d.x 1\r\na\r\nPUB e.x 1\r\nb\r\nPING\r\n"}},
		{"publish", perms, []string{root + "SUB > 1\r\n", "a< " + up("p") + "PUB ok.a 1\r\na\r\nPUB ok 1\r\na\r\nPUB ok.not.x 1\r\nb\r\nPUB ok.not 1\r\nb\r\nPUB one.x 1\r\nc\r\nPUB one.x.y 1\r\nd\r\nPUB one.* 1\r\nd\r\nPUB one.> 1\r\nd\r\nPUB one. 1\r\nd\r\nPUB ok.a 1\r\na\r\nPING\r\n"}},
		{"publish verbose", perms, []string{"a< CONNECT {\"user\":\"p\",\"pass\":\"x\"}\r\nPUB ok.a 1\r\na\r\nPUB nok 1\r\na\r\nSUB x 1\r\nPING\r\n"}},
		{"subscribe", perms, []string{"a< " + up("s") + "SUB ok.a 1\r\nSUB ok.> 2\r\nSUB ok.* 3\r\nSUB ok.not.a 4\r\nSUB ok.not.> 5\r\nSUB one.a 6\r\nSUB one.> 7\r\nSUB > 8\r\nSUB one.* 9\r\nSUB ok.q dq 10\r\nSUB ok.q eq 11\r\nSUB ok.q 12\r\nSUB one.a q 13\r\nPING\r\n"}},
		{"subscribe queue", perms, []string{"a< " + up("s") + "SUB q 1\r\nSUB q v1 2\r\nSUB q v2 3\r\nSUB w v.x 4\r\nSUB w v 5\r\nSUB b 6\r\nSUB b v1 7\r\nSUB b v2 8\r\nPING\r\n"}},
		{"deny at delivery", perms, []string{"a< " + up("w") + "SUB foo.* 1\r\nSUB bar.> 2\r\nSUB bar.x dq 3\r\nSUB bar.x q 4\r\nSUB bar.* dq 5\r\nSUB > 6\r\nPING\r\n", root + "PUB foo.secret 1\r\na\r\nPUB foo.open 1\r\nb\r\nPING\r\n"}},
		{"deny at delivery before", perms, []string{"a< " + up("w") + "SUB foo.secret 1\r\nSUB foo.open 2\r\nSUB > dq 3\r\nPING\r\n", root + "PUB foo.secret 1\r\na\r\nPUB foo.open 1\r\nb\r\nPUB bar.x 1\r\nc\r\nPING\r\n"}},
		{"responses", perms, []string{"a< " + up("r") + "SUB req 1\r\nPUB in.1 1\r\nx\r\nPING\r\n", root + "SUB in.* 9\r\nPUB req in.1 2\r\nhi\r\nPING\r\n", "a< PUB in.1 1\r\na\r\nPUB in.1 1\r\nb\r\nPUB in.2 1\r\nc\r\nPING\r\n"}},
		{"responses with limits", perms, []string{"a< " + up("r2") + "SUB req 1\r\nPUB other 1\r\nx\r\nPING\r\n", root + "SUB in.* 9\r\nPUB req in.1 2\r\nhi\r\nPUB req in.2 2\r\nhi\r\nPUB req other 2\r\nhi\r\nPING\r\n", "a< PUB in.1 1\r\na\r\nPUB in.1 1\r\nb\r\nPUB in.1 1\r\nc\r\nPING\r\n", "a< ", "a< ", "a< PUB in.2 1\r\na\r\nPUB other 1\r\nb\r\nPING\r\n"}},
		{"nothing", perms, []string{"a< " + up("n") + "SUB a 1\r\nPUB a 1\r\na\r\nPING\r\n"}},
		{"deny publish", perms, []string{"a< " + up("dp") + "PUB no.x 1\r\na\r\nPUB no.x.y 1\r\na\r\nPUB yes 1\r\nb\r\nSUB no.x 1\r\nPING\r\n"}},
		{"request not permitted", perms, []string{"a< " + up("p") + "SUB in 1\r\nPUB nok in 1\r\na\r\nPUB ok.x in 1\r\na\r\nPING\r\n"}},
	})
}

package gateway

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// attempt is a login that needs what INFO says: it returns the fields of a CONNECT, and more lines to send.
type attempt func(info server.Info) (fields map[string]any, more string)

// try makes an attempt at addr and returns what came, with what signs and names the server left out.
func try(addr net.Addr, a attempt) string { return tryFor(addr, a, 300*time.Millisecond) }

// tryFor is try that listens until there is nothing for so long.
func tryFor(addr net.Addr, a attempt, quiet time.Duration) string {
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	var info server.Info
	_ = json.Unmarshal([]byte(strings.TrimPrefix(line, "INFO ")), &info)
	fields, more := a(info)
	all := map[string]any{"verbose": false, "pedantic": false, "protocol": 1, "headers": true, "no_responders": true}
	maps.Copy(all, fields)
	doc, _ := json.Marshal(all)
	fmt.Fprintf(c, "CONNECT %s\r\n%sPING\r\n", doc, more)
	return normalise(line) + listen(c, quiet)
}

// sameLogins makes every attempt at both servers and compares.
func sameLogins(t *testing.T, a, b net.Addr, attempts map[string]attempt) {
	t.Helper()
	sameLoginsWithin(t, a, b, attempts, 300*time.Millisecond)
}

// sameLoginsWithin is sameLogins for servers that may take so long to answer.
func sameLoginsWithin(t *testing.T, a, b net.Addr, attempts map[string]attempt, quiet time.Duration) {
	t.Helper()
	var wg sync.WaitGroup
	gate := make(chan struct{}, 12)
	for _, name := range slices.Sorted(maps.Keys(attempts)) {
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			var want, got string
			for i := range 4 {
				patience := quiet * time.Duration(1+2*i) // the machine may just be slow
				if want, got = tryFor(a, attempts[name], patience), tryFor(b, attempts[name], patience); want == got {
					break
				}
			}
			if want != got {
				t.Errorf("%s:\nnats-server: %q\ngateway:     %q", name, want, got)
			} else if testing.Verbose() {
				t.Logf("%s: both %q", name, want[strings.Index(want, "\r\n")+2:])
			}
		})
	}
	wg.Wait()
}

func newUser(t *testing.T) (nkeys.KeyPair, string) {
	t.Helper()
	kp, err := nkeys.CreateUser()
	check(t, err)
	pub, err := kp.PublicKey()
	check(t, err)
	return kp, pub
}

func signed(kp nkeys.KeyPair, info server.Info) string {
	sig, err := kp.Sign([]byte(info.Nonce))
	if err != nil {
		return err.Error()
	}
	return base64.RawURLEncoding.EncodeToString(sig)
}

func TestParityNkeys(t *testing.T) {
	kp, pub := newUser(t)
	ws, wsPub := newUser(t)
	anon, anonPub := newUser(t)
	proxied, proxiedPub := newUser(t)
	stranger, strangerPub := newUser(t)
	proxy, err := nkeys.CreateServer()
	check(t, err)
	proxyPub, err := proxy.PublicKey()
	check(t, err)
	opts := config(t, fmt.Sprintf(`
		no_auth_user: %q
		proxies { trusted [ { key: %q } ] }
		accounts {
			A { users [
				{ nkey: %q, permissions { publish: ["a.>", "_INBOX.>"], subscribe { allow: ["b.>", "c q"], deny: "b.no" } } }
				{ nkey: %q, allowed_connection_types: ["WEBSOCKET"] }
				{ nkey: %q, proxy_required: true }
				{ user: u, password: p }
				{ user: up, password: p, proxy_required: true }
			] }
			B { users [ { nkey: %q, permissions { publish: "anon.>" } } ] }
		}`, anonPub, proxyPub, pub, wsPub, proxiedPub, anonPub))
	by := func(nkey string, key nkeys.KeyPair, more string) attempt {
		return func(info server.Info) (map[string]any, string) {
			return map[string]any{"nkey": nkey, "sig": signed(key, info)}, more
		}
	}
	fields := func(f map[string]any) attempt { return func(server.Info) (map[string]any, string) { return f, "" } }
	deeds := "PUB a.x 1\r\nx\r\nPUB b.x 1\r\nx\r\nPUB $SYS.x 1\r\nx\r\nSUB b.x 1\r\nSUB b.no 2\r\nSUB c 3\r\nSUB c q 4\r\nSUB c r 5\r\nSUB > 6\r\n"
	sameLogins(t, oracle(t, opts()).Addr(), start(t, opts()).Addr(), map[string]attempt{
		"right":     by(pub, kp, deeds),
		"wrong key": by(pub, ws, ""), "unknown": by(strangerPub, stranger, ""), "another's": by(wsPub, kp, ""),
		"websocket only": by(wsPub, ws, ""), "proxy required": by(proxiedPub, proxied, ""),
		"no signature":      fields(map[string]any{"nkey": pub}),
		"empty signature":   fields(map[string]any{"nkey": pub, "sig": ""}),
		"garbage signature": fields(map[string]any{"nkey": pub, "sig": "%%%"}),
		"garbage key":       fields(map[string]any{"nkey": "UABC", "sig": "AAAA"}),
		"nobody":            fields(nil), "anonymous by name": fields(map[string]any{"nkey": anonPub}), "anonymous signed": by(anonPub, anon, "PUB x 1\r\nx\r\nPUB anon.x 1\r\nx\r\n"),
		"user": fields(map[string]any{"user": "u", "pass": "p"}), "user wrong": fields(map[string]any{"user": "u", "pass": "q"}),
		"user and signature": func(info server.Info) (map[string]any, string) {
			return map[string]any{"user": "u", "pass": "q", "nkey": pub, "sig": signed(kp, info)}, ""
		},
		"padded base64": func(info server.Info) (map[string]any, string) {
			sig, _ := kp.Sign([]byte(info.Nonce))
			return map[string]any{"nkey": pub, "sig": base64.StdEncoding.EncodeToString(sig)}, ""
		},
		"replayed": func(server.Info) (map[string]any, string) {
			sig, _ := kp.Sign([]byte("another nonce"))
			return map[string]any{"nkey": pub, "sig": base64.RawURLEncoding.EncodeToString(sig)}, ""
		},
		"by a proxy": func(info server.Info) (map[string]any, string) {
			return map[string]any{"nkey": proxiedPub, "sig": signed(proxied, info), "proxy_sig": signed(proxy, info)}, ""
		},
		"by a false proxy": func(info server.Info) (map[string]any, string) {
			return map[string]any{"nkey": pub, "sig": signed(kp, info), "proxy_sig": signed(stranger, info)}, ""
		},
		"user by a proxy": func(info server.Info) (map[string]any, string) {
			return map[string]any{"user": "up", "pass": "p", "proxy_sig": signed(proxy, info)}, ""
		},
		"user past the proxy": fields(map[string]any{"user": "up", "pass": "p"}),
	})
}

// An empty nonce can be signed in advance, so it must never be accepted.
func TestNonceIsAlwaysThere(t *testing.T) {
	kp, pub := newUser(t)
	s := start(t, &server.Options{})
	c := dialRaw(t, s)
	check(t, s.SetOptions(&server.Options{Nkeys: []*server.NkeyUser{{Nkey: pub}}}))
	sig, err := kp.Sign(nil)
	check(t, err)
	c.send(t, fmt.Sprintf("CONNECT {\"nkey\":%q,\"sig\":%q}\r\n", pub, base64.RawURLEncoding.EncodeToString(sig)))
	if got := c.line(t); !strings.HasPrefix(got, "-ERR 'Authorization Violation'") {
		t.Fatal(got)
	}
}

// Limits of accounts in the file hold for each of their connections, and a reload changes them.
func TestParityAccountLimits(t *testing.T) {
	opts := config(t, `max_payload: 100, accounts {
		A { users [ {user: a, password: x} ], limits { max_subs: 2, max_payload: 10 } }
		B { users [ {user: b, password: x} ], limits { max_subscriptions: -1, max_payload: 1000 } }
		C { users [ {user: c, password: x} ] } }`)
	o := opts()
	o.Host, o.Port = "127.0.0.1", server.RANDOM_PORT
	s, err := New(Options{Server: o, Bus: bus.NewRouter(), Limits: map[string]auth.Limits{
		"A": {MaxSubs: 2, MaxPayload: 10, MaxConnections: -1}, "B": {MaxSubs: -1, MaxPayload: 1000, MaxConnections: -1},
	}})
	check(t, err)
	check(t, s.Start())
	t.Cleanup(s.Shutdown)
	attempts := map[string]attempt{}
	for _, user := range []string{"a", "b", "c"} {
		for name, deeds := range map[string]string{
			"subs": "SUB x 1\r\nSUB y 2\r\nSUB z 3\r\n", "10 bytes": "PUB p 10\r\n0123456789\r\n", "11 bytes": "PUB p 11\r\n01234567890\r\n",
			"101 bytes": "PUB p 101\r\n" + strings.Repeat("x", 101) + "\r\n", "small": "PUB p 1\r\nx\r\n",
		} {
			attempts[user+" "+name] = func(server.Info) (map[string]any, string) { return map[string]any{"user": user, "pass": "x"}, deeds }
		}
	}
	sameLogins(t, oracle(t, opts()).Addr(), s.Addr(), attempts)

	c := dialRaw(t, s)
	c.send(t, `CONNECT {"verbose":false,"user":"c","pass":"x"}`+"\r\nSUB x 1\r\nPUB p 11\r\n01234567890\r\nPING\r\n")
	c.expect(t, "PONG")
	s.SetLimits(map[string]auth.Limits{"C": {MaxSubs: 1, MaxPayload: 10, MaxConnections: -1}})
	check(t, s.SetOptions(opts()))
	c.send(t, "PING\r\n")
	c.expect(t, "PONG")
	c.send(t, "SUB y 2\r\nPUB p 11\r\n01234567890\r\n")
	c.expect(t, "-ERR 'maximum subscriptions exceeded'", "-ERR 'Maximum Payload Violation'", "EOF")
}

package gateway

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/noetl/ehdb-gateway/cutover/upstream"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// startBefore runs a gateway that passes its clients on to ns.
func startBefore(tb testing.TB, ns *server.Server, o *server.Options) *Server {
	tb.Helper()
	return startBeforeURL(tb, ns.ClientURL(), o)
}

func startBeforeURL(tb testing.TB, at string, o *server.Options) *Server {
	tb.Helper()
	to, err := url.Parse(at)
	check(tb, err)
	up, err := upstream.New(upstream.Options{URLs: []*url.URL{to}})
	check(tb, err)
	if o == nil {
		o = &server.Options{}
	}
	o.Host, o.Port = "127.0.0.1", server.RANDOM_PORT
	s, err := New(Options{Server: o, Bus: bus.NewRouter(), Upstream: up})
	check(tb, err)
	check(tb, s.Start())
	tb.Cleanup(s.Shutdown)
	return s
}

// through runs a script on a real nats-server and through a gateway on another one.
func through(t *testing.T, sc script, quiet time.Duration) (r result) {
	t.Helper()
	options := func() *server.Options {
		o := &server.Options{}
		if sc.opts != nil {
			o = sc.opts()
		}
		o.DisableShortFirstPing = true // a PING would come at no certain moment
		return o
	}
	a := oracle(t, options())
	limits := options()
	b := startBefore(t, oracle(t, options()), &server.Options{
		DisableShortFirstPing: true, MaxControlLine: limits.MaxControlLine, ClientAdvertise: limits.ClientAdvertise,
	})
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { r.want, r.err = dialogue(a.Addr(), sc, quiet) })
	wg.Go(func() { r.got, err = dialogue(b.Addr(), sc, quiet) })
	wg.Wait()
	check(t, err)
	// What a connection did is counted in another way: the gateway sees what passes, not what upstream makes of it.
	count := regexp.MustCompile(` subs=.*`)
	ended := func(ask func() []string) func() []string {
		return func() (out []string) {
			for _, line := range ask() {
				out = append(out, count.ReplaceAllString(line, ""))
			}
			return out
		}
	}
	r.want = append(r.want, reasons(r.want, ended(func() []string { return theirReasons(a) }))...)
	r.got = append(r.got, reasons(r.got, ended(func() []string { return ourReasons(b) }))...)
	return r
}

// Whatever a client sends, the answers are those of the server upstream.
func TestPassageRandom(t *testing.T) {
	ns := oracle(t, nil)
	s := startBefore(t, oracle(t, nil), nil)
	r := rand.New(rand.NewPCG(7, 3))
	for i := range 300 {
		text := randomInput(r)
		want, err := converse(ns.Addr().String(), text)
		check(t, err)
		got, err := converse(s.Addr().String(), text)
		check(t, err)
		if want != got {
			t.Errorf("case %d: %q\nnats-server: %q\nthrough:     %q", i, text, want, got)
		}
	}
}

// TLS ends at the gateway, whichever way it begins; upstream has none.
func TestPassageTLS(t *testing.T) {
	ca := newAuthority(t)
	ca.server(t, "srv")
	ca.client(t, "alice", &x509.Certificate{Subject: pkix.Name{CommonName: "alice"}})
	ns := oracle(t, nil)
	files := fmt.Sprintf("cert_file: %q, key_file: %q, ca_file: %q, timeout: 5",
		ca.file("srv.pem"), ca.file("srv.key"), ca.file("ca.pem"))
	for name, tc := range map[string]struct {
		text, who string
		first, ok bool
	}{
		"tls":           {`tls { ` + files + ` }`, "", false, true},
		"verified":      {`tls { ` + files + `, verify: true }`, "alice", false, true},
		"not verified":  {`tls { ` + files + `, verify: true }`, "", false, false},
		"mixed":         {`allow_non_tls: true, tls { ` + files + ` }`, "", false, true},
		"first":         {`tls { ` + files + `, handshake_first: true }`, "", true, true},
		"first or INFO": {`tls { ` + files + `, handshake_first: auto }`, "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := startBefore(t, ns, config(t, tc.text)())
			opts := []nats.Option{nats.Secure(ca.trust(t, tc.who)), nats.Timeout(5 * time.Second)}
			if tc.first {
				opts = append(opts, nats.TLSHandshakeFirst())
			}
			nc, err := nats.Connect(s.ClientURL(), opts...)
			if !tc.ok {
				if err == nil {
					t.Error("a client without a certificate is in")
				}
				return
			}
			check(t, err)
			defer nc.Close()
			sub, err := nc.SubscribeSync("big")
			check(t, err)
			check(t, nc.Publish("big", make([]byte, 1<<20)))
			m, err := sub.NextMsg(5 * time.Second)
			if err != nil || len(m.Data) != 1<<20 {
				t.Fatal(err)
			}
			if state, err := nc.TLSConnectionState(); err != nil || !state.HandshakeComplete {
				t.Error("no TLS")
			}
		})
	}
}

// A login by cookies, and the proof that a client comes by a trusted proxy, get into the CONNECT on the way.
func TestPassageCompletesConnect(t *testing.T) {
	key, err := nkeys.CreateServer()
	check(t, err)
	pub, err := key.PublicKey()
	check(t, err)
	ns := oracle(t, &server.Options{
		Users:   []*server.User{{Username: "web", Password: "p", ProxyRequired: true}},
		Proxies: &server.ProxiesConfig{Trusted: []*server.ProxyConfig{{Key: pub}}},
	})
	to, err := url.Parse(ns.ClientURL())
	check(t, err)
	for name, proof := range map[string]nkeys.KeyPair{"trusted": key, "not trusted": nil} {
		t.Run(name, func(t *testing.T) {
			up, err := upstream.New(upstream.Options{URLs: []*url.URL{to}, ProxyKey: proof})
			check(t, err)
			o := webOptions(func(o *server.Options) {
				o.Host, o.Port = "127.0.0.1", server.RANDOM_PORT
				o.Websocket.UsernameCookie, o.Websocket.PasswordCookie = "u", "w"
			})()
			s, err := New(Options{Server: o, Bus: bus.NewRouter(), Upstream: up})
			check(t, err)
			check(t, s.Start())
			t.Cleanup(s.Shutdown)
			for text, cookie := range map[string]string{
				`{"user":"web","pass":"p","name":"a b"}`: "", `{"user":"","protocol":1}`: "u=web; w=p", `{"echo":true}`: "u=web; w=x",
			} {
				want := "auth_required true; -ERR 'Authorization Violation'\r\n1008"
				if proof != nil && cookie != "u=web; w=x" {
					want = "auth_required true; in"
				}
				if got := webLogin(s.WebsocketAddr().String(), text, cookie); got != want {
					t.Errorf("%s with cookies %q: %q, want %q", text, cookie, got, want)
				}
			}
		})
	}
}

// The gateway's own PINGs and their answers are not seen by clients, whose own come back one for one.
func TestPassagePings(t *testing.T) {
	ns := oracle(t, &server.Options{DisableShortFirstPing: true})
	s := startBefore(t, ns, &server.Options{PingInterval: 5 * time.Millisecond, MaxPingsOut: 1000})
	c := dialRaw(t, s)
	c.send(t, "CONNECT {\"verbose\":false,\"protocol\":0}\r\n")
	for range 300 {
		c.send(t, "PI")
		time.Sleep(time.Millisecond)
		c.send(t, "NG\r\nPUB a 4\r\nPI")
		c.send(t, "NG\r\nPING\r\n")
		c.expect(t, "PONG", "PONG")
	}
	if z, err := ns.Connz(nil); err != nil || z.Conns[0].InMsgs != 300 {
		t.Errorf("upstream got %d messages (%v)", z.Conns[0].InMsgs, err)
	}
}

// What the gateway itself has to say to a client does not get into the middle of a message.
func TestPassageLinesWait(t *testing.T) {
	ns := oracle(t, &server.Options{DisableShortFirstPing: true})
	s := startBefore(t, ns, &server.Options{LameDuckGracePeriod: time.Minute, LameDuckDuration: time.Hour})
	c := dialRaw(t, s)
	c.send(t, "CONNECT {\"verbose\":false,\"protocol\":1}\r\nSUB big 1\r\nPING\r\n")
	c.expect(t, "PONG")
	if line := c.line(t); !strings.Contains(line, "connect_info") {
		t.Fatalf("got %q", line)
	}
	pub, err := nats.Connect(ns.ClientURL())
	check(t, err)
	defer pub.Close()
	for range 40 { // more than sockets hold, so that one is under way
		check(t, pub.Publish("big", make([]byte, 1<<20)))
	}
	check(t, pub.Flush())
	time.Sleep(50 * time.Millisecond)
	go s.LameDuck()
	<-s.LameDuckBegan()
	time.Sleep(50 * time.Millisecond)
	told := false
	for range 40 {
		line := c.line(t)
		if strings.HasPrefix(line, "INFO ") {
			told = strings.Contains(line, `"ldm":true`)
			line = c.line(t)
		}
		if line != "MSG big 1 1048576" {
			t.Fatalf("got %.60q", line)
		}
		if n, err := io.CopyN(io.Discard, c.in, 1<<20+2); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if !told {
		t.Error("the client was not told of lame duck mode")
	}
}

// Connections and messages count to the account that upstream says the client is in.
func TestPassageAccounts(t *testing.T) {
	s := startBefore(t, oracle(t, config(t, `accounts { A { users [{user: a, password: a}] } }`)()), nil)
	nc := connect(t, s, nats.UserInfo("a", "a"))
	check(t, nc.Flush())
	check(t, nc.Publish("x", []byte("12345")))
	check(t, nc.Flush())
	account := func() (found AccountStats) {
		for _, a := range s.Accounts() {
			if a.Name == "A" {
				found = a
			}
		}
		return found
	}
	for range 500 {
		if a := account(); a.InMsgs == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if a := account(); a.Connections != 1 || a.InMsgs != 1 || a.InBytes != 5 {
		t.Errorf("account: %+v", a)
	}
	nc.Close()
	for range 500 {
		if account().Connections == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("a connection that ended still counts")
}

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

// TestMonitorPages compares the monitoring pages of servers with accounts.
func TestMonitorPages(t *testing.T) {
	key, err := nkeys.CreateUser()
	noErr(t, err)
	pub, err := key.PublicKey()
	noErr(t, err)
	conf := fmt.Sprintf(`
server_name: s1
server_tags: [one, two]
server_metadata: {a: b}
max_closed_clients: 20
ping_interval: "30s"
accounts {
	SYS { users: [{user: sys, password: sys}] }
	A {
		jetstream: enabled
		users: [{user: a, password: a}, {nkey: %s}]
		exports: [{service: "svc"}, {stream: "feed.>"}, {service: "priv", accounts: [B], response: stream}]
		mappings: { "old.*": "new.$1", "w": [{destination: w1, weight: 50%%}, {destination: w2, weight: 30%%}] }
	}
	B {
		users: [{user: b, password: b}]
		imports: [{service: {account: A, subject: "svc"}, to: ask}, {stream: {account: A, subject: "feed.x"}, prefix: in}]
	}
}
system_account: SYS
`, pub)
	populate := func(t *testing.T, e endpoint) {
		a := as(t, e, "a", nats.Name("one"))
		b := as(t, e, "b", nats.Name("two"))
		sign := func(nonce []byte) ([]byte, error) { return key.Sign(nonce) }
		n := connect(t, e.URL, nats.Name("three"), nats.Nkey(pub, sign))
		for _, c := range []*nats.Conn{a, b, n} {
			_, err := c.QueueSubscribe("q.>", "workers", func(*nats.Msg) {})
			noErr(t, err)
			noErr(t, c.Flush())
		}
		for range 2 {
			_, err := b.Subscribe("unused", func(*nats.Msg) {})
			noErr(t, err)
		}
		sub, err := b.Subscribe("x.*", func(*nats.Msg) {})
		noErr(t, err)
		noErr(t, sub.AutoUnsubscribe(10))
		noErr(t, b.Flush())
		for range 3 {
			noErr(t, b.Publish("x.y", []byte("hello")))
			noErr(t, b.Flush())
		}
		gone := as(t, e, "a", nats.Name("gone"))
		_, err = gone.SubscribeSync("gone.x")
		noErr(t, err)
		noErr(t, gone.Publish("z", []byte("12345")))
		noErr(t, gone.Flush())
		gone.Close()
		time.Sleep(50 * time.Millisecond)
		if _, err := nats.Connect(e.URL, nats.UserInfo("a", "wrong"), nats.Name("wrong")); err == nil {
			t.Error("logged in")
		}
		js, err := jetstream.New(a)
		noErr(t, err)
		ctx := t.Context()
		s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}, Description: "d"})
		noErr(t, err)
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "M", Sources: []*jetstream.StreamSource{{Name: "S"}}, Storage: jetstream.MemoryStorage})
		noErr(t, err)
		for i := range 4 {
			_, err := js.Publish(ctx, fmt.Sprint("s.", i), []byte("payload"))
			noErr(t, err)
		}
		for _, name := range []string{"C1", "C2"} {
			_, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy})
			noErr(t, err)
		}
	}
	comparePages(t, conf, populate, `
		/varz /connz /connz?auth=1 /connz?auth=true&subs=1 /connz?subs=detail&auth=1 /connz?state=closed&auth=1&subs=1
		/connz?state=any&auth=1 /connz?state=ALL /connz?acc=A&auth=1 /connz?acc=NONE /connz?user=a&auth=1 /connz?user=a
		/connz?acc=A&state=closed /connz?limit=1 /connz?offset=1 /connz?offset=100 /connz?limit=0 /connz?limit=-1 /connz?offset=-1
		/connz?mqtt_client=x
		/connz?sort=cid /connz?sort=start /connz?sort=subs /connz?sort=msgs_to /connz?sort=msgs_from
		/connz?sort=bytes_to /connz?sort=bytes_from /connz?sort=last /connz?sort=uptime /connz?sort=idle
		/connz?sort=stop&state=closed /connz?sort=reason&state=closed /connz?sort=stop&state=any /connz?sort=CID
		/routez /routez?subs=1 /routez?subs=detail /routez?subs=x /gatewayz /gatewayz?accs=1 /gatewayz?acc_name=A /gatewayz?gw_name=x
		/gatewayz?subs=1 /gatewayz?accs=x /leafz /leafz?subs=1 /leafz?acc=A /leafz?subs=x
		/subsz /subsz?subs=1 /subsz?acc=A /subsz?acc=A&subs=1 /subsz?subs=1&limit=1 /subsz?subs=1&offset=1 /subsz?subs=1&test=x.y
		/subsz?acc=B&subs=1&test=q.x /subsz?acc=NONE&subs=1 /subscriptionsz
		/accountz /accountz?acc=A /accountz?acc=B /accountz?acc=SYS /accountz?acc=$G /accountz?acc=NONE
		/accstatz /accstatz?unused=1 /accstatz?unused=x
		/jsz /jsz?acc=A /jsz?acc=B /jsz?acc=NONE /jsz?accounts=1 /jsz?streams=1 /jsz?consumers=1 /jsz?config=1 /jsz?streams=1&config=1
		/jsz?consumers=1&config=1 /jsz?acc=A&streams=1 /jsz?acc=A&consumers=true&config=true /jsz?raft=1 /jsz?raft=1&consumers=1&config=1
		/jsz?leader-only=1 /jsz?stream-leader-only=1&streams=1 /jsz?direct-consumers=1 /jsz?accounts=1&limit=1 /jsz?accounts=1&offset=1
		/jsz?accounts=1&offset=10 /jsz?acc=A&offset=1 /jsz?offset=x /jsz?limit=-1&accounts=1 /jsz?consumers=x
		/healthz /healthz?js-enabled-only=1 /healthz?js-server-only=1 /healthz?js-meta-only=1 /healthz?js-enabled=1
		/healthz?account=A&stream=S&consumer=C1 /healthz?account=A&stream=S&consumer=NONE&details=1 /healthz?account=A
		/healthz?account=B&stream=S /healthz?account=B
		/ipqueuesz /ipqueuesz?all=1 /ipqueuesz?all=x /ipqueuesz?queues=JS /raftz /raftz?acc=A /raftz?group=x /raftz?acc=NONE /expvarz /nothing
		/varz?callback=f /connz?callback=f /subsz?callback=f /jsz?callback=f /healthz?callback=f /accountz?callback=f
		/accstatz?callback=f /routez?callback=f /gatewayz?callback=f /leafz?callback=f
		`, `connections(=<nil>| \[0\])$|mappings\.w|^\.(\[ACC:|JetStream API|System|SendQ|delayed)|total=|subscriptions_list|bytes=\d{4}$`)
}

// TestMonitorPagesOfOperators compares the pages of servers whose accounts and users come with claims.
func TestMonitorPagesOfOperators(t *testing.T) {
	sys, a := newTenant(t, "SYS"), newTenant(t, "A")
	a.claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	a.claims.Tags.Add("red", "green")
	signing, scoped := newTenant(t, ""), newTenant(t, "")
	a.claims.SigningKeys.Add(signing.public)
	scope := jwt.NewUserScope()
	scope.Key, scope.Role = scoped.public, "reader"
	scope.Template.Sub.Allow.Add(">")
	a.claims.SigningKeys.AddScopedSigner(scope)
	conf := operatorConf(t, sys, a) + "server_name: s1\n"
	user := func(by *tenant, name string, edit func(*jwt.UserClaims)) nats.Option {
		k, err := nkeys.CreateUser()
		noErr(t, err)
		pub, err := k.PublicKey()
		noErr(t, err)
		c := jwt.NewUserClaims(pub)
		c.Name = name
		if edit != nil {
			edit(c)
		}
		token, err := c.Encode(by.key)
		noErr(t, err)
		seed, err := k.Seed()
		noErr(t, err)
		return nats.UserJWTAndSeed(token, string(seed))
	}
	users := []nats.Option{
		user(a, "plain", nil),
		user(signing, "signed", func(c *jwt.UserClaims) { c.IssuerAccount = a.public; c.Tags.Add("blue", "Green") }),
		user(scoped, "scoped", func(c *jwt.UserClaims) {
			c.IssuerAccount = a.public
			c.UserPermissionLimits = jwt.UserPermissionLimits{}
		}),
	}
	populate := func(t *testing.T, e endpoint) {
		for i, login := range users {
			nc := connect(t, e.URL, login, nats.Name(fmt.Sprint("c", i)))
			_, err := nc.SubscribeSync("x")
			noErr(t, err)
			noErr(t, nc.Flush())
		}
		gone := connect(t, e.URL, users[1], nats.Name("gone"))
		gone.Close()
		time.Sleep(50 * time.Millisecond)
		if _, err := nats.Connect(e.URL, nats.Name("wrong")); err == nil {
			t.Error("logged in")
		}
	}
	comparePages(t, conf, populate, `
		/varz /connz /connz?auth=1 /connz?state=closed&auth=1 /connz?acc=`+a.public+`&auth=1&subs=detail
		/accountz /accountz?acc=`+a.public+` /accountz?acc=`+sys.public+` /accstatz?unused=1 /jsz?accounts=1
		/subsz?acc=`+a.public+`&subs=1&test=x /jsz?acc=A /jsz?acc=`+a.public+`
		`, `trusted_operators_jwt`)
}

// TestMonitorPagesOfSecureServers compares the pages of servers with TLS, WebSocket, proxies and users without accounts.
func TestMonitorPagesOfSecureServers(t *testing.T) {
	ca := newAuthority(t)
	ca.issueServer(t, "server")
	ca.issueClient(t, "client")
	conf := func(more string) string {
		return fmt.Sprintf(`
server_name: s1
tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true, timeout: 5, %s }
authorization { users: [{user: u, password: p}, {user: v, password: p}] }
websocket {
	host: "127.0.0.1", port: -1, no_tls: true, compression: true, allowed_origins: ["http://a"], handshake_timeout: "3s"
}
lame_duck_duration: "30s"
write_deadline: "5s"
`, ca.file("server.pem"), ca.file("server.key"), ca.file("ca.pem"), more)
	}
	for name, more := range map[string]string{"after INFO": "", "first": "handshake_first: true"} {
		t.Run(name, func(t *testing.T) {
			populate := func(t *testing.T, e endpoint) {
				opts := []nats.Option{nats.Secure(ca.trust(t, "client")), nats.UserInfo("u", "p")}
				if more != "" {
					opts = append(opts, nats.TLSHandshakeFirst())
				}
				nc := connect(t, e.URL, opts...)
				_, err := nc.SubscribeSync("x")
				noErr(t, err)
				noErr(t, nc.Flush())
				gone := connect(t, e.URL, opts...)
				gone.Close()
			}
			comparePages(t, conf(more), populate, `
				/varz /connz /connz?auth=1 /connz?state=closed&auth=1 /connz?user=u /accountz?acc=$G /accstatz
				`, ``)
		})
	}
}

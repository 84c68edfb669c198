package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

// startBefore starts a gateway in bus mode nats before servers.
func startBefore(t *testing.T, conf string, servers ...string) *process {
	t.Helper()
	args := []string{"--upstream", strings.Join(servers, ",")}
	if conf != "" {
		args = append(args, "-c", writeFile(t, "nats-mode.conf", "ehdb { allow_tmp_store: true }\n"+conf))
	}
	return startGateway(t, t.TempDir(), args...)
}

// page gets a monitoring page.
func page(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	noErr(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	noErr(t, err)
	return resp.StatusCode, string(b)
}

// What clients do with JetStream works through the gateway, and is there for those who go to the server.
func TestNATSModeJetStream(t *testing.T) {
	ns := startOracle(t, nil)
	p := startBefore(t, "", ns.ClientURL())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	js, err := jetstream.New(connect(t, p.URL))
	noErr(t, err)
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	noErr(t, err)
	for i := range 100 {
		m := nats.NewMsg(fmt.Sprintf("s.%d", i))
		m.Header["lower-Case"] = []string{"a", "b"}
		m.Data = []byte(strings.Repeat("x", i*1000))
		_, err := js.PublishMsg(ctx, m)
		noErr(t, err)
	}
	c, err := s.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy})
	noErr(t, err)
	batch, err := c.Fetch(100)
	noErr(t, err)
	n := 0
	for m := range batch.Messages() {
		if m.Subject() != fmt.Sprintf("s.%d", n) || len(m.Data()) != n*1000 || len(m.Headers()["lower-Case"]) != 2 {
			t.Errorf("message %d: %s, %d bytes, %v", n, m.Subject(), len(m.Data()), m.Headers())
		}
		noErr(t, m.DoubleAck(ctx))
		n++
	}
	if n != 100 {
		t.Fatalf("%d messages: %v", n, batch.Error())
	}
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "B", History: 5})
	noErr(t, err)
	rev, err := kv.Put(ctx, "k", []byte("1"))
	noErr(t, err)
	if _, err = kv.Update(ctx, "k", []byte("2"), rev+7); !errors.Is(err, jetstream.ErrKeyExists) {
		t.Errorf("a wrong revision: %v", err)
	}
	obj, err := js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "O"})
	noErr(t, err)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	_, err = obj.PutBytes(ctx, "big", big)
	noErr(t, err)
	direct, err := jetstream.New(connect(t, ns.ClientURL()))
	noErr(t, err)
	theirs, err := direct.ObjectStore(ctx, "O")
	noErr(t, err)
	got, err := theirs.GetBytes(ctx, "big")
	noErr(t, err)
	if !bytes.Equal(got, big) {
		t.Error("the object differs")
	}
}

// operator is a nats-server's options in operator mode, and a user's credentials.
func operator(t *testing.T) (change func(*server.Options), user nats.Option) {
	t.Helper()
	key := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		kp, err := create()
		noErr(t, err)
		pub, err := kp.PublicKey()
		noErr(t, err)
		return kp, pub
	}
	opKey, opPub := key(nkeys.CreateOperator)
	accKey, accPub := key(nkeys.CreateAccount)
	userKey, userPub := key(nkeys.CreateUser)
	acc := jwt.NewAccountClaims(accPub)
	acc.Name = "TEAM"
	accJWT, err := acc.Encode(opKey)
	noErr(t, err)
	u := jwt.NewUserClaims(userPub)
	u.Pub.Deny.Add("secret")
	userJWT, err := u.Encode(accKey)
	noErr(t, err)
	op := jwt.NewOperatorClaims(opPub)
	opJWT, err := op.Encode(opKey)
	noErr(t, err)
	claims, err := jwt.DecodeOperatorClaims(opJWT)
	noErr(t, err)
	resolver := &server.MemAccResolver{}
	noErr(t, resolver.Store(accPub, accJWT))
	return func(o *server.Options) {
			o.TrustedOperators = []*jwt.OperatorClaims{claims}
			o.AccountResolver = resolver
			o.JetStream = false // would need a system account
		}, nats.UserJWT(
			func() (string, error) { return userJWT, nil },
			func(nonce []byte) ([]byte, error) { return userKey.Sign(nonce) },
		)
}

// Logins of every kind reach the server: the nonce that is signed is the server's.
func TestNATSModeLogins(t *testing.T) {
	user, err := nkeys.CreateUser()
	noErr(t, err)
	pub, err := user.PublicKey()
	noErr(t, err)
	sign := func(nonce []byte) ([]byte, error) { return user.Sign(nonce) }
	stranger, err := nkeys.CreateUser()
	noErr(t, err)
	strangerPub, err := stranger.PublicKey()
	noErr(t, err)
	claims, creds := operator(t)
	for name, tc := range map[string]struct {
		change func(*server.Options)
		good   []nats.Option
		bad    []nats.Option
	}{
		"user":  {func(o *server.Options) { o.Username, o.Password = "u", "p" }, []nats.Option{nats.UserInfo("u", "p")}, []nats.Option{nats.UserInfo("u", "x")}},
		"token": {func(o *server.Options) { o.Authorization = "t" }, []nats.Option{nats.Token("t")}, []nats.Option{nats.Token("x")}},
		"nkey": {
			func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: pub}} },
			[]nats.Option{nats.Nkey(pub, sign)},
			[]nats.Option{nats.Nkey(strangerPub, func(n []byte) ([]byte, error) { return stranger.Sign(n) })},
		},
		"jwt": {claims, []nats.Option{creds}, []nats.Option{nats.UserInfo("u", "p")}},
	} {
		t.Run(name, func(t *testing.T) {
			ns := startOracle(t, tc.change)
			p := startBefore(t, "", ns.ClientURL())
			nc := connect(t, p.URL, tc.good...)
			noErr(t, nc.FlushTimeout(5*time.Second))
			_, direct := nats.Connect(ns.ClientURL(), tc.bad...)
			_, through := nats.Connect(p.URL, tc.bad...)
			if direct == nil || through == nil || direct.Error() != through.Error() {
				t.Errorf("refused with %v, through the gateway with %v", direct, through)
			}
			if name != "jwt" {
				return
			}
			denied := make(chan error, 1)
			nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err })
			noErr(t, nc.Publish("secret", nil))
			select {
			case err := <-denied:
				if !errors.Is(err, nats.ErrPermissionViolation) {
					t.Errorf("got %v", err)
				}
			case <-time.After(5 * time.Second):
				t.Error("what is not permitted is not refused")
			}
			if _, auth := page(t, p.Monitor+"/connz?auth=1"); !strings.Contains(auth, `"account": "A`) {
				t.Errorf("connz does not know the account: %s", auth)
			}
		})
	}
}

// Nothing that a client learns leads it past the gateway, not even when a cluster upstream changes.
func TestNATSModeInfo(t *testing.T) {
	cluster := func(name, routes string) *server.Server {
		return startOracle(t, func(o *server.Options) {
			o.ServerName, o.JetStream = name, false
			o.Cluster.Name, o.Cluster.Host, o.Cluster.Port = "C", "127.0.0.1", -1
			o.Routes = server.RoutesFromStr(routes)
		})
	}
	a := cluster("a", "")
	p := startBefore(t, "", a.ClientURL())
	discovered := make(chan bool, 1)
	nc := connect(t, p.URL, nats.DiscoveredServersHandler(func(*nats.Conn) { discovered <- true }))
	lame := make(chan bool, 1)
	other := connect(t, p.URL, nats.LameDuckModeHandler(func(*nats.Conn) { lame <- true }))
	noErr(t, other.Flush())
	cluster("b", "nats://"+a.ClusterAddr().String()) // a tells its clients
	infos := connect(t, a.ClientURL())
	for range 100 {
		if noErr(t, infos.Flush()); len(infos.DiscoveredServers()) > 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if len(infos.DiscoveredServers()) == 0 {
		t.Fatal("who is connected directly hears nothing either")
	}
	noErr(t, nc.Flush())
	if len(discovered) > 0 || len(nc.DiscoveredServers()) > 0 {
		t.Errorf("servers upstream were shown: %v", nc.DiscoveredServers())
	}
	_, varz := page(t, p.Monitor+"/varz")
	var v struct {
		ServerID   string `json:"server_id"`
		ServerName string `json:"server_name"`
		Version    string
		Bus        struct{ Mode string }
	}
	noErr(t, json.Unmarshal([]byte(varz), &v))
	if v.ServerID != nc.ConnectedServerId() || v.ServerName != nc.ConnectedServerName() ||
		v.Version != nc.ConnectedServerVersion() || v.Bus.Mode != "nats" || nc.MaxPayload() != 1<<20 {
		t.Errorf("INFO and varz differ: %s", varz)
	}
	go a.LameDuckShutdown()
	select {
	case <-lame:
	case <-time.After(10 * time.Second):
		t.Error("lame duck mode upstream was not passed on")
	}
}

// Monitoring pages say what is known, and say so where nothing is.
func TestNATSModePages(t *testing.T) {
	ns := startOracle(t, nil)
	monitor := "http://" + ns.MonitorAddr().String()
	blind := startBefore(t, "", ns.ClientURL())
	status, body := page(t, blind.Monitor+"/jsz?consumers=true")
	if status != http.StatusServiceUnavailable || json.Valid([]byte(body)) || !strings.Contains(body, "bus { monitor") {
		t.Errorf("jsz without a monitor: %d %s", status, body)
	}
	p := startBefore(t, fmt.Sprintf("bus { monitor: %q }\nserver_name: front", monitor), ns.ClientURL())
	nc := connect(t, p.URL)
	js, err := jetstream.New(nc)
	noErr(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	noErr(t, err)
	for range 3 {
		_, err = js.Publish(t.Context(), "s", nil)
		noErr(t, err)
	}
	_, err = js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "C"})
	noErr(t, err)
	status, body = page(t, p.Monitor+"/jsz?acc=$G&config=true&consumers=true")
	var j server.JSInfo
	noErr(t, json.Unmarshal([]byte(body), &j))
	if status != http.StatusOK || j.Meta == nil || j.Meta.Leader != "front" || j.Meta.Size != 1 {
		t.Fatalf("jsz: %d %s", status, body)
	}
	status, body = page(t, p.Monitor+"/api/v1/lag/$G/S/C")
	if status != http.StatusOK || !strings.Contains(body, `"lag":3,"pending":3,"ack_pending":0,`) ||
		!strings.Contains(body, `"source":"nats","complete":true`) {
		t.Errorf("lag: %d %s", status, body)
	}
	c := j.AccountDetails[0].Streams[0].Consumer[0]
	if c.NumPending != 3 || c.Cluster == nil || c.Cluster.Leader != "front" {
		t.Errorf("consumer: %+v", c)
	}
	for path, want := range map[string]int{
		"/healthz": 200, "/healthz?js-server-only=true": 200, "/healthz?js-enabled-only=true": 200,
		"/healthz?account=$G&stream=S": 200, "/healthz?account=$G&stream=S&consumer=C": 200,
		"/healthz?account=$G&stream=X": 404, "/healthz?account=$G&stream=S&consumer=X": 404,
	} {
		if got, body := page(t, p.Monitor+path); got != want {
			t.Errorf("%s: %d, want %d: %s", path, got, want, body)
		}
	}
	sub, err := nc.SubscribeSync("a.*")
	noErr(t, err)
	noErr(t, nc.Publish("a.b", []byte("12345")))
	_, err = sub.NextMsg(5 * time.Second)
	noErr(t, err)
	_, connz := page(t, p.Monitor+"/connz?subs=1")
	if !strings.Contains(connz, `"a.*"`) || !strings.Contains(connz, `"lang": "go"`) {
		t.Errorf("connz: %s", connz)
	}
	_, metrics := page(t, p.Monitor+"/metrics")
	for _, want := range []string{
		"ehdb_upstream_connections 1", `ehdb_upstream_dials_total{server="` + ns.ClientURL() + `"}`,
		"ehdb_upstream_dial_seconds_count", `ehdb_upstream_reachable{server="` + ns.ClientURL() + `"} 1`, `mode="nats"`,
		"ehdb_feed_total_lag 3", `ehdb_feed_subject_lag{subject="s"} 3`, // of the servers' consumers
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(metrics, "ehdb_l0_appends") {
		t.Error("metrics show a log that is not there")
	}
}

package relay_test

import (
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/relay"
)

// served says in which state the stream ORDERS of an account is. AUDIT is with the servers, but for its consumer W.
func (s *site) served(t *testing.T, account string, orders relay.State) {
	t.Helper()
	route := func(name, subject string, state relay.State) relay.Route {
		scope := relay.NewScope(cutover.Scope{Account: account, Stream: name}, relay.Options{})
		return relay.Route{Scope: scope, State: state, Subjects: []string{subject}}
	}
	audit := route("AUDIT", "audit.>", relay.Upstream)
	audit.Consumers = map[string]relay.State{"W": relay.Here} // a canary
	tb, err := relay.NewTable(1, []relay.Route{route("ORDERS", "orders.>", orders), audit}, false)
	check(t, err)
	s.relay.Use(tb)
}

// steady connects a client that comes back, and tells when it has.
func (s *site) steady(t *testing.T, o ...nats.Option) (nc *nats.Conn, back chan struct{}, errs *reported) {
	t.Helper()
	back, errs = make(chan struct{}, 10), &reported{}
	nc = connect(t, s.gw.ClientURL(), append(o, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs.add(err) }))...)
	check(t, nc.Flush())
	return nc, back, errs
}

// reported are the errors that a client was told of.
type reported struct {
	mu   sync.Mutex
	list []string
}

func (r *reported) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, err.Error())
}

func (r *reported) await(t *testing.T, text string) {
	t.Helper()
	eventually(t, text, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.ContainsFunc(r.list, func(s string) bool { return strings.Contains(s, text) })
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}

func came(t *testing.T, back chan struct{}, within time.Duration) {
	t.Helper()
	select {
	case <-back:
	case <-time.After(within):
		t.Fatalf("the client is not back within %v", within)
	}
}

// TestAlone: without the servers, clients that they have let in before are served what was moved here, with the
// permissions that they have; all else is refused at once and with the reason. Once a server is back, so are they.
func TestAlone(t *testing.T) {
	limited := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{"orders.a", "audit.>", "core", "_INBOX.>", "$JS.API.>", "$JS.ACK.>", "$SYS.REQ.USER.INFO"}},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>", "core"}},
	}
	key, err := nkeys.CreateUser()
	check(t, err)
	public, err := key.PublicKey()
	check(t, err)
	s := newSite(t, &server.Options{
		Users: []*server.User{{Username: "alice", Password: "secret", Permissions: limited}, {Username: "own", Password: "own"}},
		Nkeys: []*server.NkeyUser{{Nkey: public}},
	}, nats.UserInfo("own", "own"))
	bob := nats.Nkey(public, key.Sign)

	alice, back, told := s.steady(t, nats.UserInfo("alice", "secret"))
	js, err := alice.JetStream(nats.MaxWait(3 * time.Second))
	check(t, err)
	_, err = js.AddStream(&nats.StreamConfig{Name: "AUDIT", Subjects: []string{"audit.>"}})
	check(t, err)
	s.request(t, "$JS.API.STREAM.CREATE.ORDERS", ordersConfig) // is served from here from now on
	s.served(t, "$G", relay.Here)
	for range 3 {
		_, err = js.Publish("orders.a", []byte("before"))
		check(t, err)
	}
	keyed, keyedBack, _ := s.steady(t, bob)
	stats := func() (alone, remembered int, refused int64) {
		u := s.gw.Stats().Upstream
		return u.Alone, u.Remembered, u.Refused
	}
	eventually(t, "both are remembered", func() bool { alone, remembered, _ := stats(); return alone == 0 && remembered == 2 })

	s.stopNATS()
	came(t, back, 4*time.Second)
	came(t, keyedBack, 4*time.Second)
	if alone, _, _ := stats(); alone != 2 || !s.gw.ServesAlone() {
		t.Errorf("%d clients stand alone", alone)
	}
	// What is served from here goes on.
	ack, err := js.Publish("orders.a", []byte("during"))
	if check(t, err); ack.Sequence != 4 {
		t.Errorf("ack %+v", ack)
	}
	sub, err := js.PullSubscribe("orders.>", "W")
	check(t, err)
	msgs, err := sub.Fetch(4, nats.MaxWait(5*time.Second))
	if check(t, err); len(msgs) != 4 {
		t.Fatalf("%d messages", len(msgs))
	}
	for _, m := range msgs {
		check(t, m.AckSync())
	}
	// So does what no stream stores, between the clients that are here.
	heard, err := alice.SubscribeSync("core")
	check(t, err)
	check(t, alice.Flush())
	check(t, keyed.Publish("core", []byte("hello")))
	_, err = heard.NextMsg(5 * time.Second)
	check(t, err)
	// Permissions are those that the servers have told.
	check(t, alice.Publish("orders.b", nil))
	told.await(t, `Permissions Violation for Publish to "orders.b"`)
	_, err = alice.SubscribeSync("orders.>")
	check(t, err)
	told.await(t, `Permissions Violation for Subscription to "orders.>"`)
	m, err := alice.Request("$SYS.REQ.USER.INFO", nil, 5*time.Second)
	check(t, err)
	if text := string(m.Data); !strings.Contains(text, `"account":"$G"`) || !strings.Contains(text, `"orders.a"`) {
		t.Errorf("who it is: %s", text)
	}
	refusedAlone(t, js, alice, told)

	// Who is not known is turned away, and not told that the login is wrong: nobody knows.
	other, err := nkeys.CreateUser()
	check(t, err)
	otherPublic, err := other.PublicKey()
	check(t, err)
	_, _, before := stats()
	for name, o := range map[string]nats.Option{
		"wrong password": nats.UserInfo("alice", "guess"), "unknown": nats.UserInfo("carol", "x"), "nobody": nil,
		"unknown key": nats.Nkey(otherPublic, other.Sign), "wrong key": nats.Nkey(public, other.Sign),
	} {
		_, err := nats.Connect(s.gw.ClientURL(), o)
		if err == nil || !strings.Contains(err.Error(), "no NATS server upstream can be reached") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, refused := stats(); refused-before != 5 {
		t.Errorf("%d were turned away", refused-before)
	}
	late := connect(t, s.gw.ClientURL(), nats.UserInfo("alice", "secret"), nats.Timeout(time.Second)) // at once
	check(t, late.Flush())
	web := connect(t, "ws://"+s.gw.WebsocketAddr().String(), nats.UserInfo("alice", "secret"), nats.Timeout(time.Second))
	_, err = web.Request("$JS.API.STREAM.INFO.ORDERS", nil, 5*time.Second)
	check(t, err)

	s.startNATS(t)
	came(t, back, 6*time.Second)
	came(t, keyedBack, 6*time.Second)
	eventually(t, "all are with the server again", func() bool { alone, _, _ := stats(); return alone == 0 && s.nats.NumClients() >= 2 })
	if ack, err = js.Publish("audit.a", []byte("after")); err != nil || ack.Sequence != 1 {
		t.Errorf("what the servers have: %+v, %v", ack, err)
	}
	if ack, err = js.Publish("orders.a", []byte("after")); err != nil || ack.Sequence != 5 {
		t.Errorf("what is here: %+v, %v", ack, err)
	}
	for _, c := range s.gw.ClosedConnections() {
		if c.Reason == "Upstream Reachable Again" {
			return
		}
	}
	t.Error("nobody was closed since a server is back")
}

// refusedAlone: what is not served from here is refused at once, with the reason, and is nowhere.
func refusedAlone(t *testing.T, js nats.JetStreamContext, nc *nats.Conn, told *reported) {
	t.Helper()
	const reason = "served by the NATS servers, and none can be reached"
	began := time.Now()
	var api *nats.APIError
	_, err := js.Publish("audit.a", []byte("lost"))
	if !errors.As(err, &api) || api.ErrorCode != 10008 || !strings.Contains(api.Description, reason) {
		t.Errorf("a publish to a stream of the servers: %v", err)
	}
	check(t, nc.Publish("audit.unasked", nil))
	told.await(t, `Publish to "audit.unasked": stream AUDIT is `+reason)
	for subject, body := range map[string]string{
		"STREAM.INFO.AUDIT": "", "STREAM.CREATE.NEW": `{"name":"NEW","subjects":["new"]}`, "STREAM.PURGE.AUDIT": "",
		"STREAM.MSG.GET.AUDIT": `{"seq":1}`, "CONSUMER.LIST.AUDIT": "", "ACCOUNT.PURGE.$G": "", "STREAM.NAMES": "", "STREAM.LIST": "",
	} {
		m, err := nc.Request("$JS.API."+subject, []byte(body), 5*time.Second)
		check(t, err)
		var doc server.ApiResponse
		if err := json.Unmarshal(m.Data, &doc); err != nil || doc.Error == nil || doc.Error.Code != 503 || doc.Error.ErrCode != 10008 {
			t.Errorf("%s: %s", subject, m.Data)
		}
	}
	for _, subject := range []string{"CONSUMER.MSG.NEXT.AUDIT.W", "DIRECT.GET.AUDIT.audit.a"} {
		got := make(chan *nats.Msg, 1)
		inbox, err := nc.ChanSubscribe(nats.NewInbox(), got)
		check(t, err)
		check(t, nc.PublishRequest("$JS.API."+subject, inbox.Subject, nil))
		m := <-got
		if m.Header.Get("Status") != "503" || !strings.Contains(m.Header.Get("Description"), reason) {
			t.Errorf("%s: %v", subject, m.Header)
		}
	}
	if names, err := js.StreamNameBySubject("orders.a"); err != nil || names != "ORDERS" { // no other stream can store it
		t.Errorf("the stream of a subject: %q, %v", names, err)
	}
	check(t, nc.Publish("$JS.ACK.AUDIT.W.1.1.1.1.0", nil))
	told.await(t, "stream AUDIT is "+reason)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %v to hear that", took)
	}
}

// TestAloneNothingHere: with no stream served from here, clients are turned away as they always were.
func TestAloneNothingHere(t *testing.T) {
	s := newSite(t, nil)
	s.served(t, "$G", relay.Upstream)
	nc, _, _ := s.steady(t)
	s.stopNATS()
	eventually(t, "it is gone", func() bool { return !nc.IsConnected() })
	_, err := nats.Connect(s.gw.ClientURL())
	if err == nil || !strings.Contains(err.Error(), "no NATS server upstream can be reached") {
		t.Errorf("%v", err)
	}
	if alone := s.gw.Stats().Upstream.Alone; alone != 0 || s.gw.ServesAlone() {
		t.Errorf("%d stand alone", alone)
	}
}

// TestAloneMoves: a client that stands alone is held by a fence and by a barrier as any other, and is not served any more
// once the servers have the say.
func TestAloneMoves(t *testing.T) {
	s := newSite(t, nil)
	s.request(t, "$JS.API.STREAM.CREATE.ORDERS", ordersConfig)
	s.served(t, "$G", relay.Here)
	nc, back, _ := s.steady(t)
	eventually(t, "it is remembered", func() bool { return s.gw.Stats().Upstream.Remembered == 1 })
	js, err := nc.JetStream()
	check(t, err)
	s.stopNATS()
	came(t, back, 4*time.Second)
	_, err = js.Publish("orders.a", nil)
	check(t, err)
	s.served(t, "$G", relay.HeldHere)
	done := make(chan error, 1)
	go func() {
		_, err := js.Publish("orders.a", nil)
		done <- err
	}()
	check(t, s.gw.Barrier(t.Context()))
	select {
	case err := <-done:
		t.Fatalf("a publish passed the fence: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	check(t, s.gw.Barrier(t.Context()))
	s.served(t, "$G", relay.Upstream)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "stream ORDERS is served by the NATS servers") {
		t.Errorf("a publish to a stream that the servers have again: %v", err)
	}
	if r := s.request(t, "$JS.API.STREAM.INFO.ORDERS", ""); !strings.Contains(r, `"messages":1`) {
		t.Errorf("the stream here: %s", r)
	}
}

// TestAloneRefused: a login that the servers refuse, or end, is not remembered.
func TestAloneRefused(t *testing.T) {
	o := &server.Options{Users: []*server.User{{Username: "alice", Password: "secret"}, {Username: "own", Password: "own"}}}
	s := newSite(t, o, nats.UserInfo("own", "own"))
	s.served(t, "$G", relay.Here)
	connect(t, s.gw.ClientURL(), nats.UserInfo("own", "own"))
	s.steady(t, nats.UserInfo("alice", "secret"))
	eventually(t, "both are remembered", func() bool { return s.gw.Stats().Upstream.Remembered == 2 })
	next := o.Clone()
	next.Users = o.Users[1:]
	check(t, s.nats.ReloadOptions(next))
	eventually(t, "she is forgotten", func() bool { return s.gw.Stats().Upstream.Remembered == 1 })
	s.o = next
	s.stopNATS()
	if _, err := nats.Connect(s.gw.ClientURL(), nats.UserInfo("alice", "secret")); err == nil {
		t.Error("a user that is none any more was let in")
	}
	check(t, connect(t, s.gw.ClientURL(), nats.UserInfo("own", "own")).Flush())
}

// TestAloneCreds: credentials are proved again, by a signature over another nonce.
func TestAloneCreds(t *testing.T) {
	newKey := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		key, err := create()
		check(t, err)
		public, err := key.PublicKey()
		check(t, err)
		return key, public
	}
	operator, operatorPublic := newKey(nkeys.CreateOperator)
	accountKey, account := newKey(nkeys.CreateAccount)
	system, systemPublic := newKey(nkeys.CreateAccount)
	resolver := &server.MemAccResolver{}
	for _, a := range []string{account, systemPublic} {
		token, err := jwt.NewAccountClaims(a).Encode(operator)
		check(t, err)
		check(t, resolver.Store(a, token))
	}
	user := func(by nkeys.KeyPair, ends time.Time) nats.Option {
		key, public := newKey(nkeys.CreateUser)
		claims := jwt.NewUserClaims(public)
		claims.Expires = ends.Unix()
		token, err := claims.Encode(by)
		check(t, err)
		return nats.UserJWT(func() (string, error) { return token, nil }, key.Sign)
	}
	s := newSite(t, &server.Options{TrustedKeys: []string{operatorPublic}, AccountResolver: resolver, SystemAccount: systemPublic},
		user(system, time.Now().Add(time.Hour)))
	s.served(t, account, relay.Here)
	known, soon := user(accountKey, time.Now().Add(time.Hour)), user(accountKey, time.Now().Add(3*time.Second))
	nc, back, _ := s.steady(t, known)
	check(t, connect(t, s.gw.ClientURL(), soon, nats.NoReconnect()).Flush())
	eventually(t, "both are remembered", func() bool { return s.gw.Stats().Upstream.Remembered == 2 })
	s.stopNATS()
	came(t, back, 4*time.Second)
	echo, err := nc.SubscribeSync("core")
	check(t, err)
	check(t, nc.Publish("core", nil))
	_, err = echo.NextMsg(5 * time.Second)
	check(t, err)
	if got := s.gw.Connections(); len(got) == 0 || got[0].Account != account {
		t.Errorf("%+v", got)
	}
	if _, err := nats.Connect(s.gw.ClientURL(), user(accountKey, time.Now().Add(time.Hour))); err == nil {
		t.Error("a user that the servers have not seen was let in")
	}
	eventually(t, "claims expire", func() bool {
		nc, err := nats.Connect(s.gw.ClientURL(), soon, nats.NoReconnect())
		if err == nil {
			nc.Close()
		}
		return err != nil
	})
}

// TestAloneSaidTwice: of a client that says who it is again nothing more is remembered: whom the servers speak of is not
// certain then.
func TestAloneSaidTwice(t *testing.T) {
	s := newSite(t, &server.Options{Users: []*server.User{
		{Username: "alice", Password: "a"}, {Username: "bob", Password: "b"}, {Username: "own", Password: "own"},
	}}, nats.UserInfo("own", "own"))
	s.served(t, "$G", relay.Here)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.gw.ClientURL(), "nats://"))
	check(t, err)
	defer conn.Close()
	say := func(text string) {
		t.Helper()
		_, err := conn.Write([]byte(text + "\r\n"))
		check(t, err)
	}
	remembered := func() bool { return s.gw.Stats().Upstream.Remembered == 1 }
	say(`CONNECT {"user":"alice","pass":"a","verbose":false,"protocol":1,"headers":true}`)
	eventually(t, "alice is remembered", remembered)
	say(`CONNECT {"user":"bob","pass":"b","verbose":false,"protocol":1,"headers":true}`)
	say("PING")
	time.Sleep(200 * time.Millisecond)
	if !remembered() {
		t.Errorf("%d are remembered", s.gw.Stats().Upstream.Remembered)
	}
	s.stopNATS()
	check(t, connect(t, s.gw.ClientURL(), nats.UserInfo("alice", "a")).Flush())
	if nc, err := nats.Connect(s.gw.ClientURL(), nats.UserInfo("bob", "b")); err == nil {
		nc.Close()
		t.Error("bob was let in")
	}
}

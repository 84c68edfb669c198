package gateway

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// service is an authorization service. What it does with a client depends on the name that this one gives.
type service struct {
	t       *testing.T
	issuer  atomic.Pointer[signer]
	account string        // issuer_account of the users it signs; empty: none
	xkey    nkeys.KeyPair // nil: plain
	target  string        // account that users are put into
	other   *signer
}

// serve answers requests until the test ends.
func (s *service) serve(url string, opts ...nats.Option) {
	s.t.Helper()
	nc, err := nats.Connect(url, opts...)
	check(s.t, err)
	s.t.Cleanup(nc.Close)
	_, err = nc.Subscribe("$SYS.REQ.USER.AUTH", func(m *nats.Msg) {
		data := m.Data
		if s.xkey != nil {
			if data, err = s.xkey.Open(data, m.Header.Get("Nats-Server-Xkey")); err != nil {
				return // no server asked
			}
		}
		req, err := jwt.DecodeAuthorizationRequestClaims(string(data))
		if err != nil {
			return // no server asked
		}
		if answer := s.answer(req); answer != "" {
			out := []byte(answer)
			if s.xkey != nil && req.ConnectOptions.Username != "plain" {
				out, err = s.xkey.Seal(out, req.Server.XKey)
				if err != nil {
					s.t.Errorf("seal: %v", err)
				}
			}
			_ = m.Respond(out)
		}
	})
	check(s.t, err)
	check(s.t, nc.Flush())
}

func (s *service) answer(req *jwt.AuthorizationRequestClaims) string {
	name := req.ConnectOptions.Username
	if s.account != "" {
		name = req.ConnectOptions.Token
	}
	if name == "silent" {
		return ""
	}
	if name == "empty" {
		return " "
	}
	by, userBy := s.issuer.Load(), s.issuer.Load()
	u := jwt.NewUserClaims(req.UserNkey)
	u.Audience = s.target
	if s.account != "" {
		u.Audience, u.IssuerAccount = "", s.target
	}
	u.Pub.Allow.Add("yes.>", "$SYS.REQ.USER.AUTH")
	resp := jwt.NewAuthorizationResponseClaims(req.UserNkey)
	resp.Audience = req.Server.ID
	switch name {
	case "another":
		kp, _ := nkeys.CreateUser()
		u.Subject, _ = kp.PublicKey()
	case "not me":
		kp, _ := nkeys.CreateUser()
		resp.Subject, _ = kp.PublicKey()
	case "other server":
		kp, _ := nkeys.CreateServer()
		resp.Audience, _ = kp.PublicKey()
	case "other signer":
		by = s.other
	case "other user signer":
		userBy = s.other
	case "no account":
		u.Audience, u.IssuerAccount = "NOWHERE", ""
	case "auth account":
		u.Audience = "AUTH"
	case "issuer account":
		u.IssuerAccount = s.other.pub
	case "named":
		u.Name = "bob"
	case "expired":
		u.Expires = time.Now().Unix() - 10
	case "websocket":
		u.AllowedConnectionTypes.Add(jwt.ConnectionTypeWebsocket)
	case "proxied":
		u.ProxyRequired = true
	case "late":
		u.Times = []jwt.TimeRange{{Start: time.Now().Add(2 * time.Hour).Format(time.TimeOnly), End: time.Now().Add(3 * time.Hour).Format(time.TimeOnly)}}
	case "told":
		// what the request says of the client, as far as it is the same on both servers
		u.Pub.Allow.Add(strings.ReplaceAll(fmt.Sprintf("told.%s.%s.%s.%v.%d", req.ClientInformation.Kind,
			req.ClientInformation.Type, req.ClientInformation.User, req.ClientInformation.Nonce != "", req.ConnectOptions.Protocol), " ", "_"))
	}
	resp.Jwt = userBy.sign(u)
	if name == "denied" {
		resp.Jwt, resp.Error = "", "not today"
	}
	return by.sign(resp)
}

func TestParityCallout(t *testing.T) {
	xkey, err := nkeys.CreateCurveKeys()
	check(t, err)
	xpub, err := xkey.PublicKey()
	check(t, err)
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprint("encrypted ", encrypted), func(t *testing.T) {
			s := &service{t: t, other: newSigner(t, nkeys.CreateAccount), target: "A"}
			s.issuer.Store(newSigner(t, nkeys.CreateAccount))
			more := ""
			if encrypted {
				s.xkey, more = xkey, "xkey: "+xpub
			}
			opts := config(t, fmt.Sprintf(`
				accounts { AUTH { users [ {user: auth, password: auth} ] }, A { users [ {user: a, password: a} ] }, B { users [ {user: b, password: b} ] } }
				authorization { timeout: 0.8, auth_callout { issuer: %s, account: AUTH, auth_users: [auth], allowed_accounts: [A], %s } }`, s.issuer.Load().pub, more))
			theirs, ours := oracle(t, opts()), start(t, opts())
			for _, url := range []string{theirs.ClientURL(), ours.ClientURL()} {
				s.serve(url, nats.UserInfo("auth", "auth"))
			}
			deeds := "PUB yes.x 1\r\nx\r\nPUB no.x 1\r\nx\r\nPUB told.Client.nats.told.false.1 1\r\nx\r\nPUB $SYS.REQ.USER.AUTH 1\r\nx\r\n"
			attempts := map[string]attempt{
				"auth with a wrong password": func(server.Info) (map[string]any, string) { return map[string]any{"user": "auth", "pass": "x"}, "" },
				"auth itself": func(server.Info) (map[string]any, string) {
					return map[string]any{"user": "auth", "pass": "auth"}, deeds
				},
				"nobody":               func(server.Info) (map[string]any, string) { return nil, deeds },
				"token":                func(server.Info) (map[string]any, string) { return map[string]any{"auth_token": "x"}, deeds },
				"configured":           func(server.Info) (map[string]any, string) { return map[string]any{"user": "a", "pass": "a"}, deeds },
				"configured, wrong":    func(server.Info) (map[string]any, string) { return map[string]any{"user": "a", "pass": "x"}, deeds },
				"not delegated":        func(server.Info) (map[string]any, string) { return map[string]any{"user": "b", "pass": "b"}, deeds },
				"not delegated, wrong": func(server.Info) (map[string]any, string) { return map[string]any{"user": "b", "pass": "x"}, deeds },
			}
			for _, name := range []string{
				"good", "plain", "silent", "empty", "another", "not me", "other server", "other signer", "other user signer", "no account", "auth account",
				"issuer account", "named", "expired", "websocket", "proxied", "late", "told", "denied",
			} {
				attempts[name] = func(server.Info) (map[string]any, string) { return map[string]any{"user": name, "pass": "x"}, deeds }
			}
			sameLoginsWithin(t, theirs.Addr(), ours.Addr(), attempts, 1200*time.Millisecond)
		})
	}
}

// In operator mode an account has users log in with credentials that stand for all, and a service decides.
func TestParityCalloutOfAccounts(t *testing.T) {
	r := newRealm(t)
	s := &service{t: t, other: newSigner(t, nkeys.CreateAccount)}
	serviceKey, servicePub := newUser(t)
	target := r.account("target", nil)
	forbidden := r.account("forbidden", nil)
	_ = forbidden
	authAccount := r.account("auth", nil)
	r.preload[authAccount.pub] = r.claims(authAccount, "auth", func(c *jwt.AccountClaims) {
		c.EnableExternalAuthorization(servicePub)
		c.Authorization.AllowedAccounts.Add(target.pub)
	})
	s.issuer.Store(authAccount)
	s.account, s.target = authAccount.pub, target.pub
	opts := r.config("authorization { timeout: 0.8 }")
	theirs := oracle(t, opts())
	ours, accounts := startRealm(t, opts())
	for _, url := range []string{theirs.ClientURL(), ours.ClientURL()} {
		token := authAccount.sign(jwt.NewUserClaims(servicePub))
		s.serve(url, nats.UserJWT(func() (string, error) { return token, nil }, serviceKey.Sign))
	}
	_, sentinel := r.user(authAccount, func(u *jwt.UserClaims) { u.BearerToken = true; u.Pub.Deny.Add(">") })
	_, alien := r.user(newRealm(t).account("x", nil), func(u *jwt.UserClaims) { u.BearerToken = true })
	deeds := "PUB yes.x 1\r\nx\r\nPUB no.x 1\r\nx\r\n"
	as := func(token, jwt string) attempt {
		return func(server.Info) (map[string]any, string) {
			return map[string]any{"jwt": jwt, "auth_token": token}, deeds
		}
	}
	attempts := map[string]attempt{"alien": as("good", alien), "nobody": func(server.Info) (map[string]any, string) { return nil, "" }}
	for _, name := range []string{"good", "silent", "denied", "other signer", "other user signer", "named", "issuer account", "expired"} {
		attempts[name] = as(name, sentinel)
	}
	sameLoginsWithin(t, theirs.Addr(), ours.Addr(), attempts, 1200*time.Millisecond)

	// With the target's signing key the users are its own; a revocation there closes them.
	s.issuer.Store(target)
	r.preload[authAccount.pub] = r.claims(authAccount, "auth", func(c *jwt.AccountClaims) {
		c.EnableExternalAuthorization(servicePub)
		c.Authorization.AllowedAccounts.Add(target.pub)
		c.SigningKeys.Add(target.pub)
	})
	_, err := accounts.Update(authAccount.pub, r.preload[authAccount.pub])
	check(t, err)
	nc := connect(t, ours, nats.NoReconnect(), nats.UserJWT(func() (string, error) { return sentinel, nil }, func([]byte) ([]byte, error) { return nil, nil }), nats.Token("good"))
	info := ours.Connections()
	if last := info[len(info)-1]; last.Account != target.pub {
		t.Fatalf("in account %s", last.Account)
	}
	_, err = accounts.Update(target.pub, r.claims(target, "target", func(c *jwt.AccountClaims) { c.RevokeAt(jwt.All, time.Now().Add(time.Minute)) }))
	check(t, err)
	eventually(t, "the revocation", nc.IsClosed)
}

// Without a service nobody waits.
func TestCalloutWithoutService(t *testing.T) {
	issuer := newSigner(t, nkeys.CreateAccount)
	s := start(t, config(t, fmt.Sprintf(`accounts { AUTH { users [ {user: auth, password: auth} ] } }
		authorization { timeout: 30, auth_callout { issuer: %s, account: AUTH, auth_users: [auth] } }`, issuer.pub))())
	began := time.Now()
	if got := tryFor(s.Addr(), func(server.Info) (map[string]any, string) { return nil, "" }, 10*time.Second); !strings.Contains(got, "Authorization Violation") {
		t.Fatal(got)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Fatalf("it took %v", d)
	}
	// A service that is silent does not hold up the end.
	nc := connect(t, s, nats.UserInfo("auth", "auth"))
	asked := make(chan struct{}, 1)
	_, err := nc.Subscribe("$SYS.REQ.USER.AUTH", func(*nats.Msg) { asked <- struct{}{} })
	check(t, err)
	check(t, nc.Flush())
	c, err := net.Dial("tcp", s.Addr().String())
	check(t, err)
	defer c.Close()
	_, err = c.Write([]byte("CONNECT {}\r\n"))
	check(t, err)
	<-asked
	began = time.Now()
	s.Shutdown()
	if d := time.Since(began); d > 5*time.Second {
		t.Fatalf("the shutdown took %v", d)
	}
}

package gateway

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// signer is a key that signs claims.
type signer struct {
	t   *testing.T
	key nkeys.KeyPair
	pub string
}

func newSigner(t *testing.T, create func() (nkeys.KeyPair, error)) *signer {
	t.Helper()
	kp, err := create()
	check(t, err)
	pub, err := kp.PublicKey()
	check(t, err)
	return &signer{t, kp, pub}
}

func (s *signer) sign(c jwt.Claims) string {
	s.t.Helper()
	token, err := c.Encode(s.key)
	check(s.t, err)
	return token
}

// realm is an operator with its accounts.
type realm struct {
	t        *testing.T
	operator *signer
	system   *signer
	preload  map[string]string
}

func newRealm(t *testing.T) *realm {
	t.Helper()
	r := &realm{t: t, operator: newSigner(t, nkeys.CreateOperator), preload: map[string]string{}}
	r.system = r.account("SYS", nil)
	return r
}

// account makes an account and signs what edit, which may be nil, does to its claims.
func (r *realm) account(name string, edit func(*jwt.AccountClaims)) *signer {
	a := newSigner(r.t, nkeys.CreateAccount)
	r.preload[a.pub] = r.claims(a, name, edit)
	return a
}

func (r *realm) claims(a *signer, name string, edit func(*jwt.AccountClaims)) string {
	c := jwt.NewAccountClaims(a.pub)
	c.Name = name
	if edit != nil {
		edit(c)
	}
	return r.operator.sign(c)
}

// config is a configuration with all accounts in a memory resolver.
func (r *realm) config(more string) func() *server.Options {
	op := jwt.NewOperatorClaims(r.operator.pub)
	op.SystemAccount = r.system.pub
	var b strings.Builder
	fmt.Fprintf(&b, "operator: %q\nresolver: MEMORY\nresolver_preload {\n", r.operator.sign(op))
	for name, token := range r.preload {
		fmt.Fprintf(&b, "%s: %q\n", name, token)
	}
	return config(r.t, b.String()+"}\n"+more)
}

// startRealm is start for options in operator mode: a nats-server that never starts fills the resolver.
func startRealm(t *testing.T, o *server.Options) (*Server, *auth.Accounts) {
	t.Helper()
	clone := o.Clone()
	clone.NoLog, clone.NoSigs = true, true
	_, err := server.NewServer(clone)
	check(t, err)
	accounts, err := auth.NewAccounts(o, o.AccountResolver, nil)
	check(t, err)
	o.Host, o.Port = "127.0.0.1", server.RANDOM_PORT
	s, err := New(Options{Server: o, Bus: bus.NewRouter(), Accounts: accounts})
	check(t, err)
	check(t, s.Start())
	t.Cleanup(s.Shutdown)
	return s, accounts
}

// user signs the claims of a new user, which edit changes, with a key of an account.
func (r *realm) user(by *signer, edit func(*jwt.UserClaims)) (nkeys.KeyPair, string) {
	kp, pub := newUser(r.t)
	u := jwt.NewUserClaims(pub)
	if edit != nil {
		edit(u)
	}
	return kp, by.sign(u)
}

// login is the attempt of a user that signs the nonce.
func (r *realm) login(by *signer, edit func(*jwt.UserClaims), more string) attempt {
	kp, token := r.user(by, edit)
	return func(info server.Info) (map[string]any, string) {
		return map[string]any{"jwt": token, "sig": signed(kp, info)}, more
	}
}

func TestParityJWT(t *testing.T) {
	r := newRealm(t)
	plain := r.account("plain", nil)
	key, scoped, tagScoped, badScoped := newSigner(t, nkeys.CreateAccount), newSigner(t, nkeys.CreateAccount), newSigner(t, nkeys.CreateAccount), newSigner(t, nkeys.CreateAccount)
	revoked, revokedPub := newUser(t)
	keyed := r.account("keyed", func(c *jwt.AccountClaims) {
		c.SigningKeys.Add(key.pub)
		for s, edit := range map[*signer]func(*jwt.UserScope){
			scoped: func(u *jwt.UserScope) {
				u.Template.Pub.Allow.Add("scoped.>", "name.{{name()}}.>", "acc.{{account-name()}}", "{{subject()}}.x")
				u.Template.Sub.Allow.Add("in.{{name()}}.>", "_INBOX.>")
				u.Template.Payload, u.Template.Subs = 10, 2
			},
			tagScoped: func(u *jwt.UserScope) {
				u.Template.Pub.Allow.Add("d.{{tag(dept)}}.{{tag(city)}}", "same.{{tag(dept)}}.{{tag(dept)}}", "at.{{account-tag(zone)}}")
				u.Template.Pub.Deny.Add("d.{{tag(dept)}}.x")
				u.Template.Sub.Allow.Add("only.{{tag(none)}}")
			},
			badScoped: func(u *jwt.UserScope) { u.Template.Pub.Allow.Add("{{nonsense()}}") },
		} {
			scope := jwt.NewUserScope()
			scope.Key = s.pub
			edit(scope)
			c.SigningKeys.AddScopedSigner(scope)
		}
		c.Tags.Add("zone:north", "zone:south")
		c.DefaultPermissions.Pub.Allow.Add("default.>")
		c.Revoke(revokedPub)
	})
	strict := r.account("strict", func(c *jwt.AccountClaims) {
		c.Limits.DisallowBearer, c.Limits.Payload, c.Limits.Subs = true, 20, 3
	})
	closed := r.account("closed", func(c *jwt.AccountClaims) { c.Limits.Conn = 0 })
	allRevoked := r.account("revoked", func(c *jwt.AccountClaims) { c.RevokeAt(jwt.All, time.Now().Add(time.Minute)) })
	expired := newSigner(t, nkeys.CreateAccount)
	foreign := newRealm(t)
	alien := foreign.account("alien", nil)
	nowhere := newSigner(t, nkeys.CreateAccount)
	_ = expired
	in := func(c *signer) func(*jwt.UserClaims) { return func(u *jwt.UserClaims) { u.IssuerAccount = c.pub } }
	and := func(fns ...func(*jwt.UserClaims)) func(*jwt.UserClaims) {
		return func(u *jwt.UserClaims) {
			for _, f := range fns {
				f(u)
			}
		}
	}
	bearer := func(by *signer, edit func(*jwt.UserClaims)) attempt {
		_, token := r.user(by, and(func(u *jwt.UserClaims) { u.BearerToken = true }, func(u *jwt.UserClaims) {
			if edit != nil {
				edit(u)
			}
		}))
		return func(server.Info) (map[string]any, string) { return map[string]any{"jwt": token}, "" }
	}
	deeds := "PUB a.x 1\r\nx\r\nPUB scoped.x 1\r\nx\r\nPUB name.joe.x 1\r\nx\r\nPUB name.ann.x 1\r\nx\r\nPUB acc.keyed 1\r\nx\r\n" +
		"PUB default.x 1\r\nx\r\nSUB a.y 1\r\nSUB in.joe.x 2\r\nSUB in.ann.x 3\r\nSUB only.x 4\r\nSUB z.> 5\r\nSUB q grp 6\r\nSUB _INBOX.1 7\r\nSUB _INBOX.2 8\r\n"
	tagged := "PUB d.a.x 1\r\nx\r\nPUB d.a.y 1\r\nx\r\nPUB d.b.y 1\r\nx\r\nPUB d.c.y 1\r\nx\r\nPUB same.a.a 1\r\nx\r\nPUB same.a.b 1\r\nx\r\nPUB at.north 1\r\nx\r\nPUB at.west 1\r\nx\r\nSUB only.x 1\r\n"
	now := time.Now()
	clock := func(d time.Duration) string { return now.Add(d).Format(time.TimeOnly) }
	times := func(from, to time.Duration) func(*jwt.UserClaims) {
		return func(u *jwt.UserClaims) { u.Times = []jwt.TimeRange{{Start: clock(from), End: clock(to)}} }
	}
	kp, token := r.user(plain, nil)
	other, _ := newUser(t)
	attempts := map[string]attempt{
		"plain": r.login(plain, nil, deeds), "in the account's name": r.login(plain, in(plain), ""),
		"permissions": r.login(plain, func(u *jwt.UserClaims) {
			u.Pub.Allow.Add("a.>")
			u.Pub.Deny.Add("a.no")
			u.Sub.Allow.Add("a.>", "q grp")
			u.Resp = &jwt.ResponsePermission{MaxMsgs: 1, Expires: time.Minute}
		}, deeds),
		"deny only": r.login(plain, func(u *jwt.UserClaims) { u.Pub.Deny.Add("a.>") }, deeds),
		"responses": r.login(plain, func(u *jwt.UserClaims) { u.Resp = &jwt.ResponsePermission{MaxMsgs: 1} }, deeds),
		"another key": func(info server.Info) (map[string]any, string) {
			return map[string]any{"jwt": token, "sig": signed(other, info)}, ""
		},
		"no signature":   func(server.Info) (map[string]any, string) { return map[string]any{"jwt": token}, "" },
		"no jwt":         func(info server.Info) (map[string]any, string) { return map[string]any{"sig": signed(kp, info)}, "" },
		"user, password": func(server.Info) (map[string]any, string) { return map[string]any{"user": "a", "pass": "b"}, "" },
		"garbage":        func(server.Info) (map[string]any, string) { return map[string]any{"jwt": "eyJ.x.y", "sig": "x"}, "" },
		"tampered": func(info server.Info) (map[string]any, string) {
			parts := strings.Split(token, ".")
			parts[1] = strings.Split(r.preload[plain.pub], ".")[1]
			return map[string]any{"jwt": strings.Join(parts, "."), "sig": signed(kp, info)}, ""
		},
		"an account's jwt": func(info server.Info) (map[string]any, string) {
			return map[string]any{"jwt": r.preload[plain.pub], "sig": signed(kp, info)}, ""
		},
		"expired":        r.login(plain, func(u *jwt.UserClaims) { u.Expires = now.Unix() - 10 }, ""),
		"not yet":        r.login(plain, func(u *jwt.UserClaims) { u.NotBefore = now.Unix() + 60 }, ""),
		"bearer":         bearer(plain, nil),
		"bearer strict":  bearer(strict, nil),
		"limits":         r.login(strict, nil, "SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nSUB d 4\r\nPUB a 20\r\n01234567890123456789\r\n"),
		"too large":      r.login(strict, nil, "PUB a 21\r\n012345678901234567890\r\n"),
		"own limits":     r.login(strict, func(u *jwt.UserClaims) { u.Limits.Payload, u.Subs = 5, 1 }, "SUB a 1\r\nSUB b 2\r\nPUB a 6\r\n012345\r\n"),
		"wider limits":   r.login(strict, func(u *jwt.UserClaims) { u.Limits.Payload, u.Subs = math.MaxInt32, 100 }, ""),
		"no connections": r.login(closed, nil, ""), "revoked account": r.login(allRevoked, nil, ""),
		"alien": r.login(alien, nil, ""), "nowhere": r.login(nowhere, nil, ""),
		"alien key":         r.login(key, in(plain), ""),
		"signing key":       r.login(key, in(keyed), deeds),
		"signing key alone": r.login(key, nil, ""),
		"scoped": r.login(scoped, and(in(keyed), func(u *jwt.UserClaims) {
			u.Name = "joe"
			u.UserPermissionLimits = jwt.UserPermissionLimits{}
		}), deeds),
		"scoped too large":      r.login(scoped, and(in(keyed), func(u *jwt.UserClaims) { u.SetScoped(true) }), "PUB scoped.x 11\r\n01234567890\r\n"),
		"scoped without a name": r.login(scoped, and(in(keyed), func(u *jwt.UserClaims) { u.SetScoped(true) }), deeds),
		"scoped with rights":    r.login(scoped, and(in(keyed), func(u *jwt.UserClaims) { u.Pub.Allow.Add(">") }), deeds),
		"scoped by tags": r.login(tagScoped, and(in(keyed), func(u *jwt.UserClaims) {
			u.SetScoped(true)
			u.Tags.Add("dept:a", "dept:b", "city:x", "city:y")
		}), tagged),
		"scoped without tags": r.login(tagScoped, and(in(keyed), func(u *jwt.UserClaims) { u.SetScoped(true) }), tagged),
		"scoped nonsense":     r.login(badScoped, and(in(keyed), func(u *jwt.UserClaims) { u.SetScoped(true) }), ""),
		"revoked": func(info server.Info) (map[string]any, string) {
			u := jwt.NewUserClaims(revokedPub)
			return map[string]any{"jwt": keyed.sign(u), "sig": signed(revoked, info)}, ""
		},
		"from here":     r.login(plain, func(u *jwt.UserClaims) { u.Src.Add("10.0.0.0/8", "127.0.0.0/24") }, ""),
		"from there":    r.login(plain, func(u *jwt.UserClaims) { u.Src.Add("10.0.0.0/8") }, ""),
		"in time":       r.login(plain, times(-time.Hour, time.Hour), ""),
		"out of time":   r.login(plain, times(2*time.Hour, 3*time.Hour), ""),
		"over midnight": r.login(plain, times(-2*time.Second, -3*time.Second), ""),
		"websocket":     r.login(plain, func(u *jwt.UserClaims) { u.AllowedConnectionTypes.Add(jwt.ConnectionTypeWebsocket) }, ""),
		"standard":      r.login(plain, func(u *jwt.UserClaims) { u.AllowedConnectionTypes.Add("standard", "carrier_pigeon") }, ""),
		"pigeon":        r.login(plain, func(u *jwt.UserClaims) { u.AllowedConnectionTypes.Add("carrier_pigeon") }, ""),
		"proxy needed":  r.login(plain, func(u *jwt.UserClaims) { u.ProxyRequired = true }, ""),
		"soon over":     r.login(plain, func(u *jwt.UserClaims) { u.Expires = now.Unix() + 100 }, ""),
		"system":        r.login(r.system, nil, ""),
	}
	opts := r.config("")
	ours, _ := startRealm(t, opts())
	sameLogins(t, oracle(t, opts()).Addr(), ours.Addr(), attempts)

	_, sentinel := r.user(plain, func(u *jwt.UserClaims) { u.BearerToken = true; u.Pub.Allow.Add("sentinel") })
	opts = r.config(fmt.Sprintf("default_sentinel: %q\n", sentinel))
	ours, _ = startRealm(t, opts())
	sameLogins(t, oracle(t, opts()).Addr(), ours.Addr(), map[string]attempt{
		"nobody": func(server.Info) (map[string]any, string) { return nil, deeds }, "plain": attempts["plain"], "garbage": attempts["garbage"],
		"user": attempts["user, password"], "alien": attempts["alien"],
	})
}

// Connections end with their claims.
func TestParityExpiration(t *testing.T) {
	r := newRealm(t)
	now := time.Now()
	plain := r.account("plain", nil)
	short := r.account("short", func(c *jwt.AccountClaims) { c.Expires = now.Unix() + 3 })
	opts := func() *server.Options {
		o := r.config("")()
		o.DisableShortFirstPing = true
		return o
	}
	ours, _ := startRealm(t, opts())
	theirs := oracle(t, opts())
	user := r.login(plain, func(u *jwt.UserClaims) { u.Expires = now.Unix() + 3 }, "SUB a 1\r\n")
	ofShort := r.login(short, nil, "SUB a 1\r\n")
	var wg sync.WaitGroup
	for name, a := range map[string]attempt{"user": user, "account": ofShort} {
		wg.Go(func() {
			var both sync.WaitGroup
			var want, got string
			both.Go(func() { want = tryFor(theirs.Addr(), a, 6*time.Second) })
			both.Go(func() { got = tryFor(ours.Addr(), a, 6*time.Second) })
			both.Wait()
			if want != got || !strings.Contains(want, "Authentication Expired") {
				t.Errorf("%s:\nnats-server: %q\ngateway:     %q", name, want, got)
			}
		})
	}
	wg.Wait()
	if got := try(ours.Addr(), ofShort); !strings.Contains(got, "Authorization Violation") {
		t.Errorf("an expired account lets in: %q", got)
	}
}

// New claims hold for those who are in.
func TestClaimsUpdate(t *testing.T) {
	r := newRealm(t)
	a := r.account("a", nil)
	key := newSigner(t, nkeys.CreateAccount)
	keyed := func(c *jwt.AccountClaims) { c.SigningKeys.Add(key.pub) }
	r.preload[a.pub] = r.claims(a, "a", keyed)
	s, accounts := startRealm(t, r.config("")())
	join := func(by *signer, edit func(*jwt.UserClaims)) (*nats.Conn, string, chan error) {
		kp, pub := newUser(t)
		u := jwt.NewUserClaims(pub)
		u.IssuerAccount = a.pub
		if edit != nil {
			edit(u)
		}
		token := by.sign(u)
		failed := make(chan error, 8)
		nc := connect(t, s, nats.NoReconnect(), nats.UserJWT(func() (string, error) { return token, nil }, kp.Sign),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { failed <- err }))
		return nc, pub, failed
	}
	update := func(edit func(*jwt.AccountClaims)) {
		t.Helper()
		_, err := accounts.Update(a.pub, r.claims(a, "a", edit))
		check(t, err)
	}
	ended := func(nc *nats.Conn, failed chan error, text string) {
		t.Helper()
		eventually(t, text, nc.IsClosed)
		err := nc.LastError()
		for len(failed) > 0 {
			err = <-failed
		}
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), text) {
			t.Fatalf("%v, want %s", err, text)
		}
	}
	one, onePub, oneErr := join(a, nil)
	two, _, twoErr := join(key, nil)
	three, _, threeErr := join(a, func(u *jwt.UserClaims) { u.BearerToken = true })
	four, _, denied := join(a, nil)
	check(t, four.Flush())
	update(func(c *jwt.AccountClaims) { keyed(c); c.Revoke(onePub) })
	ended(one, oneErr, "revoked")
	check(t, two.Flush())
	update(func(*jwt.AccountClaims) {})
	ended(two, twoErr, "authorization violation")
	check(t, three.Flush())
	update(func(c *jwt.AccountClaims) { c.Limits.DisallowBearer = true })
	ended(three, threeErr, "authorization violation")
	update(func(c *jwt.AccountClaims) { c.Limits.Payload = 100; c.DefaultPermissions.Pub.Allow.Add("yes") })
	eventually(t, "permissions", func() bool {
		_ = four.Publish("no", nil)
		_ = four.Flush()
		select {
		case err := <-denied:
			return strings.Contains(err.Error(), `Permissions Violation for Publish to "no"`)
		default:
			return false
		}
	})
	five, _, fiveErr := join(a, nil)
	update(func(c *jwt.AccountClaims) { c.Limits.Conn = 1 })
	ended(five, fiveErr, "maximum account active connections exceeded")
	check(t, four.Flush())
	accounts.Delete(a.pub)
	ended(four, denied, "account authentication expired")
	if len(s.Connections()) != 0 {
		t.Fatal("somebody is left")
	}
	forged := newRealm(t)
	if _, err := accounts.Update(a.pub, forged.claims(a, "a", nil)); err == nil {
		t.Fatal("claims of another operator are taken")
	}
	if _, err := accounts.Update(a.pub, r.preload[r.system.pub]); err == nil {
		t.Fatal("claims of another account are taken")
	}
}

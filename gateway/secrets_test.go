package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// everything is a log that keeps all lines, those of the protocol among them.
type everything struct {
	mu sync.Mutex
	bytes.Buffer
}

func (*everything) Enabled(context.Context, slog.Level) bool { return true }
func (e *everything) WithAttrs([]slog.Attr) slog.Handler     { return e }
func (e *everything) WithGroup(string) slog.Handler          { return e }
func (e *everything) Handle(_ context.Context, r slog.Record) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Fprintf(e, "%s", r.Message)
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(e, " %s=%v", a.Key, a.Value); return true })
	e.WriteByte('\n')
	return nil
}

// No password, token, signature or JWT is in the log, in what monitoring shows, or in what clients are told.
func TestSecretsStayHere(t *testing.T) {
	kp, pub := newUser(t)
	r := newRealm(t)
	a := r.account("a", nil)
	issuer := newSigner(t, nkeys.CreateAccount)
	const password, wrong, token = "pa55word-of-u", "wr0ng-password", "t0ken-of-all"
	confs := map[string]string{
		"users":   fmt.Sprintf(`authorization { users [ {user: u, password: %q}, {nkey: %s} ] }`, password, pub),
		"token":   fmt.Sprintf(`authorization { token: %q }`, token),
		"single":  fmt.Sprintf(`authorization { user: u, password: %q }`, password),
		"callout": fmt.Sprintf(`accounts { AUTH { users [ {user: auth, password: %q} ] } }, authorization { timeout: 0.5, auth_callout { issuer: %s, account: AUTH, auth_users: [auth] } }`, password, issuer.pub),
	}
	all := map[string]*server.Options{"operator": r.config("")()}
	for name, text := range confs {
		all[name] = config(t, text)()
	}
	for name, o := range all {
		log := &everything{}
		o.Host, o.Port = "127.0.0.1", server.RANDOM_PORT
		if name == "operator" {
			clone := o.Clone()
			clone.NoLog, clone.NoSigs = true, true
			_, err := server.NewServer(clone)
			check(t, err)
		}
		s, err := New(Options{Server: o, Bus: bus.NewRouter(), Logger: slog.New(log)})
		check(t, err)
		check(t, s.Start())
		if name == "callout" {
			svc := &service{t: t, target: "AUTH"}
			svc.issuer.Store(issuer)
			svc.serve(s.ClientURL(), nats.UserInfo("auth", password))
		}
		user, userJWT := r.user(a, nil)
		bad, badJWT := r.user(newSigner(t, nkeys.CreateAccount), func(u *jwt.UserClaims) { u.Name = "x" })
		var seen []string
		said := func(got string) { seen = append(seen, got) }
		var sigs []string
		for _, at := range []attempt{
			func(server.Info) (map[string]any, string) { return map[string]any{"user": "u", "pass": password}, "" },
			func(server.Info) (map[string]any, string) { return map[string]any{"user": "u", "pass": wrong}, "" },
			func(server.Info) (map[string]any, string) { return map[string]any{"auth_token": token}, "" },
			func(server.Info) (map[string]any, string) {
				return map[string]any{"Auth_Token": wrong, "PASS": wrong, "user": "x"}, ""
			},
			func(i server.Info) (map[string]any, string) {
				sigs = append(sigs, signed(kp, i))
				return map[string]any{"nkey": pub, "sig": sigs[len(sigs)-1], "proxy_sig": "pr0xy-signature"}, ""
			},
			func(i server.Info) (map[string]any, string) {
				sigs = append(sigs, signed(user, i))
				return map[string]any{"jwt": userJWT, "sig": sigs[len(sigs)-1]}, ""
			},
			func(i server.Info) (map[string]any, string) {
				sigs = append(sigs, signed(bad, i))
				return map[string]any{"jwt": badJWT, "sig": sigs[len(sigs)-1]}, ""
			},
			func(server.Info) (map[string]any, string) { return map[string]any{"pass": []string{wrong}}, "" },
		} {
			said(tryFor(s.Addr(), at, 100*time.Millisecond))
		}
		eventually(t, "all are gone", func() bool { return len(s.ClosedConnections()) >= 8 })
		closed := s.ClosedConnections()
		for i := range closed {
			if closed[i].JWT == userJWT && name == "operator" {
				closed[i].JWT = "" // which monitoring shows, as nats-server does: it lets nobody in without its key
			}
		}
		doc, err := json.Marshal(closed)
		check(t, err)
		said(string(doc))
		s.Shutdown()
		said(log.String())
		secrets := append(sigs, password, wrong, token, "pr0xy-signature", userJWT[strings.LastIndex(userJWT, ".")+1:], badJWT[strings.LastIndex(badJWT, ".")+1:])
		for _, text := range seen {
			for _, secret := range secrets {
				if i := strings.Index(text, secret); secret != "" && i >= 0 {
					t.Errorf("%s: %q shows %q", name, text[max(0, i-60):i], secret)
				}
			}
		}
	}
}

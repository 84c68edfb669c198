package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// tenant is an account of operator mode with its key.
type tenant struct {
	key    nkeys.KeyPair
	public string
	claims *jwt.AccountClaims
}

func newTenant(t *testing.T, name string) *tenant {
	t.Helper()
	k, err := nkeys.CreateAccount()
	noErr(t, err)
	pub, err := k.PublicKey()
	noErr(t, err)
	c := jwt.NewAccountClaims(pub)
	c.Name = name
	return &tenant{k, pub, c}
}

// login is the option of a new user of the account.
func (a *tenant) login(t *testing.T) nats.Option {
	t.Helper()
	k, err := nkeys.CreateUser()
	noErr(t, err)
	pub, err := k.PublicKey()
	noErr(t, err)
	token, err := jwt.NewUserClaims(pub).Encode(a.key)
	noErr(t, err)
	seed, err := k.Seed()
	noErr(t, err)
	return nats.UserJWTAndSeed(token, string(seed))
}

// operatorConf is the configuration of an operator with these accounts in memory, the first being the system account.
func operatorConf(t *testing.T, list ...*tenant) string {
	t.Helper()
	key, err := nkeys.CreateOperator()
	noErr(t, err)
	pub, err := key.PublicKey()
	noErr(t, err)
	op := jwt.NewOperatorClaims(pub)
	op.SystemAccount = list[0].public
	token, err := op.Encode(key)
	noErr(t, err)
	var preload strings.Builder
	for _, a := range list {
		signed, err := a.claims.Encode(key)
		noErr(t, err)
		fmt.Fprintf(&preload, "%s: %s\n", a.public, signed)
	}
	return fmt.Sprintf("operator: %s\nresolver: MEMORY\nresolver_preload {\n%s}\n", token, preload.String())
}

func TestImportsByClaims(t *testing.T) {
	sys, a, b, c := newTenant(t, "SYS"), newTenant(t, "A"), newTenant(t, "B"), newTenant(t, "C")
	a.claims.Exports.Add(
		&jwt.Export{Subject: "svc.>", Type: jwt.Service, TokenReq: true},
		&jwt.Export{Subject: "pub.>", Type: jwt.Stream},
		&jwt.Export{Subject: "pos.*", Type: jwt.Service, AccountTokenPosition: 2},
	)
	act := jwt.NewActivationClaims(b.public)
	act.ImportSubject, act.ImportType = "svc.>", jwt.Service
	token, err := act.Encode(a.key)
	noErr(t, err)
	imports := func(by *tenant, token string) {
		by.claims.Imports.Add(
			&jwt.Import{Account: a.public, Subject: "svc.x", LocalSubject: "ask", Type: jwt.Service, Token: token},
			&jwt.Import{Account: a.public, Subject: "pub.>", LocalSubject: "a.>", Type: jwt.Stream},
			&jwt.Import{Account: a.public, Subject: jwt.Subject("pos." + b.public), LocalSubject: "mine", Type: jwt.Service},
		)
	}
	imports(b, token)
	imports(c, "")
	b.claims.AddMapping("mapped", jwt.WeightedMapping{Subject: "ask"})
	compareWith(t, operatorConf(t, sys, a, b, c), func(t *testing.T, e endpoint, tr *transcript) {
		for _, by := range []*tenant{b, c} {
			nc := connect(t, e.URL, by.login(t))
			heard := subscribe(t, nc, "a.>")
			na := connect(t, e.URL, a.login(t))
			for _, s := range []string{"svc.x", "pos.*"} {
				_, err := na.Subscribe(s, func(m *nats.Msg) { _ = m.Respond([]byte("here")) })
				noErr(t, err)
			}
			noErr(t, na.Publish("pub.news", nil))
			noErr(t, na.Flush())
			if by == c {
				_, err := nc.Request("ask", nil, time.Second)
				tr.Add("c, without an activation: %v", err)
				_, err = nc.Request("mine", nil, time.Second)
				tr.Add("c, with b's place: %v", err)
				continue
			}
			told(tr, "stream", heard)
			for _, s := range []string{"ask", "mapped", "mine"} {
				m, err := nc.Request(s, nil, time.Second)
				noErr(t, err)
				tr.Add("%s: %s", s, m.Data)
			}
		}
	})
}

func TestJetStreamTiers(t *testing.T) {
	sys, a, b := newTenant(t, "SYS"), newTenant(t, "A"), newTenant(t, "B")
	a.claims.Limits.JetStreamTieredLimits = jwt.JetStreamTieredLimits{
		"R1": {MemoryStorage: 1 << 20, DiskStorage: 1 << 20, Streams: 2, Consumer: 1},
		"R3": {MemoryStorage: 1 << 21, DiskStorage: 1 << 21, Streams: 4, Consumer: 3},
	}
	b.claims.Limits.JetStreamTieredLimits = jwt.JetStreamTieredLimits{"R3": {DiskStorage: 1 << 20, Streams: 1, Consumer: 1}}
	compareWith(t, operatorConf(t, sys, a, b), func(t *testing.T, e endpoint, tr *transcript) {
		const calls = `
			INFO
			STREAM.CREATE.S1 {"name":"S1","subjects":["s1"],"max_bytes":1000}
			STREAM.CREATE.S3 {"name":"S3","subjects":["s3"],"num_replicas":3}
			STREAM.CREATE.S4 {"name":"S4","subjects":["s4"],"max_bytes":1048576}
			STREAM.CREATE.S2 {"name":"S2","subjects":["s2"],"storage":"memory"}
			STREAM.CREATE.S5 {"name":"S5","subjects":["s5"]}
			CONSUMER.CREATE.S1.C {"stream_name":"S1","config":{"durable_name":"C"}}
			CONSUMER.CREATE.S1.D {"stream_name":"S1","config":{"durable_name":"D"}}
			INFO
		`
		na := connect(t, e.URL, a.login(t))
		api(t, na, tr, calls)
		api(t, connect(t, e.URL, b.login(t)), tr, calls)
	})
}

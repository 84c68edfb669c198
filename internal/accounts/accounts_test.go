package accounts

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCrossing(t *testing.T) {
	for _, c := range []struct{ remote, local, filter, there, here string }{
		{"a.*.b.*", "x.$2.y.$1", "x.*.y.*", "a.1.b.2", "x.2.y.1"},
		{"a.*.b.*", "x.{{wildcard(2)}}.y.{{wildcard(1)}}", "x.*.y.*", "a.1.b.2", "x.2.y.1"},
		{"a.*.>", "x.*.>", "x.*.>", "a.1.2.3", "x.1.2.3"},
		{"a.>", "p.a.>", "p.a.>", "a.1.2", "p.a.1.2"},
	} {
		got, err := cross(c.remote, c.local)
		if err != nil {
			t.Fatal(err)
		}
		if got.local != c.filter || got.in(c.there) != c.here || got.out(c.here) != c.there {
			t.Errorf("%s to %s: %s, %s, %s", c.remote, c.local, got.local, got.in(c.there), got.out(c.here))
		}
	}
	for _, c := range [][2]string{{"a.*.*", "x.$1"}, {"a.*", "x.$2"}, {"a.*", "x.{{partition(3,1)}}"}} {
		if _, err := cross(c[0], c[1]); err == nil {
			t.Errorf("%s to %s: no error", c[0], c[1])
		}
	}
}

func TestMappings(t *testing.T) {
	list := []Mapping{
		{Subject: "old", Destinations: []Destination{{Subject: "new", Weight: 100}}},
		{Subject: "w.*", Destinations: []Destination{{Subject: "w2.$1", Weight: 30}, {Subject: "w3.{{wildcard(1)}}", Weight: 20}}},
		{Subject: "w.x", Destinations: []Destination{{Subject: "exact", Weight: 100}}},
		{Subject: "lossy", Destinations: []Destination{{Subject: "lossy", Weight: 25}}},
		{Subject: "p.*", Destinations: []Destination{{Subject: "p.{{partition(3,1)}}.$1", Weight: 100}}},
		{Subject: ">", Destinations: []Destination{{Subject: "all.>", Weight: 100}}},
		{Subject: "c", Destinations: []Destination{
			{Subject: "here", Weight: 100, Cluster: "C"}, {Subject: "there", Weight: 100, Cluster: "D"},
		}},
	}
	inC, err := mapperOf(list, "C")
	if err != nil {
		t.Fatal(err)
	}
	alone, err := mapperOf(list, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"old", "new"}, {"w.x", "exact"}, {"else", "all.else"}, {"c", "here"}, {"p.foo", "p.0.foo"}} {
		if to, _ := inC([]byte(c[0])); string(to) != c[1] {
			t.Errorf("%s becomes %s, not %s", c[0], to, c[1])
		}
	}
	if to, _ := alone([]byte("c")); string(to) != "c" {
		t.Errorf("without a cluster, c becomes %s", to)
	}
	const n = 20_000
	counts := map[string]int{}
	for range n {
		to, _ := inC([]byte("w.1"))
		counts[string(to)]++
		to, _ = inC([]byte("lossy"))
		counts[string(to)]++
	}
	for subject, part := range map[string]float64{"w2.1": .3, "w3.1": .2, "w.1": .5, "lossy": .25, "": .75} {
		if got := float64(counts[subject]) / n; math.Abs(got-part) > .02 {
			t.Errorf("%s: %.3f of the messages, not %.2f", subject, got, part)
		}
	}
	for _, bad := range []Mapping{
		{Subject: "a..b", Destinations: []Destination{{Subject: "x", Weight: 1}}},
		{Subject: "a.*", Destinations: []Destination{{Subject: "x.$2", Weight: 1}}},
		{Subject: "a", Destinations: []Destination{{Subject: "x", Weight: 60}, {Subject: "y", Weight: 60}}},
	} {
		if _, err := mapperOf([]Mapping{bad}, ""); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}

func TestSampling(t *testing.T) {
	asks := sampler(0)
	for header, wanted := range map[string]bool{
		"":                               false,
		"K: v":                           false,
		"X-B3-Sampled: 1":                true,
		"X-B3-Sampled: 0":                false,
		"X-B3-TraceId: 80f198ee5":        true,
		"b3: 80f198ee-e457b5-1-05e3ac9a": true,
		"b3: 0":                          false,
		"Uber-Trace-Id: 479fefe9525eddb:5adb976bfc1f95c1:479fefe9525eddb:1":    true,
		"Uber-Trace-Id: 479fefe9525eddb:5adb976bfc1f95c1:479fefe9525eddb:0":    false,
		"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": true,
		"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00": false,
	} {
		block := []byte("NATS/1.0\r\n" + header + "\r\n\r\n")
		if header == "" {
			block = nil
		}
		if _, got := asks(block); got != wanted {
			t.Errorf("%q: sampled %v", header, got)
		}
	}
	if _, got := sampler(100)(nil); !got {
		t.Error("100 %% leaves one out")
	}
}

// key makes an account's key pair.
func key(t *testing.T) (nkeys.KeyPair, string) {
	t.Helper()
	k, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	pub, err := k.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return k, pub
}

func TestActivations(t *testing.T) {
	owner, a := key(t)
	signer, signing := key(t)
	stranger, _ := key(t)
	_, b := key(t)
	token := func(by nkeys.KeyPair, change func(*jwt.ActivationClaims)) string {
		act := jwt.NewActivationClaims(b)
		act.ImportSubject, act.ImportType = "svc.>", jwt.Service
		if change != nil {
			change(act)
		}
		s, err := act.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	exporter := &Account{Name: a, SigningKeys: []string{signing}, Exports: []Export{{Subject: "svc.>", Service: true, TokenRequired: true}}}
	importer := &Account{Name: b}
	bySigner := func(act *jwt.ActivationClaims) { act.IssuerAccount = a }
	for name, c := range map[string]struct {
		token string
		err   error
	}{
		"none":             {"", ErrNoActivation},
		"no token":         {"x.y.z", ErrNoActivation},
		"by the account":   {token(owner, nil), nil},
		"by a signing key": {token(signer, bySigner), nil},
		"a signing key that does not say for whom": {token(signer, nil), ErrNoActivation},
		"by a stranger":                       {token(stranger, nil), ErrNoActivation},
		"a stranger's that names the account": {token(stranger, bySigner), ErrNoActivation},
		"expired":                             {token(owner, func(act *jwt.ActivationClaims) { act.Expires = time.Now().Unix() - 1 }), ErrNoActivation},
		"for a stream":                        {token(owner, func(act *jwt.ActivationClaims) { act.ImportType = jwt.Stream }), ErrNoActivation},
		"for another subject":                 {token(owner, func(act *jwt.ActivationClaims) { act.ImportSubject = "svc.y" }), ErrNoActivation},
		"for another account":                 {token(owner, func(act *jwt.ActivationClaims) { act.Subject = a }), ErrNoActivation},
	} {
		im := &Import{Account: a, Subject: "svc.x", Local: "svc.x", Service: true, Token: c.token}
		if _, _, err := exporter.authorize(importer, im, time.Now()); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	exporter.Exports[0].Revoked = map[string]int64{jwt.All: time.Now().Unix() + 1}
	im := &Import{Account: a, Subject: "svc.x", Service: true, Token: token(owner, nil)}
	if _, _, err := exporter.authorize(importer, im, time.Now()); !errors.Is(err, ErrRevoked) {
		t.Errorf("revoked: %v", err)
	}
}

// TestRegistry follows changes of either side, and ends what an activation allowed with it.
func TestRegistry(t *testing.T) {
	owner, a := key(t)
	_, b := key(t)
	act := jwt.NewActivationClaims(b)
	act.ImportSubject, act.ImportType = "svc", jwt.Service
	act.Expires = time.Now().Unix() + 2
	token, err := act.Encode(owner)
	if err != nil {
		t.Fatal(err)
	}
	in := make(chan int, 10) // services of b in force
	var warned []string
	r := NewRegistry("", "", func(account string, l *bus.Links) {
		if account == b && l != nil {
			in <- len(l.Services)
		}
	}, func(_ string, err error) { warned = append(warned, err.Error()) })
	defer r.Close()
	r.Set(&Account{Name: b, Imports: []Import{{Account: a, Subject: "svc", Local: "svc", Service: true, Token: token}}})
	if n := <-in; n != 0 || len(warned) != 1 || !strings.Contains(warned[0], ErrUnknown.Error()) {
		t.Fatalf("%d services before there is an export, warnings %q", n, warned)
	}
	r.Set(&Account{Name: a, Exports: []Export{{Subject: "svc", Service: true, TokenRequired: true}}})
	if n := <-in; n != 1 {
		t.Fatalf("%d services with it", n)
	}
	select {
	case n := <-in:
		if n != 0 {
			t.Errorf("%d services once the activation has ended", n)
		}
	case <-time.After(5 * time.Second):
		t.Error("the activation does not end")
	}
}

func TestFromClaims(t *testing.T) {
	c := jwt.NewAccountClaims("A")
	c.Exports.Add(&jwt.Export{
		Subject: "s.>", Type: jwt.Service, ResponseType: jwt.ResponseTypeStream, AccountTokenPosition: 2,
		Latency: &jwt.ServiceLatency{Sampling: 10, Results: "lat"},
	})
	c.Imports.Add(&jwt.Import{Account: "B", Subject: "x", LocalSubject: "y", Type: jwt.Service, Share: true},
		&jwt.Import{Account: "B", Subject: "old", To: "there", Type: jwt.Service}, //nolint:staticcheck // the older form
		&jwt.Import{Account: "B", Subject: "st.>", To: "pre", Type: jwt.Stream})   //nolint:staticcheck // the older form
	c.AddMapping("m", jwt.WeightedMapping{Subject: "n"})
	a := FromClaims(c)
	if e := a.Exports[0]; !e.Service || e.Response != Streamed || e.TokenPosition != 2 || *e.Latency != (Latency{"lat", 10}) {
		t.Errorf("export %+v", e)
	}
	for i, want := range []Import{
		{Account: "B", Subject: "x", Local: "y", Service: true, Share: true},
		{Account: "B", Subject: "there", Local: "old", Service: true},
		{Account: "B", Subject: "st.>", Local: "pre.st.>"},
	} {
		if a.Imports[i] != want {
			t.Errorf("import %+v, not %+v", a.Imports[i], want)
		}
	}
	if m := a.Mappings[0]; m.Subject != "m" || m.Destinations[0] != (Destination{Subject: "n", Weight: 100}) {
		t.Errorf("mapping %+v", m)
	}
}

// TestReplaceTouchesOnlyWhatChanges: a reload does not interrupt the imports that stay.
func TestReplaceTouchesOnlyWhatChanges(t *testing.T) {
	var applied []string
	r := NewRegistry("", "SYS", func(account string, _ *bus.Links) { applied = append(applied, account) },
		func(account string, err error) { t.Error(account, err) })
	defer r.Close()
	// Made anew each time, as by a reload.
	all := func(subject string) []*Account {
		return []*Account{
			{Name: "SYS"},
			{Name: "A", Exports: []Export{{Subject: subject, Service: true}}},
			{Name: "B", Imports: []Import{{Account: "A", Subject: "svc.x", Local: "svc", Service: true}}},
			{Name: "C"},
		}
	}
	expect := func(label string, want ...string) {
		t.Helper()
		slices.Sort(applied)
		if !slices.Equal(applied, want) {
			t.Errorf("%s: %v, not %v", label, applied, want)
		}
		applied = nil
	}
	r.Replace(all("svc.*"))
	expect("at first", "A", "B", "C", "SYS")
	r.Replace(all("svc.*"))
	expect("nothing changed")
	r.Replace(all("svc.>"))
	expect("the exporter changed", "A", "B")
	r.Replace(all("svc.>")[:3])
	expect("one is gone", "C")
}

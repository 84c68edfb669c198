package auth

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/crypto/bcrypt"
	"pgregory.net/rapid"
)

func permissions(t *testing.T, p *server.Permissions) *Permissions {
	t.Helper()
	out, err := NewPermissions(p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPasswords(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		configured, offered string
		same                bool
	}{
		{"secret", "secret", true},
		{"secret", "secrets", false},
		{"", "", true},
		{string(hash), "secret", true},
		{string(hash), string(hash), false},
		{string(hash), "", false},
		{"$2a$ is no hash", "$2a$ is no hash", true},
	} {
		if got := samePassword(tc.configured, tc.offered); got != tc.same {
			t.Errorf("%q, %q: %v", tc.configured, tc.offered, got)
		}
	}
}

func TestNobodyRestricts(t *testing.T) {
	var p *Permissions
	if p.RestrictsPublish() || !p.MayPublish("x") || !p.MaySubscribe("x", "q") || p.NeedsFilter(">", "") || p.Response() != nil {
		t.Fatal("nil permissions restrict something")
	}
}

// A subscription that is wider than what is permitted gets only what is permitted.
func TestDeliveryFilter(t *testing.T) {
	p := permissions(t, &server.Permissions{Subscribe: &server.SubjectPermission{
		Allow: []string{"one.*", "all.>", "q.x grp", "q.x v2.*", "mix.*", "mix.> grp"}, Deny: []string{"all.secret", "all.q dq"},
	}})
	for _, tc := range []struct {
		filter, queue string
		may, filtered bool
	}{
		{"one.a", "", true, false},
		{"one.*", "", true, false},
		{"one.>", "", true, true}, // as NATS has it; NATS also delivers one.a.b
		{"one.a.b", "", false, false},
		{"all.a", "", true, false},
		{"all.*", "", true, true},
		{"all.>", "", true, true},
		{"all.secret", "", false, false},
		{"all.q", "", true, false},
		{"all.q", "dq", false, false},
		{"all.q", "other", true, true},
		{"q.x", "", false, false},
		{"q.x", "grp", true, false},
		{"mix.>", "", true, true},
		{"mix.>", "grp", true, false},
		{"q.x", "other", false, false},
		{"q.x", "v2.a", true, false},
		{"q.x", "v2.*", true, false},
		{"q.x", "v2.>", false, false}, // more queues than the rule has
	} {
		if got := p.MaySubscribe(tc.filter, tc.queue); got != tc.may {
			t.Errorf("may subscribe to %q %q: %v", tc.filter, tc.queue, got)
		}
		if got := tc.may && p.NeedsFilter(tc.filter, tc.queue); got != tc.filtered {
			t.Errorf("%q %q needs a filter: %v", tc.filter, tc.queue, got)
		}
	}
	for _, tc := range []struct {
		subject, target, queue string
		may                    bool
	}{
		{"one.a", "one.a", "", true},
		{"one.a.b", "one.a.b", "", false},
		{"orders.1", "one.inbox", "", true}, // a stored message that comes to an inbox
		{"orders.1", "orders.1", "", false},
		{"all.secret", "all.secret", "", false},
		{"all.q", "all.q", "dq", false},
		{"all.q", "all.q", "", true},
		{"q.x", "q.x", "grp", true},
	} {
		if got := p.MayReceive(tc.subject, tc.target, tc.queue); got != tc.may {
			t.Errorf("may receive %q to %q in %q: %v", tc.subject, tc.target, tc.queue, got)
		}
	}
}

func TestResponseDefaults(t *testing.T) {
	p := permissions(t, &server.Permissions{Response: &server.ResponsePermission{}})
	if r := p.Response(); r.Max != 1 || r.Expires != 2*time.Minute || p.MayPublish("x") || !p.RestrictsPublish() {
		t.Fatalf("%+v", r)
	}
	p = permissions(t, &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{"x"}}, Response: &server.ResponsePermission{MaxMsgs: -1, Expires: -1},
	})
	if r := p.Response(); r.Max != -1 || r.Expires != -1 || !p.MayPublish("x") || p.MayPublish("y") {
		t.Fatalf("%+v", r)
	}
}

func TestInvalidPermissions(t *testing.T) {
	for _, bad := range []string{"", "a..b", "a b c", "foo.>.bar", ".a"} {
		for _, p := range []*server.Permissions{
			{Publish: &server.SubjectPermission{Allow: []string{bad}}},
			{Publish: &server.SubjectPermission{Deny: []string{bad}}},
			{Subscribe: &server.SubjectPermission{Allow: []string{bad}}},
			{Subscribe: &server.SubjectPermission{Deny: []string{bad}}},
		} {
			if _, err := NewPermissions(p); err == nil {
				t.Errorf("%q accepted", bad)
			}
		}
	}
}

// A literal subject is permitted exactly if some rule allows it and none denies it.
func TestPublishModel(t *testing.T) {
	token := rapid.SampledFrom([]string{"a", "b", "*"})
	filter := rapid.Custom(func(t *rapid.T) string {
		s := token.Draw(t, "t")
		for range rapid.IntRange(0, 2).Draw(t, "n") {
			s += "." + token.Draw(t, "t")
		}
		if rapid.Bool().Draw(t, "tail") {
			s += ".>"
		}
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		allow := rapid.SliceOfN(filter, 0, 3).Draw(t, "allow")
		deny := rapid.SliceOfN(filter, 0, 2).Draw(t, "deny")
		subject := rapid.StringMatching(`[ab](\.[ab]){0,3}`).Draw(t, "subject")
		p, err := NewPermissions(&server.Permissions{Publish: &server.SubjectPermission{Allow: allow, Deny: deny}})
		if err != nil {
			t.Fatal(err)
		}
		covers := func(f string) bool { return server.SubjectsCollide(f, subject) } // for a literal the same as matching
		want := (allow == nil || slices.ContainsFunc(allow, covers)) && !slices.ContainsFunc(deny, covers)
		if got := p.MayPublish(subject); got != want {
			t.Fatalf("allow %q deny %q: %q is %v, want %v", allow, deny, subject, got, want)
		}
	})
}

func TestRefusedConfigurations(t *testing.T) {
	for name, o := range map[string]*server.Options{
		"no such one": {NoAuthUser: "x"},
		"proxy":       {Proxies: &server.ProxiesConfig{Trusted: []*server.ProxyConfig{{Key: "x"}}}},
	} {
		if _, err := NewConfigured(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestReasonsForRefusal(t *testing.T) {
	a, err := NewConfigured(&server.Options{Users: []*server.User{
		{Username: "u", Password: "p"},
		{Username: "ws", Password: "p", AllowedConnectionTypes: map[string]struct{}{TypeWebSocket: {}}},
		{Username: "proxied", Password: "p", ProxyRequired: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		user, pass, kind string
		want             error
	}{
		{"u", "p", TypeStandard, nil},
		{"u", "x", TypeStandard, ErrCredentials},
		{"", "", TypeStandard, ErrCredentials},
		{"nobody", "p", TypeStandard, ErrCredentials},
		{"ws", "p", TypeStandard, ErrConnectionType},
		{"ws", "p", TypeWebSocket, nil},
		{"proxied", "p", TypeStandard, ErrProxyRequired},
	} {
		l, err := a.Authenticate(&Credentials{User: tc.user, Password: tc.pass, Type: tc.kind})
		if !errors.Is(err, tc.want) || (err == nil) != (l != nil) {
			t.Errorf("%s/%s by %s: %v, want %v", tc.user, tc.pass, tc.kind, err, tc.want)
		}
	}
	if a.Anonymous(TypeStandard) != nil || !a.Required() || !a.Announced() || a.NonceRequired() {
		t.Error("anybody may come")
	}
}

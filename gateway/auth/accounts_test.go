package auth

import (
	"errors"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// source is a place of claims that may be out of reach.
type source struct {
	tokens map[string]string
	asked  int
	down   error
}

func (s *source) Fetch(name string) (string, error) {
	s.asked++
	if s.down != nil {
		return "", s.down
	}
	if t, ok := s.tokens[name]; ok {
		return t, nil
	}
	return "", errors.New("not found")
}

func newKeys(t *testing.T, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
	t.Helper()
	kp, err := create()
	if err != nil {
		t.Fatal(err)
	}
	pub, err := kp.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return kp, pub
}

func TestReloadOfAccounts(t *testing.T) {
	op, opPub := newKeys(t, nkeys.CreateOperator)
	_, accPub := newKeys(t, nkeys.CreateAccount)
	token, err := jwt.NewAccountClaims(accPub).Encode(op)
	if err != nil {
		t.Fatal(err)
	}
	s := &source{tokens: map[string]string{accPub: token}}
	trusting := func(keys ...string) *server.Options { return &server.Options{TrustedKeys: keys} }
	a, err := NewAccounts(trusting(opPub), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	var told []bool
	a.Watch(func(acc *Account) { told = append(told, acc.Gone) })
	for range 3 {
		if _, err := a.Get(accPub); err != nil {
			t.Fatal(err)
		}
	}
	if s.asked != 1 || len(told) != 1 {
		t.Fatalf("%d fetches, %d calls", s.asked, len(told))
	}
	for _, name := range []string{"", "x", opPub} {
		if _, err := a.Get(name); !errors.Is(err, ErrAccount) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if s.asked != 1 {
		t.Error("what is no account was fetched")
	}
	s.down = errors.New("out of reach")
	if err := a.Reload(trusting(opPub), s, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Get(accPub); err != nil {
		t.Errorf("a source that is out of reach takes accounts away: %v", err)
	}
	_, other := newKeys(t, nkeys.CreateOperator)
	s.down = nil
	if err := a.Reload(trusting(other), s, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Get(accPub); !errors.Is(err, ErrAccountIssuer) {
		t.Errorf("an account of an operator that is not trusted any more: %v", err)
	}
	if len(told) != 2 || !told[1] {
		t.Errorf("told %v", told)
	}
}

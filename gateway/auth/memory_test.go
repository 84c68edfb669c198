package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

// signer makes offers of a key.
type signer struct {
	t   *testing.T
	key nkeys.KeyPair
	pub string
}

func newSigner(t *testing.T) signer {
	t.Helper()
	key, err := nkeys.CreateUser()
	fatal(t, err)
	pub, err := key.PublicKey()
	fatal(t, err)
	return signer{t, key, pub}
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s signer) sign(c Credentials, nonce string) *Credentials {
	sig, err := s.key.Sign([]byte(nonce))
	fatal(s.t, err)
	c.Nonce, c.Sig = []byte(nonce), base64.RawURLEncoding.EncodeToString(sig)
	return &c
}

// claims is a JWT for the key.
func (s signer) claims(change func(*jwt.UserClaims)) string {
	account, err := nkeys.CreateAccount()
	fatal(s.t, err)
	user := jwt.NewUserClaims(s.pub)
	if change != nil {
		change(user)
	}
	token, err := user.Encode(account)
	fatal(s.t, err)
	return token
}

func (m *Memory) wants(t *testing.T, c *Credentials, account string) {
	t.Helper()
	switch login, err := m.Authenticate(c); {
	case account == "" && err == nil:
		t.Errorf("%+v was let in to %s", *c, login.Account)
	case account != "" && (err != nil || login.Account != account):
		t.Errorf("%+v: %v %v, want %s", *c, login, err, account)
	}
}

// Who offers exactly what was accepted is let in as it was, and nobody else.
func TestMemoryOfSecrets(t *testing.T) {
	m := NewMemory(time.Hour, false)
	known := &Credentials{User: "alice", Password: "secret"}
	m.wants(t, known, "")
	m.Learn(m.Offered(known), &Login{Account: "A", User: "alice"}, 10)
	m.Learn(m.Offered(&Credentials{Token: "token"}), &Login{Account: "T"}, 10)
	m.wants(t, known, "A")
	m.wants(t, &Credentials{Token: "token"}, "T")
	for _, other := range []*Credentials{
		{},
		{User: "alice"},
		{User: "alice", Password: "secret2"},
		{User: "alicesecret"},
		{User: "alices", Password: "ecret"},
		{User: "bob", Password: "secret"},
		{Token: "secret"},
		{User: "token"},
		{Password: "token"},
		{User: "alice", Password: "secret", Token: "token"},
		{JWT: "token"},
	} {
		m.wants(t, other, "")
	}
	m.Refused(m.Offered(&Credentials{User: "alice", Password: "guess"}))
	m.wants(t, known, "A")
	m.Refused(m.Offered(known))
	m.wants(t, known, "")
	if n := m.Len(); n != 1 {
		t.Errorf("%d are remembered", n)
	}
	m.Learn(m.Offered(&Credentials{}), &Login{Account: "$G"}, 0) // servers that let in who says nothing
	m.wants(t, &Credentials{}, "$G")
	m.wants(t, &Credentials{User: "x"}, "")
	if NewMemory(time.Hour, false).Offered(known).id == m.Offered(known).id {
		t.Error("two processes know a secret by the same digest")
	}
}

// Who has a key proves it again; a refusal of who has not counts for nothing.
func TestMemoryOfKeys(t *testing.T) {
	m, alice, eve := NewMemory(time.Hour, false), newSigner(t), newSigner(t)
	token := alice.claims(nil)
	for name, offer := range map[string]Credentials{"nkey": {Nkey: alice.pub}, "jwt": {JWT: token}} {
		m.Learn(m.Offered(alice.sign(offer, "theirs")), &Login{Account: name}, 10)
		m.wants(t, alice.sign(offer, "ours"), name)
		m.wants(t, eve.sign(offer, "ours"), "")
		replayed := alice.sign(offer, "theirs")
		replayed.Nonce = []byte("ours")
		m.wants(t, replayed, "")
		m.wants(t, &offer, "")
		m.Refused(m.Offered(eve.sign(offer, "theirs")))
		m.wants(t, alice.sign(offer, "ours"), name)
		m.Refused(m.Offered(alice.sign(offer, "theirs")))
		m.wants(t, alice.sign(offer, "ours"), "")
	}
	bearer := Credentials{JWT: alice.claims(func(u *jwt.UserClaims) { u.BearerToken = true })}
	m.Learn(m.Offered(&bearer), &Login{Account: "bearer"}, 10)
	m.wants(t, &bearer, "bearer")
	m.Learn(m.Offered(&Credentials{JWT: "of a service"}), &Login{Account: "service"}, 10)
	m.wants(t, &Credentials{JWT: "of a service"}, "service")
}

// A login ends with its claims, with what the servers said, and at its age since it was known to hold.
func TestMemoryForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, alice := NewMemory(time.Hour, false), newSigner(t)
		plain := &Credentials{User: "plain"}
		m.Learn(m.Offered(plain), &Login{Account: "A"}, 10)
		m.Learn(m.Offered(plain), &Login{Account: "A"}, 10) // another connection
		limited := &Credentials{User: "limited"}
		m.Learn(m.Offered(limited), &Login{Account: "A", Deadline: time.Now().Add(30 * time.Minute)}, 10)
		m.Left(m.Offered(limited))
		claims := Credentials{JWT: alice.claims(func(u *jwt.UserClaims) { u.Expires = time.Now().Add(30 * time.Minute).Unix() })}
		m.Learn(m.Offered(&claims), &Login{Account: "A"}, 10)
		m.Left(m.Offered(&claims))
		login, err := m.Authenticate(alice.sign(claims, "n"))
		if fatal(t, err); time.Until(login.Deadline) > 30*time.Minute {
			t.Errorf("a login of claims ends at %v", login.Deadline)
		}
		time.Sleep(31 * time.Minute)
		m.wants(t, limited, "")
		m.wants(t, alice.sign(claims, "n"), "")
		time.Sleep(2 * time.Hour)
		m.wants(t, plain, "A")
		m.Left(m.Offered(plain))
		time.Sleep(2 * time.Hour)
		m.wants(t, plain, "A")
		m.Left(m.Offered(plain))
		time.Sleep(59 * time.Minute)
		login, err = m.Authenticate(plain)
		if fatal(t, err); time.Until(login.Deadline) != time.Minute {
			t.Errorf("a login of the servers ends in %v", time.Until(login.Deadline))
		}
		time.Sleep(time.Minute)
		m.wants(t, plain, "")
		if n := m.Len(); n != 0 {
			t.Errorf("%d are remembered", n)
		}
	})
}

// There are so many at most, and so many bytes of what was told about them; those that were seen longest ago go.
func TestMemoryIsBounded(t *testing.T) {
	m := NewMemory(time.Hour, false)
	user := func(i int) *Credentials { return &Credentials{User: fmt.Sprint(i)} }
	for i := range maxRemembered + 10 {
		m.Learn(m.Offered(user(i)), &Login{Account: "A"}, 100)
		if i == 9 {
			m.Left(m.Offered(user(0)))
		}
	}
	if n := m.Len(); n != maxRemembered {
		t.Errorf("%d are remembered", n)
	}
	for i, account := range []string{"", "", "", "", "", "", "", "", "", ""} {
		m.wants(t, user(i), account)
	}
	m.wants(t, user(maxRemembered), "A")
	for i := range 65 {
		m.Learn(m.Offered(user(-i-1)), &Login{Account: "B"}, 1<<20)
	}
	if n := m.Len(); n != 64 {
		t.Errorf("%d of a megabyte are remembered", n)
	}
	m.Learn(m.Offered(user(-64)), &Login{Account: "B"}, 1)
	if m.bytes != 63<<20+1 {
		t.Errorf("%d bytes are counted", m.bytes)
	}
}

// The address counts where those who decide are told it.
func TestMemoryOfAddresses(t *testing.T) {
	m := NewMemory(time.Hour, true)
	m.Learn(m.Offered(&Credentials{User: "a", Host: "10.0.0.1"}), &Login{Account: "A"}, 0)
	m.wants(t, &Credentials{User: "a", Host: "10.0.0.1"}, "A")
	m.wants(t, &Credentials{User: "a", Host: "10.0.0.2"}, "")
}

// FuzzMemory: no offer but the one that was accepted is let in.
func FuzzMemory(f *testing.F) {
	f.Add("u", "p", "", "", "", "u", "", "p", "", "")
	f.Add("", "", "t", "", "", "", "", "", "t", "")
	f.Fuzz(func(t *testing.T, user, pass, token, nkey, claims, user2, pass2, token2, nkey2, claims2 string) {
		m := NewMemory(time.Hour, false)
		a := &Credentials{User: user, Password: pass, Token: token, Nkey: nkey, JWT: claims}
		b := &Credentials{User: user2, Password: pass2, Token: token2, Nkey: nkey2, JWT: claims2}
		m.Learn(m.Offered(a), &Login{Account: "A"}, 0)
		_, err := m.Authenticate(b)
		same := user == user2 && pass == pass2 && token == token2 && nkey == nkey2 && claims == claims2
		switch {
		case err == nil && !same:
			t.Fatalf("%+v was let in for %+v", b, a)
		case same && nkey == "" && claims == "" && err != nil, same && errors.Is(err, ErrNotRemembered):
			t.Fatalf("%+v: %v", b, err)
		case err == nil && nkey != "" && claims == "":
			t.Fatalf("%+v proved nothing", b)
		}
	})
}

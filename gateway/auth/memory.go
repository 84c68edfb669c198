package auth

import (
	"container/list"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
)

// Bounds of a Memory.
const (
	maxRemembered      = 10_000   // logins
	maxRememberedBytes = 64 << 20 // what the permissions of all of them were told in
)

// ErrNotRemembered is a login that a Memory does not have.
var ErrNotRemembered = errors.New("nobody has logged in like this by way of this process lately, as far as known")

// Memory remembers the logins that others have accepted, so that whoever comes again while they cannot be asked is let
// in as they would. It is in RAM alone, and holds no secret: of what was offered it keeps a digest under a key of its
// own, and where a key was proved it asks for that proof again. Safe for concurrent use.
//
// It is an Authenticator for the time in which nobody can be asked.
type Memory struct {
	age     time.Duration
	address bool
	key     [sha256.Size]byte

	mu sync.Mutex
	// The following are guarded by mu.
	logins map[digest]*list.Element
	order  list.List // of *remembered; the front was seen last
	bytes  int       // sum of remembered.size
}

type digest [sha256.Size]byte

// remembered is one login.
type remembered struct {
	id    digest
	login *Login
	size  int
	here  int       // connections that have it now
	seen  time.Time // when it was known to hold last, if none has
}

// at returns what an element of Memory.order is.
func at(e *list.Element) *remembered {
	r, ok := e.Value.(*remembered)
	if !ok {
		panic("auth: an element that is no login")
	}
	return r
}

// Offer is what a client has offered, as a Memory knows it again.
type Offer struct {
	id    digest
	proof string // the public key whose owner has to sign the nonce; empty: to offer the same is proof enough
	nonce []byte
	sig   string
}

// NewMemory returns one that forgets what was not known to hold for longer than age. address: those who decide were
// told the clients' addresses, so a login counts for the address it came from.
func NewMemory(age time.Duration, address bool) *Memory {
	m := &Memory{age: age, address: address, logins: make(map[digest]*list.Element)}
	_, _ = rand.Read(m.key[:]) // never fails
	return m
}

// Offered returns what c offers.
func (m *Memory) Offered(c *Credentials) *Offer {
	o, _ := m.offered(c)
	return o
}

// offered is Offered with the user's claims, nil if there are none that can be read.
func (m *Memory) offered(c *Credentials) (*Offer, *jwt.UserClaims) {
	mac := hmac.New(sha256.New, m.key[:])
	fields := []string{c.User, c.Password, c.Token, c.Nkey, c.JWT}
	if m.address {
		fields = append(fields, c.Host)
	}
	var size [8]byte
	for _, f := range fields { // with their lengths, so that no two offers are written alike
		binary.BigEndian.PutUint64(size[:], uint64(len(f)))
		_, _ = mac.Write(size[:])
		_, _ = mac.Write([]byte(f))
	}
	o := &Offer{proof: c.Nkey, nonce: c.Nonce, sig: c.Sig}
	mac.Sum(o.id[:0])
	if c.JWT == "" {
		return o, nil
	}
	user, err := jwt.DecodeUserClaims(c.JWT)
	if err != nil { // an authorization service may take for one what it likes
		return o, nil
	}
	if o.proof = user.Subject; user.BearerToken {
		o.proof = ""
	}
	return o, user
}

// proved reports whether the client has proved what it has to.
func (o *Offer) proved() error {
	if o.proof == "" {
		return nil
	}
	return verifySignature(o.proof, o.nonce, o.sig)
}

// Learn remembers that an offer was accepted, with what that login may do, until Left or Forget. size is in how many
// bytes that was told.
func (m *Memory) Learn(o *Offer, login *Login, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &remembered{id: o.id}
	if e := m.logins[o.id]; e != nil {
		r = at(e)
		m.order.MoveToFront(e)
	} else {
		m.logins[o.id] = m.order.PushFront(r)
	}
	m.bytes += size - r.size
	r.login, r.size = login, size
	r.here++
	for len(m.logins) > maxRemembered || m.bytes > maxRememberedBytes && len(m.logins) > 1 {
		m.drop(m.order.Back())
	}
}

// Left says that a connection which Learn was told of has ended, and that the login held until then.
func (m *Memory) Left(o *Offer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.logins[o.id]
	if e == nil {
		return
	}
	r := at(e)
	r.here = max(r.here-1, 0)
	r.seen = time.Now()
	m.order.MoveToFront(e)
}

// Refused says that an offer was refused: what was remembered of it holds no more. A refusal of somebody who could not
// prove to be the one says nothing about who can.
func (m *Memory) Refused(o *Offer) {
	if o.proved() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.logins[o.id]; e != nil {
		m.drop(e)
	}
}

// drop forgets a login. m.mu is held.
func (m *Memory) drop(e *list.Element) {
	r := at(e)
	m.order.Remove(e)
	m.bytes -= r.size
	delete(m.logins, r.id)
}

// Len is how many logins are remembered.
func (m *Memory) Len() int {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for e := m.order.Back(); e != nil; e = m.order.Back() { // the one that was seen longest ago
		if now.Before(m.end(at(e), now)) {
			break
		}
		m.drop(e)
	}
	return len(m.logins)
}

// end is until when the login is remembered, as far as its age goes.
func (m *Memory) end(r *remembered, now time.Time) time.Time {
	if r.here > 0 {
		return now.Add(m.age)
	}
	return r.seen.Add(m.age)
}

// Required implements Authenticator.
func (*Memory) Required() bool { return true }

// Announced implements Authenticator.
func (*Memory) Announced() bool { return true }

// NonceRequired implements Authenticator.
func (*Memory) NonceRequired() bool { return true }

// Anonymous implements Authenticator: who does not say who it is was never remembered.
func (*Memory) Anonymous(string) *Login { return nil }

// Authenticate implements Authenticator: it lets in who offers what was accepted, and proves what was proved.
func (m *Memory) Authenticate(c *Credentials) (*Login, error) {
	now := time.Now()
	o, claims := m.offered(c)
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.logins[o.id]
	if e == nil {
		return nil, ErrNotRemembered
	}
	if err := o.proved(); err != nil {
		return nil, err
	}
	r := at(e)
	login := *r.login
	if claims != nil {
		end, ok := deadlineOf(claims, now)
		if !ok {
			return nil, ErrWrongTime
		}
		login.end(end)
	}
	if login.end(m.end(r, now)); !now.Before(login.Deadline) {
		m.drop(e)
		return nil, ErrNotRemembered
	}
	return &login, nil
}

// end makes the login end at t at the latest; zero: it need not.
func (l *Login) end(t time.Time) {
	if !t.IsZero() && (l.Deadline.IsZero() || t.Before(l.Deadline)) {
		l.Deadline = t
	}
}

// Renew implements Authenticator: a reload of this server's configuration changes nothing about what others have said.
func (*Memory) Renew(_ *Credentials, was *Login) (*Login, error) { return was, nil }

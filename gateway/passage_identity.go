package gateway

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// identity is who the server upstream says that the client is. It is asked on the client's own connection, right behind
// its CONNECT: what the client may do there is what it may do here.
type identity struct {
	mu      sync.Mutex
	id      UpstreamIdentity
	perms   *auth.Permissions
	expires time.Duration // of the login, from now on; 0: never
	size    int           // of the answer, in bytes
	told    []byte        // the permissions, as they were told
	asked   string        // inbox of the question; empty: it cannot be asked
	again   string        // inbox of the question that was asked again; empty: none is without an answer
	settled bool
	known   chan struct{} // closed once settled
	opens   func()        // makes the client a party here
	renews  func()        // makes other permissions hold
}

// ownSID is the subscription of the gateway itself on a client's connection upstream. Clients count.
var ownSID = []byte("ehdb.gateway")

const userInfoSubject = "$SYS.REQ.USER.INFO"

// ask returns the commands that ask who the client is.
func (w *identity) ask() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = "_INBOX." + rand.Text() // nobody else can tell it, and answer
	return question(w.asked)
}

// askAgain is ask for a client that is known: the servers may have been told other permissions. Nil: it is not known.
func (w *identity) askAgain() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.settled || !w.id.Permitted {
		return nil
	}
	w.again = "_INBOX." + rand.Text()
	return question(w.again)
}

func question(inbox string) []byte {
	return []byte("SUB " + inbox + " " + string(ownSID) + wire.CRLF +
		"UNSUB " + string(ownSID) + " 1" + wire.CRLF +
		"PUB " + userInfoSubject + " " + inbox + " 0" + wire.CRLF + wire.CRLF)
}

// told is what a server says of a client.
type told struct {
	Account, User string
	Expires       time.Duration
	raw           []byte // of the permissions
	perms         *auth.Permissions
}

func readTold(data []byte) (t told, err error) {
	var doc struct {
		Data struct {
			User        string          `json:"user"`
			Account     string          `json:"account"`
			Permissions json.RawMessage `json:"permissions"`
			Expires     time.Duration   `json:"expires"`
		} `json:"data"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return told{}, err
	}
	t = told{Account: doc.Data.Account, User: doc.Data.User, Expires: doc.Data.Expires, raw: doc.Data.Permissions}
	var perms *server.Permissions
	if len(t.raw) > 0 {
		if err := json.Unmarshal(t.raw, &perms); err != nil {
			return told{}, err
		}
	}
	t.perms, err = auth.NewPermissions(perms)
	return t, err
}

// answer takes the answer. What the client has sent to itself under the same id is none.
func (w *identity) answer(subject, data []byte) {
	w.mu.Lock()
	first := !w.settled && w.asked != "" && string(subject) == w.asked
	again := w.again != "" && string(subject) == w.again
	w.mu.Unlock()
	if !first && !again {
		return
	}
	t, err := readTold(data)
	w.mu.Lock()
	// An INFO that names another account makes the answer somebody else's.
	ok := err == nil && t.Account != "" && (w.id.Account == "" || w.id.Account == t.Account)
	if again {
		w.again = ""
	}
	news := ok && !bytes.Equal(w.told, t.raw)
	if ok {
		w.id = UpstreamIdentity{Account: t.Account, User: t.User, Permitted: true}
		w.perms, w.told, w.expires, w.size = t.perms, t.raw, t.Expires, len(data)
	}
	w.mu.Unlock()
	switch {
	case first:
		w.settle()
	case news:
		w.renews()
	}
}

// refused takes an -ERR, and reports whether it speaks of the question. Who may not ask any more is not known any more.
func (w *identity) refused(text string) bool {
	about := func(inbox string) bool {
		return inbox != "" && (strings.Contains(text, inbox) || strings.Contains(text, userInfoSubject))
	}
	w.mu.Lock()
	first, again := !w.settled && about(w.asked), about(w.again)
	if again {
		w.again, w.id.Permitted, w.perms, w.told = "", false, nobody, nil
	}
	w.mu.Unlock()
	switch {
	case first:
		w.settle()
	case again:
		w.renews()
	}
	return first || again
}

// named takes the account from an INFO, which is all that is known if the question is not answered. False: the answer
// was another's, since it named another account.
func (w *identity) named(account string) bool {
	w.mu.Lock()
	if w.id.Account == "" {
		w.id.Account = account
	}
	same := w.id.Account == account
	settle := w.asked == ""
	w.mu.Unlock()
	if settle {
		w.settle()
	}
	return same
}

// contradicted ends a connection of which it was told that it is somebody else's than the server upstream says: others
// in an account can hear the question who a client is, and answer it.
func (c *client) contradicted(p *passage) {
	if offer := p.offer.Load(); offer != nil {
		c.server.options.Memory.Refused(offer)
	}
	c.fault("somebody else has answered which account the client is in, and not the server upstream")
	c.expel("account of the connection is not certain", ReasonInternal)
}

// settle says that there is no more to learn.
func (w *identity) settle() {
	w.mu.Lock()
	first := !w.settled
	w.settled = true
	w.mu.Unlock()
	if first {
		w.opens()
		close(w.known)
	}
}

// ID implements Traveler.
func (c *client) ID() uint64 { return c.cid }

// Identity implements Traveler.
func (c *client) Identity() (id UpstreamIdentity, known <-chan struct{}) {
	if l := c.lone; l != nil { // under no lock: it may be asked while something is delivered
		return *l.id.Load(), l.closed
	}
	w := &c.guided.g.who
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.id, w.known
}

// attend gives the passage its guide, if there is a Director.
func (c *client) attend(p *passage) {
	d := c.server.options.Director
	if d == nil {
		return
	}
	p.g.who.known = make(chan struct{})
	p.g.who.opens = func() { c.do(func() { c.enter(p) }) }
	p.g.who.renews = func() { c.do(func() { c.renew(p) }) }
	c.guided = p
	p.guide = d.Attend(c)
}

// enter makes the client a party on the own bus, with the subscriptions that it has upstream. The reader calls it.
func (c *client) enter(p *passage) {
	w := &p.g.who
	w.mu.Lock()
	id, perms, expires, size := w.id, w.perms, w.expires, w.size
	w.mu.Unlock()
	if id.Account == "" || c.bus != nil {
		return
	}
	login := &auth.Login{Account: id.Account, User: id.User, Permissions: perms}
	if id.Permitted {
		c.learn(p, login, expires, size)
	} else {
		login.Permissions = nobody
	}
	c.mu.Lock()
	c.login = login
	c.mu.Unlock()
	c.out.mu.Lock()
	c.headers = p.headers
	c.guard = newGuard(login.Permissions)
	c.out.mu.Unlock()
	if !c.openSession() {
		return
	}
	for _, s := range p.subs.all() {
		c.subscribeHere(s.SID, s.Subject, s.Queue)
	}
}

// renew makes what the server upstream says now about what the client may do hold here. The reader calls it.
func (c *client) renew(p *passage) {
	w := &p.g.who
	w.mu.Lock()
	id, perms, expires, size := w.id, w.perms, w.expires, w.size
	w.mu.Unlock()
	if c.bus == nil {
		return // it is no party here
	}
	c.notice("the servers upstream say that user {user} has other permissions", slog.String("user", id.User))
	login := &auth.Login{Account: id.Account, User: id.User, Permissions: perms}
	c.unlearn(p)
	if id.Permitted {
		c.learn(p, login, expires, size)
	}
	c.mu.Lock()
	c.login = login
	c.mu.Unlock()
	c.out.mu.Lock()
	c.guard = newGuard(perms)
	c.out.mu.Unlock()
	c.checkSubscriptions(login)
}

// askAgain asks the server upstream whether the client may still do what it might.
func (c *client) askAgain(p *passage) {
	if p.guide == nil || !p.connected {
		return
	}
	if lines := p.g.who.askAgain(); lines != nil {
		p.say(func() { c.writeUp(p, lines) })
	}
}

// nobody is allowed to publish nothing: the permissions of who is not known.
var nobody = func() *auth.Permissions {
	p, err := auth.NewPermissions(&server.Permissions{Publish: &server.SubjectPermission{Deny: []string{">"}}})
	if err != nil {
		panic("gateway: " + err.Error())
	}
	return p
}()

// askWho asks who the client is, behind its CONNECT. A verbose client would get the answers to the question.
func (c *client) askWho(p *passage) bool {
	if p.guide == nil || c.options.Verbose {
		return true
	}
	return c.writeUp(p, p.g.who.ask())
}

// passErr notes an -ERR from upstream, and reports whether it is for the client.
func (c *client) passErr(p *passage, arg []byte) bool {
	text := errText(arg)
	if p.guide != nil && p.g.who.refused(text) {
		c.debug("the server upstream does not say who the client is: {text}", slog.String("text", text))
		return false
	}
	if sid := p.subs.refused(text); sid != "" && p.guide != nil {
		if s := c.currentSession(); s != nil {
			s.Unsubscribe(sid, 0)
		}
	}
	if offer := p.offer.Load(); offer != nil && slices.Contains(refusals, text) {
		c.server.options.Memory.Refused(offer)
	}
	p.mu.Lock()
	p.lastErr = text
	p.mu.Unlock()
	return true
}

// refusals are the texts of -ERR that say that a login is not, or no more, to be let in.
var refusals = []string{errAuthorization, errAuthExpired, errAccountExpired, errAuthRevoked}

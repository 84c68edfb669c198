package gateway

import (
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
	asked   string        // inbox of the question; empty: it cannot be asked
	settled bool
	known   chan struct{} // closed once settled
	opens   func()        // makes the client a party here
}

// ownSID is the subscription of the gateway itself on a client's connection upstream. Clients count.
var ownSID = []byte("ehdb.gateway")

const userInfoSubject = "$SYS.REQ.USER.INFO"

// ask returns the commands that ask who the client is.
func (w *identity) ask() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = "_INBOX." + rand.Text() // nobody else can tell it, and answer
	return []byte("SUB " + w.asked + " " + string(ownSID) + wire.CRLF +
		"UNSUB " + string(ownSID) + " 1" + wire.CRLF +
		"PUB " + userInfoSubject + " " + w.asked + " 0" + wire.CRLF + wire.CRLF)
}

// answer takes the answer. What the client has sent to itself under the same id is none.
func (w *identity) answer(subject, data []byte) {
	w.mu.Lock()
	none := w.settled || w.asked == "" || string(subject) != w.asked
	w.mu.Unlock()
	if none {
		return
	}
	var doc struct {
		Data struct {
			User        string              `json:"user"`
			Account     string              `json:"account"`
			Permissions *server.Permissions `json:"permissions"`
			Expires     time.Duration       `json:"expires"`
		} `json:"data"`
	}
	err := json.Unmarshal(data, &doc)
	var perms *auth.Permissions
	if err == nil {
		perms, err = auth.NewPermissions(doc.Data.Permissions)
	}
	w.mu.Lock()
	// An INFO that names another account makes the answer somebody else's.
	if err == nil && doc.Data.Account != "" && (w.id.Account == "" || w.id.Account == doc.Data.Account) {
		w.id = UpstreamIdentity{Account: doc.Data.Account, User: doc.Data.User, Permitted: true}
		w.perms, w.expires, w.size = perms, doc.Data.Expires, len(data)
	}
	w.mu.Unlock()
	w.settle()
}

// refused takes an -ERR, and reports whether it speaks of the question.
func (w *identity) refused(text string) bool {
	w.mu.Lock()
	asked := w.asked
	done := w.settled
	w.mu.Unlock()
	if asked == "" || done || !strings.Contains(text, asked) && !strings.Contains(text, userInfoSubject) {
		return false
	}
	w.settle()
	return true
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

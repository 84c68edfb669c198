package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/wire"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// lone is what a client has that is served from here alone while no server upstream can be reached: like a client of a
// server without any, but that it is who the servers have said, and that a guide keeps what is not served from here
// from being taken.
type lone struct {
	id     atomic.Pointer[UpstreamIdentity] // nil before its CONNECT
	closed chan struct{}                    // always
	msg    bus.Msg                          // that the guide is shown; the reader's

	mu    sync.Mutex
	guide Guide // nil before its CONNECT
	ended bool
}

// Refusal is why a message of a client that is served from here alone goes nowhere.
type Refusal struct {
	Why          string // for a client that does not wait for an answer
	Header, Data []byte // the answer, if it does
}

// stand makes c a client that stands alone. It runs before the reader does.
func (c *client) stand() {
	l := &lone{closed: make(chan struct{})}
	close(l.closed)
	c.mu.Lock()
	c.lone = l
	c.mu.Unlock()
	c.awaiting = true
	c.applyLimits(nil, c.server.settings.Load())
}

// standsAlone returns what c has as a client that stands alone; nil: it does not.
func (c *client) standsAlone() *lone {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lone
}

// loneInfo is an INFO for a client that stands alone: as the servers' last one, so that a client finds what it knows.
func (c *client) loneInfo() wire.Info {
	info := c.server.rewritten(*c.server.upstreamInfo.Load())
	info.Nonce, info.XKey = string(c.nonce), ""
	return info
}

// attendAlone gives a client that stands alone its guide, now that it is known who it is. False: it is turned away.
func (c *client) attendAlone(login *auth.Login) bool {
	l, d := c.lone, c.server.options.Director
	if !d.Serves(login.Account) {
		c.turnAway(fmt.Errorf("no stream of account %s is served from here", login.Account))
		return false
	}
	if before := l.id.Load(); before != nil {
		if before.Account != login.Account {
			c.turnAway(errMoved)
			return false
		}
		return true
	}
	l.id.Store(&UpstreamIdentity{Account: login.Account, User: login.User, Permitted: true})
	guide := d.Attend(c)
	l.mu.Lock()
	ended := l.ended
	l.guide = guide
	l.mu.Unlock()
	if ended {
		guide.Closed()
	}
	return !ended
}

// turnAway closes a client that cannot be served from here. It is not told that its login is wrong, which nobody knows:
// many clients give up then.
func (c *client) turnAway(why error) {
	s := c.server
	s.upstreamRefused.Add(1)
	if !errors.Is(why, errMoved) {
		s.unremembered.Add(1)
	}
	c.fault("no server upstream, and not served from here alone: {error}", slog.Any("error", why))
	c.flush()
	c.expel(errUnreachable, ReasonUpstreamUnreachable)
}

// end says that the connection has ended.
func (l *lone) end() {
	l.mu.Lock()
	guide := l.guide
	first := !l.ended
	l.ended = true
	l.mu.Unlock()
	if first && guide != nil {
		guide.Closed()
	}
}

// arrivedAlone is arrived for a client that stands alone.
func (c *client) arrivedAlone() bool {
	for c.lone != nil && c.lone.id.Load() != nil {
		wait := c.lone.guide.Arrived()
		if wait == nil {
			return true
		}
		if !c.await(wait) {
			return false
		}
	}
	return true
}

// allowedAlone reports whether a message of a client that stands alone may go to the own bus, and answers one that may
// not.
func (c *client) allowedAlone(cmd *wire.Command) bool {
	guide := c.lone.guide
	if string(cmd.Subject) == userInfoSubject && len(cmd.Reply) > 0 {
		c.answerAlone(cmd.Reply, nil, c.userInfoAnswer())
		return false
	}
	for {
		refused, wait := guide.Alone(cmd.Subject, cmd.Reply)
		if wait != nil {
			if !c.await(wait) {
				return false
			}
			continue
		}
		if refused == nil {
			m := &c.lone.msg
			*m = bus.Msg{Subject: cmd.Subject, Reply: cmd.Reply, Header: cmd.Header(), Data: cmd.Data()}
			guide.Sent(m)
			return true
		}
		c.server.refusedAlone.Add(1)
		c.debug("not served while no server upstream can be reached: {subject}: {why}",
			quoted("subject", cmd.Subject), slog.String("why", refused.Why))
		if len(cmd.Reply) == 0 || !c.answerAlone(cmd.Reply, refused.Header, refused.Data) {
			c.flush()
			// In these words, since clients take any other -ERR for the end of the connection.
			c.refuse(fmt.Sprintf("Permissions Violation for Publish to %q: %s", cmd.Subject, refused.Why))
		}
		return false
	}
}

// answerAlone answers a request of the client itself. False: it does not listen there.
func (c *client) answerAlone(reply, header, data []byte) bool {
	sub := c.subFor(reply)
	if sub == nil {
		return false
	}
	c.flush()
	if c.options.Verbose {
		c.enqueue(wire.OK)
	}
	c.out.mu.Lock()
	if c.out.reason == "" {
		c.out.message(reply, sub.SID, nil, header, data)
		c.out.wake.Signal()
	}
	slow := c.out.pending > c.out.max
	c.out.mu.Unlock()
	if slow { // it asks on and on, and does not read
		c.slowConsumer(ReasonSlowPending)
		c.close(ReasonSlowPending)
	}
	return true
}

// userInfoAnswer tells a client that stands alone what the servers have told of it.
func (c *client) userInfoAnswer() []byte {
	var doc struct {
		Server server.ServerInfo `json:"server"`
		Data   *server.UserInfo  `json:"data"`
	}
	if f := c.server.options.Identity; f != nil {
		doc.Server = f()
	}
	doc.Data = c.userInfo()
	b, err := json.Marshal(doc)
	if err != nil { // strings and numbers always marshal
		panic("gateway: marshal USER.INFO: " + err.Error())
	}
	return b
}

// await waits for a channel in the reader's place. False: the client is gone.
func (c *client) await(wait <-chan struct{}) bool {
	c.flush()
	for {
		select {
		case <-wait:
			return !c.closing.Load()
		case <-c.gone:
			return false
		case <-c.tasked:
			if !c.runTasks() {
				return false
			}
		}
	}
}

// learn remembers a login that the servers upstream have accepted and told of. The reader calls it.
func (c *client) learn(p *passage, login *auth.Login, expires time.Duration, size int) {
	m, offer := c.server.options.Memory, p.offer.Load()
	if m == nil || offer == nil {
		return
	}
	if expires > 0 {
		known := *login
		known.Deadline = time.Now().Add(expires)
		login = &known
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.left && !p.learned {
		p.learned = true
		m.Learn(offer, login, size)
	}
}

// unlearn takes back what learn has said: the login holds no more as it was.
func (c *client) unlearn(p *passage) {
	m, offer := c.server.options.Memory, p.offer.Load()
	p.mu.Lock()
	learned := p.learned
	p.learned = false
	p.mu.Unlock()
	if learned && offer != nil {
		m.Left(offer)
		m.Refused(offer)
	}
}

// leave says that the client of a passage is gone, or is to be another: its login held until now.
func (c *client) leave(p *passage) {
	m, offer := c.server.options.Memory, p.offer.Load()
	p.mu.Lock()
	learned := p.learned && !p.left
	p.left = true
	p.mu.Unlock()
	if learned {
		m.Left(offer)
	}
}

// offered is what the client of a passage logs in with, as it is remembered; nil: it is not. One that says who it is
// again is not: which of the two the servers speak of is not known. Nor is one with the signature of a proxy before
// this gateway: that it came that way, which the servers may ask for, cannot be told when it comes again. The reader
// calls it.
//
//nolint:revive // again is what has come before
func (c *client) offered(p *passage, again bool) *auth.Offer {
	m := c.server.options.Memory
	if m == nil || p.guide == nil || again {
		return nil
	}
	offer := c.credentials()
	nonce := p.lastInfo().Nonce
	if offer.ProxySig != "" && c.server.options.Upstream.Sign(nonce) == "" { // else this gateway's own takes its place
		return nil
	}
	offer.Nonce = []byte(nonce)
	return m.Offered(offer)
}

package gateway

import (
	"bytes"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/wire"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// guidance is what a passage has besides where a Director has a say: the client is then a party on this server's own
// bus too, with the subscriptions that it has upstream.
type guidance struct {
	who identity

	up   partial // the reader's
	down partial // the other goroutine's
	held bool    // a message waits, and nothing of it has been sent; the reader's
}

// partial is a message that came in several pieces and that the guide is to see or that is not to pass.
type partial struct {
	course Course
	open   bool
	buf    []byte // CourseShow, CourseLocal: what has come of it
}

// begin starts with the first piece of a message.
func (p *partial) begin(course Course, raw []byte) {
	p.course, p.open, p.buf = course, true, p.buf[:0]
	p.add(raw)
}

// add takes a piece.
func (p *partial) add(raw []byte) {
	if p.course != CourseDrop {
		p.buf = append(p.buf, raw...)
	}
}

// end forgets the message, and its room if that is large.
func (p *partial) end() {
	p.open = false
	if cap(p.buf) > outMaxBuffer {
		p.buf = nil
	}
}

// keptUp reports whether pieces of the message that is coming in are not sent upstream.
func (g *guidance) keptUp() bool { return g.held || g.up.open && g.up.course == CourseLocal }

// arrived lets the guide keep what one read brought waiting. False: the client is gone.
func (c *client) arrived(p *passage) bool {
	if p.guide == nil {
		return true
	}
	for {
		wait := p.guide.Arrived()
		if wait == nil {
			return true
		}
		if !c.hold(p, wait) {
			return false
		}
	}
}

// guideUp lets the guide decide about a message of which f is the first piece. run is what passes before it; the result
// is what passes now. False: upstream takes nothing any more, or the client is gone.
func (c *client) guideUp(p *passage, f *wire.Frame, run []byte) (rest []byte, ok bool) {
	course, run, ok := c.courseUp(p, f, run)
	if !ok {
		return nil, false
	}
	whole := p.up.Between()
	if course == CourseLocal {
		if !c.writeUp(p, run) {
			return nil, false
		}
		if !whole {
			p.g.up.begin(course, f.Raw)
			return nil, true
		}
		return nil, c.sentUp(p, course, f.Raw)
	}
	if course == CourseShow {
		if !whole {
			p.g.up.begin(course, f.Raw)
		} else if !c.sentUp(p, course, f.Raw) {
			return nil, false
		}
	}
	return extend(run, f.Raw), true
}

// courseUp asks the guide about a message that upstream would take, until it has an answer. rest is what still has to
// pass before the message: run, or nothing. False as for guideUp.
func (c *client) courseUp(p *passage, f *wire.Frame, run []byte) (course Course, rest []byte, ok bool) {
	if !p.connected || int64(f.Size) > p.maxPayload.Load() || f.Op == wire.OpHPub && !p.headers {
		return CoursePass, run, true
	}
	for {
		course, wait := p.guide.Up(f.Subject, f.Reply, f.Size)
		if wait == nil {
			return course, run, true
		}
		if !c.writeUp(p, run) || !c.hold(p, wait) {
			return course, nil, false
		}
		run = nil
	}
}

// guideMore is guideUp for the pieces that follow the first.
func (c *client) guideMore(p *passage, raw, run []byte) (rest []byte, ok bool) {
	u := &p.g.up
	u.add(raw)
	course := u.course
	if p.up.Between() {
		ok = c.sentUp(p, course, u.buf)
		u.end()
		if !ok {
			return nil, false
		}
	}
	if course == CourseLocal {
		return run, true // nothing passes since its beginning
	}
	return extend(run, raw), true
}

// hold waits for a channel in the reader's place.
func (c *client) hold(p *passage, wait <-chan struct{}) bool {
	p.g.held = true
	defer func() { p.g.held = false }()
	return c.await(wait)
}

// sentUp shows the guide a whole message, and publishes it here if that is its course.
func (c *client) sentUp(p *passage, course Course, raw []byte) bool {
	var f wire.Frame
	header, data, ok := p.up.Split(raw, &f)
	if !ok { // it was parsed before
		panic("gateway: a message cannot be taken apart")
	}
	m := &c.msg
	*m = bus.Msg{Subject: f.Subject, Reply: f.Reply, Header: header, Data: data}
	p.guide.Sent(m)
	if course != CourseLocal {
		*m = bus.Msg{}
		return true
	}
	return c.publishHere(p, m)
}

// publishHere publishes a message of the client on the own bus, as far as the server upstream would have let it.
func (c *client) publishHere(p *passage, m *bus.Msg) bool {
	if !c.settled(p) {
		return false
	}
	cmd := wire.Command{Op: wire.OpPub, Subject: m.Subject, Reply: m.Reply}
	if !c.mayPublish(&cmd) {
		return true
	}
	if c.options.Verbose {
		c.flush()
		c.enqueue(wire.OK)
	}
	c.published = true
	if !c.bus.Publish(m) && len(m.Reply) > 0 && c.options.NoResponders {
		c.noResponders(&cmd)
	}
	c.flush() // m is borrowed from a buffer that the next read reuses
	return true
}

// settleTime bounds the wait for what the server upstream has to say about who the client is.
const settleTime = 5 * time.Second

// settled waits until the client is a party on the own bus. False: it can be none and is expelled.
func (c *client) settled(p *passage) bool {
	if c.bus != nil {
		return true
	}
	limit := time.AfterFunc(settleTime, func() { p.g.who.settle() })
	defer limit.Stop()
	if !c.hold(p, p.g.who.known) {
		return false
	}
	c.runTasks()
	if c.bus == nil {
		c.fault("the server upstream does not say who the client is; what it publishes is served by this gateway now")
		c.expel("account of the connection is not known, which a stream that is served by the gateway needs",
			ReasonInternal)
		return false
	}
	return true
}

// guideDown lets the guide decide about a message for the client, as guideUp.
func (c *client) guideDown(p *passage, f *wire.Frame, run []byte) (rest []byte) {
	course := CourseShow
	if !bytes.Equal(f.SID, ownSID) {
		course = p.guide.Down(f.Subject, f.Reply, f.Op == wire.OpHMsg)
	}
	whole := p.down.Between()
	switch {
	case course == CoursePass:
		c.ended(p, f.SID)
		return extend(run, f.Raw)
	case !whole:
		c.pass(run, true)
		p.g.down.begin(course, f.Raw)
		return nil
	case course == CourseDrop:
		c.pass(run, true)
		return nil
	}
	return c.received(p, f.Raw, run)
}

// guideRest is guideDown for the pieces that follow the first.
func (c *client) guideRest(p *passage, raw, run []byte) (rest []byte) {
	d := &p.g.down
	d.add(raw)
	if !p.down.Between() {
		return run
	}
	if d.course == CourseShow {
		if shown := c.received(p, d.buf, nil); shown != nil {
			c.pass(shown, true)
		}
	}
	d.end()
	return run
}

// received shows the guide a whole message, and returns what passes of run and raw, if they follow each other.
func (c *client) received(p *passage, raw, run []byte) (rest []byte) {
	var f wire.Frame
	header, data, ok := p.down.Split(raw, &f)
	if !ok { // it was parsed before
		panic("gateway: a message cannot be taken apart")
	}
	if bytes.Equal(f.SID, ownSID) {
		c.pass(run, true)
		p.g.who.answer(f.Subject, data)
		return nil
	}
	m := bus.Msg{Subject: f.Subject, Reply: f.Reply, Header: header, Data: data}
	if p.guide.Received(&m) == CourseDrop {
		c.pass(run, true)
		return nil
	}
	c.ended(p, f.SID)
	if len(m.Header) == len(header) && bytes.Equal(m.Data, data) { // the same memory, where it was not changed
		return extend(run, raw)
	}
	c.pass(run, true)
	c.pass(messageLine(&f, &m), true)
	return nil
}

// messageLine writes m as a message of the subscription of f.
func messageLine(f *wire.Frame, m *bus.Msg) []byte {
	hdr, total := wire.NoHeader, len(m.Header)+len(m.Data)
	if len(m.Header) > 0 {
		hdr = len(m.Header)
	}
	b := make([]byte, 0, wire.MsgLineMax(m.Subject, f.SID, m.Reply)+total+len(wire.CRLF))
	b = wire.AppendMsgLine(b, m.Subject, f.SID, m.Reply, hdr, total)
	return append(append(append(b, m.Header...), m.Data...), wire.CRLF...)
}

// ended counts a message from upstream for a subscription, which may have been its last.
func (c *client) ended(p *passage, sid []byte) {
	if !p.subs.delivered(sid) {
		return
	}
	if s := c.currentSession(); s != nil {
		s.Unsubscribe(string(sid), 0)
	}
}

// deliveredHere counts a message from the own bus for a subscription, which may have been its last: it ends upstream
// too. c.out.mu is held.
func (c *client) deliveredHere(p *passage, sid []byte) {
	if !p.subs.delivered(sid) {
		return
	}
	id := string(sid)
	go c.do(func() { // do takes a lock that may be held by who waits for out.mu
		if c.bus != nil {
			c.bus.Unsubscribe(id, 0)
		}
		p.say(func() { c.writeUp(p, []byte("UNSUB "+id+wire.CRLF)) })
	})
}

// subscribeHere mirrors a subscription on the own bus, if the client is a party there.
func (c *client) subscribeHere(sid, filter, queue string) {
	if c.bus == nil || c.guard != nil && !c.guard.perms.MaySubscribe(filter, queue) {
		return // upstream says so to the client
	}
	c.guardDelivery(filter, queue)
	c.replySub = nil
	_, _ = c.bus.Subscribe(sid, filter, queue) // a filter that is none is refused upstream too
}

// unsubscribeHere mirrors the end of a subscription. One that ends after so many messages ends by their count.
func (c *client) unsubscribeHere(p *passage, sid string) {
	c.replySub = nil
	if c.bus != nil && !p.subs.has(sid) {
		c.bus.Unsubscribe(sid, 0)
	}
}

package gateway

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// passDown passes on what the server upstream sends, until its connection ends.
func (c *client) passDown(p *passage) {
	defer p.down.Close()
	defer p.conn.Close()
	for {
		n, err := p.conn.Read(p.down.Space())
		if n > 0 {
			p.lastHeard.Store(time.Now().UnixNano())
			c.server.upstreamIn.Add(int64(n))
			p.down.Filled(n)
			c.backward(p)
			c.awaitRoom()
		}
		if err != nil {
			c.upstreamEnded(p, err)
			return
		}
	}
}

// backward passes on what one read from upstream brought.
func (c *client) backward(p *passage) {
	var f wire.Frame
	var run []byte
	var msgs, bytes int64
	for p.down.Next(&f) {
		switch f.Op {
		case wire.OpMsg, wire.OpHMsg:
			msgs++
			bytes += int64(f.Size)
			if p.guide != nil {
				run = c.guideDown(p, &f, run)
				continue
			}
			p.subs.delivered(f.SID)
		case wire.OpPong:
			if p.pings.pong() { // ours: the client has not asked for it
				c.pass(run, true)
				run = nil
				continue
			}
		case wire.OpInfo:
			c.pass(run, true)
			run = nil
			c.passInfo(p, f.Arg)
			continue
		case wire.OpErr:
			if !c.passErr(p, f.Arg) {
				c.pass(run, true)
				run = nil
				continue
			}
		case wire.OpNone:
			if p.g.down.open {
				run = c.guideRest(p, f.Raw, run)
				continue
			}
		case wire.OpPub, wire.OpHPub, wire.OpSub, wire.OpUnsub, wire.OpPing, wire.OpConnect, wire.OpOK:
		}
		run = extend(run, f.Raw)
		if c.out.waiting.Load() && p.down.Between() {
			c.pass(run, true)
			run = nil
		}
	}
	c.out.mu.Lock()
	c.outMsgs += msgs
	c.outBytes += bytes
	if c.account != nil {
		c.account.outMsgs.Add(msgs)
		c.account.outBytes.Add(bytes)
	}
	c.out.mu.Unlock()
	c.server.outMsgs.Add(msgs)
	c.server.outBytes.Add(bytes)
	c.touch(time.Now())
	c.pass(run, p.down.Between() || p.g.down.open)
}

// pass queues bytes from upstream for the client. between: they end with the end of a frame. A few bytes, when nothing
// else is being sent, are written at once.
//
//nolint:revive // between is a state of the stream
func (c *client) pass(run []byte, between bool) {
	if len(run) == 0 {
		return
	}
	if c.traced.Load() {
		c.tracePassage("->> [{line}]", run)
	}
	o := &c.out
	o.mu.Lock()
	if o.reason != "" {
		o.mu.Unlock()
		return
	}
	idle := len(o.chain) == 0
	o.fill(run)
	o.pending += int64(len(run))
	o.torn = !between
	if between {
		o.mend()
	}
	var mine []byte
	if idle {
		if mine = c.claim(); mine == nil {
			o.wake.Signal()
		}
	}
	o.mu.Unlock()
	if mine != nil {
		o.unclaim(mine, c.inline.write(mine))
	}
}

// awaitRoom waits until not too much is waiting for the client.
func (c *client) awaitRoom() {
	o := &c.out
	o.mu.Lock()
	for o.reason == "" && o.pending > passagePending {
		if o.stall == nil {
			o.stall = make(chan struct{}) // sent and the end of the connection close it
		}
		gate := o.stall
		o.mu.Unlock()
		<-gate
		o.mu.Lock()
	}
	o.mu.Unlock()
}

// passInfo passes on an INFO, rewritten.
func (c *client) passInfo(p *passage, doc []byte) {
	var info wire.Info
	if err := json.Unmarshal(doc, &info); err != nil {
		c.fault("INFO from upstream is not valid: {error}", slog.Any("error", err))
		return
	}
	p.maxPayload.Store(int64(info.MaxPayload))
	p.mu.Lock()
	p.info = info
	if info.RemoteAccount != "" {
		p.account = info.RemoteAccount
	}
	p.mu.Unlock()
	if info.RemoteAccount != "" {
		c.join(info.RemoteAccount) // a limit that this server has for it does not count: upstream decides
		if p.guide != nil && !p.g.who.named(info.RemoteAccount) {
			c.contradicted(p)
			return
		}
	}
	c.enqueue(string(c.infoLine(c.server.rewritten(info))))
}

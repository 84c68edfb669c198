package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// passUp passes on what the client sends, until its connection ends.
func (c *client) passUp(p *passage) {
	defer p.up.Close()
	defer p.finish()
	for {
		n, err := c.stream.Read(p.up.Space())
		if n > 0 {
			p.up.Filled(n)
			if !c.forward(p) {
				c.drainClient(p)
				return
			}
		}
		if err == nil || (errors.Is(err, os.ErrDeadlineExceeded) && c.runTasks()) {
			continue
		}
		if !errors.Is(err, io.EOF) {
			c.close(ReasonReadError)
			return
		}
		closed := ReasonClientClosed
		p.blame.Store(&closed)
		p.finish() // the client may still want to hear what upstream says to what it has sent
		<-c.gone
		return
	}
}

// judgeInfo accuses a client of an INFO that is none.
func (p *passage) judgeInfo(arg []byte) {
	if !json.Valid(arg) {
		p.accuse(ReasonProtocolViolation)
	}
}

// countPassed adds messages that were passed on to the totals.
func (c *client) countPassed(msgs, bytes int64) {
	if msgs == 0 {
		return
	}
	c.inMsgs.Add(msgs)
	c.inBytes.Add(bytes)
	c.server.inMsgs.Add(msgs)
	c.server.inBytes.Add(bytes)
	c.out.mu.Lock()
	account := c.account
	c.out.mu.Unlock()
	if account != nil {
		account.inMsgs.Add(msgs)
		account.inBytes.Add(bytes)
	}
}

// forward passes on what one read brought. False: upstream takes nothing any more.
func (c *client) forward(p *passage) bool {
	var f wire.Frame
	var run []byte
	var msgs, bytes int64
	if !c.arrived(p) {
		return false
	}
	for p.up.Next(&f) {
		if f.Op == wire.OpPub || f.Op == wire.OpHPub {
			msgs++
			bytes += int64(f.Size)
		}
		var ok bool
		if run, ok = c.forwardFrame(p, &f, run); !ok {
			return false
		}
	}
	if p.up.Opaque() {
		p.accuse(ReasonProtocolViolation)
	}
	c.touch(time.Now())
	c.countPassed(msgs, bytes)
	if c.traced.Load() {
		c.tracePassage("<<- [{line}]", run)
	}
	if !c.writeUp(p, run) {
		return false
	}
	p.between()
	if c.stall != nil {
		c.pause(c.stall)
		c.stall = nil
	}
	return true
}

// forwardFrame notes what a frame says. run is what passes before it; the result is what passes now. False: upstream
// takes nothing any more.
func (c *client) forwardFrame(p *passage, f *wire.Frame, run []byte) (rest []byte, ok bool) {
	switch f.Op {
	case wire.OpPub, wire.OpHPub:
		if f.Op == wire.OpHPub && !p.headers {
			p.accuse(ReasonProtocolViolation)
		}
		if p.guide != nil {
			return c.guideUp(p, f, run)
		}
	case wire.OpSub:
		p.subs.add(f)
		if p.guide != nil {
			c.subscribeHere(string(f.SID), string(f.Subject), string(f.Queue))
		}
	case wire.OpUnsub:
		p.subs.end(f)
		if p.guide != nil {
			c.unsubscribeHere(p, string(f.SID))
		}
	case wire.OpPing:
		p.pings.client()
	case wire.OpConnect:
		return nil, c.forwardConnect(p, f, run)
	case wire.OpErr:
		p.accuse(ReasonParseError)
	case wire.OpInfo:
		p.judgeInfo(f.Arg)
	case wire.OpNone:
		if p.g.up.open {
			return c.guideMore(p, f.Raw, run)
		}
	case wire.OpPong, wire.OpOK, wire.OpMsg, wire.OpHMsg:
	}
	return extend(run, f.Raw), true
}

// forwardConnect passes on run and the CONNECT that follows it, completed. False: upstream takes nothing any more.
func (c *client) forwardConnect(p *passage, f *wire.Frame, run []byte) bool {
	c.passConnect(p, f.Arg)
	line := c.completed(p, f.Arg)
	if line == nil {
		line = f.Raw
	}
	return c.writeUp(p, run) && c.writeUp(p, line) && c.askWho(p)
}

// accuse notes what upstream will end the connection for.
func (p *passage) accuse(reason CloseReason) { p.blame.CompareAndSwap(nil, &reason) }

// extend is run and what follows it in memory.
func extend(run, next []byte) []byte {
	if run == nil {
		return next
	}
	return run[:len(run)+len(next)]
}

// writeUp writes b upstream. False: it cannot be.
func (c *client) writeUp(p *passage, b []byte) bool {
	for len(b) > 0 {
		if p.conn.SetWriteDeadline(time.Now().Add(c.writeDeadline)) != nil {
			return false
		}
		n, err := p.conn.Write(b)
		c.server.upstreamOut.Add(int64(n))
		b = b[n:]
		// A server that takes some of it is alive: it slows its producers down.
		if err != nil && (n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !isTCP(p.conn)) {
			return false
		}
	}
	return true
}

// isTCP tells connections that can go on after a write that timed out.
func isTCP(conn net.Conn) bool {
	_, ok := conn.(*net.TCPConn)
	return ok
}

// drainClient waits for the end of the connection when nothing can be passed on any more: upstream may have said why.
func (c *client) drainClient(p *passage) {
	p.finish()
	_, _ = io.CopyN(io.Discard, c.stream, lingerBytes) // a client that goes on sending is cut off below
	<-c.gone
}

// passConnect notes what the client tells about itself on the way.
func (c *client) passConnect(p *passage, arg []byte) {
	again := p.connected
	if again {
		c.leave(p)
		p.subs.drop()
		c.dropSession()
	}
	p.connected = true
	if len(arg) > int(c.server.settings.Load().MaxControlLine) {
		return // as upstream does
	}
	told := wire.DefaultConnect()
	if json.Unmarshal(arg, &told) != nil {
		p.accuse(ReasonProtocolViolation)
		return
	}
	c.options = told
	c.useCookies()
	p.offer.Store(c.offered(p, again))
	c.options.Pass, c.options.Token, c.options.Sig, c.options.ProxySig, c.options.JWT = "", "", "", "", ""
	told = c.options
	p.headers = told.Headers && p.lastInfo().Headers
	set := c.server.settings.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = told
	c.rtt = max(time.Since(c.start), 1)
	stopTimer(c.pingTimer)
	if !c.closing.Load() {
		c.pingTimer = time.AfterFunc(firstPing(set), c.checkUpstream)
	}
}

// completed returns the line of a CONNECT to which something has to be added on the way: what a WebSocket client's
// cookies say, and the proof that it comes by a trusted proxy. Nil: it passes as it is.
func (c *client) completed(p *passage, arg []byte) []byte {
	add := c.cookieLogin()
	if sig := c.server.options.Upstream.Sign(p.lastInfo().Nonce); sig != "" {
		add["proxy_sig"] = sig
	}
	if len(add) == 0 {
		return nil
	}
	var doc map[string]json.RawMessage
	if json.Unmarshal(arg, &doc) != nil {
		return nil
	}
	for key, value := range add {
		if given, has := doc[key]; has && string(given) != `""` && key != "proxy_sig" {
			continue
		}
		quoted, err := json.Marshal(value)
		if err != nil { // a string always marshals
			panic("gateway: marshal CONNECT: " + err.Error())
		}
		doc[key] = quoted
	}
	line, err := json.Marshal(doc)
	if err != nil {
		return nil
	}
	return slices.Concat([]byte("CONNECT "), line, []byte(wire.CRLF))
}

// tracePassage writes the lines in run to the log, shortened.
func (c *client) tracePassage(msg string, run []byte) {
	set := c.server.settings.Load()
	for line := range strings.Lines(string(run)) {
		line = strings.TrimRight(line, "\r\n")
		if doc, ok := strings.CutPrefix(line, "CONNECT "); ok {
			line = "CONNECT " + withoutSecrets([]byte(doc))
		}
		if limit := set.MaxTracedMsgLen; limit > 0 && len(line) > limit {
			line = line[:limit] + "..."
		}
		c.trace(msg, line)
	}
}

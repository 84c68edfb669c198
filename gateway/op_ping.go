package gateway

import (
	"crypto/rand"
	"encoding/base64"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/wire"
)

// ping answers PING once everything before it has taken effect. The first answer after a CONNECT is followed by an INFO
// that names the client's account.
func (c *client) ping() {
	c.lastInput.Store(time.Now().UnixNano())
	if !c.connected || c.ponged {
		c.barrier(c.sendPong)
		return
	}
	c.ponged = true
	if c.options.Protocol < wire.ProtoInfo {
		c.barrier(c.sendPong)
		return
	}
	c.barrier(func() {
		c.sendPong()
		info := c.server.currentInfo()
		if c.lone != nil {
			info = c.loneInfo()
		}
		info.ConnectInfo = true
		info.RemoteAccount = auth.GlobalAccount
		c.mu.Lock()
		if c.login != nil {
			info.RemoteAccount, info.IsSystem = c.login.Account, c.login.IsSystem
		}
		c.mu.Unlock()
		c.enqueue(string(c.infoLine(info)))
	})
}

func (c *client) barrier(done func()) {
	if c.bus == nil {
		done()
		return
	}
	c.bus.Barrier(done)
}

func (c *client) sendPong() { c.enqueue(wire.Pong) }

// pong takes the answer to our PING.
func (c *client) pong() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pingsOut = 0
	if !c.pingSent.IsZero() {
		c.rtt = max(time.Since(c.pingSent), 1)
	}
}

// rttInterval is how often a client is pinged to measure the round trip, even one that is not quiet.
const rttInterval = time.Hour

// pingDue pings a quiet client, or gives it up when it has not answered often enough.
func (c *client) pingDue() {
	if c.closing.Load() {
		return
	}
	set := c.server.settings.Load()
	now := time.Now()
	quiet := now.Sub(time.Unix(0, c.lastInput.Load())) >= set.PingInterval
	c.mu.Lock()
	send := quiet || c.rtt == 0 || now.Sub(c.pingSent) > rttInterval
	stale := send && c.pingsOut+1 > set.MaxPingsOut
	if send && !stale {
		c.pingsOut++
		c.pingSent = now
	}
	if !stale {
		c.pingTimer = time.AfterFunc(set.PingInterval, c.pingDue)
	}
	c.mu.Unlock()
	switch {
	case stale:
		c.debug("Stale Client Connection - Closing")
		c.expel(errStale, ReasonStale)
	case send:
		c.enqueue(wire.Ping)
	}
	if c.closing.Load() { // it may have ended before it could stop the new timer
		c.mu.Lock()
		stopTimer(c.pingTimer)
		c.mu.Unlock()
	}
}

// nonceBytes is the number of random bytes in a nonce.
const nonceBytes = 11

// newNonce returns what a client has to sign.
func newNonce() []byte {
	var raw [nonceBytes]byte
	_, _ = rand.Read(raw[:]) // never fails
	return []byte(base64.RawURLEncoding.EncodeToString(raw[:]))
}

package gateway

import (
	"time"

	"github.com/noetl/ehdb-gateway/gateway/auth"
)

// Bounds of what a guard remembers.
const (
	maxPublishCache = 1024
	maxReceiveCache = 256
	pruneReplies    = 4096    // new replies after which dead ones are looked for
	maxReplies      = 1 << 18 // open requests that may be answered by permission
	pruneInterval   = time.Second
)

// guard enforces the permissions of a client. The publish cache belongs to the reader; the rest is guarded by the
// client's out.mu.
type guard struct {
	perms    *auth.Permissions
	response *auth.Response

	published map[string]bool // by subject: the configured rules allow it

	filterDelivery bool // some subscription is wider than what may be received
	received       map[receiveKey]bool
	replies        map[string]*openReply
	newReplies     int
	pruned         time.Time
}

type receiveKey struct{ subject, target, queue string }

// openReply is a reply subject that the client may publish to because it was asked.
type openReply struct {
	since time.Time
	sent  int
}

// newGuard returns nil if there is nothing to enforce.
func newGuard(p *auth.Permissions) *guard {
	if p == nil {
		return nil
	}
	return &guard{
		perms: p, response: p.Response(),
		published: make(map[string]bool), received: make(map[receiveKey]bool), replies: make(map[string]*openReply),
	}
}

// guardPublish reports whether the client may publish to subject.
func (c *client) guardPublish(subject []byte) bool {
	g := c.guard
	if !g.perms.RestrictsPublish() {
		return true
	}
	allowed, known := g.published[string(subject)]
	if !known {
		s := string(subject)
		allowed = g.perms.MayPublish(s)
		if len(g.published) >= maxPublishCache {
			clear(g.published)
		}
		g.published[s] = allowed
	}
	if allowed || g.response == nil {
		return allowed
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return g.mayReply(subject, time.Now())
}

// mayReply reports whether subject is the reply of an open request, and counts the answer.
func (g *guard) mayReply(subject []byte, now time.Time) bool {
	r := g.replies[string(subject)]
	if r == nil {
		return false
	}
	r.sent++
	if g.dead(r, now, r.sent-1) {
		delete(g.replies, string(subject))
		return false
	}
	return true
}

// dead reports whether r, after so many answers, permits nothing more.
func (g *guard) dead(r *openReply, now time.Time, sent int) bool {
	return (g.response.Max > 0 && sent >= g.response.Max) ||
		(g.response.Expires > 0 && now.Sub(r.since) > g.response.Expires)
}

// expectReply lets the client answer a request that is being delivered to it.
func (g *guard) expectReply(reply []byte) {
	if g.perms.MayPublish(string(reply)) {
		return
	}
	now := time.Now()
	if len(g.replies) < maxReplies {
		g.replies[string(reply)] = &openReply{since: now}
	}
	g.newReplies++
	if g.newReplies <= pruneReplies && now.Sub(g.pruned) <= pruneInterval {
		return
	}
	g.newReplies, g.pruned = 0, now
	for k, r := range g.replies {
		if g.dead(r, now, r.sent) {
			delete(g.replies, k)
		}
	}
}

// mayReceive reports whether a message that shows subject and was sent to target may go to the client.
func (g *guard) mayReceive(subject, target []byte, queue string) bool {
	key := receiveKey{string(subject), string(target), queue}
	allowed, known := g.received[key]
	if !known {
		allowed = g.perms.MayReceive(key.subject, key.target, queue)
		if len(g.received) >= maxReceiveCache {
			clear(g.received)
		}
		g.received[key] = allowed
	}
	return allowed
}

package gateway

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/noetl/ehdb-gateway/gateway/wire"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/subjects"
)

type subscription = bus.Subscription

// systemQueue is a queue group that clients may not join.
const systemQueue = "_sys_"

// subscribe handles SUB. False ends the connection.
func (c *client) subscribe(cmd *wire.Command) bool {
	c.subs++
	sid, filter, queue := string(cmd.SID), string(cmd.Subject), string(cmd.Queue)
	if !c.maySubscribe(sid, filter, queue) {
		return true
	}
	if c.bus == nil && !c.openSession() {
		return false
	}
	if limit, limited := c.maxSubs(c.server.settings.Load()); limited && c.bus.NumSubscriptions() >= limit {
		c.fault("maximum subscriptions exceeded")
		c.refuse(errMaxSubscriptions)
		return true
	}
	if !subjects.ValidFilter(filter) && !c.uses(sid) {
		c.refuse(errSubject)
		return true
	}
	c.replySub = nil
	if _, err := c.bus.Subscribe(sid, filter, queue); err != nil && !c.uses(sid) {
		c.debug("subscribe failed: {error}", slog.Any("error", err))
		if errors.Is(err, bus.ErrClosed) {
			return false
		}
		c.refuse(errSubject)
		return true
	}
	c.ok()
	return true
}

// uses reports whether sid is subscribed.
func (c *client) uses(sid string) bool {
	for _, s := range c.bus.Subscriptions() {
		if string(s.SID) == sid {
			return true
		}
	}
	return false
}

// maySubscribe checks permissions and answers what is not allowed.
func (c *client) maySubscribe(sid, filter, queue string) bool {
	if queue == systemQueue || (c.guard != nil && !c.guard.perms.MaySubscribe(filter, queue)) {
		text := fmt.Sprintf("Permissions Violation for Subscription to %q", filter)
		if queue != "" {
			text += fmt.Sprintf(" using queue %q", queue)
		}
		c.subscribeViolation(sid, filter, queue, text)
		return false
	}
	c.guardDelivery(filter, queue)
	limit := c.server.settings.Load().MaxSubTokens
	if limit > 0 && subjects.NumTokens(filter) > int(limit) {
		c.subscribeViolation(sid, filter, queue,
			fmt.Sprintf("Permissions Violation for Subscription to %q, too many tokens", filter))
		return false
	}
	return true
}

// guardDelivery turns the filter of deliveries on if a subscription to filter needs it.
func (c *client) guardDelivery(filter, queue string) {
	if c.guard == nil || !c.guard.perms.NeedsFilter(filter, queue) {
		return
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.guard.filterDelivery = true
}

func (c *client) subscribeViolation(sid, filter, queue, text string) {
	c.refuse(text)
	c.fault("Subscription Violation - Subject {subject}, Queue: {queue}, SID {sid}",
		quoted("subject", filter), quoted("queue", queue), quoted("sid", sid))
}

// unsubscribe handles UNSUB.
func (c *client) unsubscribe(cmd *wire.Command) {
	c.subs++
	c.replySub = nil
	if c.bus != nil {
		c.bus.Unsubscribe(string(cmd.SID), cmd.Max)
	}
	c.ok()
}

// ok queues +OK for a verbose client.
func (c *client) ok() {
	if c.options.Verbose {
		c.enqueue(wire.OK)
	}
}

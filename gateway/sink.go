package gateway

import (
	"time"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

var _ bus.PromptSink = (*client)(nil)

// Deliver implements bus.Sink: it queues the messages for the client and wakes the writer once.
func (c *client) Deliver(batch []bus.Delivery) (stall <-chan struct{}) {
	return c.deliver(batch, 0)
}

// DeliverNow implements bus.PromptSink: a single message, when nothing else is being sent, is written to the
// socket as far as that is possible without waiting. More than one is a stream of them, which the writer sends in
// larger pieces.
func (c *client) DeliverNow(batch []bus.Delivery) (stall <-chan struct{}) {
	return c.deliver(batch, 1)
}

// deliver queues batch. At most so many messages as now says are worth an attempt to write them at once.
func (c *client) deliver(batch []bus.Delivery, now int) (stall <-chan struct{}) {
	if c.traced.Load() {
		c.traceDelivery(batch)
	}
	o := &c.out
	o.mu.Lock()
	if o.reason != "" {
		o.mu.Unlock()
		return nil
	}
	idle := len(o.chain) == 0
	var msgs, bytes int64
	for i := range batch {
		n, ok := c.deliverOne(&batch[i])
		if ok {
			msgs++
			bytes += int64(n)
		}
		if o.pending > o.max {
			break
		}
	}
	c.outMsgs += msgs
	c.outBytes += bytes
	c.account.outMsgs.Add(msgs)
	c.account.outBytes.Add(bytes)
	slow := o.pending > o.max
	if !slow && !c.noStall && o.crowded() {
		stall = o.stallGate()
	}
	var mine []byte
	if idle && !slow && len(batch) <= now {
		mine = c.claim()
	}
	if idle && mine == nil {
		o.wake.Signal()
	}
	o.mu.Unlock()
	if mine != nil {
		o.unclaim(mine, c.inline.write(mine))
	}
	c.touch(time.Now())
	c.server.outMsgs.Add(msgs)
	c.server.outBytes.Add(bytes)
	if slow {
		c.slowConsumer(ReasonSlowPending)
		c.close(ReasonSlowPending)
	}
	return stall
}

// deliverOne queues one message and returns its size, unless the client may not have it. c.out.mu is held.
func (c *client) deliverOne(d *bus.Delivery) (size int, ok bool) {
	m := &d.Msg
	if g := c.guard; g != nil {
		if g.filterDelivery && !g.mayReceive(m.Subject, m.Target(), d.Sub.Queue) {
			return 0, false
		}
		if g.response != nil && len(m.Reply) > 0 {
			g.expectReply(m.Reply)
		}
	}
	if c.noStall && c.out.crowded() {
		return 0, false // no_fast_producer_stall: the receiver loses it
	}
	header := m.Header
	if !c.headers {
		header = nil
	}
	c.out.message(m.Subject, d.Sub.SID, m.Reply, header, m.Data)
	if p := c.guided; p != nil {
		c.deliveredHere(p, d.Sub.SID)
		p.guide.Delivered(m)
	} else if l := c.lone; l != nil {
		l.guide.Delivered(m)
	}
	return len(header) + len(m.Data), true
}

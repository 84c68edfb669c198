package consumer

import (
	"bytes"
	"slices"
	"sync/atomic"
)

// A consumer with keys sends a message only when the record of its delivery is durable: else, after a crash, another
// worker could be given what one has in its hands. (Others send at once, see the package's doc.) What a step sends is
// kept until then, in order, with the statuses that come after it.

// heldMost is how many steps a consumer with keys is ahead of the disk at most.
const heldMost = 16

// heldSends is what one step sends.
type heldSends struct {
	sends []send
	state atomic.Int32
}

const (
	heldBack    int32 = iota // its deliveries are not durable yet
	heldDurable              // it may be sent
	heldRefused              // its deliveries can never become durable
)

// settle is told what became of the record.
func (h *heldSends) settle(err error) {
	if err != nil {
		h.state.Store(heldRefused)
		return
	}
	h.state.Store(heldDurable)
}

// hold keeps what a step sends, where that has to wait, and returns what is to be sent now. It and sendHeld are for the
// worker that runs the consumer.
func (c *Consumer) hold(out *outbox) []send {
	if !c.keyed || len(out.sends) == 0 {
		return out.sends
	}
	if c.ended() {
		c.outgoing = nil // nobody is to get anything any more but the reason
		return out.sends
	}
	delivers := slices.ContainsFunc(out.sends, func(s send) bool { return s.seq != 0 })
	if n := len(c.outgoing); !delivers && (n == 0 || n >= heldMost) {
		return out.sends
	}
	h := &heldSends{sends: slices.Clone(out.sends)}
	out.arena = nil // h has it
	for i := range h.sends {
		if s := &h.sends[i]; s.seq == 0 {
			s.to = bytes.Clone(s.to) // it may be a letter's
		}
	}
	if delivers {
		out.then = append(out.then, h)
	} else {
		h.settle(nil)
	}
	c.outgoing = append(c.outgoing, h)
	return nil
}

// sendHeld sends what became durable.
func (c *Consumer) sendHeld(w *worker) {
	for len(c.outgoing) > 0 && !c.pausing.held.Load() {
		h := c.outgoing[0]
		switch h.state.Load() {
		case heldBack:
			return
		case heldDurable:
			c.send(w, h.sends)
		case heldRefused:
			for i := range h.sends {
				c.lost(&h.sends[i])
			}
		}
		c.outgoing[0] = nil
		c.outgoing = c.outgoing[1:]
	}
}

func (c *Consumer) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m.closed != nil
}

package consumer

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Debt is what a consumer owes those who wait for it.
type Debt struct {
	// Owes says that there is a message, somebody who may have it now, and nothing the consumer is told to wait for: a
	// step would deliver. A consumer that owes for long without delivering is broken, whatever the cause.
	Owes bool
	// Delivered counts deliveries, redeliveries included.
	Delivered uint64
}

// Debt returns what the consumer owes now. It is cheap where nobody waits.
func (c *Consumer) Debt() Debt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Debt{Owes: c.m.owes(time.Now().UnixNano()), Delivered: c.m.led.last.consumer}
}

// Crowded reports whether with ehdb.key_shared as many messages are passed over as may be, and those after them wait
// for the keys of these.
func (c *Consumer) Crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m.isCrowded()
}

// owes changes nothing; see Debt.
func (m *machine) owes(now int64) bool {
	switch {
	case m.closed != nil || m.isBlocked(now) || now < m.pace.until:
		return false
	case !m.set.push && !m.asked(now):
		return false
	case m.led.keys != nil:
		return m.owesShared(now)
	case m.led.rhead != nil:
		return true
	case m.isFull():
		return false
	}
	return m.numPending() > 0
}

// asked reports whether a waiting request may have a message now.
func (m *machine) asked(now int64) bool {
	for w := m.wait.head; w != nil; w = w.next {
		if m.mayHave(now, w) {
			return true
		}
	}
	return false
}

func (m *machine) mayHave(now int64, w *waiting) bool {
	pinned := m.set.cfg.PriorityPolicy != server.PriorityPinnedClient || m.pin.id == "" || w.pin == m.pin.id
	return pinned && !w.expired(now) && !m.belowOverflow(w) && m.w.Interest(w.reply)
}

package jetstreamapi

import (
	"log/slog"
	"time"

	"github.com/noetl/ehdb-gateway/jetstreamapi/consumer"
)

// stallLooks is how often a consumer is looked at before it counts as stalled.
const stallLooks = 5

// stall is what is known of a consumer that owed deliveries at the last look.
type stall struct {
	delivered uint64    // its count of deliveries then
	since     time.Time // it has owed, and delivered nothing, from then on
	told      bool
}

// watchStalls looks for consumers that have a message and somebody who waits for it and deliver nothing. There must be
// none; should there be one all the same, its stream and its name are in the log and their number is in
// Counters.Stalled, instead of a client that waits in silence.
func (s *Service) watchStalls() {
	tick := time.NewTicker(s.opts.StallAfter / stallLooks)
	defer tick.Stop()
	var known map[*consumerEntry]stall
	for {
		select {
		case <-s.stopping.Done():
			return
		case now := <-tick.C:
			known = s.lookForStalls(now, known)
		}
	}
}

// lookForStalls looks at every consumer once. known is what the last look returned.
func (s *Service) lookForStalls(now time.Time, known map[*consumerEntry]stall) map[*consumerEntry]stall {
	owing, stalled, blocked := make(map[*consumerEntry]stall), int64(0), int64(0)
	for _, a := range s.sortedAccounts() {
		for _, c := range a.servingConsumers() {
			if c.lookBlocked() {
				blocked++
			}
			st, owes := c.look(now, known, s.opts.StallAfter)
			if !owes {
				continue
			}
			owing[c] = st
			if st.told {
				stalled++
			}
		}
	}
	for c, st := range known {
		if still := owing[c]; st.told && !still.told {
			c.logger().Info("a consumer that had stalled no longer does")
		}
	}
	s.stalled.Store(stalled)
	s.keyBlocked.Store(blocked)
	return owing
}

// lookBlocked reports whether new messages of the consumer wait for the keys of too many that it passed over, and tells
// the log when that begins.
func (c *consumerEntry) lookBlocked() bool {
	was := c.keyBlocked
	c.keyBlocked = c.consumer.Crowded()
	if c.keyBlocked && !was {
		c.logger().Warn("a consumer has passed over as many messages as it may, new ones wait for the keys of these",
			slog.String("key_shared", c.config().Metadata[consumer.KeyKeyShared]))
	}
	return c.keyBlocked
}

// look returns what is known of the consumer now; owes is false if that is nothing. It tells the log of a new stall.
func (c *consumerEntry) look(
	now time.Time, known map[*consumerEntry]stall, after time.Duration,
) (st stall, owes bool) {
	debt := c.consumer.Debt()
	if !debt.Owes {
		return stall{}, false
	}
	st, old := known[c]
	if !old || st.delivered != debt.Delivered {
		return stall{delivered: debt.Delivered, since: now}, true
	}
	if owed := now.Sub(st.since); owed >= after && !st.told {
		st.told = true
		c.logger().Error("a consumer has messages and somebody who waits for them, and delivers nothing",
			slog.Duration("for", owed))
	}
	return st, true
}

// Audits take at most a hundredth of a core's time.
const (
	auditEvery = time.Second
	auditShare = 100
)

// watchBooks counts anew what consumers keep count of, one consumer after the other. What is wrong is in the log and in
// Counters.Miscounted, instead of a number that nobody can trust.
func (s *Service) watchBooks() {
	var left []*consumerEntry
	wait := time.NewTimer(auditEvery)
	defer wait.Stop()
	for {
		select {
		case <-s.stopping.Done():
			return
		case <-wait.C:
		}
		begun := time.Now()
		if len(left) == 0 {
			for _, a := range s.sortedAccounts() {
				left = append(left, a.servingConsumers()...)
			}
		}
		for len(left) > 0 && time.Since(begun) < auditEvery/auditShare {
			s.noteAudit(left[0], left[0].consumer.Audit())
			left = left[1:]
		}
		wait.Reset(max(auditEvery, auditShare*time.Since(begun)))
	}
}

// noteAudit tells of a consumer that was looked at; err is what was wrong.
func (s *Service) noteAudit(c *consumerEntry, err error) {
	s.audits.Add(1)
	if err != nil {
		s.miscounted.Add(1)
		c.logger().Error("a consumer had lost count", slog.Any("error", err))
	}
}

// servingConsumers returns the consumers that serve, in no order.
func (a *account) servingConsumers() []*consumerEntry {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var out []*consumerEntry
	for _, e := range a.streams {
		for _, c := range e.consumers {
			if c.offline == nil && c.consumer != nil {
				out = append(out, c)
			}
		}
	}
	return out
}

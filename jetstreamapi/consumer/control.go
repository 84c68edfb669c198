package consumer

import (
	"errors"
	"slices"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// update takes a new configuration.
func (m *machine) update(now int64, set settings) error {
	old := m.set
	if filters := filterSubjects(&set.cfg); !sameFilters(filters, filterSubjects(&old.cfg)) {
		beside, err := m.parkedBeside(filters)
		if err != nil {
			return err
		}
		if err := m.w.Refilter(m.w.Position(), filters); err != nil {
			return err
		}
		m.skip = skipList{}
		for _, e := range beside {
			m.unpark(e)
		}
	}
	m.set = set
	if set.cfg.DeliverSubject != old.cfg.DeliverSubject {
		m.moveTo(now)
	}
	if set.cfg.AckWait != old.cfg.AckWait || !slices.Equal(set.cfg.BackOff, old.cfg.BackOff) {
		m.reschedule()
	}
	if set.threshold != old.threshold {
		m.life.check = 0
		if set.threshold > 0 && (!set.push || !m.push.active) {
			m.life.used, m.life.check = now, now+set.threshold
		}
	}
	if set.pause != old.pause {
		m.pauseChanged(now)
	}
	m.graves.look(m, now)
	if set.cfg.RateLimit != old.cfg.RateLimit {
		m.pace.tokens, m.pace.filled, m.pace.until = 0, 0, 0
	}
	return nil
}

// moveTo goes on with another deliver subject: what is outstanding at the old one is sent again.
func (m *machine) moveTo(now int64) {
	m.push.to = []byte(m.set.cfg.DeliverSubject)
	for e := m.led.head; e != nil; {
		next := e.next
		if !e.queued && !m.exhausted(e) {
			m.led.queue(e)
		}
		e = next
	}
	m.interest(now)
}

// reschedule gives every outstanding message the deadline of the present ack wait.
func (m *machine) reschedule() {
	for e := m.led.head; e != nil; e = e.next {
		if !e.queued && !e.delayed && !e.parked {
			m.led.setDue(e, m.set.dueAfter(e.sent, e.count))
		}
	}
}

// pause stops deliveries until a time (0: goes on at once).
func (m *machine) pause(now, until int64) {
	if m.set.pause == until {
		return
	}
	m.set.pause = until
	m.pauseChanged(now)
}

func (m *machine) pauseChanged(now int64) {
	m.life.pauseEnd = 0
	if now < m.set.pause {
		m.life.pauseEnd = m.set.pause
	}
	m.announcePause(now)
}

// Reasons why a consumer cannot be reset; clients see them in 10204.
var (
	errResetBelowSeq  = errors.New("below start seq")
	errResetBelowTime = errors.New("below start time")
	errResetPolicy    = errors.New("not allowed")
)

// reset goes back (or on) to seq and forgets every delivery; 0 means the message after the ack floor. startSeq is the
// sequence of the consumer's start time, where it has one.
func (m *machine) reset(seq, startSeq uint64) (uint64, error) {
	switch {
	case seq == 0:
		seq = m.led.floor.stream + 1
	case m.set.cfg.DeliverPolicy == server.DeliverAll:
	case m.set.cfg.DeliverPolicy == server.DeliverByStartSequence:
		if seq < m.set.cfg.OptStartSeq {
			return 0, errResetBelowSeq
		}
	case m.set.cfg.DeliverPolicy == server.DeliverByStartTime:
		if seq < startSeq {
			return 0, errResetBelowTime
		}
	default:
		return 0, errResetPolicy
	}
	m.log.resetTo(seq)
	m.resetTo(seq)
	m.w.Seek(seq)
	return seq, nil
}

func (m *machine) resetTo(seq uint64) {
	m.led.reset(seq)
	m.skip, m.graves = skipList{}, graves{}
	if m.parked != nil {
		m.parked = m.w.Subset(nil)
	}
	m.life.delivered, m.life.acked = 0, 0
}

// stop ends the consumer: whoever waits, and whoever asks from now on, is told why.
func (m *machine) stop(code int, text string) {
	if m.closed != nil {
		return
	}
	m.closed = &closing{code, text}
	for w := m.wait.head; w != nil; w = w.next {
		if text == jsapi.StatusConsumerDeleted {
			m.out.status(w.to, code, text)
		} else {
			m.out.pullStatus(w, code, text)
		}
	}
	m.wait = waitQueue{max: m.wait.max, byPriority: m.wait.byPriority}
}

// SameFilters reports whether two configurations ask for the same messages of a stream, but for where they begin.
func SameFilters(a, b *server.ConsumerConfig) bool {
	return sameFilters(filterSubjects(a), filterSubjects(b))
}

func sameFilters(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

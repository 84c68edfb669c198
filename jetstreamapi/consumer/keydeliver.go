package consumer

import (
	"errors"

	"github.com/noetl/ehdb-gateway/storage"
)

// learnBatch is how many messages a step reads at once to learn their keys.
const learnBatch = 256

// startKeys makes the index of keys, where the configuration asks for one. What is parked is counted from then on.
func (m *machine) startKeys() {
	if m.set.keys == nil {
		m.led.unparkAll()
		return
	}
	m.led.keys = newKeyIndex(m.set.keys, keyAhead)
	var seqs []uint64
	for e := m.led.head; e != nil; e = e.next {
		if e.parked {
			seqs = append(seqs, e.sseq)
		}
	}
	m.parked = m.w.Subset(seqs)
}

// learnKeys reads the keys of what is outstanding since before the start, some at a time.
func (m *machine) learnKeys(now int64) standing {
	keys, looks := m.led.keys, learnBatch
	for e := m.led.head; e != nil; {
		next := e.next
		if e.key == nil {
			if looks--; looks < 0 {
				return ready
			}
			rec, err := m.w.Get(e.sseq)
			switch {
			case err == nil:
				keys.learn(e, keys.hash(&rec))
			case errors.Is(err, storage.ErrNotFound):
				m.vanished(now, e)
			default:
				return m.failedRead(now, err)
			}
		}
		e = next
	}
	keys.learned = true
	return ready
}

// deliverShared sends the next message that somebody may have, or parks one that nobody may have now; it says why it
// did neither.
func (m *machine) deliverShared(now int64) standing {
	if !m.led.keys.learned {
		return m.learnKeys(now)
	}
	for m.wait.head != nil {
		requests := m.wait.n
		c, why := m.nextShared(now)
		if why == ready && c.again == nil && !m.anyMayHave(c.key) {
			return m.park(now, &c)
		}
		if why == ready {
			why = m.offer(now, &c)
		}
		if why != noTaker || m.wait.n == requests {
			return why
		}
		// a request that was too small for it is gone: another message may fit, or another request
	}
	return noTaker
}

// nextShared finds the message to deliver or to park: of a key that waits for one who asks, then what is new.
func (m *machine) nextShared(now int64) (candidate, standing) {
	isFull := m.isFull()
	for {
		k, asked := m.readyKey(now, isFull)
		switch {
		case !asked:
			return candidate{}, noTaker
		case k == nil && isFull:
			return candidate{}, full
		case k == nil:
			c, why := m.nextNew(now)
			if why == ready {
				c.hash = m.led.keys.hash(&c.rec)
				c.key = m.led.keys.keys[c.hash]
			}
			return c, why
		}
		e := k.waiting[0]
		rec, err := m.w.Get(e.sseq)
		switch {
		case err == nil:
			return candidate{rec: rec, again: e, count: e.count + 1, hash: k.hash, key: k}, ready
		case !errors.Is(err, storage.ErrNotFound):
			return candidate{}, m.failedRead(now, err)
		}
		m.vanished(now, e)
	}
}

// readyKey returns the key of which the first request that can have one gets a message; nil: none is ready. asked is
// false if nobody asks. Requests that are over are removed on the way.
func (m *machine) readyKey(now int64, isFull bool) (k *sharedKey, asked bool) {
	for w := m.wait.head; w != nil; {
		next := w.next
		switch {
		case w.expired(now):
			m.expire(w)
		case !m.listening(w):
			m.wait.remove(w)
		default:
			asked = true
			if k := m.led.keys.ready(w.reply, isFull); k != nil {
				return k, true
			}
		}
		w = next
	}
	return nil, asked
}

// anyMayHave reports whether one of the waiting requests may have a new message of k.
func (m *machine) anyMayHave(k *sharedKey) bool {
	if k != nil && len(k.waiting) > 0 {
		return false // these first
	}
	for w := m.wait.head; w != nil; w = w.next {
		if k.mayGoTo(w.reply) {
			return true
		}
	}
	return false
}

// sharedTaker returns the request that gets the next message of k, of that size; nil: there is none.
func (m *machine) sharedTaker(now int64, size int, k *sharedKey) *waiting {
	for w := m.wait.head; w != nil; {
		next := w.next
		switch {
		case w.expired(now):
			m.expire(w)
		case !m.listening(w):
			m.wait.remove(w)
		case !k.mayGoTo(w.reply):
		case w.bytes > 0 && size > w.bytes:
			m.tooSmall(w)
		default:
			return w
		}
		w = next
	}
	return nil
}

// park passes over c, of a key that is not free.
func (m *machine) park(now int64, c *candidate) standing {
	keys := m.led.keys
	if m.led.parked >= keys.ahead {
		return crowded
	}
	m.pass(c)
	m.log.parked(now, m.led.last.stream, c.rec.Seq)
	e := m.led.park(c.rec.Seq, now)
	m.parked.Add(c.rec.Seq)
	keys.learn(e, c.hash)
	return ready
}

// unpark gives up a parked message: it left the log, or is of no interest any more.
func (m *machine) unpark(e *entry) {
	m.parked.Remove(e.sseq)
	m.log.acked(m.led.last.stream, e.sseq)
	m.led.remove(e)
}

// handed notes who has the message that was just delivered.
func (m *machine) handed(c *candidate, w *waiting) {
	keys := m.led.keys
	if keys == nil {
		return
	}
	e := m.led.bySeq[c.rec.Seq]
	if e.key == nil {
		keys.learn(e, c.hash)
	}
	keys.took(e, w.reply)
}

// numParked returns how many messages are parked and in the log.
func (m *machine) numParked() uint64 {
	if m.parked == nil {
		return 0
	}
	return uint64(m.parked.Len()) //nolint:gosec // not negative
}

// owesShared is owes for a consumer with keys, which has requests and is not told to wait.
func (m *machine) owesShared(now int64) bool {
	keys := m.led.keys
	if !keys.learned {
		return m.led.len() > 0 || m.numPending() > 0
	}
	isFull := m.isFull()
	reads := !isFull && m.led.parked < keys.ahead && m.numUnread() > 0
	for w := m.wait.head; w != nil; w = w.next {
		if m.mayHave(now, w) && (reads || keys.ready(w.reply, isFull) != nil) {
			return true
		}
	}
	return false
}

// isCrowded reports whether messages wait only because as many as may be parked are.
func (m *machine) isCrowded() bool {
	keys := m.led.keys
	return keys != nil && m.led.parked >= keys.ahead && m.wait.head != nil && !m.isFull() && m.numUnread() > 0
}

// parkedBeside returns the parked messages that none of filters matches.
func (m *machine) parkedBeside(filters []string) (list []*entry, err error) {
	if m.led.parked == 0 {
		return nil, nil
	}
	set, err := compileFilters(filters)
	if err != nil {
		return nil, err
	}
	for e := m.led.head; e != nil; e = e.next {
		if !e.parked {
			continue
		}
		rec, err := m.w.Get(e.sseq)
		switch {
		case errors.Is(err, storage.ErrNotFound), err == nil && !set.match(rec.Key):
			list = append(list, e)
		case err != nil:
			return nil, err
		}
	}
	return list, nil
}

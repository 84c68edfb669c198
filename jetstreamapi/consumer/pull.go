package consumer

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// pull takes a request for messages. reply and body are the machine's to keep.
func (m *machine) pull(now int64, reply, body []byte) {
	if m.closed != nil {
		m.out.status(reply, m.closed.code, m.closed.text)
		return
	}
	if m.set.push {
		m.out.status(reply, 409, jsapi.StatusPushBased)
		return
	}
	r, err := jsapi.ParsePullRequest(body)
	if err != nil {
		m.out.status(reply, 400, jsapi.StatusBadRequest+err.Error())
		return
	}
	if code, text := m.refusal(now, &r); code != 0 {
		m.out.status(reply, code, text)
		return
	}
	if m.wait.full() {
		m.processWaiting(now, false)
	}
	if r.NoWait && m.refuseNoWait(now, &r, reply) {
		return
	}
	if m.wait.full() {
		// A client that gets heartbeats learns from their absence and comes back slowly; told at once it would ask
		// again at once, for ever.
		if r.Heartbeat == 0 {
			m.out.status(reply, 409, jsapi.StatusMaxWaiting)
		}
		return
	}
	m.wait.add(newWaiting(now, &r, reply))
	m.life.used = now
	if m.life.sweep == 0 {
		m.life.sweep = now + sweepEvery
	}
}

func newWaiting(now int64, r *jsapi.PullRequest, reply []byte) *waiting {
	w := &waiting{
		reply: string(reply), to: bytes.Clone(reply), left: r.Batch, bytes: r.MaxBytes, noWait: r.NoWait,
		heartbeat: int64(r.Heartbeat),
		group:     r.Group, pin: r.ID, minPending: r.MinPending, minAckPending: r.MinAckPending, priority: r.Priority,
	}
	if r.Expires != 0 {
		w.expires = after(now, int64(r.Expires))
	}
	if r.Heartbeat > 0 {
		w.beat = after(now, int64(r.Heartbeat))
	}
	return w
}

// refusal checks a request against the limits and the priority group; code 0: it may wait.
func (m *machine) refusal(now int64, r *jsapi.PullRequest) (code int, text string) {
	cfg := &m.set.cfg
	switch {
	case cfg.MaxRequestBatch > 0 && r.Batch > cfg.MaxRequestBatch:
		return 409, jsapi.StatusMaxBatch + strconv.Itoa(cfg.MaxRequestBatch)
	case r.Expires > 0 && cfg.MaxRequestExpires > 0 && r.Expires > cfg.MaxRequestExpires:
		return 409, jsapi.StatusMaxExpires + cfg.MaxRequestExpires.String()
	case r.MaxBytes > 0 && cfg.MaxRequestMaxBytes > 0 && r.MaxBytes > cfg.MaxRequestMaxBytes:
		return 409, jsapi.StatusMaxRequestBytes + strconv.Itoa(cfg.MaxRequestMaxBytes)
	case !r.HasGroup:
		return 0, ""
	case (r.MinPending != 0 || r.MinAckPending != 0) && cfg.PriorityPolicy != server.PriorityOverflow:
		return 400, jsapi.StatusBadRequest + "Not a Overflow Priority consumer"
	case r.ID != "" && cfg.PriorityPolicy != server.PriorityPinnedClient:
		return 400, jsapi.StatusBadRequest + "Not a Pinned Client Priority consumer"
	case r.Priority < 0 || r.Priority > 9:
		return 400, jsapi.StatusBadRequest + "Priority must be between 0 and 9"
	case cfg.PriorityPolicy == server.PriorityNone:
		return 0, ""
	case r.Group == "":
		return 400, jsapi.StatusBadRequest + "Priority Group missing"
	case !slices.Contains(cfg.PriorityGroups, r.Group):
		return 400, jsapi.StatusBadRequest + "Invalid Priority Group"
	case m.pin.id != "" && r.ID == m.pin.id:
		m.pin.expires = after(now, int64(cfg.PinnedTTL))
	case m.pin.id != "" && r.ID != "":
		return 423, jsapi.StatusPinMismatch
	}
	return 0, ""
}

// refuseNoWait answers a no_wait request that cannot be served now, and reports whether it did.
func (m *machine) refuseNoWait(now int64, r *jsapi.PullRequest, reply []byte) bool {
	available := m.numPending() + uint64(m.led.queued)
	if available == 0 {
		if r.Expires != 0 {
			return false
		}
		m.life.used = now
		m.out.status(reply, 404, jsapi.StatusNoMessages)
		return true
	}
	if wanted := m.processWaiting(now, false); available < wanted {
		m.life.used = now
		m.out.status(reply, 408, jsapi.StatusRequestsPending)
		return true
	}
	return false
}

// taker returns the request that gets the next message of that size. Requests that can get nothing any more are told so
// and removed on the way.
func (m *machine) taker(now int64, size int) *waiting {
	needPin := m.pin.id == "" && m.set.cfg.PriorityPolicy == server.PriorityPinnedClient
	passed := 0
	for w := m.wait.head; w != nil; w = m.wait.head {
		if w.expired(now) {
			m.expire(w)
			continue
		}
		if !m.listening(w) {
			m.wait.remove(w)
			continue
		}
		turn := m.pinTurn(now, w, needPin)
		if turn == turnMine && m.belowOverflow(w) {
			turn = turnLater
		}
		switch {
		case turn == turnNever:
			m.out.pullStatus(w, 423, jsapi.StatusWrongPin)
			m.wait.remove(w)
		case turn == turnLater:
			m.wait.toEnd(w)
			if passed++; passed >= m.wait.n {
				return nil
			}
		case w.bytes > 0 && size > w.bytes:
			if needPin {
				m.pin.clear()
			}
			m.tooSmall(w)
		default:
			return w
		}
	}
	return nil
}

// tooSmall ends a request whose bytes do not suffice for the next message.
func (m *machine) tooSmall(w *waiting) {
	m.out.pullStatus(w, 409, jsapi.StatusMaxBytes)
	m.wait.remove(w)
}

// pulled counts a message that went to w.
func (m *machine) pulled(now int64, w *waiting, size int) {
	if w.bytes > 0 {
		if w.bytes -= size; w.bytes == 0 {
			w.left = 1 // this one was the last that fits
		}
	}
	if w.heartbeat > 0 {
		w.beat = after(now, w.heartbeat)
	}
	m.wait.take(w)
	if w.left <= 0 && w.bytes > 0 {
		m.out.pullStatus(w, 409, jsapi.StatusBatchCompleted)
	}
}

// listening reports whether somebody still waits on the inbox of w; it asks once in a step.
func (m *machine) listening(w *waiting) bool {
	if w.checked == m.step {
		return true
	}
	if !m.w.Interest(w.reply) {
		return false
	}
	w.checked = m.step
	return true
}

// belowOverflow reports whether w asked for messages only from a backlog that is not reached.
func (m *machine) belowOverflow(w *waiting) bool {
	if m.set.cfg.PriorityPolicy != server.PriorityOverflow || w.minPending <= 0 && w.minAckPending <= 0 {
		return false
	}
	pending := int64(m.numPending()) //nolint:gosec // a count of messages
	return (w.minPending <= 0 || pending < w.minPending) &&
		(w.minAckPending <= 0 || int64(m.led.len()) < w.minAckPending)
}

// processWaiting removes requests that are over, sends heartbeats, and returns how many messages the others want. At
// the end of the stream requests with no_wait are over too.
func (m *machine) processWaiting(now int64, end bool) (wanted uint64) {
	m.wait.due = 0
	for w := m.wait.head; w != nil; {
		next := w.next
		switch {
		case w.expired(now):
			m.expire(w)
		case end && w.noWait && (w.expires == 0 || w.sent > 0):
			m.out.status(w.to, 404, jsapi.StatusNoMessages)
			m.life.used = now
			m.wait.remove(w)
		case !m.listening(w):
			m.wait.remove(w)
		default:
			wanted += uint64(max(w.left, 0)) //nolint:gosec // not negative
			m.beat(now, w)
			m.wait.due = earlier(m.wait.due, w.due())
		}
		w = next
	}
	m.life.sweep = 0
	if m.wait.n > 0 {
		m.life.sweep = now + sweepEvery
	}
	return wanted
}

// expire ends a request whose time is over. That counts as use of the consumer.
func (m *machine) expire(w *waiting) {
	m.out.pullStatus(w, 408, jsapi.StatusRequestTimeout)
	m.life.used = max(m.life.used, w.expires)
	m.wait.remove(w)
}

func (m *machine) beat(now int64, w *waiting) {
	if w.beat == 0 || now < w.beat {
		return
	}
	m.heartbeat(w.to)
	w.beat = after(now, w.heartbeat)
}

// heartbeat tells a client that the consumer lives and has nothing for it.
func (m *machine) heartbeat(to []byte) {
	at := len(m.out.arena)
	m.out.arena = jsapi.AppendIdleHeartbeat(m.out.arena, m.led.last.consumer, m.position()-1, m.push.stalledOn())
	m.out.sends = append(m.out.sends, send{to: to, header: m.out.cut(at)})
}

// A delivery that reaches nobody, although somebody seems to listen, must not be tried in a hot loop: a push consumer
// pauses, a request is over after a few.
const (
	undeliveredPause = int64(50_000_000)
	undeliveredMost  = 3
)

// undelivered takes back a delivery that reached nobody. A message that needs no ack is lost with it, as in NATS.
func (m *machine) undelivered(now int64, seq uint64, to []byte) {
	if m.closed != nil {
		return
	}
	if e := m.led.bySeq[seq]; e != nil && !e.queued && e.count > 0 {
		m.log.undone(m.led.last.stream, e.sseq)
		m.led.undo(e)
	}
	if m.set.push {
		if m.interest(now); m.push.active {
			m.life.retry = now + undeliveredPause
		}
		return
	}
	for w := m.wait.head; w != nil; w = w.next {
		if !bytes.Equal(w.to, to) {
			continue
		}
		w.checked = 0
		if w.lost++; w.lost > undeliveredMost || !m.listening(w) {
			m.wait.remove(w)
			return
		}
		w.left++
		w.sent--
		return
	}
}

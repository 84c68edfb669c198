package consumer

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// Bounds of the flow-control window in bytes: it starts small and doubles with every answer.
const (
	maxWindow   = server.JsFlowControlMaxPending
	startWindow = maxWindow / 16
)

// pushState is the delivery to a subject without requests.
type pushState struct {
	to     []byte // the deliver subject
	active bool   // somebody listens
	beat   int64  // when the next idle heartbeat is due; 0: none wanted

	window   int    // bytes that may be out without an answer; 0: no flow control
	out      int    // bytes out
	asked    int    // bytes the open request stands for
	question string // reply subject of the open request; empty: none
}

// stalled reports whether the client owes an answer before it gets more.
func (p *pushState) stalled() bool { return p.window > 0 && p.out > p.window }

// stalledOn is what a heartbeat says about an open flow-control request.
func (p *pushState) stalledOn() string { return p.question }

func newPush(now int64, s *settings) pushState {
	p := pushState{to: []byte(s.cfg.DeliverSubject)}
	if s.push && s.cfg.Heartbeat > 0 {
		p.beat = after(now, int64(s.cfg.Heartbeat))
	}
	if s.push && s.cfg.FlowControl {
		p.window = startWindow
	}
	return p
}

// interest asks whether somebody listens on the deliver subject and starts or stops the deliveries.
func (m *machine) interest(now int64) {
	if !m.set.push || m.closed != nil {
		return
	}
	m.push.active = m.w.Listens(m.set.cfg.DeliverSubject, m.set.cfg.DeliverGroup)
	switch {
	case m.push.active:
		m.life.check = 0
	case m.set.threshold > 0 && m.life.check == 0:
		m.life.check = after(now, m.set.threshold)
	}
}

// pushed counts a message that was sent, and asks the client for an answer when half of the window is used.
func (m *machine) pushed(now int64, msg *send) {
	if m.push.beat != 0 {
		m.push.beat = after(now, int64(m.set.cfg.Heartbeat))
	}
	if m.push.window == 0 {
		return
	}
	size := len(msg.to) + len(msg.reply) + len(msg.header) + len(msg.data)
	m.push.out += size
	switch {
	case m.push.question == "" && m.push.out > m.push.window/2:
		m.ask()
	case m.push.question == "" && m.set.cfg.AckPolicy == server.AckFlowControl && m.led.len() >= m.set.maxPending:
		m.ask()
	case m.push.question != "" && m.push.out-m.push.asked >= m.push.window:
		m.push.asked += size
	}
}

// ask sends a flow-control request.
func (m *machine) ask() {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	var token [4]byte
	for i, r := 0, m.rand(); i < len(token); i, r = i+1, r/uint64(len(digits)) {
		token[i] = digits[r%uint64(len(digits))]
	}
	m.push.question, m.push.asked = m.set.fcPrefix+string(token[:]), m.push.out
	at := len(m.out.arena)
	m.out.arena = jsapi.AppendStatus(m.out.arena, 100, jsapi.StatusFlowControl)
	m.out.sends = append(m.out.sends, send{to: m.push.to, reply: []byte(m.push.question), header: m.out.cut(at)})
}

// answered takes the answer to a flow-control request. Only the last request counts. header may say how far the client
// is, which is the ack of ack policy flow_control.
func (m *machine) answered(now int64, token, header []byte) {
	if m.push.question == "" || m.push.question[len(m.set.fcPrefix):] != string(token) {
		return
	}
	m.push.window = min(m.push.window*2, maxWindow)
	m.push.out = max(m.push.out-m.push.asked, 0)
	m.push.question, m.push.asked = "", 0
	if m.set.cfg.AckPolicy == server.AckFlowControl {
		m.ackByAnswer(now, header)
	}
}

// tickPush sends what is due with time to the deliver subject.
func (m *machine) tickPush(now int64) {
	if m.push.beat == 0 || now < m.push.beat {
		return
	}
	m.push.beat = after(now, int64(m.set.cfg.Heartbeat))
	if !m.push.active {
		return
	}
	m.heartbeat(m.push.to)
	if m.set.cfg.AckPolicy == server.AckFlowControl && m.led.len() > 0 && m.push.question == "" {
		m.ask()
	}
}

// paceState slows deliveries down: a rate limit, or replay at the original speed.
type paceState struct {
	until int64 // deliver nothing before

	tokens float64 // bytes the rate limit permits now
	filled int64   // when tokens was right

	replaying bool
	replayEnd uint64 // the last sequence to replay in time
	replayed  int64  // time stamp of the last message, 0: none yet
	waitedFor uint64 // the message until was set for
}

// delay returns when a message may be sent.
func (p *paceState) delay(s *settings, now int64, seq uint64, ts int64, size int) int64 {
	until := now
	if p.replaying && p.replayed > 0 && p.waitedFor != seq {
		const least = 1_000_000 // a millisecond; less is not worth a wait
		if d := ts - p.replayed; d > least {
			p.waitedFor = seq
			until = now + d
		}
	}
	if s.cfg.RateLimit > 0 {
		until = max(until, now+p.refill(s, now, size))
	}
	return until
}

// refill brings tokens up to now and returns how long until there are enough for size.
func (p *paceState) refill(s *settings, now int64, size int) int64 {
	perSecond := float64(s.cfg.RateLimit) / 8
	if p.filled == 0 {
		p.tokens = float64(s.burst)
	}
	p.tokens = min(p.tokens+float64(now-p.filled)*perSecond/1e9, float64(s.burst))
	p.filled = now
	if missing := min(float64(size), float64(s.burst)) - p.tokens; missing > 0 {
		return int64(missing/perSecond*1e9) + 1
	}
	return 0
}

func (p *paceState) sent(s *settings, _, ts int64, size int) {
	p.replayed = ts
	if s.cfg.RateLimit > 0 {
		p.tokens -= float64(size)
	}
}

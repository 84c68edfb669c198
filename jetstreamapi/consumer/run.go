package consumer

import (
	"sync/atomic"
	"time"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// deliverBatch is how many messages a consumer sends before others have their turn.
const deliverBatch = 256

// runState says whether a consumer waits for a worker. At most one worker runs a consumer.
type runState struct {
	c      *Consumer
	state  atomic.Int32
	hungry atomic.Bool // new messages in the log are of interest
}

const (
	stateIdle    int32 = iota
	stateQueued        // in the scheduler's queue
	stateRunning       // a worker is at it
	stateAgain         // a worker is at it and has to come again
)

// schedule makes sure that a step begins after this call.
func (r *runState) schedule() {
	for {
		switch s := r.state.Load(); s {
		case stateIdle:
			if r.state.CompareAndSwap(s, stateQueued) {
				r.c.o.Sched.push(r.c)
				return
			}
		case stateRunning:
			if r.state.CompareAndSwap(s, stateAgain) {
				return
			}
		default:
			return
		}
	}
}

// turn is one turn of the consumer on a worker.
func (c *Consumer) turn(w *worker) {
	c.run.state.Store(stateRunning)
	more := c.step(w)
	if more || !c.run.state.CompareAndSwap(stateRunning, stateIdle) {
		c.run.state.Store(stateQueued)
		c.o.Sched.push(c)
	}
}

// step runs the machine over what has come in and does what it asks for. more: there is more to do at once.
func (c *Consumer) step(w *worker) (more bool) {
	c.sendHeld(w)
	if c.store.choked && !c.store.retry() {
		c.retrySoon()
		return false
	}
	out := &w.out
	out.reset()
	mail := c.mail.take()
	defer mail.free() // what is sent may point into it
	more = c.think(out, mail)
	sends := c.hold(out)
	if len(out.dead) > 0 {
		c.bury(out)
	}
	c.store.save(out)
	if c.o.Acked != nil && !c.store.choked {
		for _, seq := range out.acked {
			c.o.Acked(seq)
		}
	}
	if c.o.Took != nil {
		for _, d := range out.took {
			c.o.Took(time.Duration(d))
		}
	}
	c.send(w, sends)
	for i := range out.events {
		c.publish(&out.events[i])
	}
	if out.inactive && c.o.Inactive != nil {
		c.o.Inactive()
	}
	if !more {
		c.noteSettled()
	}
	return more && !c.silent()
}

// retrySoon asks for a step that offers the shard again what it had no room for.
func (c *Consumer) retrySoon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.set(time.Now().Add(chokeRetry).UnixNano())
}

// think runs the machine; what it asks for is in out afterwards.
func (c *Consumer) think(out *outbox, mail *letters) (more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.m
	out.take(&c.idle)
	m.out = out
	now := time.Now().UnixNano()
	m.begin(now)
	if mail != nil {
		for i := range mail.list {
			m.receive(now, &mail.list[i])
		}
	}
	m.tick(now)
	c.run.hungry.Store(true) // before the look for messages: one that comes after it wakes us
	if !c.silent() {
		more = m.deliver(now, deliverBatch)
	}
	c.run.hungry.Store(m.hungry(now))
	out.delta = m.log.swap(out.delta)
	c.store.note(m, len(out.delta))
	c.timer.set(m.nextDue())
	m.out = &c.idle
	return more
}

// receive passes one letter to the machine.
func (m *machine) receive(now int64, l *letter) {
	switch l.kind {
	case mailAck:
		m.ack(now, &l.id, l.ack, l.body, l.reply)
	case mailPull:
		if l.id.Delivered != 0 {
			m.out.status(l.reply, 412, jsapi.StatusAPILevel)
			return
		}
		m.pull(now, l.reply, l.body)
	case mailAnswer:
		m.answered(now, l.reply, l.body)
	case mailInterest:
		m.interest(now)
	case mailConfirm:
		m.out.sends = append(m.out.sends, send{to: l.reply})
	case mailRefuse:
		m.refuseAck(l.reply)
	case mailTrimmed:
		m.prune(now)
	case mailUndelivered:
		m.undelivered(now, l.id.StreamSeq, l.reply)
	}
}

// send publishes messages, flushes, and reports back what reached nobody.
func (c *Consumer) send(w *worker, sends []send) {
	if len(sends) == 0 {
		return
	}
	s := w.session(c.o.Account)
	if s == nil { // the bus is closed, or refuses: nobody gets anything
		for i := range sends {
			c.lost(&sends[i])
		}
		return
	}
	for i := range sends {
		d := &sends[i]
		w.msg = bus.Msg{Subject: d.subject, Reply: d.reply, Header: d.header, Data: d.data, Route: d.to}
		if len(d.subject) == 0 {
			w.msg.Subject, w.msg.Route = d.to, nil
		}
		if !s.Publish(&w.msg) {
			c.lost(d)
		}
	}
	if stall := s.Flush(); stall != nil {
		c.pausing.hold(stall)
	}
}

// lost reports a send that reached nobody to the machine, where that is of interest.
func (c *Consumer) lost(d *send) {
	if d.seq != 0 {
		c.post(letter{kind: mailUndelivered, id: AckID{StreamSeq: d.seq}, reply: d.to})
	}
}

// pauser holds deliveries back while a receiver is full. Acks and requests are taken all the same.
type pauser struct {
	c    *Consumer
	held atomic.Bool
}

// longestPause bounds a pause: one receiver that does not read must not stop the others for good. A receiver that never
// reads is the gateway's to close.
const longestPause = time.Second

// hold stops deliveries until stall is closed. It costs a goroutine while it lasts.
func (p *pauser) hold(stall <-chan struct{}) {
	if !p.held.CompareAndSwap(false, true) {
		return
	}
	go func() {
		limit := time.NewTimer(longestPause)
		defer limit.Stop()
		select {
		case <-stall:
		case <-limit.C:
		case <-p.c.o.Sched.closed:
		}
		p.held.Store(false)
		p.c.run.schedule()
	}()
}

// alarm is the one timer of a consumer. It is made when something is due for the first time.
type alarm struct {
	c     *Consumer
	timer *time.Timer
	at    int64 // when it goes off, while it is armed
	armed atomic.Bool
	over  bool
}

// set asks for a step at a time (0: none is needed). An alarm that is set too early only costs a step without effect,
// so it is left alone. Whether it still goes off is not told by the clock: timers run by another, so one may have gone
// off a moment before its time.
func (a *alarm) set(at int64) {
	if at == 0 || a.over || a.armed.Load() && a.at <= at {
		return
	}
	a.at = at
	a.armed.Store(true)
	wait := time.Duration(max(at-time.Now().UnixNano(), 0))
	if a.timer == nil {
		a.timer = time.AfterFunc(wait, a.goOff)
		return
	}
	a.timer.Reset(wait)
}

// goOff begins a step, which sets the alarm again if it is still wanted.
func (a *alarm) goOff() {
	a.armed.Store(false)
	a.c.run.schedule()
}

func (a *alarm) stop() {
	a.over = true
	if a.timer != nil {
		a.timer.Stop()
	}
}

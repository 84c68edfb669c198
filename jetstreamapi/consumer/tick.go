package consumer

// begin starts a step: what was asked once in a step will be asked again.
func (m *machine) begin(now int64) {
	m.step++
	if now >= m.life.retry {
		m.life.retry = 0
	}
	if now >= m.pace.until {
		m.pace.until = 0
	}
}

// tick does what is due by time. It is cheap when nothing is.
func (m *machine) tick(now int64) {
	if m.closed != nil {
		return
	}
	m.expireEntries(now)
	if m.wait.n > 0 && (m.wait.due != 0 && now >= m.wait.due || m.life.sweep != 0 && now >= m.life.sweep) {
		m.processWaiting(now, false)
	}
	if m.set.push {
		m.tickPush(now)
	}
	if m.pin.expires != 0 && now >= m.pin.expires {
		m.unpin("timeout")
	}
	if m.life.pauseEnd != 0 && now >= m.life.pauseEnd {
		m.life.pauseEnd = 0
		m.announcePause(now)
	}
	if m.life.prune != 0 && now >= m.life.prune {
		m.prune(now)
	}
	if m.life.check != 0 && now >= m.life.check {
		m.checkUse(now)
	}
	if m.graves.due != 0 && now >= m.graves.due {
		m.buryAgain()
	}
}

// nextDue returns when the machine wants to be called again if nothing happens before; 0: never.
func (m *machine) nextDue() int64 {
	if m.closed != nil {
		return 0
	}
	due := m.led.nextDue()
	for _, t := range [...]int64{
		m.wait.due, m.push.beat, m.pin.expires, m.life.pauseEnd, m.life.check, m.life.prune, m.life.retry,
		m.pace.until, m.graves.due,
	} {
		due = earlier(due, t)
	}
	if m.wait.n > 0 {
		due = earlier(due, m.life.sweep)
	}
	return due
}

// expireEntries queues for redelivery what was not acknowledged in time.
func (m *machine) expireEntries(now int64) {
	for {
		due := m.led.nextDue()
		if due == 0 || due > now {
			return
		}
		e := m.led.heap[0]
		if !m.exhausted(e) {
			m.led.queue(e)
		}
	}
}

// checkUse ends the consumer when it was unused for its inactive threshold.
func (m *machine) checkUse(now int64) {
	m.life.check = 0
	if m.life.told || m.set.threshold == 0 {
		return
	}
	if m.set.push {
		m.interest(now)
		if m.push.active {
			return
		}
		m.end()
		return
	}
	m.processWaiting(now, true)
	switch {
	case m.wait.n > 0:
		m.life.check = after(now, m.set.threshold)
	case now < after(m.life.used, m.set.threshold):
		m.life.check = after(m.life.used, m.set.threshold)
	case m.workUntil() > now:
		// Somebody may still work on what was delivered: the ack that comes last counts as the last use.
		m.life.check = m.workUntil()
	default:
		m.end()
	}
}

func (m *machine) end() { m.life.told, m.out.inactive = true, true }

// workUntil returns when the last of the outstanding messages would have to be acknowledged, plus the threshold.
func (m *machine) workUntil() (until int64) {
	for e := m.led.head; e != nil; e = e.next {
		if wait := m.set.ackWait(e.count); wait != never {
			until = max(until, after(after(e.sent, wait), m.set.threshold))
		}
	}
	return until
}

func (m *machine) announcePause(now int64) {
	e := event{kind: eventPause, paused: now < m.set.pause}
	if p := m.set.cfg.PauseUntil; p != nil {
		e.until = p.UTC()
	}
	m.out.events = append(m.out.events, e)
}

// startTimers sets what runs by time from the beginning.
func (m *machine) startTimers(now int64) {
	m.life.used = now
	m.graves.look(m, now)
	if m.set.threshold > 0 && !m.set.push {
		m.life.check = after(now, m.set.threshold)
	}
	if now < m.set.pause {
		m.life.pauseEnd = m.set.pause
	}
}

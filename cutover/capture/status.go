package capture

import (
	"cmp"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

// State is what a capturer is at.
type State string

// The states.
const (
	StateWaiting     State = "waiting"     // for the servers, or after a failure; Reason says for what
	StateBackfilling State = "backfilling" // it copies what is behind
	StateLive        State = "live"        // it has what the servers have, and follows
	StateThrottled   State = "throttled"   // it pauses; Reason says why
	StateFailed      State = "failed"      // it is frozen until somebody acts; Reason says how
	StateIdle        State = "idle"        // the authority is here: there is nothing to copy
)

// Status is what is known of a capturer.
type Status struct {
	Scope  cutover.Scope
	State  State
	Reason string
	Since  time.Time // of State

	Applied uint64 // everything up to this sequence is durable here
	Target  uint64 // the last sequence that the servers are known to have
	// Lag is how many sequences the standby is behind, LagTime how old the oldest message is that is read and not
	// durable here.
	Lag     uint64
	LagTime time.Duration
	// Records and Bytes were copied since the capturer was made; the rates are of the last seconds.
	Records, Bytes             uint64
	RecordsPerSec, BytesPerSec float64
	Running                    bool // something reads and something writes
	Paused                     bool // the operator has paused it
	ConfigErr                  error
	Counts                     Counts
}

// status is what Status is made from.
type status struct {
	counts counts

	mu      sync.Mutex
	state   State
	reason  string
	since   time.Time
	running bool
	last    uint64 // applied
	goal    uint64 // target
	records uint64
	bytes   uint64
	rate    meter
	cfgErr  error
	trouble string // why nothing can be written; empty: it can
	caught  int64  // when this cycle had first caught up, in Unix nanoseconds; 0: not yet
}

// stuck notes why nothing can be written (empty: it can), and reports whether that is news.
func (s *status) stuck(why string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := s.trouble != why
	s.trouble = why
	return news
}

// meter averages over a few seconds.
type meter struct {
	from           time.Time
	records, bytes float64 // since from
	rps, bps       float64 // before
}

const meterSpan = 2 * time.Second

func (m *meter) add(now time.Time, records, size int) {
	m.turn(now)
	m.records += float64(records)
	m.bytes += float64(size)
}

func (m *meter) turn(now time.Time) {
	span := now.Sub(m.from)
	if span < meterSpan {
		return
	}
	if s := span.Seconds(); !m.from.IsZero() && s > 0 {
		m.rps, m.bps = m.records/s, m.bytes/s
	}
	m.from, m.records, m.bytes = now, 0, 0
}

// enter changes the state, and reports whether that is news.
func (s *status) enter(state State, reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != StateBackfilling && state != StateLive && state != StateThrottled {
		s.running = false
	}
	if s.state == state && s.reason == reason {
		return false
	}
	if s.state != state {
		s.since = time.Now()
	}
	if state == StateLive && s.caught == 0 {
		s.caught = s.since.UnixNano()
	}
	s.state, s.reason = state, reason
	return true
}

// followed reports whether a record of that time was stored while everything before it was here: how long it took to
// get here is lag, and not the age of what is copied because it was there before.
func (s *status) followed(at int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caught != 0 && at >= s.caught
}

// begin is for the start of a cycle.
func (s *status) begin(theirs server.StreamState, to cutover.Copy) {
	at, _ := to.Progress()
	s.mu.Lock()
	s.last, s.goal, s.running, s.trouble, s.caught = at, theirs.LastSeq, true, "", 0
	s.mu.Unlock()
	s.enter(StateBackfilling, "")
}

// target notes how far the servers are.
func (s *status) target(last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.goal = max(s.goal, last)
}

// Target is the last sequence that the servers are known to have.
func (c *Capturer) Target() uint64 {
	c.status.mu.Lock()
	defer c.status.mu.Unlock()
	return c.status.goal
}

func (s *status) config(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfgErr = err
}

func (s *status) wrote(batch []cutover.Record) {
	size := total(batch)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, batch[len(batch)-1].Seq)
	s.goal = max(s.goal, s.last)
	s.records += uint64(len(batch))
	s.bytes += uint64(size) //nolint:gosec // lengths
	s.rate.add(time.Now(), len(batch), size)
}

func (s *status) applied() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *status) reset() {
	s.enter(StateWaiting, "it was reset")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.goal, s.cfgErr = 0, 0, nil
}

// Status returns what is known of the capturer.
func (c *Capturer) Status() Status {
	s := &c.status
	waiting, oldest := c.queue.len()
	now := time.Now()
	s.mu.Lock()
	s.rate.turn(now)
	out := Status{
		Scope: c.o.Scope, State: s.state, Reason: s.reason, Since: s.since, Applied: s.last, Target: s.goal,
		Records: s.records, Bytes: s.bytes, RecordsPerSec: s.rate.rps, BytesPerSec: s.rate.bps,
		Running: s.running, Paused: c.pausedFor() != "", ConfigErr: s.cfgErr,
	}
	if s.trouble != "" && s.running {
		out.State, out.Reason = StateThrottled, s.trouble
	}
	s.mu.Unlock()
	if to, err := c.o.To.Stream(c.o.Scope.Account, c.o.Scope.Stream); err == nil {
		at, _ := to.Progress() // it may have been advanced
		out.Applied = max(out.Applied, at)
	}
	if out.Target > out.Applied {
		out.Lag = out.Target - out.Applied
	}
	if waiting > 0 && oldest > 0 {
		out.LagTime = max(now.Sub(time.Unix(0, oldest)), 0)
	}
	if out.ConfigErr != nil {
		out.Reason = cmp.Or(out.Reason, out.ConfigErr.Error())
	}
	s.counts.Lock()
	out.Counts = s.counts.Counts
	s.counts.Unlock()
	return out
}

package consumer

import (
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// world is what the machine may look at: the log, from the consumer's cursor, and who listens. Asking changes nothing
// but the cursor.
type world interface {
	// Peek, Pass, Pending, PendingAfter, Position and Seek are storage.Cursor's.
	Peek() (storage.Record, error)
	Pass(seq uint64)
	Pending() uint64
	PendingAfter(seq uint64) uint64
	Position() uint64
	Seek(from uint64)
	// Get is storage.Log's.
	Get(seq uint64) (storage.Record, error)
	// Subset is storage.Log's NewSubset.
	Subset(seqs []uint64) *storage.Subset
	// Refilter replaces the cursor by one that starts at from and gives what matches one of filters (none: all).
	Refilter(from uint64, filters []string) error
	// Visible is storage.Log's.
	Visible() uint64
	// Exists reports whether the message at seq (not above Visible) is in the log, without reading it.
	Exists(seq uint64) bool
	// Removals returns a number that grows with every message that leaves the log.
	Removals() uint64
	// Interest reports whether a message to subject would reach anybody.
	Interest(subject string) bool
	// Listens is bus.Bus's.
	Listens(subject, queue string) bool
}

// machine is the consumer without goroutines, files and clocks: events go in through its methods, what is to be done
// comes out in out. The caller makes sure that one method runs at a time, and passes the time in (Unix nanoseconds,
// never going back).
//
// Invariants after every step:
//   - at most max_ack_pending entries are outstanding (redeliveries add none)
//   - matching and stored == done + outstanding + exhausted + undelivered
//   - no message is due, permitted and asked for (the step would have sent it)
type machine struct {
	set  settings
	w    world
	out  *outbox
	led  *ledger
	wait waitQueue
	push pushState
	pin  pinState
	pace paceState
	life lifeState
	skip skipList
	log  changeLog

	graves graves
	parked *storage.Subset // what is parked, see keyshared.go; nil: there are no keys

	resume uint64 // where the cursor was at the last checkpoint, while the state is loaded
	step   uint64 // counts steps, see waiting.checked
	random uint64
	closed *closing // not nil: the consumer has ended
	fault  error    // why reading failed, if it did at the last step
}

// newMachine returns a machine without state; see load and start.
func newMachine(set settings, random uint64) *machine {
	return &machine{set: set, led: newLedger(1), random: random, out: new(outbox)}
}

// start sets the machine going, once its state and its world are there. visible is the end of the log.
func (m *machine) start(now int64, visible uint64) {
	m.wait = waitQueue{max: m.set.cfg.MaxWaiting, byPriority: m.set.cfg.PriorityPolicy == server.PriorityPrioritized}
	m.push = newPush(now, &m.set)
	m.pace = paceState{replaying: m.set.cfg.ReplayPolicy == server.ReplayOriginal, replayEnd: visible}
	m.startTimers(now)
	m.skip.follow(m.w)
	m.startKeys()
}

// closing is what waiting requests are told when the consumer ends.
type closing struct {
	code int
	text string
}

// lifeState is what the machine knows about being used.
type lifeState struct {
	used      int64  // last activity that counts for the inactive threshold
	check     int64  // when to look whether the consumer is unused; 0: not
	told      bool   // the owner was told
	pauseEnd  int64  // when the pause that was announced ends; 0: no pause
	sweep     int64  // when to look again whether inboxes are still listened on; 0: nobody waits
	retry     int64  // when to read again after a fault; 0: no fault
	prune     int64  // when to look whether outstanding messages left the log; 0: not
	pruned    int64  // when that was last done
	removals  uint64 // world.Removals at the last look
	delivered int64  // time of the last delivery; 0: none
	acked     int64  // time of the last ack; 0: none
	again     uint64 // redeliveries since the start of the process
}

// sweepEvery is how often the inboxes of waiting requests are looked at when nothing else happens.
const sweepEvery = int64(5_000_000_000)

// pruneEvery is how often a consumer that is at max_ack_pending looks whether outstanding messages left the log.
const pruneEvery = int64(1_000_000_000)

// overflowPruneEvery is the least time between two such looks of a consumer that delivers by how many are outstanding.
const overflowPruneEvery = int64(20_000_000)

// pruneLooks bounds the outstanding messages one look finds alive; those after them are noticed when they are due.
const pruneLooks = 4096

// faultRetry is the pause after a read that failed.
const faultRetry = int64(1_000_000_000)

// settings are the configuration in the form the machine uses.
type settings struct {
	cfg        server.ConsumerConfig
	ackPrefix  string
	fcPrefix   string
	push       bool
	maxDeliver uint64 // 0: no limit
	maxPending int    // <= 0: no limit
	pause      int64  // deliver nothing before; 0: no pause
	threshold  int64  // inactive threshold with its jitter; 0: none
	sample     int    // percent of acks that give a metric
	burst      int64  // bytes the rate limit lets through at once
	buries     bool   // exhausted and terminated messages go to another stream
	nakBackoff bool   // a NAK without a delay waits as backoff says
	keys       *keyRule
}

func newSettings(stream, name string, cfg server.ConsumerConfig, burst, jitter int64) settings {
	s := settings{
		cfg:        cfg,
		ackPrefix:  jsapi.AckSubjectPrefix(stream, name),
		fcPrefix:   jsapi.FlowControlPrefix + stream + "." + name + ".",
		push:       cfg.DeliverSubject != "",
		maxDeliver: uint64(max(cfg.MaxDeliver, 0)), //nolint:gosec // not negative
		burst:      burst,
		buries:     DeadLetter(&cfg) != "",
		nakBackoff: isOn(&cfg, KeyNakBackoff),
		keys:       keyRuleOf(&cfg),
	}
	if cfg.AckPolicy != server.AckNone {
		s.maxPending = cfg.MaxAckPending
	}
	if cfg.PauseUntil != nil && !cfg.PauseUntil.IsZero() {
		s.pause = jsapi.UnixNano(*cfg.PauseUntil)
	}
	s.sample, _ = strconv.Atoi(strings.TrimSuffix(cfg.SampleFrequency, "%"))
	s.threshold = threshold(&cfg, jitter)
	return s
}

// threshold is the inactive threshold as NATS applies it: with jitter, but not for push consumers that set their own.
func threshold(cfg *server.ConsumerConfig, jitter int64) int64 {
	switch t := cfg.InactiveThreshold; {
	case t > 0 && cfg.DeliverSubject != "":
		return int64(t)
	case t > 0:
		return after(int64(t), jitter)
	case cfg.Durable == "":
		return int64(server.JsDeleteWaitTimeDefault) + jitter
	}
	return 0
}

// ackWait returns how long the delivery with that count may stay without an ack.
func (s *settings) ackWait(count uint64) int64 {
	if n := len(s.cfg.BackOff); n > 0 {
		return int64(s.cfg.BackOff[min(max(count, 1), uint64(n))-1])
	}
	if s.cfg.AckWait == 0 {
		return never
	}
	return int64(s.cfg.AckWait)
}

func (s *settings) dueAfter(now int64, count uint64) int64 {
	wait := s.ackWait(count)
	if wait >= never-now {
		return never
	}
	return now + wait
}

// hungry reports whether a new message in the log is of interest now.
func (m *machine) hungry(now int64) bool {
	if m.closed != nil || m.isHeld(now) || m.isBlocked(now) {
		return false
	}
	return !m.isFull() && !m.isCrowded()
}

// rand returns the next of a sequence of numbers that looks random (splitmix64).
func (m *machine) rand() uint64 {
	m.random += 0x9e3779b97f4a7c15
	z := m.random
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

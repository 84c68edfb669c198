package load

import (
	"cmp"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover/drill"
)

// got is what is known of a sequence that was delivered.
type got struct {
	id        string
	confirmed time.Time // of its ack; zero: not yet
}

// path is one of the two ways of messages: to the stream, or from it.
type path struct {
	last      time.Time     // something came through
	gap       time.Duration // longest without, from the fault on
	recovered time.Time     // something came through that began behind the last trouble; zero: not yet
	since     time.Time     // when that began
	after     uint64        // messages since
}

// passed notes that something came through at now that began at began.
func (p *path) passed(l *ledger, began, now time.Time) {
	if !l.faulted.IsZero() {
		p.gap = max(p.gap, now.Sub(latest(p.last, l.faulted)))
		if began.After(latest(l.trouble, l.faulted)) {
			if p.recovered.IsZero() {
				p.recovered, p.since = now, began
			}
			p.after++
		}
	}
	p.last = now
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ledger is the account of a load.
type ledger struct {
	mu sync.Mutex
	// The following are guarded by mu.
	begun    uint64            // messages
	acks     map[string]uint64 // sequences by id
	of       map[uint64]string // ids by sequence, of what was acknowledged
	stored   map[string]uint64 // sequences by id, of what was delivered
	seen     map[uint64]*got
	down     map[*nats.Conn]time.Time
	out, in  path // to the stream, from the stream
	faulted  time.Time
	length   time.Duration // of the fault
	trouble  time.Time     // the last, behind the fault
	done     bool          // what comes now is of the end
	redialed time.Duration
	a        drill.Account // what is counted as it comes
}

func newLedger() ledger {
	return ledger{
		acks: make(map[string]uint64), of: make(map[uint64]string), stored: make(map[string]uint64),
		seen: make(map[uint64]*got), down: make(map[*nats.Conn]time.Time),
	}
}

// next returns the id of a new message, and the highest sequence that was acknowledged by now.
func (l *ledger) next() (id string, floor uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun++
	return number(l.begun), l.a.LastSeq
}

// acked notes the acknowledgement of a message whose publish began at began, when floor was the highest sequence.
func (l *ledger) acked(id string, seq, floor uint64, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, given := l.of[seq]; given || seq <= floor {
		l.a.Backward++
	}
	l.acks[id], l.of[seq] = seq, id
	switch g := l.seen[seq]; {
	case g == nil:
		l.a.Lost++ // until it is delivered
	case g.id != id:
		l.a.Altered++
	}
	l.a.LastSeq = max(l.a.LastSeq, seq)
	if l.faulted.IsZero() {
		l.a.Before++
	}
	l.out.passed(l, began, time.Now())
}

// delivered notes a delivery in answer to a request that was made at asked.
func (l *ledger) delivered(seq uint64, id string, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.passed(l, asked, time.Now())
	if g := l.seen[seq]; g != nil {
		l.a.Redelivered++
		if g.id != id {
			l.a.Altered++
		}
		if !g.confirmed.IsZero() && g.confirmed.Before(asked) {
			l.a.Again++
		}
		return
	}
	l.seen[seq] = &got{id: id}
	if acked, ok := l.of[seq]; ok {
		l.a.Lost--
		if acked != id {
			l.a.Altered++
		}
	}
	if was, ok := l.stored[id]; ok && was != seq {
		l.a.Twice++
	}
	l.stored[id] = seq
}

// confirmed notes that the ack of a message was confirmed.
func (l *ledger) confirmed(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.seen[seq]; g.confirmed.IsZero() {
		g.confirmed = time.Now()
		l.a.Confirmed++
	}
}

// failed notes an attempt to publish that began at began and failed.
func (l *ledger) failed(err error, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.a.Retried++
	l.bother(err, began)
}

// note notes trouble of any kind, with what began at began.
func (l *ledger) note(err error, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bother(err, began)
}

// bother is note with mu held. What waited for an answer in vain has met the trouble any time since it began, so it
// says nothing against what began later and came through.
func (l *ledger) bother(err error, began time.Time) {
	if l.done {
		return
	}
	if err != nil {
		l.a.LastError = err.Error()
	}
	if l.faulted.IsZero() {
		return
	}
	l.trouble = latest(latest(l.trouble, began), l.faulted)
	for _, p := range []*path{&l.out, &l.in} {
		if !p.since.After(began) {
			p.recovered, p.since, p.after = time.Time{}, time.Time{}, 0
		}
	}
}

// lost notes that a connection is gone, back that it is there again.
func (l *ledger) lost(nc *nats.Conn, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return
	}
	l.a.Disconnects++
	l.down[nc] = time.Now()
	l.bother(err, time.Now())
}

func (l *ledger) back(nc *nats.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.redialed = max(l.redialed, time.Since(l.down[nc]))
	delete(l.down, nc)
}

// fault notes that the fault begins, lasts how long it goes on, ended that what comes now does not count.
func (l *ledger) fault() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faulted = time.Now()
}

func (l *ledger) lasts(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.length = d
}

func (l *ledger) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
}

// quietTime is how long it may take until something comes through: requests for messages wait.
const quietTime = 2 * time.Second

// quiet is for how long nothing has come through, and the last trouble.
func (l *ledger) quiet() (time.Duration, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.out.last
	if l.in.last.Before(last) {
		last = l.in.last
	}
	if d := time.Since(last); d > quietTime {
		return d, cmp.Or(l.a.LastError, "no answer")
	}
	return 0, ""
}

// sum is the account as it stands.
func (l *ledger) sum() drill.Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, now := l.a, time.Now()
	a.Published, a.Delivered = uint64(len(l.acks)), uint64(len(l.seen))
	a.Unanswered = l.begun - a.Published
	redial := l.redialed
	for _, since := range l.down {
		redial = max(redial, now.Sub(since))
	}
	a.Redial = redial.Seconds()
	a.After = min(l.out.after, l.in.after)
	a.Gap = max(l.out.gap, l.in.gap).Seconds()
	if !l.trouble.IsZero() {
		worked := latest(l.out.recovered, l.in.recovered)
		if l.out.recovered.IsZero() || l.in.recovered.IsZero() {
			worked = now // not yet
		}
		a.Recovery = max(worked.Sub(l.faulted)-l.length, 0).Seconds()
	}
	return a
}

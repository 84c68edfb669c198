package pilot

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// Bounds of looking for strays. Together with how often the copy looks at the servers (250 ms) they are well below a
// second.
const (
	strayEvery  = 100 * time.Millisecond
	strayGrace  = 300 * time.Millisecond // an acknowledgement may pass a little behind its record
	strayRecall = 10 * time.Second       // one that is later still is not looked for any more
	strayExpiry = 24 * time.Hour
	strayKept   = 4096
)

// strays are the records of the servers' streams that no publish through the gateway accounts for. The comparison finds
// them too, behind its window; here they are found within a second, by their sequences alone.
type strays struct {
	mu      sync.Mutex
	streams map[cutover.Scope]*strayBook
}

// strayBook is one stream: every sequence that the servers give away since it was begun.
type strayBook struct {
	base    uint64 // publishes without an acknowledgement, at the beginning
	through uint64 // everything up to here was looked at
	looks   []strayLook
	open    []stray // not acknowledged, lately
	gone    uint64  // not acknowledged, and not looked for any more
	seen    time.Time
	told    uint64
}

// strayLook is how the stream stood at a time.
type strayLook struct {
	at      time.Time
	last    uint64
	unasked uint64    // publishes through the gateway of which no sequence is known
	settled time.Time // no publish from before waits for its PubAck
}

type stray struct {
	seq uint64
	at  time.Time
}

// pause stops looking, while the ledger begins anew.
func (s *strays) pause(scope cutover.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, scope)
}

// begin looks at everything behind through. unasked is what was known at a time before.
func (s *strays) begin(scope cutover.Scope, through, unasked uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil {
		s.streams = make(map[cutover.Scope]*strayBook)
	}
	s.streams[scope] = &strayBook{through: through, base: unasked}
}

// look takes how a stream stands, and returns how many more strays there are than at the last look.
func (s *strays) look(scope cutover.Scope, l strayLook, ledger cutover.Ledger) (news uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.streams[scope]
	if b == nil {
		return 0
	}
	b.looks = append(b.looks, l)
	ripe, n := strayLook{}, 0
	for n < len(b.looks) && l.at.Sub(b.looks[n].at) >= strayGrace && !l.settled.Before(b.looks[n].at) {
		ripe = b.looks[n]
		n++
	}
	if n == 0 {
		return 0
	}
	b.looks = slices.Delete(b.looks, 0, n)
	b.search(scope, ripe, ledger)
	b.recall(scope, l.at, ledger)
	found := b.count(ripe.unasked)
	if found > 0 && found > b.told {
		b.seen, news = l.at, found-b.told
	}
	if b.seen.IsZero() || l.at.Sub(b.seen) < strayExpiry {
		b.told = found
		return news
	}
	*b = strayBook{through: b.through, base: ripe.unasked, looks: b.looks}
	return 0
}

// count is how many there are, of which unasked are the clients' own.
func (b *strayBook) count(unasked uint64) uint64 {
	n := b.gone + uint64(len(b.open))
	return n - min(n, unasked-min(unasked, b.base))
}

// search looks for the sequences that the ledger does not have.
func (b *strayBook) search(scope cutover.Scope, ripe strayLook, ledger cutover.Ledger) {
	first, _, ok := ledger.Span(scope)
	if !ok || ripe.last <= b.through {
		return
	}
	next := max(b.through+1, first)
	missing := func(until uint64) { // from next on
		for ; next < until; next++ {
			if len(b.open) < strayKept {
				b.open = append(b.open, stray{next, ripe.at})
				continue
			}
			b.gone += until - next
			return
		}
	}
	ledger.Acked(scope, next, ripe.last, func(a cutover.Acked) bool {
		missing(a.Seq)
		next = a.Seq + 1
		return true
	})
	missing(ripe.last + 1)
	b.through = ripe.last
}

// recall drops those that are acknowledged by now.
func (b *strayBook) recall(scope cutover.Scope, now time.Time, ledger cutover.Ledger) {
	b.open = slices.DeleteFunc(b.open, func(s stray) (done bool) {
		ledger.Acked(scope, s.seq, s.seq, func(cutover.Acked) bool {
			done = true
			return false
		})
		if !done && now.Sub(s.at) > strayRecall {
			b.gone++
			done = true
		}
		return done
	})
}

// found returns how many strays a stream has, ok: it is looked at.
func (s *strays) found(scope cutover.Scope) (n uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.streams[scope]
	if b == nil {
		return 0, false
	}
	return b.told, true
}

// guard looks for strays until ctx ends.
func (p *Pilot) guard(ctx context.Context) {
	t := time.NewTicker(strayEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for _, scope := range p.engine.Streams() {
			v, err := p.engine.View(scope)
			if err != nil || v.Phase != flip.PhaseShadow && v.Phase != flip.PhaseFlipping {
				continue
			}
			c, ok := v.Capture.(*capture.Capturer)
			if !ok {
				continue
			}
			now := time.Now()
			l := strayLook{at: now, last: c.Target(), unasked: unasked(v), settled: v.Scope.Settled(now)}
			if n := p.strays.look(scope, l, p.book); n > 0 {
				p.o.Logger.Warn("Stream {stream}: {messages} messages came around the gateway, up to sequence {last}",
					slog.String("stream", scope.String()), slog.Uint64("messages", n), slog.Uint64("last", l.last))
			}
		}
	}
}

// unasked is how many publishes passed of which no sequence is known.
func unasked(v *flip.View) uint64 {
	n := v.Scope.Counts()
	return n.Unasked + n.Unanswered
}

// strayFact adds what was found to what the comparison has found.
func (p *Pilot) strayFact(c *collector, scope cutover.Scope) {
	n, ok := p.strays.found(scope)
	if !ok || n == 0 {
		return
	}
	if f := c.facts[gate.BypassHoles]; float64(n) > f.Value {
		c.facts[gate.BypassHoles] = gate.Fact{
			Value: float64(n), N: n, At: c.now, Source: "ledger",
			Detail: fmt.Sprintf("%d records that no publish through the gateway accounts for", n),
		}
	}
}

package parity

import (
	"context"
	"errors"
	"math"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Pair is what is compared, once.
type Pair struct {
	Scope           cutover.Scope
	Authority, Copy cutover.Reader
	// Reverse: the authority is EHDB and the copy NATS, which gives times of its own. Times are not compared then.
	Reverse bool
	// Untimed tells records that have another time on either side for good: the servers got them by the chain, while
	// EHDB was the authority. nil: there are none.
	Untimed func(seq uint64) bool
	Config  *server.StreamConfig
	Ledger  cutover.Ledger // nil: there is no third witness
	// Settled is the time, in Unix nanoseconds, after which things are too young to be compared: math.MaxInt64 when
	// nothing is on its way.
	Settled int64
	// Now is the time at which this is compared, and Removal how long a copy may keep what the authority has removed.
	Now, Removal int64
	// Expected is the last sequence that the copy is expected to have: math.MaxUint64 when it is expected to follow.
	// What is above is suspended.
	Expected uint64
	// RemovedByHand: clients have deleted or purged messages, so a gap on the authority says nothing.
	RemovedByHand bool
	// Ignore tells the sequences of known divergences. nil: there are none.
	Ignore func(seq uint64) bool
}

const (
	// chunk is how many records of a side are looked at together.
	chunk = 4 << 10
	// maxOpen is how many sequences are looked at again until they are equal, or settled to be different.
	maxOpen = 4096
	// recentHashes is how many of the last contents are known again when the copy has one in another place.
	recentHashes = 4096
)

// sight is what the witnesses say of one sequence.
type sight struct {
	a, c     *item
	l        *cutover.Acked
	expected bool // the ledger would know of it
}

func (s *sight) time() int64 {
	switch {
	case s.a != nil && s.l != nil:
		return max(s.a.time, s.l.When)
	case s.a != nil:
		return s.a.time
	case s.l != nil:
		return s.l.When
	default:
		return s.c.time
	}
}

// doubt is a sequence that is looked at again.
type doubt struct {
	seq    uint64
	state  State
	reason string
	since  int64
	sight
}

// Progress is how far a stream has been compared and what was found. Its zero value begins at the stream's first
// record.
type Progress struct {
	// Through is the last sequence that was compared.
	Through uint64
	// settled counts what was compared; Pending and Suspended are no part of it.
	settled Counts
	// What is above Through: too young, not expected yet, and what the copy should have reached by now.
	pending, suspended uint64
	tail               tail
	leaves             leaves
	open               map[uint64]*doubt
	crowded            uint64 // doubts that open had no room for
	recent             contents
	unacked            uint64 // records that no ledger entry tells of, though it should
	unackedLately      []uint64
	healed             uint64            // found different first, and equal later
	reasons            map[string]uint64 // not_comparable, by reason
	bounds             bounds            // of the last comparison
	regressions        uint64            // a side's last sequence went back: what was compared may be gone
	ledgerSeen         uint64            // ledger entries met
	next               uint64            // the open doubt that is looked at next
	stale              map[uint64]bool   // leaves whose digests are to be computed anew
}

// tail is what is above the copy's last sequence and should not be. It is looked at anew each time, so that a copy that
// stood still and goes on leaves no trace of doubts.
type tail struct {
	by     [states]uint64
	doubts []*doubt // the first of them
	cut    bool     // there is more than was looked at, which counts as pending
}

// Counts returns the counts, with what is too young.
func (g *Progress) Counts() Counts {
	c := g.settled
	c.By[Pending], c.By[Suspended] = g.pending, g.suspended
	c.Examined += g.pending + g.suspended
	for s, n := range g.tail.by {
		c.By[s] += n
		c.Examined += n
	}
	return c
}

// bounds are the edges of one comparison. The copy's and the ledger's are read before the authority's, so that nothing
// of theirs is beyond the authority's for want of time.
type bounds struct {
	copyLast, ledgerFirst, ledgerLast uint64
	ledger                            bool
	first, last                       uint64 // of the authority
	end                               uint64 // the highest sequence that is looked at
}

func (p *Pair) bounds(ctx context.Context) (bounds, error) {
	var b bounds
	c, err := p.Copy.State(ctx, false)
	if err != nil {
		return b, err
	}
	b.copyLast = c.LastSeq
	if p.Ledger != nil {
		b.ledgerFirst, b.ledgerLast, b.ledger = p.Ledger.Span(p.Scope)
	}
	a, err := p.Authority.State(ctx, false)
	if err != nil {
		return b, err
	}
	b.first, b.last = a.FirstSeq, a.LastSeq
	b.end = max(a.LastSeq, b.copyLast)
	if b.ledger {
		b.end = max(b.end, b.ledgerLast)
	}
	return b, nil
}

// Compare goes on from g with at most budget records of a side (0: to the end). more says that there is more to compare
// now. After an error g is as far as it got.
func Compare(ctx context.Context, p *Pair, g *Progress, budget int) (more bool, err error) {
	if g.open == nil {
		g.open, g.reasons, g.stale = map[uint64]*doubt{}, map[string]uint64{}, map[uint64]bool{}
	}
	b, err := p.bounds(ctx)
	if err != nil {
		return false, err
	}
	if b.last < g.bounds.last || b.copyLast < g.bounds.copyLast {
		g.regressions++
	}
	g.bounds = b
	if err := p.again(ctx, g, b); err != nil {
		return false, err
	}
	end := min(b.end, p.Expected)
	solid, done, young := min(end, b.copyLast), 0, false
	for g.Through < solid && !young {
		var n int
		if n, young, err = p.step(ctx, g, b, solid); err != nil {
			return false, err
		}
		if done += n; budget > 0 && done >= budget && g.Through < solid && !young {
			more = true
			break
		}
	}
	p.ahead(g, b, end)
	if more || young || end <= g.Through {
		return more, nil
	}
	return false, p.overdue(ctx, g, b, end)
}

// ahead counts what is above Through, up to end.
func (p *Pair) ahead(g *Progress, b bounds, end uint64) {
	g.tail, g.pending, g.suspended = tail{}, 0, 0
	if p.Expected < b.end {
		g.suspended = b.end - max(p.Expected, g.Through)
	}
	if end > g.Through {
		g.pending = end - g.Through
	}
}

// maxTail is how many of the sequences that are overdue are named.
const maxTail = 100

// overdue looks at what is above the copy's last sequence: what is older than the window should be there.
func (p *Pair) overdue(ctx context.Context, g *Progress, b bounds, end uint64) error {
	as, more, err := readItems(ctx, p.Authority, reach{g.Through + 1, min(end, b.last), chunk, p.Settled})
	if err != nil {
		return err
	}
	all := end
	if more {
		end = as[len(as)-1].seq
		g.tail.cut = as[len(as)-1].time <= p.Settled
	}
	ls, end := p.ledgerItems(b, g.Through+1, end)
	err = join(as, nil, ls, end, func(seq uint64, s sight) bool {
		if s.time() > p.Settled {
			end = seq - 1
			return false
		}
		state, reason := p.classify(b, seq, s)
		g.tail.by[state]++
		if state.Finding() && len(g.tail.doubts) < maxTail {
			d := &doubt{seq: seq, state: state, reason: reason, since: p.Now, sight: s}
			g.tail.doubts = append(g.tail.doubts, d)
		}
		return true
	})
	g.pending = all - end
	return err
}

// step compares up to chunk records behind g.Through. young says that it ended at something that is too young.
func (p *Pair) step(ctx context.Context, g *Progress, b bounds, end uint64) (_ int, young bool, err error) {
	from := g.Through + 1
	as, more, err := readItems(ctx, p.Authority, reach{from, min(end, b.last), chunk, p.Settled})
	if err != nil {
		return 0, false, err
	}
	if more {
		end = as[len(as)-1].seq
	}
	cs, more, err := readItems(ctx, p.Copy, reach{from, min(end, max(b.last, b.copyLast)), chunk, math.MaxInt64})
	if err != nil {
		return 0, false, err
	}
	if more {
		end = cs[len(cs)-1].seq
	}
	ls, end := p.ledgerItems(b, from, end)
	var seen []sighted
	err = join(as, cs, ls, end, func(seq uint64, s sight) bool {
		if young = s.time() > p.Settled; young {
			end = seq - 1
			return false
		}
		s.expected = b.ledger && seq >= b.ledgerFirst
		seen = append(seen, sighted{seq, s, p.doubt(b, seq, s)})
		return true
	})
	if err == nil {
		err = p.confirm(ctx, b, seen)
	}
	if err != nil { // nothing was counted: all of it is looked at once more
		return 0, false, err
	}
	p.count(g, seen)
	g.Through = end
	return len(seen), young, nil
}

func (p *Pair) ledgerItems(b bounds, first, last uint64) ([]cutover.Acked, uint64) {
	if !b.ledger {
		return nil, last
	}
	var out []cutover.Acked
	end := last
	p.Ledger.Acked(p.Scope, first, min(last, b.ledgerLast), func(e cutover.Acked) bool {
		if len(out) == chunk {
			end = out[len(out)-1].Seq
			return false
		}
		out = append(out, e)
		return true
	})
	return out, end
}

// reasonContent is why sides mismatch whose contents differ.
const reasonContent = "content"

// errOrder says that a witness gave its records in no order.
var errOrder = errors.New("a witness did not tell of its records in ascending order")

// join calls fn for each sequence up to last that is in any of the lists, ascending, until it returns false.
func join(as, cs []item, ls []cutover.Acked, last uint64, fn func(seq uint64, s sight) bool) error {
	for before := uint64(0); ; {
		seq := nearest(as, cs, ls)
		if seq > last {
			return nil
		}
		if seq <= before {
			return errOrder
		}
		before = seq
		var s sight
		if len(as) > 0 && as[0].seq == seq {
			s.a, as = &as[0], as[1:]
		}
		if len(cs) > 0 && cs[0].seq == seq {
			s.c, cs = &cs[0], cs[1:]
		}
		if len(ls) > 0 && ls[0].Seq == seq {
			s.l, ls = &ls[0], ls[1:]
		}
		if !fn(seq, s) {
			return nil
		}
	}
}

// nearest is the lowest sequence at the head of a list.
func nearest(as, cs []item, ls []cutover.Acked) uint64 {
	seq := uint64(math.MaxUint64)
	if len(as) > 0 {
		seq = min(seq, as[0].seq)
	}
	if len(cs) > 0 {
		seq = min(seq, cs[0].seq)
	}
	if len(ls) > 0 {
		seq = min(seq, ls[0].Seq)
	}
	return seq
}

// sighted is a sequence that is about to be counted; d is nil if it is simply equal.
type sighted struct {
	seq uint64
	sight
	d *doubt
}

// doubt is what is not simply equal about a sequence, nil if nothing.
func (p *Pair) doubt(b bounds, seq uint64, s sight) *doubt {
	state, reason := p.classify(b, seq, s)
	if state == Match {
		return nil
	}
	return &doubt{seq: seq, state: state, reason: reason, since: p.Now, sight: s}
}

// count counts what was seen.
func (p *Pair) count(g *Progress, seen []sighted) {
	var found []*doubt
	for i := range seen {
		s := &seen[i]
		g.settled.Examined++
		if s.l != nil {
			g.ledgerSeen++
		}
		if s.d != nil {
			found = append(found, s.d)
			continue
		}
		g.settled.By[Match]++
		g.absorb(p, s.seq, s.sight)
		g.recent.add(s.a.hash, s.seq)
		p.noteUnacked(g, s.seq, s.sight)
	}
	p.settle(g, found)
}

func (p *Pair) noteUnacked(g *Progress, seq uint64, s sight) {
	if !s.expected || s.l != nil {
		return
	}
	g.unacked++
	if len(g.unackedLately) == maxUnacked {
		g.unackedLately = g.unackedLately[1:]
	}
	g.unackedLately = append(g.unackedLately, seq)
}

// maxUnacked is how many of the latest records without an acknowledgement are named.
const maxUnacked = 100

// timed reports whether both sides should have the same time for a record.
func (p *Pair) timed(seq uint64) bool { return !p.Reverse && (p.Untimed == nil || !p.Untimed(seq)) }

// absorb adds a sequence to the digests.
func (g *Progress) absorb(p *Pair, seq uint64, s sight) {
	f := g.leaves.at(seq)
	if s.a != nil {
		f.authority = chain(f.authority, s.a, p.timed(seq))
	}
	if s.c != nil {
		f.copy = chain(f.copy, s.c, p.timed(seq))
	}
}

// classify gives the state of one sequence that is not too young, from itself alone, and why.
func (p *Pair) classify(b bounds, seq uint64, s sight) (State, string) {
	switch {
	case p.Ignore != nil && p.Ignore(seq):
		return Ignored, ""
	case s.a != nil && s.a.err != nil:
		return NotComparable, "authority_unreadable"
	case s.c != nil && s.c.err != nil:
		return NotComparable, "copy_unreadable"
	case s.a != nil && s.c != nil:
		return p.both(s)
	case s.a != nil:
		return Missing, ""
	case s.c != nil:
		return p.onlyCopy(b, seq, s)
	case s.l == nil:
		return Superseded, "gone on all sides"
	case p.removable(b, seq):
		return Superseded, ""
	case p.Reverse:
		return Missing, "acknowledged, and on neither side"
	}
	return LostByNATS, "acknowledged, and on neither side"
}

func (p *Pair) both(s sight) (State, string) {
	switch {
	case s.a.hash != s.c.hash:
		return Mismatch, reasonContent
	case s.a.time != s.c.time && p.timed(s.a.seq):
		return Mismatch, "time"
	case s.l != nil && s.l.Hash != 0 && s.l.Hash != s.a.hash && rulesOf(p.Config).exact:
		return Mismatch, "both differ from what was published"
	}
	return Match, ""
}

func (p *Pair) onlyCopy(b bounds, seq uint64, s sight) (State, string) {
	if !p.removable(b, seq) {
		if s.l != nil && !p.Reverse {
			return LostByNATS, "acknowledged, and only the copy has it"
		}
		return Extra, ""
	}
	return Superseded, "the copy has it still"
}

// removable tells whether the authority's rules may have removed a sequence that it has not got.
func (p *Pair) removable(b bounds, seq uint64) bool {
	return seq < b.first || seq <= b.last && (p.RemovedByHand || rulesOf(p.Config).interior)
}

package parity

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
)

// contents knows the last contents of the authority again.
type contents struct {
	at   places
	ring []uint64
	next int
}

func (c *contents) add(hash, seq uint64) {
	if c.at == nil {
		c.at = make(places, recentHashes)
	}
	if len(c.ring) < recentHashes {
		c.ring = append(c.ring, hash)
	} else {
		old := c.ring[c.next]
		if c.at[old] < seq { // a later one with the same content keeps its place until its own turn
			delete(c.at, old)
		}
		c.ring[c.next] = hash
	}
	c.at[hash] = seq
	c.next = (c.next + 1) % recentHashes
}

// confirmations is how many doubts of one step are looked at once more before they count. A step with more has no
// races to blame.
const confirmations = 256

// confirm looks at what was not equal once more, since the sides were read one after the other.
func (p *Pair) confirm(ctx context.Context, b bounds, seen []sighted) error {
	var doubts []*doubt
	for i := range seen {
		if d := seen[i].d; d != nil && !d.final() && len(doubts) < confirmations {
			doubts = append(doubts, d)
		}
	}
	if len(doubts) == 0 {
		return nil
	}
	b, err := p.authorityNow(ctx, b)
	if err != nil {
		return err
	}
	return p.reread(ctx, b, doubts)
}

// settle compares what was not equal with what is in the wrong place, and counts it.
func (p *Pair) settle(g *Progress, found []*doubt) {
	p.displaced(g, found)
	for _, d := range found {
		g.settled.By[d.state]++
		if d.state != Superseded && d.state != Ignored && d.state != NotComparable {
			g.absorb(p, d.seq, d.sight)
		}
		if d.state == Match {
			g.recent.add(d.a.hash, d.seq)
			p.noteUnacked(g, d.seq, d.sight)
		}
		if d.state == NotComparable {
			g.reasons[d.reason]++
		}
		g.keep(d)
	}
}

// authorityNow brings the authority's bounds up to date: what it has removed since counts as removed.
func (p *Pair) authorityNow(ctx context.Context, b bounds) (bounds, error) {
	a, err := p.Authority.State(ctx, false)
	if err != nil {
		return b, err
	}
	b.first, b.last = max(b.first, a.FirstSeq), max(b.last, a.LastSeq)
	return b, nil
}

// reread looks at doubts anew, which ascend. After an error they are as before.
func (p *Pair) reread(ctx context.Context, b bounds, doubts []*doubt) error {
	seqs := make([]uint64, len(doubts))
	for i, d := range doubts {
		seqs[i] = d.seq
	}
	as, err := readThese(ctx, p.Authority, seqs)
	if err != nil {
		return err
	}
	cs, err := readThese(ctx, p.Copy, seqs)
	if err != nil {
		return err
	}
	for _, d := range doubts {
		d.a, d.c = as[d.seq], cs[d.seq]
		d.state, d.reason = p.classify(b, d.seq, d.sight)
		if d.state == Superseded && d.c != nil && p.Now-d.since > p.Removal {
			d.state, d.reason = Extra, "the authority has removed it, and the copy keeps it"
		}
	}
	return nil
}

// final reports whether a doubt cannot change any more: what was removed everywhere does not come back.
func (d *doubt) final() bool {
	return d.state == Match || d.state == Ignored || d.state == Superseded && d.c == nil
}

// keep remembers a doubt that may change. What was removed everywhere does not.
func (g *Progress) keep(d *doubt) {
	if d.final() {
		return
	}
	if len(g.open) >= maxOpen || d.state == Superseded && len(g.open) >= maxOpen/2 {
		g.crowded++
		return
	}
	d.sight = d.own()
	g.open[d.seq] = d
}

// own returns the sight apart from what was read with it.
func (s *sight) own() sight {
	out := *s
	if s.a != nil {
		a := *s.a
		out.a = &a
	}
	if s.c != nil {
		c := *s.c
		out.c = &c
	}
	if s.l != nil {
		l := *s.l
		out.l = &l
	}
	return out
}

// places are sequences by content.
type places map[uint64]uint64

// elsewhere tells whether a content is at another sequence.
func (p places) elsewhere(hash, seq uint64) bool {
	at, ok := p[hash]
	return ok && at != seq
}

// displaced finds, among what differs, content that is in another place of the copy.
func (p *Pair) displaced(g *Progress, found []*doubt) {
	all := slices.AppendSeq(slices.Clone(found), maps.Values(g.open))
	all = slices.DeleteFunc(all, func(d *doubt) bool { return !d.state.Diverged() })
	wanted, held := places{}, places{} // where a content belongs, and where the copy has it
	for _, d := range all {
		if d.a != nil {
			wanted[d.a.hash] = d.seq
		}
		if d.c != nil {
			held[d.c.hash] = d.seq
		}
	}
	for _, d := range all {
		was := d.state
		if d.state = d.place(wanted, held, g.recent.at); d.state != was && g.open[d.seq] == d {
			g.settled.move(was, d.state)
		}
	}
}

// place gives the state of a doubt by where its contents are.
func (d *doubt) place(wanted, held, recent places) State {
	switch {
	case d.state == Missing && d.a != nil && held.elsewhere(d.a.hash, d.seq):
		return Reordered
	case d.state != Extra && (d.state != Mismatch || d.reason != reasonContent):
		return d.state
	case wanted.elsewhere(d.c.hash, d.seq):
		return Reordered
	case recent.elsewhere(d.c.hash, d.seq):
		return Duplicate
	}
	return d.state
}

// again looks once more at what is open: at most confirmations of them, in turn.
func (p *Pair) again(ctx context.Context, g *Progress, b bounds) error {
	if len(g.open) == 0 {
		return g.renew(ctx, p)
	}
	b, err := p.authorityNow(ctx, b)
	if err != nil {
		return err
	}
	open := make([]*doubt, 0, len(g.open))
	for _, d := range g.open {
		open = append(open, d)
	}
	slices.SortFunc(open, func(a, b *doubt) int { return cmp.Compare(a.seq-g.next, b.seq-g.next) })
	if len(open) > confirmations {
		open = open[:confirmations]
	}
	g.next = open[len(open)-1].seq + 1
	slices.SortFunc(open, func(a, b *doubt) int { return cmp.Compare(a.seq, b.seq) })
	was := make([]doubt, len(open))
	for i, d := range open {
		was[i] = *d
	}
	if err := p.reread(ctx, b, open); err != nil {
		return err
	}
	for i, d := range open {
		g.changed(was[i].state, was[i].reason, d)
	}
	p.displaced(g, nil)
	for i, d := range open {
		if d.state != was[i].state {
			g.stale[leafOf(d.seq)] = true
		}
		g.close(was[i].state, d)
	}
	return g.renew(ctx, p)
}

// changed counts a doubt that is in another state now.
func (g *Progress) changed(was State, reason string, d *doubt) {
	g.settled.move(was, d.state)
	if was == NotComparable {
		g.reasons[reason]--
	}
	if d.state == NotComparable {
		g.reasons[d.reason]++
	}
}

// close lets go of a doubt that is none any more.
func (g *Progress) close(was State, d *doubt) {
	if d.final() {
		delete(g.open, d.seq)
		if d.state == Match && was.Finding() {
			g.healed++
		}
	}
}

// renew computes anew the digests of the leaves in which something changed. Those that it does not get to stay stale.
func (g *Progress) renew(ctx context.Context, p *Pair) error {
	for i := range g.leaves {
		if f := &g.leaves[i]; g.stale[f.index] {
			if err := g.leaf(ctx, p, f); err != nil {
				return err
			}
			delete(g.stale, f.index)
		}
	}
	for index := range g.stale { // it had no record that counts so far
		f := leaf{index: index}
		if err := g.leaf(ctx, p, &f); err != nil {
			return err
		}
		at, _ := slices.BinarySearchFunc(g.leaves, index, func(l leaf, i uint64) int { return cmp.Compare(l.index, i) })
		g.leaves = slices.Insert(g.leaves, at, f)
		delete(g.stale, index)
	}
	return nil
}

// leaf computes a leaf's digests from what the sides have now. What one side has removed by its rules counts for
// neither.
func (g *Progress) leaf(ctx context.Context, p *Pair, f *leaf) error {
	first, last := f.index*LeafSize+1, min((f.index+1)*LeafSize, g.Through)
	as, _, err := readItems(ctx, p.Authority, reach{first, last, LeafSize, math.MaxInt64})
	if err != nil {
		return err
	}
	cs, _, err := readItems(ctx, p.Copy, reach{first, last, LeafSize, math.MaxInt64})
	if err != nil {
		return err
	}
	f.authority, f.copy = 0, 0
	return join(as, cs, nil, last, func(seq uint64, s sight) bool {
		d := g.open[seq]
		unsaid := s.a != nil && s.a.err != nil || s.c != nil && s.c.err != nil
		excused := d != nil && (d.state == Superseded || d.state == NotComparable) ||
			d == nil && (s.a == nil || s.c == nil)
		if unsaid || excused || p.Ignore != nil && p.Ignore(seq) {
			return true
		}
		if s.a != nil {
			f.authority = chain(f.authority, s.a, p.timed(s.a.seq))
		}
		if s.c != nil {
			f.copy = chain(f.copy, s.c, p.timed(s.c.seq))
		}
		return true
	})
}

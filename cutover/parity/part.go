package parity

import (
	"context"
	"fmt"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
)

// A comparison may be of a part of a stream: of what is newer than a time, or of some blocks of LeafSize sequences. It
// is never taken for one of all: what it finds calls for that, which decides.

// Part says of which part of a stream a comparison is.
type Part struct {
	Since   time.Time `json:"since,omitzero"`    // what is not older
	Percent float64   `json:"percent,omitempty"` // of the blocks between First and Last
	First   uint64    `json:"first"`
	Last    uint64    `json:"last"`
	Blocks  uint64    `json:"blocks"`    // compared so far
	Of      uint64    `json:"of_blocks"` // that all of the stream has
}

// String says what it is, for people.
func (p *Part) String() string {
	what := fmt.Sprintf("a sample of %g %% of the blocks", p.Percent)
	if !p.Since.IsZero() {
		what = "what is not older than " + p.Since.UTC().Format(time.DateTime)
	}
	return fmt.Sprintf("%s: %d of %d blocks of %d sequences, between %d and %d", what, p.Blocks, p.Of, LeafSize,
		p.First, p.Last)
}

// partial is a comparison of a part that is under way.
type partial struct {
	part   Part
	g      Progress
	stride uint64 // every so many blocks
	block  uint64 // the next one
}

// Sample asks for a comparison of a part: of what is not older than a time, or else of so many percent of the blocks,
// another choice each time. What it finds calls for a full one.
func (e *Engine) Sample(scope cutover.Scope, since time.Time, percent float64) error {
	w, err := e.watch(scope)
	if err != nil {
		return err
	}
	if since.IsZero() && (percent <= 0 || percent > 100) {
		return fmt.Errorf("a sample of %g %%: give more than 0 and at most 100", percent)
	}
	w.mu.Lock()
	w.wantPart = &Part{Since: since, Percent: percent}
	w.mu.Unlock()
	e.hurry()
	return nil
}

// beginPart begins a comparison of a part, if one is wanted.
func (w *watch) beginPart(ctx context.Context, now time.Time) error {
	w.mu.Lock()
	want := w.wantPart
	w.mu.Unlock()
	if want == nil {
		return nil
	}
	st, err := w.s.EHDB.State(ctx, false) // the times are the same on both sides, and this one is near
	if err != nil {
		return err
	}
	q := &partial{part: *want, stride: 1}
	q.part.First, q.part.Last = max(st.FirstSeq, 1), st.LastSeq
	if !want.Since.IsZero() {
		if q.part.First, err = firstAt(ctx, w.s.EHDB, q.part.First, st.LastSeq, want.Since.UnixNano()); err != nil {
			return err
		}
		q.part.Percent = 0
	}
	q.block = leafOf(q.part.First)
	if st.LastSeq > 0 {
		q.part.Of = leafOf(st.LastSeq) - leafOf(max(st.FirstSeq, 1)) + 1
	}
	w.begin(now)
	if want.Since.IsZero() && q.part.Of > 0 {
		const all = 100
		q.stride = max(uint64(all/want.Percent), 1)
		q.block += w.run0.ID % min(q.stride, q.part.Of) // another choice each time
	}
	w.mu.Lock()
	w.wantPart = nil
	w.mu.Unlock()
	w.part = q
	w.notePart()
	return nil
}

// firstAt returns the first sequence between two of a record that is not older than a time: behind last if there is
// none. Times ascend.
func firstAt(ctx context.Context, from cutover.Reader, first, last uint64, at int64) (uint64, error) {
	low, high := first, last+1
	for low < high {
		mid := low + (high-low)/2 //nolint:mnd // the middle
		var seq uint64
		var when int64
		var bad error
		err := from.Read(ctx, mid, func(r *cutover.Record, err error) bool {
			if bad = err; err == nil {
				seq, when = r.Seq, r.Time
			}
			return false
		})
		if err == nil {
			err = bad
		}
		switch {
		case err != nil:
			return 0, err
		case seq == 0 || when >= at: // seq 0: there is none behind mid
			high = mid
		default:
			low = seq + 1
		}
	}
	return low, nil
}

// stepPart takes the comparison of a part a step further.
func (w *watch) stepPart(ctx context.Context, p *Pair, now time.Time) error {
	q := w.part
	for looked := uint64(0); looked < budget; looked += LeafSize {
		first := max(q.block*LeafSize+1, q.part.First)
		last := min((q.block+1)*LeafSize, q.part.Last)
		if first > last {
			w.endPart("done", now)
			return nil
		}
		block := *p
		block.Expected = min(p.Expected, last)
		q.g.Through = max(q.g.Through, first-1)
		if _, err := w.e.compare(ctx, &block, &q.g, 0); err != nil {
			w.run0.Error = err.Error()
			return err
		}
		if q.g.Through < last { // the rest is too young, or not here yet
			q.part.Last = q.g.Through
			w.endPart("done", now)
			return nil
		}
		q.block += q.stride
		q.part.Blocks++
	}
	w.notePart()
	return nil
}

// notePart shows how far a comparison of a part is.
func (w *watch) notePart() {
	part := w.part.part
	w.run0.Part, w.run0.Counts = &part, w.part.g.settled
	w.run0.Through, w.run0.Of = min(w.part.g.Through, part.Last), part.Last
	w.note()
}

// endPart ends a comparison of a part. What it has found calls for one of all.
func (w *watch) endPart(state string, now time.Time) {
	w.run0.Ranges = w.part.g.leaves.ranges()
	w.run0.State, w.run0.Ended, w.run0.Waits = state, now, ""
	w.notePart()
	if w.part = nil; w.run0.Counts.Diverged() > 0 || len(w.run0.Ranges) > 0 {
		w.complete = time.Time{}
		w.wish()
	}
}

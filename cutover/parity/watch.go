package parity

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"
)

// watch is one stream that is compared.
type watch struct {
	e        *Engine
	s        Stream
	lags     *lags
	attached time.Time

	run      sync.Mutex // held while comparing; guards what follows
	main     Progress
	full     *Progress // a comparison from the first record on, that takes main's place when it has caught up
	part     *partial  // a comparison of a part; nil: there is none
	run0     Run       // of full, or of part
	whole    time.Time // when the last one of all has ended, or was stopped
	complete time.Time // when all was compared; zero: it was not, or something was found in a part since
	delivery DeliveryMemory
	asked    time.Time // when the consumers were looked at
	seen     [3]uint64 // what called for the last full comparison (calls)

	mu       sync.Mutex // guards what follows
	wantFull bool
	wantPart *Part // nil: none is wanted
	stopFull bool
	last     Status
	total    totals
	runs     []Run
}

// totals only grow.
type totals struct {
	compared uint64 // sequences settled
	outcomes map[string]uint64
	diverged map[State]uint64 // by the state in which they were first seen
	healed   uint64
	pending  uint64 // sequences met too young, each time
}

func (w *watch) totals() totals {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// maxRuns is how many full comparisons are remembered.
const maxRuns = 20

// Run is a comparison of a whole stream, or of a part of it.
type Run struct {
	ID      uint64    `json:"id"`
	State   string    `json:"state"` // running, stopped, done, failed
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Through uint64    `json:"through"`
	Of      uint64    `json:"of"`
	Counts  Counts    `json:"counts"`
	Ranges  []Range   `json:"differing_ranges,omitempty"`
	Error   string    `json:"error,omitempty"`
	Waits   string    `json:"waits,omitempty"` // why it does not go on now
	Part    *Part     `json:"part,omitempty"`  // nil: it is of all
}

// pair is the stream as it is to be compared now.
func (w *watch) pair() *Pair {
	now := w.e.o.Clock()
	p := &Pair{
		Scope: w.s.Scope, Authority: w.s.NATS, Copy: w.s.EHDB, Reverse: w.s.Reverse,
		Untimed: w.s.Untimed, Config: w.s.Config,
		Ledger: w.e.o.Ledger, Now: now.UnixNano(), Removal: int64(w.e.o.Removal), Expected: math.MaxUint64,
		Settled: now.Add(-w.window()).UnixNano(), Ignore: w.e.known.of(w.s.Scope),
	}
	if w.s.Reverse {
		p.Authority, p.Copy = w.s.EHDB, w.s.NATS
	}
	if w.s.Expected != nil {
		if last, why := w.s.Expected(); why != "" {
			p.Expected = last
		}
	}
	if w.s.RemovedByHand != nil {
		p.RemovedByHand = w.s.RemovedByHand()
	}
	return p
}

// window is 0 when copies do not follow asynchronously.
func (w *watch) window() time.Duration {
	if !w.e.o.Asynchronous {
		return 0
	}
	return w.e.o.Window.of(w.lags.sum())
}

// wish asks for a full comparison.
func (w *watch) wish() {
	w.mu.Lock()
	w.wantFull = true
	w.mu.Unlock()
}

// budget is how many records of a stream are compared before others get their turn, and what is known by then is shown.
const budget = chunk

// tick compares what is new, and goes on with a full comparison.
func (w *watch) tick(ctx context.Context) (more bool) {
	w.run.Lock()
	defer w.run.Unlock()
	p := w.pair()
	more, err := w.e.compare(ctx, p, &w.main, budget)
	if err == nil {
		err = w.goOn(ctx, p, more)
	}
	if err == nil {
		w.look(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			w.fail(err)
		}
		return false
	}
	w.publish(ctx, p)
	return (more || w.full != nil || w.part != nil) && w.busy() == ""
}

// busy is why comparing all of the stream has to wait.
func (w *watch) busy() string {
	if w.e.o.Busy == nil {
		return ""
	}
	return w.e.o.Busy(w.s.Scope)
}

func (w *watch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count("error")
	if w.last.Error != err.Error() {
		w.e.o.Logger.Warn("A stream cannot be compared", slog.String("stream", w.s.Scope.String()),
			slog.Any("error", err))
	}
	w.last.Error, w.last.ErrorAt = err.Error(), w.e.o.Clock()
}

func (w *watch) count(outcome string) {
	if w.total.outcomes == nil {
		w.total.outcomes = map[string]uint64{}
	}
	w.total.outcomes[outcome]++
}

// goOn takes a full comparison a step further. The first comparison of all is one too: main begins at the first record.
func (w *watch) goOn(ctx context.Context, p *Pair, more bool) error { //nolint:revive // main has more to compare
	begin, stop := w.wishes()
	now := w.e.o.Clock()
	idle := w.full == nil && w.part == nil && w.run0.State != "running"
	switch {
	case w.run0.Started.IsZero(): // main itself
		w.begin(now)
	case idle && begin:
		w.begin(now)
		w.full = &Progress{}
	case idle:
		if err := w.beginPart(ctx, now); err != nil {
			return err
		}
	case stop && w.full != nil:
		w.end("stopped", w.full, now)
		w.full = nil
	case stop && w.part != nil:
		w.endPart("stopped", now)
	}
	if w.run0.Waits = w.busy(); w.run0.Waits != "" && (w.full != nil || w.part != nil) {
		w.note()
		return nil
	}
	if w.part != nil {
		return w.stepPart(ctx, p, now)
	}
	if w.full != nil {
		m, err := w.e.compare(ctx, p, w.full, budget)
		if err != nil {
			w.run0.Error = err.Error()
			return err
		}
		w.run0.Through, w.run0.Of, w.run0.Counts = w.full.Through, w.full.bounds.end, w.full.Counts()
		if m {
			w.note()
			return nil
		}
		w.full.healed += w.main.healed
		w.main, w.full = *w.full, nil
		w.seen = w.main.calls()
		w.end("done", &w.main, now)
	} else if w.run0.State == "running" {
		w.run0.Through, w.run0.Of, w.run0.Counts = w.main.Through, w.main.bounds.end, w.main.Counts()
		w.note()
		if !more {
			w.end("done", &w.main, now)
		}
	}
	return nil
}

// wishes returns whether a full comparison is due, or to be stopped.
func (w *watch) wishes() (begin, stop bool) {
	seen := w.main.calls()
	w.mu.Lock()
	defer w.mu.Unlock()
	due := !w.whole.IsZero() && w.e.o.Clock().Sub(w.whole) >= w.e.o.Full
	begin, stop = w.wantFull || due || seen != w.seen, w.stopFull
	if w.full == nil && w.part == nil && w.run0.State != "running" || w.run0.Started.IsZero() {
		w.wantFull, w.seen = false, seen
	}
	w.stopFull = false
	return begin, stop
}

// calls is what calls for a full comparison when it changes: a side's last sequence went back, or there are more doubts
// than are looked at again, and some have healed.
func (g *Progress) calls() [3]uint64 {
	if g.crowded == 0 {
		return [3]uint64{g.regressions, 0, 0}
	}
	return [3]uint64{g.regressions, g.crowded, g.healed}
}

func (w *watch) begin(now time.Time) {
	w.run0 = Run{ID: w.run0.ID + 1, State: "running", Started: now}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.runs) == maxRuns {
		w.runs = w.runs[1:]
	}
	w.runs = append(w.runs, w.run0)
}

func (w *watch) end(state string, g *Progress, now time.Time) {
	if w.run0.Waits, w.whole = "", now; state == "done" {
		w.complete = now
	}
	w.run0.State, w.run0.Ended, w.run0.Ranges = state, now, g.leaves.ranges()
	w.run0.Through, w.run0.Of, w.run0.Counts = g.Through, g.bounds.end, g.Counts()
	w.note()
}

// note shows how far the run is.
func (w *watch) note() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[len(w.runs)-1] = w.run0
}

// look looks at the consumers when it is time.
func (w *watch) look(ctx context.Context) {
	now := w.e.o.Clock()
	if w.s.Consumers == nil || now.Sub(w.asked) < w.e.o.Delivery && !w.asked.IsZero() {
		return
	}
	w.asked = now
	reports, err := w.deliveries(ctx, now)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.last.DeliveryError = err.Error()
		return
	}
	w.last.Consumers, w.last.DeliveryAt, w.last.DeliveryError = reports, now, ""
}

func (w *watch) deliveries(ctx context.Context, now time.Time) ([]ConsumerReport, error) {
	consumers, err := w.s.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	stored := w.s.NATS
	if w.s.Reverse {
		stored = w.s.EHDB
	}
	return w.delivery.Check(ctx, &DeliveryCheck{
		Scope: w.s.Scope, Stored: stored, Consumers: consumers, Deliveries: w.e.o.Deliveries,
		Now: now, Window: w.window(),
	})
}

// publish shows what is known by now: the status and the findings.
func (w *watch) publish(ctx context.Context, p *Pair) {
	g := &w.main
	fresh := w.findings(ctx, p)
	st := w.statusOf(p)
	w.mu.Lock()
	was := w.last
	st.Consumers, st.DeliveryAt, st.DeliveryError = was.Consumers, was.DeliveryAt, was.DeliveryError
	w.last = st
	if g.settled.Examined >= was.settled {
		w.total.compared += g.settled.Examined - was.settled
	} else {
		w.total.compared += g.settled.Examined
	}
	w.total.healed = max(w.total.healed, g.healed)
	w.total.pending += st.Counts.By[Pending]
	for s, n := range fresh {
		if w.total.diverged == nil {
			w.total.diverged = map[State]uint64{}
		}
		w.total.diverged[s] += n
	}
	w.count(st.Outcome)
	w.mu.Unlock()
	if l := w.e.o.Ledger; l != nil && st.Counts.Diverged() == 0 && len(g.open) == 0 {
		l.Settled(w.s.Scope, g.Through)
	}
}

// detailed is how many new findings are read in full at a time.
const detailed = 50

// findings brings the store up to date and returns how many are new, by state.
func (w *watch) findings(ctx context.Context, p *Pair) map[State]uint64 {
	g, fresh := &w.main, map[State]uint64{}
	open := make(map[uint64]bool, len(g.open)+len(g.tail.doubts))
	read := 0
	take := func(d *doubt) {
		if !d.state.Finding() {
			return
		}
		open[d.seq] = true
		if w.e.store.has(p.Scope, d.seq, d.state) {
			return
		}
		fresh[d.state]++
		f := &Finding{
			Scope: p.Scope, Seq: d.seq, State: d.state, Reason: d.reason, Offset: -1, Found: time.Unix(0, p.Now).UTC(),
			Ledger: d.l,
		}
		if read++; read <= detailed {
			w.detail(ctx, p, f)
		}
		w.e.store.put(f)
	}
	for _, d := range g.open {
		take(d)
	}
	for _, d := range g.tail.doubts {
		take(d)
	}
	w.e.store.heal(p.Scope, func(seq uint64) bool { return open[seq] }, w.e.o.Clock())
	return fresh
}

// detail adds what both sides have.
func (w *watch) detail(ctx context.Context, p *Pair, f *Finding) {
	a, _, shown, errA := p.side(ctx, p.Authority, f.Seq)
	c, _, shownC, errC := p.side(ctx, p.Copy, f.Seq)
	f.Authority, f.Copy = shown, shownC
	if a != nil && c != nil {
		f.Field, f.Offset = difference(a, c, p.timed(f.Seq))
	}
	if err := errors.Join(errA, errC); err != nil {
		f.Reason += " (not read in full: " + err.Error() + ")"
	}
}

package parity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Options make an Engine.
type Options struct {
	Ledger     cutover.Ledger     // nil: there is no third witness
	Deliveries cutover.Deliveries // nil: nothing is known of deliveries
	Window     Window
	// Asynchronous: copies follow on their own. Without a window that is refused.
	Asynchronous bool
	Interval     time.Duration // between comparisons; 0: 1 s
	Delivery     time.Duration // between looks at consumers; 0: 10 s
	Full         time.Duration // between comparisons from the first record on; 0: 1 h
	Removal      time.Duration // how long a copy may keep what the authority removed; 0: 30 s
	Findings     int           // how many are kept; 0: 10,000
	Dir          string        // where the list of known divergences is kept; "": nowhere
	// Busy returns why comparing all of a stream has to wait; empty: it goes on. What is new is compared on, more
	// slowly where it is far behind. nil: nothing is in the way.
	Busy   func(cutover.Scope) string
	Logger *slog.Logger
	Clock  func() time.Time // nil: time.Now
}

// Stream is a stream that is compared.
type Stream struct {
	Scope      cutover.Scope
	Reverse    bool // the authority is EHDB
	NATS, EHDB cutover.Reader
	Untimed    func(seq uint64) bool // as Pair.Untimed
	Config     *server.StreamConfig
	// Expected returns the last sequence that the copy is expected to have by now, and why it is not all: "" when the
	// copy follows. nil: it follows.
	Expected func() (last uint64, why string)
	// RemovedByHand tells whether clients deleted or purged messages of the stream. nil: they did not.
	RemovedByHand func() bool
	// Consumers returns what the side that serves them says of the stream's consumers. nil: delivery is not compared.
	Consumers func(ctx context.Context) ([]Consumer, error)
	// Repair changes the copy. nil: it cannot be repaired.
	Repair Repairer
}

// Engine compares streams over and over.
type Engine struct {
	o       Options
	compare comparator
	api     API
	store   findings
	known   knowns

	mu       sync.Mutex // guards what follows
	streams  map[cutover.Scope]*watch
	selfTest SelfTest
	ticks    uint64
	controls map[controlResult]uint64
	kick     chan struct{}
}

type controlResult struct {
	control  string
	expected bool
}

// New makes an Engine: Run runs it.
func New(o Options) (*Engine, error) {
	if o.Asynchronous {
		if err := o.Window.check(); err != nil {
			return nil, err
		}
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.Interval, time.Second)
	def(&o.Delivery, 10*time.Second)
	def(&o.Full, time.Hour)
	def(&o.Removal, 30*time.Second)
	if o.Findings == 0 {
		o.Findings = 10_000
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		o: o, compare: Compare, streams: map[cutover.Scope]*watch{}, controls: map[controlResult]uint64{},
		kick: make(chan struct{}, 1),
	}
	e.store = findings{limit: o.Findings, byPlace: map[place]*Finding{}}
	return e, e.known.load(o.Dir)
}

// Attach begins to compare a stream from its first record on, in the place of what was known of it: after a reset of
// the copy, a change of the configuration or of the direction. Measured lag stays.
func (e *Engine) Attach(s Stream) error {
	if s.NATS == nil || s.EHDB == nil || s.Config == nil || s.Scope.Stream == "" {
		return errors.New("a stream to be compared needs its name, both sides and its configuration")
	}
	w := &watch{e: e, s: s, attached: e.o.Clock(), wantFull: true}
	e.mu.Lock()
	defer e.mu.Unlock()
	if was := e.streams[s.Scope]; was != nil {
		w.lags, w.total = was.lags, was.totals()
		w.last = was.until(w)
	} else {
		w.lags = &lags{}
	}
	e.store.forget(s.Scope)
	e.streams[s.Scope] = w
	e.hurry()
	return nil
}

// until is what is shown of a stream until it was compared as next has it: what it was before, with its age. It says
// nothing of all records, nor of consumers that another side serves.
func (w *watch) until(next *watch) Status {
	st := w.status()
	st.Attached, st.Complete, st.settled = next.attached, time.Time{}, 0
	if st.Reverse != next.s.Reverse {
		st.Consumers, st.DeliveryAt = nil, time.Time{}
	}
	return st
}

// hurry makes Run compare now.
func (e *Engine) hurry() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// Detach stops comparing a stream and forgets its findings.
func (e *Engine) Detach(scope cutover.Scope) {
	e.mu.Lock()
	delete(e.streams, scope)
	e.mu.Unlock()
	e.store.forget(scope)
}

// ErrUnknown says that the stream is not compared.
var ErrUnknown = errors.New("the stream is not compared: it is not in shadow or later")

func (e *Engine) watch(scope cutover.Scope) (*watch, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.streams[scope]
	if w == nil {
		return nil, fmt.Errorf("%s: %w", scope, ErrUnknown)
	}
	return w, nil
}

// all returns what is compared, in order.
func (e *Engine) all() []*watch {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]*watch, 0, len(e.streams))
	for _, w := range e.streams {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b *watch) int {
		return compareStrings(a.s.Scope.String(), b.s.Scope.String())
	})
	return out
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// ObserveLag takes how long a record took from the authority's acknowledgement until the copy had it durably.
func (e *Engine) ObserveLag(scope cutover.Scope, d time.Duration) {
	if w, err := e.watch(scope); err == nil {
		w.lags.add(d)
	}
}

// Run compares until ctx ends.
func (e *Engine) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-e.kick:
		}
		if more := e.Tick(ctx); more {
			timer.Reset(time.Millisecond) // others get their turn
			continue
		}
		timer.Reset(e.o.Interval)
	}
}

// parallel is how many streams are compared at a time.
const parallel = 4

// Tick runs the controls and compares what is new of every stream, once. more says that a long comparison goes on.
func (e *Engine) Tick(ctx context.Context) (more bool) {
	e.Controls(ctx)
	for _, scope := range e.known.expire(e.o.Clock()) {
		if w, err := e.watch(scope); err == nil {
			w.wish()
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, parallel)
	for _, w := range e.all() {
		slots <- struct{}{}
		wg.Go(func() {
			m := w.tick(ctx)
			mu.Lock()
			more = more || m
			mu.Unlock()
			<-slots
		})
	}
	wg.Wait()
	return more && ctx.Err() == nil
}

// Controls runs the controls through the comparator that is in use, counts their outcome and returns it.
func (e *Engine) Controls(ctx context.Context) SelfTest {
	t := runControls(ctx, e.compare, e.o.Clock())
	if ctx.Err() != nil {
		return e.SelfTest()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ticks++
	if t.OK {
		t.OKTicks = e.selfTest.OKTicks + 1
	}
	e.selfTest = t
	for _, c := range t.Controls {
		e.controls[controlResult{c.Name, c.Expected}]++
		if !c.Expected {
			e.o.Logger.Error("A control of the comparison failed: its figures are worth nothing",
				slog.String("control", c.Name), slog.String("detail", c.Detail))
		}
	}
	return t
}

// SelfTest returns the last outcome of the controls: its zero value before the first.
func (e *Engine) SelfTest() SelfTest {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.selfTest
	t.Controls = slices.Clone(t.Controls)
	return t
}

// ErrControls says that the comparator does not find what it has to find.
var ErrControls = errors.New("a control of the comparison failed, so its verdict is worth nothing")

// Verify compares a stream up to a sequence with nothing on its way, as under a fence, and returns what it is by then.
// It is an error if a control fails, or a record up to there was not compared.
func (e *Engine) Verify(ctx context.Context, scope cutover.Scope, last uint64) (Status, error) {
	w, err := e.watch(scope)
	if err != nil {
		return Status{}, err
	}
	if t := e.Controls(ctx); !t.OK {
		return Status{}, ErrControls
	}
	w.run.Lock()
	defer w.run.Unlock()
	p := w.pair()
	p.Settled, p.Expected = math.MaxInt64, last
	if _, err := e.compare(ctx, p, &w.main, 0); err != nil {
		return Status{}, err
	}
	w.publish(ctx, p)
	if w.main.Through < last {
		return w.status(), fmt.Errorf("compared up to %d, not %d: the copy ends at %d", w.main.Through, last,
			w.main.bounds.copyLast)
	}
	return w.status(), nil
}

// Explain reads one sequence from all sides.
func (e *Engine) Explain(ctx context.Context, scope cutover.Scope, seq uint64) (*Finding, error) {
	w, err := e.watch(scope)
	if err != nil {
		return nil, err
	}
	return w.pair().Explain(ctx, seq)
}

// Findings returns findings by stream and sequence, and how many had no room.
func (e *Engine) Findings(q Query) (list []Finding, dropped uint64) {
	list = e.store.find(q, e.o.Clock())
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	return list, e.store.dropped
}

// AddKnown lists a known divergence; one of the same name and stream is replaced.
func (e *Engine) AddKnown(k Known) error {
	if _, err := e.watch(k.Scope); err != nil {
		return err
	}
	if err := e.known.add(k, e.o.Clock()); err != nil {
		return err
	}
	return e.Full(k.Scope)
}

// RemoveKnown takes one off the list and tells whether it was there.
func (e *Engine) RemoveKnown(scope cutover.Scope, name string) (bool, error) {
	ok, err := e.known.remove(scope, name)
	if ok {
		_ = e.Full(scope) // a stream that is not compared any more needs none
	}
	return ok, err
}

// Known returns the known divergences.
func (e *Engine) Known() []Known { return e.known.all() }

// Inspect runs the controls for somebody who looks: nothing is counted.
func (e *Engine) Inspect(ctx context.Context) SelfTest {
	t := runControls(ctx, e.compare, e.o.Clock())
	t.OKTicks = e.SelfTest().OKTicks
	return t
}

// API compares answers of the JetStream API.
func (e *Engine) API() *API { return &e.api }

package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Options make a Capturer. Zero values mean the defaults given here.
type Options struct {
	Scope cutover.Scope
	From  cutover.Upstream // may have a method Nudge(last uint64), which is told what Capturer.Nudge is
	To    cutover.Local

	// Rate bounds what is copied while it is behind, in bytes per second; 0: no bound.
	Rate int
	// Busy returns why copying what is behind has to pause now; empty: it may go on. May be nil.
	Busy func() string
	// Queue bounds what waits to be written, in records and bytes; default 4096 and 16 MiB.
	Queue, QueueBytes int
	// Reconcile is how often removals are looked for; default 5 s.
	Reconcile time.Duration
	// Flush bounds how long Stop waits for what was read to be written; default 5 s.
	Flush time.Duration
	// Copied is told how old records are when they are durable here, once for each batch of those that came while
	// nothing was behind. May be nil; must be quick.
	Copied func(lag time.Duration, records int)
	Logger *slog.Logger
}

const (
	defaultQueue      = 4096
	defaultQueueBytes = 16 << 20
	defaultReconcile  = 5 * time.Second
	defaultFlush      = 5 * time.Second
	minRetry          = 100 * time.Millisecond
	maxRetry          = 5 * time.Second
)

// Capturer copies one stream. Safe for concurrent use.
type Capturer struct {
	o      Options
	log    *slog.Logger
	pace   atomic.Pointer[rate.Limiter] // nil: no bound
	queue  *queue
	status status
	paused atomic.Pointer[string]

	run struct {
		sync.Mutex
		stop  context.CancelCauseFunc // nil: it does not run
		done  chan struct{}
		cycle context.CancelCauseFunc // ends the present cycle; nil: there is none
		// resets is how many wait for the present cycle to end.
		resets int
	}
	still sync.Mutex // held while a cycle runs
}

var (
	errStopped = errors.New("capture is stopped")
	errReset   = errors.New("the standby is reset")
)

// FrozenError says that the standby must not be touched: what it copies is not what it was.
type FrozenError struct{ Reason string }

func (e *FrozenError) Error() string { return "capture is frozen: " + e.Reason }

// New makes a capturer; nothing happens before Start.
func New(o Options) *Capturer {
	set := func(to *int, d int) {
		if *to <= 0 {
			*to = d
		}
	}
	set(&o.Queue, defaultQueue)
	set(&o.QueueBytes, defaultQueueBytes)
	if o.Reconcile <= 0 {
		o.Reconcile = defaultReconcile
	}
	if o.Flush <= 0 {
		o.Flush = defaultFlush
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Capturer{o: o, log: o.Logger.With(slog.String("stream", o.Scope.String()))}
	c.SetRate(o.Rate)
	c.queue = newQueue(o.Queue, o.QueueBytes, &c.status.counts)
	c.status.enter(StateWaiting, "not started")
	return c
}

// SetRate bounds what is copied while it is behind from now on, in bytes per second; 0: no bound.
func (c *Capturer) SetRate(bytes int) {
	if bytes <= 0 {
		c.pace.Store(nil)
		return
	}
	c.pace.Store(rate.NewLimiter(rate.Limit(bytes), max(bytes/4, 1))) //nolint:mnd // a quarter of a second's
}

// Start begins to copy, in the background. A capturer that runs goes on.
func (c *Capturer) Start() {
	c.run.Lock()
	defer c.run.Unlock()
	if c.run.stop != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background()) //nolint:forbidigo // ends with Stop
	done := make(chan struct{})
	c.run.stop, c.run.done = cancel, done
	go func() {
		defer close(done)
		c.loop(ctx)
	}()
}

// Stop ends copying, after what was read has been written, or Options.Flush is over.
func (c *Capturer) Stop() {
	c.run.Lock()
	stop, done := c.run.stop, c.run.done
	c.run.Unlock()
	if stop == nil {
		return
	}
	stop(errStopped)
	<-done
	c.run.Lock()
	defer c.run.Unlock()
	if c.run.done == done {
		c.run.stop = nil
		c.status.enter(StateWaiting, "stopped")
	}
}

// Nudge says that the authority has stored something, up to last; 0: it may have changed otherwise. It does not block.
func (c *Capturer) Nudge(last uint64) {
	c.status.target(last)
	if n, ok := c.o.From.(interface{ Nudge(uint64) }); ok {
		n.Nudge(last)
	}
}

// Pause stops reading for a reason, also what is new, until it is called with none. What was read is written.
func (c *Capturer) Pause(reason string) { c.paused.Store(&reason) }

// pausedFor is why nothing is read; empty: something is.
func (c *Capturer) pausedFor() string {
	if p := c.paused.Load(); p != nil && *p != "" {
		return "paused: " + *p
	}
	return ""
}

// waits is why what is behind is not read; empty: it is.
func (c *Capturer) waits() string {
	if why := c.pausedFor(); why != "" || c.o.Busy == nil {
		return why
	}
	return c.o.Busy()
}

// loop copies until ctx ends. Whatever fails, it starts over.
func (c *Capturer) loop(ctx context.Context) {
	for wait := minRetry; ctx.Err() == nil; {
		before := c.status.applied()
		err := c.cycle(ctx)
		if ctx.Err() != nil {
			return
		}
		if c.status.applied() > before {
			wait = minRetry
		}
		c.failed(err)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		wait = min(2*wait, maxRetry) //nolint:mnd // doubles
	}
}

// failed notes why a cycle ended.
func (c *Capturer) failed(err error) {
	var frozen *FrozenError
	state, reason := StateWaiting, err.Error()
	switch {
	case errors.Is(err, errReset):
		c.status.enter(StateWaiting, "")
		return
	case errors.Is(err, cutover.ErrRole):
		state = StateFailed // a client made a stream of that name here
		if role, ours := c.o.To.Scopes()[c.o.Scope]; ours && role == cutover.Authority {
			state = StateIdle
		}
	case errors.As(err, &frozen):
		state, reason = StateFailed, frozen.Reason
	}
	if c.status.enter(state, reason) && state != StateIdle {
		c.log.Warn("Copying a stream of the NATS servers is interrupted", slog.Any("error", err))
	}
}

// cycle copies until something fails. What was read is written before it returns.
func (c *Capturer) cycle(ctx context.Context) error {
	c.still.Lock()
	defer c.still.Unlock()
	info, to, err := c.check(ctx)
	if err != nil {
		return err
	}
	c.run.Lock()
	inner, cancel := context.WithCancelCause(ctx)
	c.run.cycle = cancel
	if c.run.resets > 0 {
		cancel(errReset)
	}
	c.run.Unlock()
	defer cancel(nil)
	c.status.begin(info.State, to)
	c.queue.open()

	writing := make(chan error, 1)
	flush, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	w := &writer{c: c, to: to, turn: make(chan struct{}, 1)}
	go func() {
		err := w.drain(flush)
		cancel(err)
		writing <- err
	}()
	g, gctx := errgroup.WithContext(inner)
	g.Go(func() error { return c.read(gctx, to, w) })
	g.Go(func() error { return c.reconciling(gctx, to) })
	err = g.Wait()
	if cause := context.Cause(inner); inner.Err() != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	// What was read is written now, as far as there is time.
	c.queue.close()
	late := time.AfterFunc(c.o.Flush, func() { abandon(errStopped) })
	defer late.Stop()
	if errors.Is(err, errReset) {
		abandon(errReset)
	}
	failure := <-writing
	c.queue.discard(err)
	if err == nil {
		err = failure
	}
	return err
}

// check makes sure that there is a standby of the stream as it is now.
func (c *Capturer) check(ctx context.Context) (*server.StreamInfo, cutover.Copy, error) {
	info, err := c.o.From.Info(ctx)
	if err != nil {
		return nil, nil, err
	}
	to, err := c.o.To.Create(ctx, c.o.Scope.Account, &info.Config, info.Created, max(info.State.FirstSeq, 1))
	if errors.Is(err, cutover.ErrIncarnation) {
		return nil, nil, &FrozenError{
			"the stream was deleted on the NATS servers and made again: reset the standby to copy the new one (" +
				err.Error() + ")",
		}
	}
	if err != nil {
		return nil, nil, err
	}
	st, err := to.State(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	return info, to, compare(info, to, &st)
}

// compare is a *FrozenError when the stream is not the one that to is a copy of, or has gone back. st is the state of
// to at a time before info.
func compare(info *server.StreamInfo, to cutover.Copy, st *server.StreamState) error {
	if to.Role() != cutover.Standby {
		return fmt.Errorf("%w: it is the authority", cutover.ErrRole)
	}
	if at := to.Created(); !at.Equal(info.Created) {
		return &FrozenError{fmt.Sprintf("the stream was deleted on the NATS servers and made again at %v, the standby "+
			"is that of the one made at %v: reset it to copy the new one", info.Created, at)}
	}
	if st.LastSeq > info.State.LastSeq {
		return &FrozenError{fmt.Sprintf("the last sequence on the NATS servers is %d and was %d: they have lost "+
			"messages that are here; reset the standby to go on with what they have", info.State.LastSeq, st.LastSeq)}
	}
	return nil
}

// Reset deletes the standby, and begins anew if the capturer runs. It is refused for a stream that has the authority
// here (cutover.ErrRole).
func (c *Capturer) Reset(ctx context.Context) error {
	c.run.Lock()
	if c.run.resets++; c.run.cycle != nil {
		c.run.cycle(errReset)
	}
	c.run.Unlock()
	c.still.Lock()
	defer c.still.Unlock()
	c.run.Lock()
	c.run.resets--
	c.run.Unlock()
	to, err := c.o.To.Stream(c.o.Scope.Account, c.o.Scope.Stream)
	switch {
	case errors.Is(err, cutover.ErrNoStream):
		return nil
	case err != nil:
		return err
	case to.Role() != cutover.Standby:
		return fmt.Errorf("%w: %s has the authority here", cutover.ErrRole, c.o.Scope)
	}
	c.log.Info("The standby of a stream is deleted, to be filled again")
	err = to.Delete(ctx)
	c.status.reset()
	return err
}

package flip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Bounds of a fence.
const (
	DefaultFence = 1500 * time.Millisecond // below every timeout of a client
	MaxFence     = 3 * time.Second
	verifyTime   = 250 * time.Millisecond // that the stream must not have moved for
	pollTime     = 2 * time.Millisecond
	retryPause   = 500 * time.Millisecond
)

// MoveOptions say how a stream is to be moved.
type MoveOptions struct {
	By, Reason string
	Fence      time.Duration // budget of one attempt; 0: DefaultFence
	Retries    int           // more attempts after one that ran out of its budget
	Until      time.Time     // until when there are more attempts all the same, ever rarer; zero: Retries alone
	Expect     string        // digest of the plan that was agreed to; empty: any
	Emergency  bool          // of a rollback: do not wait for what the servers lack
	NoReverse  bool          // of a flip: do not keep the servers equal; a rollback will lose what is published here
	Observe    time.Duration // of a flip: for how long it is observed; 0: not at all
	Gates      []string      // that take it back meanwhile, but for those of Without
	Without    []string      // gates that the flip was done without
}

// Move is what moving a stream came to.
type Move struct {
	Scope      cutover.Scope
	To         cutover.Role // of the gateway
	Epoch      uint64
	Last       uint64        // sequence that the new authority continues behind
	Fence      time.Duration // how long what concerns the stream waited
	Attempts   int
	Consumers  int
	Inexact    []string // consumers that may deliver something once more
	Duplicates int      // at most so many messages are delivered once more
	Lost       uint64   // messages that the servers lack: after an emergency only
	// Leftover: the copy here has messages that the servers do not, so they differ until it is reset.
	Leftover bool `json:",omitempty"`
	At       time.Time
}

var (
	// ErrRefused says that a move may not be made now. Nothing has happened.
	ErrRefused = errors.New("refused")
	// ErrBusy says that the stream is being moved already. It comes with ErrRefused.
	ErrBusy = errors.New("being moved already")
	// ErrEnded says that a move ended without effect: the two sides are not equal, or could not be made so. It is why.
	ErrEnded = errors.New("ended without effect")
	// ErrBudget says that a fence lasted its whole budget and was lifted. Nothing has changed.
	ErrBudget = errors.New("the fence's budget ran out")
	// ErrMoved says that the stream or its consumers went on behind the fence.
	ErrMoved = errors.New("the stream moved behind the fence")
)

// endedError is an error that is ErrEnded, and says what it has said before.
type endedError struct{ error }

func (endedError) Is(target error) bool { return target == ErrEnded }
func (e endedError) Unwrap() error      { return e.error }

// spent is err, with the reason why the time of its context was over: a request to the servers does not know it.
func spent(ctx context.Context, err error) error {
	if why := context.Cause(ctx); err != nil && why != nil && !errors.Is(err, why) {
		return fmt.Errorf("%w: %w", why, err)
	}
	return err
}

// Flip makes the gateway the authority of a stream. An error means that the servers still are.
func (e *Engine) Flip(ctx context.Context, name cutover.Scope, o MoveOptions) (*Move, error) {
	return e.attempts(ctx, name, cutover.Authority, o, e.takeOver)
}

// attempts moves a stream, again if the budget runs out.
func (e *Engine) attempts(
	ctx context.Context, name cutover.Scope, to cutover.Role, o MoveOptions,
	try func(context.Context, *stream, *MoveOptions, *Move) error,
) (*Move, error) {
	s, release, err := e.hold(name)
	if err != nil {
		return nil, err
	}
	defer release()
	if o.Fence <= 0 {
		o.Fence = DefaultFence
	}
	if o.Fence > MaxFence {
		return nil, fmt.Errorf("%w: a fence of %v; at most %v, beyond that clients give up",
			ErrRefused, o.Fence, MaxFence)
	}
	if list := e.refusals(ctx, s, to); len(list) > 0 && !o.Emergency {
		return nil, fmt.Errorf("%w: %s: %v", ErrRefused, name, list)
	}
	if to == cutover.Authority { // they go on here with the others, from where they are on the servers
		moved := MoveOptions{By: o.By, Reason: "the stream is moved", Fence: o.Fence}
		if err := e.endCanaries(ctx, s, moved); err != nil {
			return nil, err
		}
	}
	if f := e.o.Claim; f != nil && to == cutover.Authority {
		done, err := f(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRefused, err)
		}
		defer done()
	}
	m := &Move{Scope: name, To: to}
	for m.Attempts = 1; ; m.Attempts++ {
		err = try(ctx, s, &o, m)
		if err == nil || !errors.Is(err, ErrBudget) || !o.again(m.Attempts) || ctx.Err() != nil {
			break
		}
		_ = sleep(ctx, o.pause(m.Attempts)) // the attempt says that ctx has ended
	}
	defer e.changed(name)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		s.lastErr = err.Error()
		return nil, err
	}
	s.lastErr, s.lastMove = "", m
	return m, nil
}

// maxPause bounds the time between attempts.
const maxPause = 10 * time.Second

// again reports whether there is another attempt behind so many.
func (o *MoveOptions) again(attempts int) bool {
	return attempts <= o.Retries || time.Now().Add(o.pause(attempts)).Before(o.Until)
}

// pause is how long to wait behind so many attempts: a busy stream may be quiet later.
func (o *MoveOptions) pause(attempts int) time.Duration {
	if o.Until.IsZero() {
		return retryPause
	}
	return min(retryPause<<min(attempts-1, 10), maxPause) //nolint:mnd // doubles
}

// takeOver is one attempt of Flip.
func (e *Engine) takeOver(ctx context.Context, s *stream, o *MoveOptions, m *Move) (err error) {
	if o.Expect != "" {
		plan, err := e.PlanFlip(ctx, s.name, o)
		if err != nil {
			return err
		}
		if plan.Digest != o.Expect {
			return fmt.Errorf("%w: the plan is %s now, not %s: look at it again", ErrRefused, plan.Digest, o.Expect)
		}
	}
	intent := &Entry{Scope: s.name, Event: EventIntent, By: o.By, Reason: o.Reason, Plan: o.Expect}
	if err := e.record(intent); err != nil {
		return err
	}
	e.step(FlipIntent)
	fenced, cancel := context.WithTimeoutCause(ctx, o.Fence, ErrBudget)
	defer cancel()
	defer func() { err = spent(fenced, err) }()
	since := time.Now()
	if err := e.enter(s, PhaseFlipping); err != nil {
		return e.abort(s, PhaseShadow, err)
	}
	e.step(FlipHeld)
	last, list, err := e.part(fenced, s)
	if err != nil {
		return e.abort(s, PhaseShadow, err)
	}
	undone, err := s.leftBehind(fenced, o)
	if err != nil {
		return e.abort(s, PhaseShadow, err)
	}
	e.step(FlipVerified)
	m.Last, m.Consumers, m.Inexact, m.Duplicates = last, len(list), nil, 0
	for i := range list {
		if !list[i].Exact {
			m.Inexact = append(m.Inexact, list[i].Name)
			m.Duplicates += len(list[i].State.Pending)
		}
	}
	entry := &Entry{
		Scope: s.name, Event: EventFlip, Last: last, By: o.By, Reason: o.Reason, Plan: o.Expect, NoReverse: o.NoReverse,
		Undone: undone,
	}
	var observed *Observation
	if now := time.Now().UTC(); o.Observe > 0 {
		observed = &Observation{Since: now, Until: now.Add(o.Observe), Gates: o.watched()}
		entry.Until, entry.Gates = observed.Until, observed.Gates
	}
	if err := e.record(entry); err != nil {
		return e.abort(s, PhaseShadow, err)
	}
	m.Epoch = entry.Epoch
	e.mu.Lock()
	s.oneWay, s.from, s.undone = o.NoReverse, last, undone
	e.mu.Unlock()
	e.observed(s, observed)
	e.step(FlipRecorded)
	m.Fence = e.own(s, since)
	m.At = time.Now()
	e.released(s, m)
	e.o.Logger.Info("Stream {stream} is served from here: epoch {epoch}, behind sequence {last}, held for {fence}",
		slog.String("stream", s.name.String()), slog.Uint64("epoch", m.Epoch), slog.Uint64("last", last),
		slog.Duration("fence", m.Fence))
	return nil
}

// leftBehind is how much the servers' consumers have not done with when a stream goes without a way back: what they
// would deliver again. 0 with one.
func (s *stream) leftBehind(ctx context.Context, o *MoveOptions) (n int, err error) {
	if !o.NoReverse {
		return 0, nil
	}
	list, err := s.up.Consumers(ctx)
	for _, i := range list {
		n += int(i.NumPending) + i.NumAckPending //nolint:gosec // messages of a stream
	}
	return n, err
}

// abort lifts the fence. Nothing has happened.
func (e *Engine) abort(s *stream, back Phase, cause error) error {
	e.mu.Lock()
	s.cut = false
	e.mu.Unlock()
	err := e.enter(s, back)
	err = errors.Join(err, e.record(&Entry{Scope: s.name, Event: EventAbort, Reason: cause.Error()}))
	if err != nil {
		return errors.Join(cause, err)
	}
	return endedError{cause}
}

// part is drain, and keeps from clients what the servers' consumers send behind that: it is to come from here.
func (e *Engine) part(ctx context.Context, s *stream) (last uint64, list []cutover.ConsumerCopy, err error) {
	for {
		var seen int64
		if last, list, seen, err = e.drain(ctx, s); err != nil {
			return 0, nil, err
		}
		if err := e.setCut(s, true); err != nil {
			return 0, nil, err
		}
		if s.notes.Delivered() == seen {
			return last, list, nil
		}
		if err := e.setCut(s, false); err != nil { // a consumer was slow: it goes on
			return 0, nil, err
		}
	}
}

func (e *Engine) setCut(s *stream, cut bool) error {
	e.mu.Lock()
	s.cut = cut
	e.mu.Unlock()
	return e.route()
}

// drain waits until nothing is on its way to or from a stream that is held, and takes over what is to be taken over.
// seen is what clients had been sent by then.
func (e *Engine) drain(ctx context.Context, s *stream) (
	last uint64, list []cutover.ConsumerCopy, seen int64, err error,
) {
	if err := e.barrier(ctx); err != nil {
		return 0, nil, 0, err
	}
	for s.notes.InFlight() > 0 {
		if err := sleep(ctx, pollTime); err != nil {
			return 0, nil, 0, fmt.Errorf("%d publishes have no PubAck: %w", s.notes.InFlight(), err)
		}
	}
	e.step(FlipDrained)
	var moved error
	for quiet := time.Now(); ; quiet = time.Now() {
		before, err := s.up.Info(ctx)
		if err != nil {
			return 0, nil, 0, errors.Join(moved, err)
		}
		consumers, err := s.up.Consumers(ctx)
		if err != nil {
			return 0, nil, 0, errors.Join(moved, err)
		}
		err = s.cap.get().Settle(ctx, before.State.LastSeq)
		if errors.Is(err, cutover.ErrMoved) && sleep(ctx, pollTime) == nil {
			moved = ErrMoved
			continue
		}
		if err != nil {
			return 0, nil, 0, errors.Join(moved, fmt.Errorf("the copy is not equal: %w", err))
		}
		if err := sleep(ctx, time.Until(quiet.Add(verifyTime))); err != nil {
			return 0, nil, 0, errors.Join(moved, err)
		}
		seen = s.notes.Delivered()
		same, list, err := e.settled(ctx, s, before, consumers)
		if err != nil {
			return 0, nil, 0, errors.Join(moved, err)
		}
		if same {
			return before.State.LastSeq, list, seen, nil
		}
		moved = ErrMoved
	}
}

func (e *Engine) barrier(ctx context.Context) error {
	if err := e.o.Barrier(ctx); err != nil {
		return fmt.Errorf("a server did not take, or did not send, all that was on its way: %w", err)
	}
	return nil
}

// settled takes over what the consumers remember, and reports whether neither they nor the stream have moved since
// before.
func (e *Engine) settled(
	ctx context.Context, s *stream, before *server.StreamInfo, consumers []*server.ConsumerInfo,
) (bool, []cutover.ConsumerCopy, error) {
	if err := e.barrier(ctx); err != nil { // all that consumers have sent has been seen
		return false, nil, err
	}
	list, err := e.transfer(ctx, s)
	if err != nil {
		return false, nil, err
	}
	e.step(FlipTransferred)
	after, err := s.up.Info(ctx)
	if err != nil {
		return false, nil, err
	}
	if after.State.LastSeq != before.State.LastSeq {
		e.o.Logger.Warn("Stream {stream} moved from {from} to {to} behind the fence: somebody publishes around "+
			"the gateway",
			slog.String("stream", s.name.String()), slog.Uint64("from", before.State.LastSeq),
			slog.Uint64("to", after.State.LastSeq))
		return false, nil, nil
	}
	if len(reverse.Differs(&before.Config, &after.Config)) > 0 { // somebody has just changed it
		return false, nil, nil
	}
	if after.State.Msgs != before.State.Msgs { // the last acks have removed them, or an age limit has
		return false, nil, nil
	}
	return unmoved(consumers, list), list, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// own makes the gateway serve a stream that it has the say about. It does not give up: there is no way back but a
// rollback. It returns for how long what concerns the stream was held.
func (e *Engine) own(s *stream, since time.Time) (held time.Duration) {
	s.cap.stop()
	e.promote(s)
	e.step(FlipPromoted)
	s.setDeliver(e)
	e.mu.Lock()
	s.cut = false
	e.mu.Unlock()
	if err := e.enter(s, PhaseEHDB); err != nil { // the subjects were good before
		e.o.Logger.Error("Routes: {error}", slog.Any("error", err))
	}
	held = time.Since(since)
	e.unstraddle(s)
	e.step(FlipReleased)
	e.pullHere(s)
	e.serve(s)
	return held
}

// released records that nothing is left to be done of a move; m may be nil: it is not known any more.
func (e *Engine) released(s *stream, m *Move) {
	if err := e.record(&Entry{Scope: s.name, Event: EventReleased, Move: m}); err != nil && e.ctx.Err() == nil {
		e.o.Logger.Error("The journal cannot be written: {error}", slog.Any("error", err)) // who has the say is in it
	}
}

// promote makes the copy the authority, again until it succeeds.
func (e *Engine) promote(s *stream) {
	for {
		err := s.copy.SetRole(e.ctx, cutover.Authority)
		if err == nil || e.ctx.Err() != nil {
			break
		}
		e.o.Logger.Error("Stream {stream} cannot be served yet: {error}",
			slog.String("stream", s.name.String()), slog.Any("error", err))
		if e.replaced(s) != nil { // there is none that could be: what a client has made instead is
			break
		}
		_ = sleep(e.ctx, retryPause)
	}
}

// pullHere continues the pull requests that the servers hold.
func (e *Engine) pullHere(s *stream) { e.pullConsumer(s, e.o.Relay.MovePulls(s.notes, "")) }

// pullConsumer continues pull requests here.
func (e *Engine) pullConsumer(s *stream, list []relay.Pull) {
	if len(list) == 0 {
		return
	}
	session, err := e.o.Bus.Open(bus.KindService, bus.Identity{Account: s.name.Account}, nil)
	if err != nil {
		e.o.Logger.Error("Pull requests of {stream} are not continued: {error}",
			slog.String("stream", s.name.String()), slog.Any("error", err))
		return
	}
	defer session.Close()
	for i := range list {
		session.Publish(&bus.Msg{
			Subject: []byte("$JS.API.CONSUMER.MSG.NEXT." + s.name.Stream + "." + list[i].Consumer),
			Reply:   []byte(list[i].Inbox), Data: list[i].Request,
		})
	}
	session.Flush()
}

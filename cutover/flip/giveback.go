package flip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
)

// Bound is what a rollback now would cost.
type Bound struct {
	Lossless   bool
	Lost       uint64 // messages that the servers lack
	Duplicates int    // messages that would be delivered once more
	Why        string // if it is not lossless
}

// RollbackBound returns what a rollback of a stream now would cost, if nothing more were waited for.
func (e *Engine) RollbackBound(name cutover.Scope) (Bound, error) {
	s, err := e.find(name)
	if err != nil {
		return Bound{}, err
	}
	e.mu.Lock()
	h, phase, oneWay, from, undone := s.here, s.phase, s.oneWay, s.from, s.undone
	e.mu.Unlock()
	if phase == PhaseShadow || phase == PhaseFlipping {
		return Bound{Lossless: true, Why: "the servers have the say"}, nil
	}
	if why := e.replaced(s); why != nil {
		return Bound{Lost: e.messages(s), Why: why.Error()}, nil //nolint:nilerr // it is the answer
	}
	switch {
	case oneWay:
		last, _ := s.copy.Progress()
		return Bound{Lost: last - min(last, from), Duplicates: undone, Why: noWayBack}, nil
	case h == nil || h.chain == nil:
		last, _ := s.copy.Progress()
		return Bound{Lost: last, Why: "the way back was given up"}, nil
	}
	last, _ := s.copy.Progress()
	st := h.chain.Status()
	b := Bound{Lossless: st.Err == nil, Lost: last - min(last, st.Position)}
	if st.Err != nil {
		b.Why = st.Err.Error()
	}
	return b, nil
}

// irreversible is why nothing but an emergency gives back a stream that is served from here.
func (e *Engine) irreversible(s *stream) (list []string) {
	if why := e.replaced(s); why != nil {
		list = append(list, why.Error())
	}
	e.mu.Lock()
	h := s.here
	e.mu.Unlock()
	if h == nil || h.chain == nil {
		return list
	}
	switch err := h.chain.Status().Err; {
	case errors.Is(err, reverse.ErrForked):
		list = append(list, err.Error()+": it can not be put in order any more; ehdbctl rollback --emergency "+
			s.name.Flag()+" gives back what the servers have, and says what that loses")
	case errors.Is(err, cutover.ErrNoStream):
		list = append(list, deletedThere)
	}
	return list
}

// deletedThere is what it means that the servers have no such stream any more while it is served from here.
const deletedThere = "the servers have no such stream any more, somebody has deleted it there: make one of its name, " +
	"with its subjects, there again; the gateway fills it, and makes its consumers"

// noWayBack is what a flip without a reverse shadow means for a rollback.
const noWayBack = "it was flipped with --no-reverse-shadow: the servers are not kept equal. A rollback loses what " +
	"was published here, and what was acknowledged here since is delivered again"

// Rollback makes the servers the authority of a stream again. An error means that the gateway still is.
func (e *Engine) Rollback(ctx context.Context, name cutover.Scope, o MoveOptions) (*Move, error) {
	return e.attempts(ctx, name, cutover.Standby, o, e.giveBack)
}

// giveBack is one attempt of Rollback.
func (e *Engine) giveBack(ctx context.Context, s *stream, o *MoveOptions, m *Move) (err error) {
	e.mu.Lock()
	h, phase := s.here, s.phase
	e.mu.Unlock()
	if h == nil || phase != PhaseEHDB && phase != PhaseComplete {
		return fmt.Errorf("%w: %s is in phase %s: the servers have the say", ErrRefused, s.name, phase)
	}
	if h.chain == nil && !o.Emergency {
		return fmt.Errorf("%w: %s: the way back was given up; --emergency takes it all the same, without what the "+
			"servers lack", ErrRefused, s.name)
	}
	if !o.Emergency { // most of the work comes before the fence
		last, _ := s.copy.Progress()
		near, cancel := context.WithTimeout(ctx, catchUpTime)
		err := e.approach(near, s, h, last)
		cancel()
		if err != nil {
			return endedError{err}
		}
	}
	e.step(RollbackNear)
	if err := e.record(&Entry{Scope: s.name, Event: EventRollbackIntent, By: o.By, Reason: o.Reason}); err != nil {
		return err
	}
	e.step(RollbackIntent)
	fenced, cancel := context.WithTimeoutCause(ctx, o.Fence, ErrBudget)
	defer cancel()
	defer func() { err = spent(fenced, err) }()
	since := time.Now()
	if err := e.enter(s, PhaseRollingBack); err != nil {
		return e.abort(s, PhaseEHDB, err)
	}
	e.step(RollbackHeld)
	if !o.Emergency { // what was on its way to the stream here when the fence rose is stored here
		if err := e.barrier(fenced); err != nil {
			return e.abort(s, PhaseEHDB, err)
		}
	}
	if err := e.standDown(fenced, s, m); err != nil {
		return e.keep(s, err)
	}
	e.step(RollbackStopped)
	select { // from now on nothing else brings the servers' stream anywhere
	case h.bringing <- struct{}{}:
	case <-fenced.Done():
		return e.keep(s, context.Cause(fenced))
	}
	rest, err := e.handBack(fenced, s, h, o, m)
	if err != nil {
		<-h.bringing
		return e.keep(s, err)
	}
	entry := &Entry{
		Scope: s.name, Event: EventRollback, Last: m.Last, By: o.By, Reason: o.Reason, Dormant: rest.dormant,
		Leftover: m.Leftover,
	}
	if err := e.record(entry); err != nil {
		<-h.bringing
		return e.keep(s, err)
	}
	m.Epoch = entry.Epoch
	e.step(RollbackRecorded)
	m.Fence = e.release(s, h, rest, since, m)
	m.At = time.Now()
	if e.ctx.Err() == nil { // else something may be left to do
		e.released(s, m)
	}
	e.o.Logger.Info("Stream {stream} is served by the servers: epoch {epoch}, behind sequence {last}, held for {fence}",
		slog.String("stream", s.name.String()), slog.Uint64("epoch", m.Epoch), slog.Uint64("last", m.Last),
		slog.Duration("fence", m.Fence))
	return nil
}

// release lets the servers serve a stream that they have the say about again. It returns for how long what concerns the
// stream was held.
func (e *Engine) release(
	s *stream, h *authority, rest remainder, since time.Time, m *Move,
) (held time.Duration) {
	// Before the copy grows again, and before consumers there deliver to clients.
	h.halt()
	e.observed(s, nil)
	e.mu.Lock()
	s.oneWay, s.undone, s.held, s.leftover = false, 0, true, m.Leftover
	e.mu.Unlock()
	e.straddling(s, rest.straddle)
	e.enterShadow(s) // what came before that was kept from clients
	awake := h.ghosts == nil
	if !awake {
		h.ghosts.Close() // in a queue group it would take what is for clients
		ctx, cancel := context.WithTimeout(e.ctx, awakenTime)
		awake = e.awakenOnce(ctx, h.ghosts, &rest) == nil
		cancel()
	}
	e.mu.Lock()
	s.held = false
	e.mu.Unlock()
	e.enterShadow(s)
	held = time.Since(since)
	e.step(RollbackReleased)
	e.pullThere(s)
	if !awake {
		e.awaken(s, h.ghosts, rest)
	}
	e.unserve(s)
	if s.cap.get() == nil {
		s.cap.set(s.site.Capture(s.name.Stream, s.copy))
		e.running.Go(func() { e.observe(s) })
	}
	e.applyPause(s)
	s.cap.get().Start()
	return held
}

// pullThere continues on the servers the pull requests that waited here.
func (e *Engine) pullThere(s *stream) {
	conn := s.site.Conn()
	var errs []error
	for _, p := range e.o.Relay.AdoptPulls(s.notes, s.copy.TakePulls()) {
		to := "$JS.API.CONSUMER.MSG.NEXT." + s.name.Stream + "." + p.Consumer
		errs = append(errs, conn.PublishRequest(to, p.Inbox, p.Request))
	}
	if err := errors.Join(errs...); err != nil { // they end by their own time
		e.o.Logger.Warn("Pull requests of {stream} are not continued by the servers: {error}",
			slog.String("stream", s.name.String()), slog.Any("error", err))
	}
}

// approach brings the servers near to where the stream is: what is left to do behind the fence is little.
func (e *Engine) approach(ctx context.Context, s *stream, h *authority, last uint64) error {
	began, had := time.Now(), h.chain.Position()
	if err := h.chain.Reach(ctx, last); err != nil {
		rate := func(from, to uint64) float64 { return float64(to-min(from, to)) / time.Since(began).Seconds() }
		now, _ := s.copy.Progress()
		return fmt.Errorf("the servers do not have everything, a rollback would lose messages: they take %.0f a "+
			"second while %.0f come here: %w", rate(had, h.chain.Position()), rate(last, now), err)
	}
	for before := error(nil); ; {
		err := e.bring(ctx, s, h)
		if err == nil {
			err = e.pruneAll(ctx, s)
		}
		if err == nil {
			return nil
		}
		if sleep(ctx, retryPause) != nil { // the stream goes on meanwhile: what one time did not get, the next may
			return fmt.Errorf("the servers could not be brought near in time: %w", errors.Join(before, err))
		}
		before = err
	}
}

// awaken lets the consumers upstream go on where those here have stopped, again until that succeeds once. False: the
// engine ended before.
func (e *Engine) awaken(s *stream, g *reverse.Ghosts, rest remainder) bool {
	for {
		err := e.awakenOnce(e.ctx, g, &rest)
		if err == nil || e.ctx.Err() != nil {
			return err == nil
		}
		e.o.Logger.Error("Consumers of {stream} do not go on upstream yet: {error}",
			slog.String("stream", s.name.String()), slog.Any("error", err))
		_ = sleep(e.ctx, retryPause)
	}
}

// awakenOnce is one attempt of awaken. rest becomes what is left to be done.
func (e *Engine) awakenOnce(ctx context.Context, g *reverse.Ghosts, rest *remainder) error {
	if err := g.GiveBack(ctx, rest.unclaimed); err != nil {
		return err
	}
	rest.unclaimed = nil // clients may have it now
	return g.Awaken(ctx, rest.dormant)
}

// enterShadow is enter for a stream whose subjects were good before.
func (e *Engine) enterShadow(s *stream) {
	if err := e.enter(s, PhaseShadow); err != nil {
		e.o.Logger.Error("Routes: {error}", slog.Any("error", err))
	}
}

// awakenTime is how long what clients publish waits for what was not delivered here, so that they get that first.
const awakenTime = 300 * time.Millisecond

// catchUpTime bounds how long a rollback waits for the chain before its fence.
const catchUpTime = 30 * time.Second

// agreePause is how long consumers upstream have for what they do by themselves.
const agreePause = 20 * time.Millisecond

// keep makes the gateway serve on, after an attempt to give a stream back.
func (e *Engine) keep(s *stream, cause error) error {
	e.promote(s)
	return e.abort(s, PhaseEHDB, cause)
}

// remainder is what is to be done once the servers have the say.
type remainder struct {
	dormant   []cutover.ConsumerCopy // consumers to make anew
	unclaimed []reverse.Refusal      // what makes the servers deliver what is due
	straddle  []reverse.Straddle     // what clients hold
}

// handBack brings the servers to where the stream, which stands still, is.
func (e *Engine) handBack(
	ctx context.Context, s *stream, h *authority, o *MoveOptions, m *Move,
) (rest remainder, err error) {
	if o.Emergency {
		return rest, e.asItIs(ctx, s, h, m)
	}
	last, _ := s.copy.Progress()
	m.Last = last
	if err := h.chain.Reach(ctx, last); err != nil {
		return rest, err
	}
	e.step(RollbackReached)
	if err := e.bringLifted(ctx, s, h); err != nil {
		return rest, err
	}
	if err := h.ghosts.Settle(ctx); err != nil {
		return rest, err
	}
	if err := e.barrier(ctx); err != nil { // what consumers there have sent to clients was kept from them
		return rest, err
	}
	if _, err := reverse.Prune(ctx, s.site.Conn(), s.copy, s.up, last); err != nil {
		return rest, err
	}
	if err := e.restoreConfig(ctx, s); err != nil { // limits that were lifted have nothing to remove any more
		return rest, err
	}
	if err := e.agree(ctx, h); err != nil {
		return rest, err
	}
	e.step(RollbackSettled)
	ours, err := s.copy.State(ctx, false)
	if err != nil {
		return rest, err
	}
	theirs, err := s.up.State(ctx, false)
	if err != nil {
		return rest, err
	}
	if err := e.equal(ctx, s, ours, theirs, last); err != nil {
		return rest, err
	}
	rest, err = e.remains(ctx, s, h, m)
	e.step(RollbackEqual)
	return rest, err
}

// remains is what is to be done once the servers have the say. Both sides stand still.
func (e *Engine) remains(ctx context.Context, s *stream, h *authority, m *Move) (rest remainder, err error) {
	list, err := s.copy.Consumers()
	if err != nil {
		return rest, err
	}
	for i := range list {
		s.notes.Seed(list[i].Name, list[i].Config.AckPolicy, &list[i].State)
	}
	m.Consumers = len(list)
	if rest.unclaimed, err = h.ghosts.Unclaimed(ctx); err != nil {
		return rest, err
	}
	if rest.straddle, err = h.ghosts.Straddling(ctx); err != nil {
		return rest, err
	}
	rest.dormant, err = h.ghosts.Dormant(ctx)
	return rest, err
}

// equal requires that the servers' stream, up to last, has all messages of the one here but those whose time is over.
func (e *Engine) equal(ctx context.Context, s *stream, ours, theirs server.StreamState, last uint64) error {
	if theirs.LastSeq == last && theirs.Msgs == ours.Msgs {
		return nil
	}
	differ := fmt.Errorf("the servers have %d messages up to %d, here are %d up to %d",
		theirs.Msgs, theirs.LastSeq, ours.Msgs, last)
	if theirs.LastSeq != last || theirs.Msgs > ours.Msgs {
		return differ
	}
	ours, err := s.copy.State(ctx, true)
	if err == nil {
		theirs, err = s.up.State(ctx, true)
	}
	if err != nil {
		return err
	}
	n, err := reverse.TimedOut(ctx, s.copy, &ours, &theirs)
	if err != nil || theirs.Msgs+n != ours.Msgs {
		return errors.Join(differ, err)
	}
	return nil
}

// restoreConfig gives the servers' stream the configuration that it has here, with its limits. What the chain publishes
// is larger there by its headers: a max_bytes that has no room for it is raised.
func (e *Engine) restoreConfig(ctx context.Context, s *stream) error {
	st, err := s.up.State(ctx, false)
	if err != nil {
		return err
	}
	return e.bringConfig(ctx, s, func(cfg server.StreamConfig) server.StreamConfig {
		roomy := reverse.Roomy(cfg, st.Bytes)
		if roomy.MaxBytes != cfg.MaxBytes {
			e.o.Logger.Warn("Stream {stream} takes {bytes} bytes upstream, by the headers of the chain: max_bytes is "+
				"raised from {limit} to that", slog.String("stream", s.name.String()), slog.Uint64("bytes", st.Bytes),
				slog.Int64("limit", cfg.MaxBytes))
		}
		return roomy
	})
}

// asItIs leaves the servers where they are, and says what that loses.
func (e *Engine) asItIs(ctx context.Context, s *stream, h *authority, m *Move) error {
	if err := reverse.Restore(ctx, s.site.Conn(), s.name.Stream, s.up); errors.Is(err, cutover.ErrNoStream) {
		return fmt.Errorf("%w: %s", cutover.ErrNoStream, deletedThere)
	} else if err != nil {
		return err
	}
	if h.ghosts != nil {
		if err := h.ghosts.Unkeep(ctx); err != nil {
			return err
		}
	}
	last, _ := s.copy.Progress()
	st, err := s.up.State(ctx, false)
	if err != nil {
		return err
	}
	m.Last = st.LastSeq
	if m.Lost == 0 { // else standDown knows better
		m.Lost = last - min(last, st.LastSeq)
	}
	e.mu.Lock()
	m.Duplicates = s.undone
	own := last > s.from // something was published here; standDown has deleted a copy that is to be made anew
	e.mu.Unlock()
	apart := h.chain == nil || errors.Is(h.chain.Status().Err, reverse.ErrForked)
	m.Leftover = last > st.LastSeq || apart && own
	return nil
}

// agree waits until the consumers upstream would deliver nothing again that is done here. Those that push come there by
// themselves.
func (e *Engine) agree(ctx context.Context, h *authority) error {
	for {
		err := h.ghosts.Compare(ctx)
		if err == nil {
			return nil
		}
		if late := sleep(ctx, agreePause); late != nil {
			return errors.Join(late, err)
		}
		if err := h.ghosts.Settle(ctx); err != nil {
			return err
		}
	}
}

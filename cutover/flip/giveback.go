package flip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

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
	h, phase := s.here, s.phase
	e.mu.Unlock()
	switch {
	case phase == PhaseShadow || phase == PhaseFlipping:
		return Bound{Lossless: true, Why: "the servers have the say"}, nil
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

// Rollback makes the servers the authority of a stream again. An error means that the gateway still is.
func (e *Engine) Rollback(ctx context.Context, name cutover.Scope, o MoveOptions) (*Move, error) {
	return e.attempts(ctx, name, cutover.Standby, o, e.giveBack)
}

// giveBack is one attempt of Rollback.
func (e *Engine) giveBack(ctx context.Context, s *stream, o *MoveOptions, m *Move) error {
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
		err := h.chain.Reach(near, last)
		cancel()
		if err != nil {
			return fmt.Errorf("the servers do not have everything, a rollback would lose messages: %w", err)
		}
		if err := h.ghosts.Sync(ctx); err != nil {
			return err
		}
	}
	if err := e.record(&Entry{Scope: s.name, Event: EventRollbackIntent, By: o.By, Reason: o.Reason}); err != nil {
		return err
	}
	fenced, cancel := context.WithTimeoutCause(ctx, o.Fence, ErrBudget)
	defer cancel()
	since := time.Now()
	if err := e.enter(s, PhaseRollingBack); err != nil {
		return e.abort(s, PhaseEHDB, err)
	}
	if !o.Emergency { // what was on its way to the stream here when the fence rose is stored here
		if err := e.barrier(fenced); err != nil {
			return e.abort(s, PhaseEHDB, err)
		}
	}
	if err := s.copy.SetRole(fenced, cutover.Standby); err != nil {
		return e.keep(s, err)
	}
	last, dormant, err := e.handBack(fenced, s, h, o, m)
	if err != nil {
		return e.keep(s, err)
	}
	m.Last = last
	entry := &Entry{Scope: s.name, Event: EventRollback, Last: last, By: o.By, Reason: o.Reason, Dormant: dormant}
	if err := e.record(entry); err != nil {
		return e.keep(s, err)
	}
	m.Epoch = entry.Epoch
	err = e.release(s, h, dormant)
	m.Fence = time.Since(since)
	e.o.Logger.Info("Stream {stream} is served by the servers: epoch {epoch}, behind sequence {last}, held for {fence}",
		slog.String("stream", s.name.String()), slog.Uint64("epoch", m.Epoch), slog.Uint64("last", last),
		slog.Duration("fence", m.Fence))
	return err
}

// release lets the servers serve a stream that they have the say about again.
func (e *Engine) release(s *stream, h *authority, dormant []cutover.ConsumerCopy) error {
	h.halt() // before the copy grows again, and before consumers there deliver to clients
	err := e.enter(s, PhaseShadow)
	if h.ghosts != nil { // what came before that was kept from clients
		h.ghosts.GiveBack()
		e.awaken(s, h.ghosts, dormant)
	}
	e.unserve(s)
	if s.cap.get() == nil {
		s.cap.set(s.site.Capture(s.name.Stream, s.copy))
		e.running.Go(func() { e.observe(s) })
	}
	s.cap.get().Start()
	return err
}

// awaken makes the consumers that were deleted upstream, again until it succeeds once.
func (e *Engine) awaken(s *stream, g *reverse.Ghosts, list []cutover.ConsumerCopy) {
	for len(list) > 0 {
		err := g.Awaken(e.ctx, list)
		if err == nil || e.ctx.Err() != nil {
			return
		}
		e.o.Logger.Error("Consumers of {stream} are not upstream yet: {error}",
			slog.String("stream", s.name.String()), slog.Any("error", err))
		_ = sleep(e.ctx, retryPause)
	}
}

// catchUpTime bounds how long a rollback waits for the chain before its fence.
const catchUpTime = 30 * time.Second

// keep makes the gateway serve on, after an attempt to give a stream back.
func (e *Engine) keep(s *stream, cause error) error {
	e.promote(s)
	return e.abort(s, PhaseEHDB, cause)
}

// handBack brings the servers to where the stream, which stands still, is. It returns its last sequence, and the
// consumers that are to be awakened.
func (e *Engine) handBack(
	ctx context.Context, s *stream, h *authority, o *MoveOptions, m *Move,
) (last uint64, dormant []cutover.ConsumerCopy, err error) {
	last, _ = s.copy.Progress()
	if o.Emergency {
		st, err := s.up.State(ctx, false)
		if err != nil {
			return 0, nil, err
		}
		m.Lost = last - min(last, st.LastSeq)
		return st.LastSeq, nil, nil
	}
	if err := h.chain.Reach(ctx, last); err != nil {
		return 0, nil, err
	}
	if err := h.ghosts.Sync(ctx); err != nil {
		return 0, nil, err
	}
	if err := e.barrier(ctx); err != nil { // what consumers there have sent to clients was kept from them
		return 0, nil, err
	}
	if err := h.ghosts.Sync(ctx); err != nil {
		return 0, nil, err
	}
	if _, err := reverse.Prune(ctx, s.site.Conn(), s.copy, s.up, s.name.Stream, last); err != nil {
		return 0, nil, err
	}
	ours, err := s.copy.State(ctx, false)
	if err != nil {
		return 0, nil, err
	}
	theirs, err := s.up.State(ctx, false)
	if err != nil {
		return 0, nil, err
	}
	if theirs.LastSeq != last || theirs.Msgs != ours.Msgs {
		return 0, nil, fmt.Errorf("the servers have %d messages up to %d, here are %d up to %d",
			theirs.Msgs, theirs.LastSeq, ours.Msgs, last)
	}
	list, err := s.copy.Consumers()
	for i := range list {
		s.notes.Seed(list[i].Name, list[i].Config.AckPolicy, &list[i].State)
	}
	m.Consumers = len(list)
	if err != nil {
		return 0, nil, err
	}
	dormant, err = h.ghosts.Dormant(ctx)
	return last, dormant, err
}

// Complete gives up the way back of a stream. It cannot be undone.
func (e *Engine) Complete(ctx context.Context, name cutover.Scope, o MoveOptions) error {
	s, err := e.find(name)
	if err != nil {
		return err
	}
	s.op.Lock()
	defer s.op.Unlock()
	e.mu.Lock()
	phase := s.phase
	e.mu.Unlock()
	if phase != PhaseEHDB {
		return fmt.Errorf("%w: %s is in phase %s, not %s", ErrRefused, name, phase, PhaseEHDB)
	}
	if f := e.o.Refuse; f != nil {
		if list := f(ctx, name, cutover.Authority); len(list) > 0 {
			return fmt.Errorf("%w: %s: %v", ErrRefused, name, list)
		}
	}
	if err := e.record(&Entry{Scope: name, Event: EventComplete, By: o.By, Reason: o.Reason}); err != nil {
		return err
	}
	e.unserve(s)
	if err := e.enter(s, PhaseComplete); err != nil {
		return err
	}
	e.serve(s)
	return nil
}

// Forget ends the watch of a stream whose servers have the say, and deletes its copy.
func (e *Engine) Forget(ctx context.Context, name cutover.Scope, by string) error {
	s, err := e.find(name)
	if err != nil {
		return err
	}
	s.op.Lock()
	defer s.op.Unlock()
	e.mu.Lock()
	phase := s.phase
	e.mu.Unlock()
	if phase != PhaseShadow {
		return fmt.Errorf("%w: %s is in phase %s: roll it back first", ErrRefused, name, phase)
	}
	s.cap.stop()
	if err := e.record(&Entry{Scope: name, Event: EventForget, By: by}); err != nil {
		return err
	}
	e.mu.Lock()
	delete(e.streams, name)
	e.mu.Unlock()
	defer e.changed(name)
	return errors.Join(e.route(), s.copy.Delete(ctx))
}

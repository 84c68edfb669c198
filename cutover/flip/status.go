package flip

import (
	"context"
	"fmt"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
)

// Status is how a stream stands.
type Status struct {
	Scope    cutover.Scope
	Phase    Phase
	Since    time.Time
	Epoch    uint64
	Ours     bool   // the gateway has the say, as of Epoch
	Here     uint64 // last sequence that is durable here
	Counts   relay.Counts
	Reverse  *reverse.Status // nil: no chain
	Rollback Bound
	LastErr  string // of the last attempt to move it
	LastMove *Move
	// Leftover says that the copy has what an emergency rollback has lost, and what to do; empty: it has not.
	Leftover string
}

// Status returns how a stream stands.
func (e *Engine) Status(name cutover.Scope) (*Status, error) {
	s, err := e.find(name)
	if err != nil {
		return nil, err
	}
	bound, err := e.RollbackBound(name)
	if err != nil {
		return nil, err
	}
	here, _ := s.copy.Progress()
	e.mu.Lock()
	defer e.mu.Unlock()
	st := &Status{
		Scope: name, Phase: s.phase, Since: s.since, Epoch: e.epoch, Ours: s.ours, Here: here, Counts: s.notes.Counts(),
		Rollback: bound, LastErr: s.lastErr, LastMove: s.lastMove,
	}
	if s.leftover {
		st.Leftover = leftover(name)
	}
	if s.here != nil && s.here.chain != nil {
		r := s.here.chain.Status()
		st.Reverse = &r
	}
	return st, nil
}

// leftover is what to do about a copy that has what the servers have lost.
func leftover(name cutover.Scope) string {
	return "the copy has messages that the emergency rollback has lost, so it differs from the servers for good: " +
		"ehdbctl shadow reset " + name.Flag() + " fills it anew (before, look at what is to be saved: " +
		"ehdbctl diff findings)"
}

// Renew has the copy of a stream filled anew, which reset does: ErrBusy, with ErrRefused, while the stream is being
// moved.
func (e *Engine) Renew(
	ctx context.Context, name cutover.Scope, reset func(context.Context) error, o MoveOptions,
) error {
	s, release, err := e.hold(name)
	if err != nil {
		return err
	}
	defer release()
	e.mu.Lock()
	phase := s.phase
	e.mu.Unlock()
	if phase != PhaseShadow {
		return fmt.Errorf("%w: %s is in phase %s: only a shadow is reset", ErrRefused, name, phase)
	}
	if err := e.endCanaries(ctx, s, MoveOptions{By: o.By, Reason: "the copy is filled anew"}); err != nil {
		return err
	}
	if err := reset(ctx); err != nil {
		return err
	}
	if err := e.record(&Entry{Scope: name, Event: EventReset, By: o.By, Reason: o.Reason}); err != nil {
		return err
	}
	e.mu.Lock()
	s.leftover = false
	e.mu.Unlock()
	return nil
}

package parity

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/noetl/ehdb-gateway/cutover"
)

// Repairer changes a copy so that it has what the authority has.
type Repairer interface {
	// Role returns the copy's role: only a standby is repaired.
	Role() cutover.Role
	// Put makes the copy have these records, ascending, in the place of whatever it has at their sequences, durably. An
	// error that wraps ErrRefill says that it cannot change what is there.
	Put(ctx context.Context, records []cutover.Record) error
	// Remove takes sequences out, durably.
	Remove(ctx context.Context, seqs []uint64) error
}

// ErrRefill says that a copy cannot be changed in place: it has to be reset and filled anew.
var ErrRefill = errors.New("the copy only grows: reset it and fill it anew")

// Repaired is what a repair did. Content is what counts: how many sequences have byte-equal content now.
type Repaired struct {
	Scope   cutover.Scope `json:"scope"`
	Asked   int           `json:"asked"`
	Copied  int           `json:"copied"`  // put into the copy
	Removed int           `json:"removed"` // taken out of it
	Content int           `json:"content"` // equal by now, read back and compared byte by byte
	Outcome string        `json:"outcome"` // repaired, partial, refused
	Left    []uint64      `json:"left,omitempty"`
	Error   string        `json:"error,omitempty"`
}

// Repair copies sequences from the authority into the copy anew, and reads them back.
func (e *Engine) Repair(ctx context.Context, scope cutover.Scope, seqs []uint64) (Repaired, error) {
	out := Repaired{Scope: scope, Asked: len(seqs), Outcome: "refused"}
	w, err := e.watch(scope)
	if err != nil {
		return out, err
	}
	if w.s.Repair == nil || w.s.Reverse {
		return out, fmt.Errorf("%s: only a standby is repaired", scope)
	}
	if w.s.Repair.Role() != cutover.Standby {
		return out, fmt.Errorf("%s: only a standby is repaired: %w", scope, cutover.ErrRole)
	}
	w.run.Lock()
	defer w.run.Unlock()
	p := w.pair()
	put, remove, err := sources(ctx, p, seqs)
	if err != nil {
		return out, err
	}
	if len(put) > 0 {
		if err = w.s.Repair.Put(ctx, put); err == nil {
			out.Copied = len(put)
		}
	}
	if err == nil && len(remove) > 0 {
		if err = w.s.Repair.Remove(ctx, remove); err == nil {
			out.Removed = len(remove)
		}
	}
	if err != nil {
		out.Error = err.Error()
	}
	for _, seq := range seqs {
		same, err := equalNow(ctx, p, seq)
		if err != nil {
			return out, err
		}
		if same {
			out.Content++
		} else {
			out.Left = append(out.Left, seq)
		}
	}
	switch {
	case out.Content == out.Asked:
		out.Outcome = "repaired"
	case out.Content > 0:
		out.Outcome = "partial"
	}
	return out, nil
}

// sources reads what the authority has: records to be put, and sequences to be removed.
func sources(ctx context.Context, p *Pair, seqs []uint64) (put []cutover.Record, remove []uint64, err error) {
	for _, seq := range seqs {
		r, err := p.Authority.Get(ctx, seq)
		switch {
		case errors.Is(err, cutover.ErrNoRecord):
			remove = append(remove, seq)
		case err != nil:
			return nil, nil, fmt.Errorf("sequence %d cannot be read on the authority: %w", seq, err)
		default:
			put = append(put, *r)
		}
	}
	return put, remove, nil
}

// equalNow compares one sequence byte by byte.
func equalNow(ctx context.Context, p *Pair, seq uint64) (bool, error) {
	a, errA := p.Authority.Get(ctx, seq)
	c, errC := p.Copy.Get(ctx, seq)
	goneA, goneC := errors.Is(errA, cutover.ErrNoRecord), errors.Is(errC, cutover.ErrNoRecord)
	switch {
	case goneA && goneC:
		return true, nil
	case goneA || goneC:
		return false, nil
	case errA != nil || errC != nil:
		if unreadable(errA) || unreadable(errC) {
			return false, nil
		}
		return false, errors.Join(errA, errC)
	}
	return bytes.Equal(a.Subject, c.Subject) && bytes.Equal(a.Header, c.Header) && bytes.Equal(a.Data, c.Data) &&
		a.Time == c.Time, nil
}

// StandbyRepairer repairs a stream of the local JetStream, which takes records behind its last one only and gives up
// any.
type StandbyRepairer struct{ cutover.Copy }

// Put implements Repairer: it appends, and does not change what is there.
func (s StandbyRepairer) Put(ctx context.Context, records []cutover.Record) error {
	st, err := s.State(ctx, false)
	if err != nil {
		return err
	}
	if len(records) > 0 && records[0].Seq <= st.LastSeq {
		return fmt.Errorf("sequence %d is not behind the last one, %d: %w", records[0].Seq, st.LastSeq, ErrRefill)
	}
	for len(records) > 0 {
		n, stall, err := s.Apply(records)
		if err != nil {
			return err
		}
		last := records[len(records)-1].Seq
		if records = records[n:]; len(records) == 0 {
			return s.Durable(ctx, last)
		}
		if stall == nil {
			return errors.New("the copy took no records and did not say why")
		}
		select {
		case <-stall:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Remove implements Repairer.
func (s StandbyRepairer) Remove(ctx context.Context, seqs []uint64) error {
	if err := s.Copy.Remove(seqs); err != nil {
		return err
	}
	return s.Durable(ctx, 0)
}

package parity

import (
	"context"
	"testing"
	"time"
)

func TestControlsAreFound(t *testing.T) {
	got := Controls(t.Context(), time.Now())
	for _, c := range got.Controls {
		if !c.Expected {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
	if !got.OK || len(got.Controls) != len(controls())+1 {
		t.Fatalf("%+v", got)
	}
}

// A comparator that sees less than it should is found out by at least the control that is about it.
func TestSabotagedComparatorsAreFoundOut(t *testing.T) {
	for name, tc := range map[string]struct {
		compare comparator
		least   int // controls that have to fail
	}{
		"sees nothing": {func(context.Context, *Pair, *Progress, int) (bool, error) { return false, nil }, 14},
		"counts and compares nothing": {func(_ context.Context, _ *Pair, g *Progress, _ int) (bool, error) {
			g.settled.Examined, g.settled.By[Match] = fixtureSize, fixtureSize
			return false, nil
		}, 12},
		"forgives everything as young": {func(ctx context.Context, p *Pair, g *Progress, n int) (bool, error) {
			p.Settled = 0
			return Compare(ctx, p, g, n)
		}, 12},
		"forgives nothing": {func(ctx context.Context, p *Pair, g *Progress, n int) (bool, error) {
			p.Settled = p.Now
			return Compare(ctx, p, g, n)
		}, 1},
		"does not look at times": {func(ctx context.Context, p *Pair, g *Progress, n int) (bool, error) {
			p.Reverse = true
			return Compare(ctx, p, g, n)
		}, 2},
		"compares one side with itself": {func(ctx context.Context, p *Pair, g *Progress, n int) (bool, error) {
			p.Copy = p.Authority
			return Compare(ctx, p, g, n)
		}, 9},
		"has no ledger": {func(ctx context.Context, p *Pair, g *Progress, n int) (bool, error) {
			p.Ledger = nil
			return Compare(ctx, p, g, n)
		}, 2},
		"leaves a state out of the sum": {func(ctx context.Context, p *Pair, g *Progress, n int) (bool, error) {
			more, err := Compare(ctx, p, g, n)
			g.settled.By[NotComparable] = 0
			return more, err
		}, 1},
		"has the digest of nothing": {func(ctx context.Context, p *Pair, g *Progress, n int) (bool, error) {
			more, err := Compare(ctx, p, g, n)
			g.leaves = nil
			return more, err
		}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			got, failed := runControls(t.Context(), tc.compare, time.Now()), 0
			for _, c := range got.Controls {
				if !c.Expected {
					failed++
				}
			}
			if got.OK || failed < tc.least {
				t.Fatalf("%d controls failed, want at least %d: %+v", failed, tc.least, got.Controls)
			}
		})
	}
}

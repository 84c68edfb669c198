package parity

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

// failing is a stream of which one call fails.
type failing struct {
	cutover.Reader
	calls, at int // at: which call fails
}

var errAway = errors.New("the server is away")

func (f *failing) fails() error {
	if f.calls++; f.calls == f.at {
		return errAway
	}
	return nil
}

func (f *failing) State(ctx context.Context, deleted bool) (server.StreamState, error) {
	if err := f.fails(); err != nil {
		return server.StreamState{}, err
	}
	return f.Reader.State(ctx, deleted)
}

func (f *failing) Read(ctx context.Context, from uint64, fn func(*cutover.Record, error) bool) error {
	if err := f.fails(); err != nil {
		return err
	}
	return f.Reader.Read(ctx, from, fn)
}

func (f *failing) Get(ctx context.Context, seq uint64) (*cutover.Record, error) {
	if err := f.fails(); err != nil {
		return nil, err
	}
	return f.Reader.Get(ctx, seq)
}

// TestInterrupted: whichever call to a side fails, while differences are found and when they heal, the comparison goes on from
// there and comes to the same as one that nothing has disturbed: nothing is counted twice, and the digests are equal.
func TestInterrupted(t *testing.T) {
	play := func(at int) (calls int, counts [2]Counts, equal [2]bool, healed uint64) {
		f := newFixture(time.Now(), time.Minute)
		p := f.pair()
		side := &failing{Reader: p.Authority, at: at}
		p.Authority = side
		g := &Progress{}
		compare := func(i int) {
			t.Helper()
			for range 2 { // one call fails
				if _, err := Compare(t.Context(), p, g, 0); err != nil && !errors.Is(err, errAway) {
					t.Fatal(err)
				}
			}
			a, c := g.leaves.digests()
			counts[i], equal[i] = g.Counts(), a == c
		}
		f.copy.drop(2)
		f.copy.drop(5)
		f.copy.at(4).Data = []byte("altered")
		compare(0)
		whole := newFixture(f.now, time.Minute)
		f.copy.records = whole.copy.records
		compare(1)
		return side.calls, counts, equal, g.healed
	}
	calls, want, wantEqual, wantHealed := play(0)
	if want[0].By[Missing] != 2 || want[0].By[Mismatch] != 1 || wantEqual[0] || want[1].By[Match] != fixtureSize || !wantEqual[1] {
		t.Fatalf("undisturbed: %+v, %v", want, wantEqual)
	}
	for at := 1; at <= calls; at++ {
		_, got, equal, healed := play(at)
		if got != want || equal != wantEqual || healed != wantHealed {
			t.Errorf("call %d failed: %+v, %v, healed %d; want %+v, %v, %d", at, got, equal, healed, want, wantEqual, wantHealed)
		}
	}
}

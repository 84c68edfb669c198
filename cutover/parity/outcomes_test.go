package parity

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

// away is a side that cannot be asked.
type away struct{ cutover.Reader }

func (away) State(context.Context, bool) (server.StreamState, error) {
	return server.StreamState{}, errors.New("no server")
}

// TestOutcomes: a comparison comes to each of its outcomes, and only to one that is named: nothing to compare, and nothing
// that can be compared yet, are not equality.
func TestOutcomes(t *testing.T) {
	all := func() (uint64, string) { return math.MaxUint64, "" }
	filling := func() (uint64, string) { return 0, "it is being filled" }
	for outcome, tc := range map[string]struct {
		change   func(f *fixture)
		newest   time.Duration // of a copy that is alike
		expected func() (uint64, string)
		away     bool
	}{
		"match":               {func(*fixture) {}, old, all, false},
		"divergent":           {func(f *fixture) { f.copy.at(3).Data[0] ^= 1 }, old, all, false},
		"not_comparable":      {func(f *fixture) { f.copy.bad = map[uint64]bool{3: true} }, old, all, false},
		"pending_mirror":      {func(f *fixture) { *f = *onlyYoung() }, old, all, false},
		"suspended":           {func(f *fixture) { f.copy = memory{} }, old, filling, false},
		"authoritative_empty": {func(f *fixture) { f.authority, f.copy = memory{}, memory{} }, old, all, false},
		"error":               {func(*fixture) {}, old, all, true},
	} {
		t.Run(outcome, func(t *testing.T) {
			e, f := newEngineWindow(t, nil, 10*time.Second), newFixture(time.Now(), tc.newest)
			tc.change(f)
			s := Stream{
				Scope: testScope, NATS: &f.authority, EHDB: &f.copy, Config: &server.StreamConfig{}, Expected: tc.expected,
			}
			if tc.away {
				s.NATS = away{}
			}
			if err := e.Attach(s); err != nil {
				t.Fatal(err)
			}
			for range 5 { // doubts are looked at again
				e.Tick(t.Context())
			}
			counts := e.Stats().Streams[0].Outcomes
			if counts[outcome] == 0 {
				t.Errorf("it came to %v", counts)
			}
			st, _ := e.Status(testScope)
			if !tc.away && st.Outcome != outcome {
				t.Errorf("it came to %s", st.Outcome)
			}
			for name := range counts {
				if !slices.Contains(Outcomes(), name) {
					t.Errorf("%q is not one of %v", name, Outcomes())
				}
			}
		})
	}
}

// onlyYoung is a stream of one record, which is younger than the window.
func onlyYoung() *fixture {
	f := newFixture(time.Now(), 0)
	for _, m := range []*memory{&f.authority, &f.copy} {
		m.records = m.records[len(m.records)-1:]
	}
	return f
}

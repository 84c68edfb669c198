package flip_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestObservationIsDurable: a restart goes on with the observation of a flip, and with what is said of one that could not be
// taken back, until somebody accepts the flip or it is rolled back.
func TestObservationIsDurable(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	js, name := r.filled(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 20)
	o := flip.MoveOptions{Observe: time.Hour, Gates: []string{"G4", "G10"}, Without: []string{"G10"}, Retries: 5}
	plan, err := r.engine.PlanFlip(ctx, name, &o)
	check(t, err)
	if step := plan.Steps[len(plan.Steps)-1]; !strings.Contains(step, "observe it for 1h0m0s") || !strings.Contains(step, "G4, G10 fail") {
		t.Errorf("%q", step)
	}
	if err := r.engine.Accept(name, flip.MoveOptions{}); !errors.Is(err, flip.ErrRefused) {
		t.Error("nothing is observed:", err)
	}
	observed := func(kept string) flip.Observation {
		t.Helper()
		o, is := r.engine.Observation(name)
		if !is || o.Kept != kept || !slices.Equal(o.Gates, []string{"G4"}) || o.Over(time.Now()) || !o.Over(o.Until) {
			t.Fatalf("%+v", o)
		}
		return o
	}
	o.Expect = plan.Digest
	_, err = r.engine.Flip(ctx, name, o)
	check(t, err)
	before := observed("")
	if news, first, err := r.engine.Keep(name, "G4 failed", "a hook refuses"); !news || !first || err != nil {
		t.Error(news, first, err)
	}
	if news, first, err := r.engine.Keep(name, "G4 failed", "a hook refuses"); news || first || err != nil {
		t.Error("the same again:", news, first, err)
	}
	r.engine.Close()
	r.open()
	if after := observed("a hook refuses"); !after.Until.Equal(before.Until) {
		t.Errorf("until %v, then %v", before.Until, after.Until)
	}
	if news, first, err := r.engine.Keep(name, "G4 failed", "the servers are away"); !news || first || err != nil {
		t.Error("another reason:", news, first, err)
	}
	check(t, r.engine.Accept(name, flip.MoveOptions{By: "ann"}))
	gone := func() {
		t.Helper()
		if o, is := r.engine.Observation(name); is {
			t.Errorf("%+v", o)
		}
	}
	gone()
	r.engine.Close()
	r.open()
	gone()

	// One that is rolled back is not observed any more, also behind a restart, and one that is not to be is not.
	_, err = r.engine.Rollback(ctx, name, flip.MoveOptions{Retries: 5})
	check(t, err)
	_, err = r.engine.Flip(ctx, name, flip.MoveOptions{Observe: time.Hour, Gates: []string{"G4"}, Retries: 5})
	check(t, err)
	observed("")
	r.publish(js, "s", 3)
	_, err = r.engine.Rollback(ctx, name, flip.MoveOptions{Retries: 5})
	check(t, err)
	gone()
	r.engine.Close()
	r.open()
	gone()
	_, err = r.engine.Flip(ctx, name, flip.MoveOptions{Retries: 5})
	check(t, err)
	gone()
}

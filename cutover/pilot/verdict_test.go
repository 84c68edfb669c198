package pilot_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/pilot"
)

// A flip that no gate is against, while there is too little evidence for it, is refused in another way than one that a
// gate is against.
func TestTooLittleEvidence(t *testing.T) {
	r := newRig(t, func(o *pilot.Options) { o.Profile = gate.Production })
	name := r.stream(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 3)
	until(t, "no gate is against it", func() bool {
		g, err := r.pilot.Gates(t.Context(), name, gate.Flip)
		check(t, err)
		return g.Verdict == gate.NotEnough
	})
	if _, err := r.pilot.Flip(t.Context(), face.FlipRequest{Actor: ann, Scope: name}); !errors.Is(err, face.ErrNotEnough) ||
		!errors.Is(err, face.ErrRefused) {
		t.Error(err)
	}
	if p, err := r.pilot.Plan(t.Context(), face.PlanRequest{Scope: name, To: "ehdb"}); err != nil || !p.NotEnough {
		t.Errorf("%+v %v", p, err)
	}
	// Somebody who goes around the gateway is a reason against it.
	nc := r.connect(r.nats.ClientURL())
	defer nc.Close()
	until(t, "G8 is against it", func() bool {
		_, err := r.pilot.Flip(t.Context(), face.FlipRequest{Actor: ann, Scope: name})
		return errors.Is(err, face.ErrRefused) && !errors.Is(err, face.ErrNotEnough)
	})
	if p, err := r.pilot.Plan(t.Context(), face.PlanRequest{Scope: name, To: "ehdb"}); err != nil || p.NotEnough {
		t.Errorf("%+v %v", p, err)
	}
}

// TestApart: that the gateway itself is not connected to the servers is the first thing that is said.
func TestApart(t *testing.T) {
	r := newRig(t, nil)
	first := func() string {
		st, err := r.pilot.Status(t.Context())
		check(t, err)
		return st.Verdict
	}
	if v := first(); strings.Contains(v, "not connected") {
		t.Error(v)
	}
	r.nats.Shutdown()
	until(t, "it is said", func() bool { return strings.HasPrefix(first(), "account $G: the gateway itself is not connected") })
}

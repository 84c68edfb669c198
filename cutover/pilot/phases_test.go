package pilot_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// What a stream's phase does not allow is refused with the phase and what can be done there, and not with what the gates
// lack.
func TestPhasesThatDoNotAllowIt(t *testing.T) {
	r := newRig(t, nil)
	ctx, ann := t.Context(), face.Actor{By: "ann"}
	name := r.stream(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 3)
	verbs := map[string]func() error{
		"flip": func() error {
			_, err := r.pilot.Flip(ctx, face.FlipRequest{Actor: ann, Scope: name})
			return err
		},
		"rollback": func() error {
			_, err := r.pilot.Rollback(ctx, face.RollbackRequest{Actor: ann, Scope: name})
			return err
		},
		"complete": func() error {
			return r.pilot.Complete(ctx, face.CompleteRequest{Actor: ann, Scope: name, Understood: true})
		},
		"shadow stop": func() error {
			return r.pilot.Shadow(ctx, face.ShadowRequest{Actor: ann, Scope: name, Action: "stop"})
		},
	}
	refused := func(phase, verb, what string) {
		t.Helper()
		err := verbs[verb]()
		if !errors.Is(err, face.ErrRefused) || errors.Is(err, face.ErrNotEnough) ||
			!strings.HasPrefix(err.Error(), "refused: $G/S is in phase "+phase+": ") || !strings.Contains(err.Error(), what) {
			t.Errorf("%s in %s: %v", verb, phase, err)
		}
	}
	planned := func(to, what string) {
		t.Helper()
		p, err := r.pilot.Plan(ctx, face.PlanRequest{Scope: name, To: to})
		check(t, err)
		if len(p.Refusals) != 1 || !strings.Contains(p.Refusals[0], what) || p.NotEnough {
			t.Errorf("%+v", p)
		}
	}
	refused("shadow", "complete", "ehdbctl flip --scope '$G/S'")
	refused("shadow", "rollback", "the servers have the say")
	planned("nats", "is in phase shadow")
	until(t, "it is flipped", func() bool {
		_, err := r.pilot.Engine().Flip(ctx, name, flip.MoveOptions{Retries: 3})
		return err == nil
	})
	refused("ehdb", "flip", "ehdbctl rollback --scope '$G/S'")
	refused("ehdb", "shadow stop", "ehdbctl rollback --scope '$G/S'")
	planned("ehdb", "is in phase ehdb")
	r.publish("s", 2)
	dry := func(emergency bool) *face.Plan {
		t.Helper()
		p, err := r.pilot.Plan(ctx, face.PlanRequest{Scope: name, To: "nats", Emergency: emergency})
		check(t, err)
		return p
	}
	if p := dry(false); len(p.Refusals) > 0 || p.Cost != nil {
		t.Errorf("%+v", p)
	}
	if p := dry(true); len(p.Refusals) > 0 || p.Cost == nil || !strings.HasPrefix(p.Steps[0], "do NOT wait") ||
		!strings.HasPrefix(p.Steps[1], "hold ") {
		t.Errorf("%+v", p)
	}
	check(t, r.pilot.Engine().Complete(ctx, name, flip.MoveOptions{}))
	refused("complete", "flip", "nothing is left")
	refused("complete", "complete", "nothing is left")
	refused("complete", "rollback", "--emergency")
	refused("complete", "shadow stop", "no copy")
	planned("nats", "--emergency")
	if p := dry(true); len(p.Refusals) > 0 || p.Cost == nil || p.Cost.Lost != 5 {
		t.Errorf("%+v", p)
	}

	name = cutover.Scope{Account: "$G", Stream: "NONE"}
	if err := verbs["flip"](); !errors.Is(err, face.ErrUnknown) || !strings.Contains(err.Error(), "is not under watch") {
		t.Error(err)
	}
}

// While the servers cannot be reached, a plan of a rollback says that it would be refused.
func TestPlanWithoutServers(t *testing.T) {
	r := newRig(t, nil)
	name := r.stream(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 3)
	until(t, "it is flipped", func() bool {
		_, err := r.pilot.Engine().Flip(t.Context(), name, flip.MoveOptions{Retries: 3})
		return err == nil
	})
	r.nats.Shutdown()
	r.nats.WaitForShutdown()
	for _, emergency := range []bool{false, true} {
		since := time.Now()
		p, err := r.pilot.Plan(t.Context(), face.PlanRequest{Scope: name, To: "nats", Emergency: emergency})
		check(t, err)
		if len(p.Refusals) != 1 || !strings.HasPrefix(p.Refusals[0], "the servers cannot be asked") || (p.Cost != nil) != emergency {
			t.Errorf("%+v", p)
		}
		if took := time.Since(since); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	}
}

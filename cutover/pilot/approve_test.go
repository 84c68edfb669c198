package pilot_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/pilot"
)

// Where approvals are made with a token, a name that who asks gives is none; one that was made is an event, counts behind
// a restart, and not for the next time that the stream is moved.
func TestApprove(t *testing.T) {
	r := newRig(t, func(o *pilot.Options) { o.Approvers = true })
	ctx := t.Context()
	name := r.stream(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 3)
	bob := face.Actor{By: "bob", Reason: "change 7"}
	if err := r.pilot.Approve(ctx, name, bob); !errors.Is(err, face.ErrRefused) || !strings.Contains(err.Error(), "in phase shadow") {
		t.Error(err)
	}
	flipped := func() {
		t.Helper()
		until(t, "it is flipped", func() bool {
			_, err := r.pilot.Engine().Flip(ctx, name, flip.MoveOptions{Retries: 3})
			return err == nil
		})
	}
	approver := func(want gate.State, detail string) {
		t.Helper()
		g, err := r.pilot.Gates(ctx, name, gate.Complete)
		check(t, err)
		for _, k := range g.Gates[len(g.Gates)-1].Checks {
			if k.Fact == gate.SecondApprover && (k.State != want || !strings.Contains(k.Detail, detail)) {
				t.Errorf("%+v", k)
			}
		}
	}
	flipped()
	approver(gate.Pending, "is not who asks for it (--by), has to approve it")
	err := r.pilot.Complete(ctx, face.CompleteRequest{
		Actor: face.Actor{By: "ann"}, Scope: name, Understood: true, Approver: "bob", Credentials: "x",
	})
	if !errors.Is(err, face.ErrRefused) {
		t.Error(err)
	}
	check(t, r.pilot.Approve(ctx, name, bob))
	if e := r.event("approved"); !strings.HasPrefix(e, "$G/S | bob | change 7 |") {
		t.Error(e)
	}
	approver(gate.Pass, "bob: somebody else (--by) has to ask for it")
	err = r.pilot.Complete(ctx, face.CompleteRequest{Actor: bob, Scope: name, Understood: true, Credentials: "x"})
	if !errors.Is(err, face.ErrRefused) || !strings.Contains(err.Error(), "bob asks for it (--by)") ||
		!strings.Contains(err.Error(), "the approver must be somebody else") {
		t.Error(err)
	}
	r.pilot.Close()
	r.again()
	approver(gate.Pass, "bob")
	until(t, "it is given back", func() bool {
		_, err := r.pilot.Engine().Rollback(ctx, name, flip.MoveOptions{Retries: 3})
		return err == nil
	})
	flipped()
	approver(gate.Pending, "has to approve it")
}

package pilot_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/pilot"
)

// soon is longer than it takes until it is looked again where streams are to be.
const soon = 5 * time.Second

func (r *rig) of(scope cutover.Scope) (face.StreamState, bool) {
	r.t.Helper()
	st, err := r.pilot.Status(r.t.Context())
	check(r.t, err)
	for _, s := range st.Streams {
		if s.Scope == scope {
			return s, true
		}
	}
	return face.StreamState{}, false
}

// TestStopLasts: a stream whose watch was ended is not discovered again, behind a restart neither, until somebody
// begins it.
func TestStopLasts(t *testing.T) {
	r := newRig(t, nil)
	scope := r.stream(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 3)
	ctx := t.Context()
	check(t, r.pilot.Shadow(ctx, face.ShadowRequest{Scope: scope, Action: "stop", Actor: face.Actor{By: "ops"}}))
	gone := func() {
		t.Helper()
		for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if _, is := r.of(scope); is {
				t.Fatal("it is under watch again")
			}
		}
	}
	gone()
	r.pilot.Close()
	r.again()
	gone()
	check(t, r.pilot.Shadow(ctx, face.ShadowRequest{Scope: scope, Action: "start", Actor: face.Actor{By: "ops"}}))
	until(t, "it is under watch", func() bool { _, is := r.of(scope); return is })
}

// TestGivenBackInModeEHDB: a stream that is given back by hand stays with the servers, though the bus mode is ehdb, until
// somebody takes it again or the gateway starts anew.
func TestGivenBackInModeEHDB(t *testing.T) {
	r := newRig(t, func(o *pilot.Options) { o.Mode = pilot.ModeEHDB })
	ctx := t.Context()
	_, err := r.js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	check(t, err)
	scope := cutover.Scope{Account: "$G", Stream: "S"}
	here := func() bool { s, _ := r.of(scope); return s.Authority == "ehdb" }
	until(t, "it is served from here", here)
	until(t, "it is given back", func() bool { // it is held for a moment yet
		m, err := r.pilot.Rollback(ctx, face.RollbackRequest{Scope: scope, Actor: face.Actor{By: "ops"}})
		return err == nil && m.To == "nats"
	})
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if here() {
			t.Fatal("it was taken again")
		}
	}
	r.pilot.Close()
	r.again()
	until(t, "it is served from here again", here)
}

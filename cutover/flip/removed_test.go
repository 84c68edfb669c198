package flip_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestRemovalsGoAlong: what clients remove while the gateway has the say goes from the servers meanwhile, and what they
// have removed just before a rollback does before its fence: behind it there is no time for thousands of messages.
func TestRemovalsGoAlong(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const groups, each = 8, 1500
	js, name := r.filled(jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}}, 0)
	for n := range groups * each {
		_, err := js.PublishAsync(fmt.Sprint("s.", n%groups), nil, jetstream.WithStallWait(time.Minute))
		check(t, err)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	_, err := r.engine.Flip(ctx, name, flip.MoveOptions{Retries: 5})
	check(t, err)
	stream, err := js.Stream(ctx, "S")
	check(t, err)
	purge := func(groups ...int) {
		t.Helper()
		for _, g := range groups {
			check(t, stream.Purge(ctx, jetstream.WithPurgeSubject(fmt.Sprint("s.", g))))
		}
	}
	there := func() uint64 {
		t.Helper()
		st, err := r.own.Stream("S").State(ctx, false)
		check(t, err)
		return st.Msgs
	}
	purge(1, 2)
	for there() != (groups-2)*each {
		time.Sleep(50 * time.Millisecond) // ctx ends it
	}
	purge(3, 4, 5, 6)
	m, err := r.engine.Rollback(ctx, name, flip.MoveOptions{})
	check(t, err)
	if left := there(); left != 2*each || m.Lost > 0 {
		t.Errorf("the servers have %d messages; %+v", left, m)
	}
}

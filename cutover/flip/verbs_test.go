package flip_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// filled makes a stream with n messages, published through the gateway, and has it under watch.
func (r *rig) filled(cfg jetstream.StreamConfig, n int) (jetstream.JetStream, cutover.Scope) {
	r.t.Helper()
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(r.t, err)
	_, err = js.CreateStream(r.t.Context(), cfg)
	check(r.t, err)
	name := cutover.Scope{Account: "$G", Stream: cfg.Name}
	check(r.t, r.engine.Watch(r.t.Context(), name, "test"))
	r.publish(js, cfg.Subjects[0], n)
	return js, name
}

func (r *rig) publish(js jetstream.JetStream, subject string, n int) {
	r.t.Helper()
	for i := range n {
		_, err := js.Publish(r.t.Context(), subject, fmt.Append(nil, i))
		check(r.t, err)
	}
}

// Without a reverse shadow the servers stay where they were, a rollback says what it would lose and is refused, also
// behind a restart; an emergency loses exactly that, and the next flip has a way back again.
func TestNoReverseShadow(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	js, name := r.filled(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 20)
	for _, c := range []jetstream.ConsumerConfig{
		{Durable: "all", AckPolicy: jetstream.AckExplicitPolicy},
		{Durable: "new", AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverNewPolicy},
	} {
		_, err := js.CreateConsumer(ctx, "S", c)
		check(t, err)
	}
	one, err := r.engine.PlanFlip(ctx, name, &flip.MoveOptions{NoReverse: true})
	check(t, err)
	two, err := r.engine.PlanFlip(ctx, name, &flip.MoveOptions{})
	check(t, err)
	if one.Digest == two.Digest || !strings.Contains(strings.Join(one.Steps, "\n"), "NO reverse chain") {
		t.Errorf("%+v", one)
	}
	if _, err := r.engine.Flip(ctx, name, flip.MoveOptions{Expect: one.Digest}); !errors.Is(err, flip.ErrRefused) {
		t.Error("another plan:", err)
	}
	m, err := r.engine.Flip(ctx, name, flip.MoveOptions{NoReverse: true, Expect: one.Digest, Retries: 5})
	check(t, err)
	r.publish(js, "s", 7)
	look := func() {
		t.Helper()
		b, err := r.engine.RollbackBound(name)
		check(t, err)
		if b.Lossless || b.Lost != 7 || b.Duplicates != 20 || !strings.Contains(b.Why, "--no-reverse-shadow") {
			t.Errorf("%+v", b)
		}
		plan, err := r.engine.PlanRollback(ctx, name)
		check(t, err)
		if len(plan.Refusal) != 1 || !strings.Contains(plan.Refusal[0], "--no-reverse-shadow") {
			t.Errorf("%+v", plan)
		}
		if _, err := r.engine.Rollback(ctx, name, flip.MoveOptions{}); !errors.Is(err, flip.ErrRefused) {
			t.Error(err)
		}
	}
	look()
	r.engine.Close()
	r.open()
	look()
	st, err := r.own.Stream("S").State(ctx, false)
	check(t, err)
	if st.LastSeq != m.Last || st.Msgs != 20 {
		t.Errorf("the servers have %+v", st)
	}
	m, err = r.engine.Rollback(ctx, name, flip.MoveOptions{Emergency: true})
	check(t, err)
	if m.Lost != 7 || m.Last != 20 || m.Duplicates != 20 || !m.Leftover {
		t.Errorf("%+v", m)
	}
	left := func(want bool) { // the copy has what was lost: it is to be reset before it is taken over again
		t.Helper()
		st, err := r.engine.Status(name)
		check(t, err)
		plan, err := r.engine.PlanFlip(ctx, name, &flip.MoveOptions{})
		check(t, err)
		const remedy = "ehdbctl shadow reset --scope '$G/S' fills it anew"
		if strings.Contains(st.Leftover, remedy) != want || strings.Contains(strings.Join(plan.Refusal, "; "), remedy) != want {
			t.Errorf("%q, %q", st.Leftover, plan.Refusal)
		}
	}
	left(true)
	r.engine.Close()
	r.open()
	left(true)
	check(t, r.engine.Renew(ctx, name, func(context.Context) error { return nil }, flip.MoveOptions{By: "ann"}))
	left(false)
	if ack, err := js.Publish(ctx, "s", nil); err != nil || ack.Sequence != 21 {
		t.Error(ack, err)
	}
}

// A new subject leads here without a way back too.
func TestRoutesFollowWithoutAWayBack(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	js, name := r.filled(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 2)
	_, err := r.engine.Flip(ctx, name, flip.MoveOptions{NoReverse: true, Retries: 5})
	check(t, err)
	_, err = js.UpdateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s", "more"}})
	check(t, err)
	until(t, "the new subject", func() bool {
		ack, err := js.Publish(ctx, "more", nil)
		return err == nil && ack.Sequence == 3
	})
}

// A pause keeps what is published from the copy, and a flip from beginning, until it is over; a restart does not end it.
// Streams whose acks wait for the copy go on.
func TestPause(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	js, name := r.filled(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 5)
	_, queue := r.filled(jetstream.StreamConfig{Name: "Q", Subjects: []string{"q"}, Retention: jetstream.WorkQueuePolicy}, 5)
	here := func(name cutover.Scope) uint64 {
		st, err := r.engine.Status(name)
		check(t, err)
		return st.Here
	}
	until(t, "both are copied", func() bool { return here(name) == 5 && here(queue) == 5 })
	for want, err := range map[string]error{
		"without a reason": r.engine.Pause(name, flip.MoveOptions{}),
		"acks wait":        r.engine.Pause(queue, flip.MoveOptions{Reason: "x"}),
		"is not paused":    r.engine.Resume(name, flip.MoveOptions{}),
	} {
		if !errors.Is(err, flip.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	check(t, r.engine.Pause(name, flip.MoveOptions{By: "me", Reason: "backup"}))
	r.publish(js, "s", 5)
	time.Sleep(300 * time.Millisecond)
	if here(name) != 5 || r.engine.Paused(name) != "backup" {
		t.Errorf("%d are here, paused %q", here(name), r.engine.Paused(name))
	}
	r.engine.Close()
	r.open()
	time.Sleep(300 * time.Millisecond)
	if here(name) != 5 || r.engine.Paused(name) != "backup" {
		t.Errorf("behind a restart %d are here, paused %q", here(name), r.engine.Paused(name))
	}
	if _, err := r.engine.Flip(ctx, name, flip.MoveOptions{}); !errors.Is(err, flip.ErrRefused) ||
		!strings.Contains(err.Error(), "paused: backup") {
		t.Error(err)
	}
	check(t, r.engine.Pause(cutover.Scope{}, flip.MoveOptions{Reason: "night"}))
	check(t, r.engine.Resume(name, flip.MoveOptions{}))
	if err := r.engine.Resume(name, flip.MoveOptions{}); !errors.Is(err, flip.ErrRefused) || !strings.Contains(err.Error(), "with all") {
		t.Error(err)
	}
	r.publish(js, "q", 5)
	until(t, "the queue is copied on", func() bool { return here(queue) == 10 })
	if here(name) != 5 || r.engine.Paused(name) != "night" || r.engine.Paused(queue) != "" || r.engine.PausedAll() != "night" {
		t.Errorf("%d are here, paused %q and %q", here(name), r.engine.Paused(name), r.engine.Paused(queue))
	}
	_, err := js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	check(t, err)
	if err := r.engine.Canary(ctx, name, "c", nil, flip.MoveOptions{}); !errors.Is(err, flip.ErrRefused) ||
		!strings.Contains(err.Error(), "paused: night") {
		t.Error(err)
	}
	check(t, r.engine.Resume(cutover.Scope{}, flip.MoveOptions{}))
	until(t, "all is copied", func() bool { return here(name) == 10 })
	check(t, r.engine.Canary(ctx, name, "c", nil, flip.MoveOptions{Fence: 3 * time.Second}))
	if err := r.engine.Pause(name, flip.MoveOptions{Reason: "x"}); !errors.Is(err, flip.ErrRefused) || !strings.Contains(err.Error(), "canary rm") {
		t.Error(err)
	}
	_, err = r.engine.Flip(ctx, name, flip.MoveOptions{Retries: 5})
	check(t, err)
	if err := r.engine.Pause(name, flip.MoveOptions{Reason: "x"}); !errors.Is(err, flip.ErrRefused) || !strings.Contains(err.Error(), "the way back") {
		t.Error(err)
	}
}

// A flip with a window goes on trying until the stream is quiet, or the window is over.
func TestWindow(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	js, name := r.filled(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 5)
	// Somebody publishes around the gateway, more often than a stream has to stand still for.
	direct, err := jetstream.New(r.conn)
	check(t, err)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				if _, err := direct.Publish(ctx, "s", nil); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	since := time.Now()
	o := flip.MoveOptions{Fence: 400 * time.Millisecond, Until: time.Now().Add(3 * time.Second)}
	if _, err := r.engine.Flip(ctx, name, o); !errors.Is(err, flip.ErrBudget) {
		t.Errorf("%v", err)
	}
	tried := 0
	for _, e := range r.engine.Journal() {
		if e.Event == flip.EventIntent {
			tried++
		}
	}
	if took := time.Since(since); tried < 2 || took > 5*time.Second {
		t.Errorf("%d attempts in %v", tried, took)
	}
	o.Until = time.Now().Add(20 * time.Second)
	time.AfterFunc(2*time.Second, func() { close(stop) })
	m, err := r.engine.Flip(ctx, name, o)
	check(t, err)
	<-ended
	if m.Attempts < 2 {
		t.Errorf("%+v", m)
	}
	r.publish(js, "s", 1)
}

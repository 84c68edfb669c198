package flip_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestVerbsAtOnce: operators who ask for everything at once, of streams under load, get one thing after the other, or a
// refusal. Nothing is lost or comes behind its ack, and nothing waits for ever.
func TestVerbsAtOnce(t *testing.T) {
	r := newRig(t)
	var all sync.WaitGroup
	defer all.Wait()
	for name, retention := range map[string]jetstream.RetentionPolicy{
		"limits": jetstream.LimitsPolicy, "work": jetstream.WorkQueuePolicy, "interest": jetstream.InterestPolicy,
	} {
		all.Go(func() {
			t.Run(name, func(t *testing.T) {
				k := r.newRide(t, jetstream.StreamConfig{Retention: retention})
				k.watch()
				c := k.consumer(jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 5 * time.Second})
				k.consuming(c, k.acking, jetstream.PullMaxMessages(20), jetstream.PullExpiry(2*time.Second))
				stop := k.load(5*time.Millisecond, "a", "b")
				k.disturb(3 * time.Second)
				stop()
				v, err := r.engine.View(k.name)
				check(t, err)
				if v.Phase == flip.PhaseEHDB {
					k.mu.Lock()
					k.where = "ehdb"
					k.mu.Unlock()
					k.move()
				}
				k.finish(nil)
				k.move()
			})
		})
	}
}

// disturb asks for everything that can be asked for, by four operators, for a while.
func (k *ride) disturb(length time.Duration) {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), length)
	defer cancel()
	e := k.r.engine
	o := flip.MoveOptions{By: "test", Reason: "test", Retries: 1}
	reset := func(ctx context.Context, name cutover.Scope) error {
		v, err := e.View(name)
		if err != nil {
			return err
		}
		c, ok := v.Capture.(*capture.Capturer)
		if !ok {
			return nil // it was flipped since before a restart
		}
		return e.Renew(ctx, name, c.Reset, o)
	}
	verbs := map[string]func(ctx context.Context, name cutover.Scope) error{
		"flip":     func(ctx context.Context, name cutover.Scope) error { _, err := e.Flip(ctx, name, o); return err },
		"rollback": func(ctx context.Context, name cutover.Scope) error { _, err := e.Rollback(ctx, name, o); return err },
		"canary":   func(ctx context.Context, name cutover.Scope) error { return e.Canary(ctx, name, "C", nil, o) },
		"back":     func(ctx context.Context, name cutover.Scope) error { return e.EndCanary(ctx, name, "C", o) },
		"pause": func(_ context.Context, name cutover.Scope) error {
			return errors.Join(e.Pause(name, o), e.Resume(name, o))
		},
		"reset": reset,
	}
	var names []string
	for name := range verbs {
		names = append(names, name, "flip", "rollback")
	}
	var all sync.WaitGroup
	defer all.Wait()
	var mu sync.Mutex
	done := map[string]int{}
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				verb := names[rand.IntN(len(names))]
				since := time.Now()
				err := verbs[verb](k.Context(), k.name)
				if took := time.Since(since); took > 4*time.Second {
					k.Errorf("%s took %v: %v", verb, took, err)
				}
				mu.Lock()
				if err == nil {
					done[verb]++
				} else if !errors.Is(err, flip.ErrRefused) {
					k.Logf("%s: %v", verb, err)
				}
				mu.Unlock()
				time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
			}
		})
	}
	all.Wait()
	k.Logf("done: %v", done)
}

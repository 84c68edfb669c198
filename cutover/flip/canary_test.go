package flip_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// worker takes messages of a consumer one after the other and confirms each, until ctx ends.
type worker struct {
	mu    sync.Mutex
	count map[string]int // deliveries, by payload
	acked map[string]bool
	again []string // delivered after a confirmed ack
}

func (w *worker) run(ctx context.Context, t *testing.T, c jetstream.Consumer) {
	t.Helper()
	for ctx.Err() == nil {
		batch, err := c.Fetch(10, jetstream.FetchMaxWait(300*time.Millisecond))
		if err != nil {
			continue
		}
		for m := range batch.Messages() {
			w.got(string(m.Data()))
			ack, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if err := m.DoubleAck(ack); err != nil {
				t.Errorf("%s: %v", m.Data(), err)
			}
			cancel()
			w.mu.Lock()
			w.acked[string(m.Data())] = true
			w.mu.Unlock()
		}
	}
}

func (w *worker) got(data string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count[data]++
	if w.acked[data] {
		w.again = append(w.again, data)
	}
}

func (w *worker) done() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

func (w *worker) check(t *testing.T, published int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range published {
		if name := fmt.Sprint(i); !w.acked[name] {
			t.Errorf("%s is lost", name)
		}
	}
	if len(w.again) > 0 {
		t.Errorf("delivered again after a confirmed ack: %v", w.again)
	}
}

// A durable consumer is served from here and by the servers in turns, while clients publish and take: nothing is lost,
// nothing comes again behind a confirmed ack, and the servers' consumer is where the one here was.
func TestCanary(t *testing.T) {
	for _, retention := range []jetstream.RetentionPolicy{jetstream.LimitsPolicy, jetstream.WorkQueuePolicy} {
		t.Run(retention.String(), func(t *testing.T) { testCanary(t, retention) })
	}
}

func testCanary(t *testing.T, retention jetstream.RetentionPolicy) {
	t.Helper()
	r := newRig(t)
	ctx := t.Context()
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Retention: retention})
	check(t, err)
	c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "s.a", MaxAckPending: 7, AckWait: 5 * time.Second,
	})
	check(t, err)
	name := cutover.Scope{Account: "$G", Stream: "S"}
	check(t, r.engine.Watch(ctx, name, "test"))

	working, stop := context.WithCancel(ctx)
	w := &worker{count: map[string]int{}, acked: map[string]bool{}}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { w.run(working, t, c) })
	}
	publishing, enough := context.WithCancel(ctx)
	var published atomic.Int64
	var publisher sync.WaitGroup
	publisher.Go(func() {
		for publishing.Err() == nil {
			if _, err := js.Publish(ctx, "s.a", []byte(fmt.Sprint(published.Load()))); err != nil {
				t.Error(err)
				return
			}
			published.Add(1)
			_, _ = js.Publish(ctx, "s.b", nil)
			time.Sleep(3 * time.Millisecond)
		}
	})
	for i := range 3 {
		time.Sleep(300 * time.Millisecond)
		check(t, r.engine.Canary(ctx, name, "C", nil, flip.MoveOptions{By: "test", Fence: 3 * time.Second}))
		time.Sleep(700 * time.Millisecond)
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			list, err := r.engine.Canaries(name)
			check(t, err)
			if len(list) == 1 && list[0].Error == "" && !list[0].At.IsZero() && list[0].Delivered > 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("turn %d: %+v", i, list)
			}
		}
		if info, err := c.Info(ctx); err != nil || info.NumWaiting > 3 {
			t.Errorf("%+v %v", info, err)
		}
		check(t, r.engine.EndCanary(ctx, name, "C", flip.MoveOptions{By: "test", Fence: 3 * time.Second}))
	}
	check(t, r.engine.Canary(ctx, name, "C", nil, flip.MoveOptions{By: "test", Fence: 3 * time.Second}))
	_, err = r.engine.Flip(ctx, name, flip.MoveOptions{By: "test", Retries: 5}) // gives it back first
	check(t, err)
	time.Sleep(300 * time.Millisecond)
	enough()
	publisher.Wait()
	for end := time.Now().Add(20 * time.Second); w.done() < int(published.Load()) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	wg.Wait()
	t.Logf("%d published", published.Load())
	w.check(t, int(published.Load()))
	if published.Load() < 50 {
		t.Errorf("%d published", published.Load())
	}
}

// What cannot be served from here alone is refused, with the reason; a consumer that is deleted or changed on the servers
// is theirs again.
func TestCanaryRefusals(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	check(t, err)
	name := cutover.Scope{Account: "$G", Stream: "S"}
	check(t, r.engine.Watch(ctx, name, "test"))
	for want, cfg := range map[string]jetstream.ConsumerConfig{
		"explicit": {Durable: "none", AckPolicy: jetstream.AckNonePolicy},
		"inactive": {Durable: "inactive", AckPolicy: jetstream.AckExplicitPolicy, InactiveThreshold: time.Hour},
		"durable":  {Name: "ephemeral", AckPolicy: jetstream.AckExplicitPolicy},
		"pinned": {
			Durable: "pinned", AckPolicy: jetstream.AckExplicitPolicy, PriorityPolicy: jetstream.PriorityPolicyPinned,
			PriorityGroups: []string{"a"}, PinnedTTL: time.Minute,
		},
	} {
		c, err := s.CreateConsumer(ctx, cfg)
		check(t, err)
		err = r.engine.Canary(ctx, name, c.CachedInfo().Name, nil, flip.MoveOptions{})
		if !errors.Is(err, flip.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := r.engine.Canary(ctx, name, "nobody", nil, flip.MoveOptions{}); !errors.Is(err, cutover.ErrNoConsumer) {
		t.Error(err)
	}
	for _, change := range []func() error{
		func() error { return s.DeleteConsumer(ctx, "C") },
		func() error {
			_, err := s.UpdateConsumer(ctx, jetstream.ConsumerConfig{
				Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 5,
			})
			return err
		},
	} {
		_, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy})
		check(t, err)
		check(t, r.engine.Canary(ctx, name, "C", nil, flip.MoveOptions{}))
		if err := r.engine.Canary(ctx, name, "C", nil, flip.MoveOptions{}); !errors.Is(err, flip.ErrRefused) {
			t.Error(err)
		}
		check(t, change())
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			list, err := r.engine.Canaries(name)
			check(t, err)
			if len(list) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%+v", list)
			}
		}
	}
	last := r.engine.Journal()[len(r.engine.Journal())-1]
	if last.Event != flip.EventCanaryEnd || last.Consumer != "C" || !strings.Contains(last.Reason, "changed") {
		t.Errorf("%+v", last)
	}
}

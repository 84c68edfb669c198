package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	tasksPerHour = 19 // f00 to f18
	ready        = "propagation.ready"
)

// pipeline is the streams: TASKS, a work queue; SCORES, a bucket of results by hour and task; READY, the announcements.
type pipeline struct {
	js     jetstream.JetStream
	tasks  jetstream.Stream
	scores jetstream.KeyValue
}

// newPipeline makes the streams anew, as this is an example.
func newPipeline(ctx context.Context, nc *nats.Conn) (*pipeline, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"TASKS", "READY", "KV_SCORES"} {
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, err
		}
	}
	p := &pipeline{js: js}
	if p.tasks, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "TASKS", Subjects: []string{"tasks.*.*"}, Retention: jetstream.WorkQueuePolicy, Duplicates: 2 * time.Hour,
	}); err != nil {
		return nil, err
	}
	if _, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "READY", Subjects: []string{ready}, MaxAge: 24 * time.Hour, Duplicates: 2 * time.Hour,
	}); err != nil {
		return nil, err
	}
	p.scores, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "SCORES", TTL: 24 * time.Hour})
	return p, err
}

// hour seeds an hour as a cron job would, and once more as two cron jobs would.
func (p *pipeline) hour(ctx context.Context, hour string) error {
	added, err := p.seed(ctx, hour)
	if err != nil {
		return err
	}
	again, err := p.seed(ctx, hour)
	fmt.Printf("hour %s: seeded %d tasks, then %d\n", hour, added, again)
	return err
}

// seed puts the tasks of an hour into the queue. A task that is there, or was, is known by its id and not added.
func (p *pipeline) seed(ctx context.Context, hour string) (added int, err error) {
	for i := range tasksPerHour {
		task := fmt.Sprintf("%s.f%02d", hour, i)
		ack, err := p.js.Publish(ctx, "tasks."+task, nil, jetstream.WithMsgID(task))
		if err != nil {
			return added, err
		}
		if !ack.Duplicate {
			added++
		}
	}
	return added, nil
}

// work starts n workers. A task whose worker dies is handed to another one after AckWait.
func (p *pipeline) work(ctx context.Context, n int) (stop func(), err error) {
	queue, err := p.tasks.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	var workers []jetstream.ConsumeContext
	stop = func() {
		for _, w := range workers {
			w.Drain()
			<-w.Closed()
		}
	}
	for range n {
		w, err := queue.Consume(func(m jetstream.Msg) {
			if err := p.do(ctx, m); err != nil {
				log.Printf("%s: %v", m.Subject(), err) // it is delivered again
			}
		}, jetstream.PullMaxMessages(4))
		if err != nil {
			stop()
			return nil, err
		}
		workers = append(workers, w)
	}
	return stop, nil
}

// do works on one task: first the result, then the announcement if that made the hour whole, and the ack last. Whatever
// happens in between, doing all of it again is right.
func (p *pipeline) do(ctx context.Context, m jetstream.Msg) error {
	task := strings.TrimPrefix(m.Subject(), "tasks.")
	if _, err := p.scores.Put(ctx, task, fmt.Appendf(nil, "score of %s", task)); err != nil {
		return err
	}
	hour, _, _ := strings.Cut(task, ".")
	done, err := p.results(ctx, hour+".*")
	if err != nil {
		return err
	}
	if len(done) == tasksPerHour { // several workers may see that: the id makes it one announcement
		if _, err := p.js.Publish(ctx, ready, []byte(hour), jetstream.WithMsgID("ready."+hour)); err != nil {
			return err
		}
	}
	return m.DoubleAck(ctx)
}

// results reads what the bucket has of some keys.
func (p *pipeline) results(ctx context.Context, keys string) (map[string]string, error) {
	w, err := p.scores.Watch(ctx, keys, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Stop() }()
	found := map[string]string{}
	for e := range w.Updates() {
		if e == nil { // that was all
			return found, nil
		}
		found[e.Key()] = string(e.Value())
	}
	return nil, errors.New("the bucket could not be read")
}

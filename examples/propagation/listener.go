package main

import (
	"context"
	"fmt"
	"log"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// listener is one instance of a service that keeps the results in memory.
type listener struct {
	p       *pipeline
	name    string
	consume jetstream.ConsumeContext

	mu    sync.Mutex
	cache map[string]string
	hours []string // announced to it, in order
}

// listen starts an instance. Its durable consumer, one for each name, remembers what it was told; one that is new
// begins with the latest announcement.
func (p *pipeline) listen(ctx context.Context, name string) (*listener, error) {
	c, err := p.js.CreateOrUpdateConsumer(ctx, "READY", jetstream.ConsumerConfig{
		Durable: "listener-" + name, AckPolicy: jetstream.AckExplicitPolicy,
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: ready,
	})
	if err != nil {
		return nil, err
	}
	l := &listener{p: p, name: name, cache: map[string]string{}}
	l.consume, err = c.Consume(func(m jetstream.Msg) {
		if err := l.warm(ctx, string(m.Data())); err != nil {
			log.Printf("%s: %v", name, err) // it is delivered again
			return
		}
		if err := m.Ack(); err != nil {
			log.Printf("%s: %v", name, err)
		}
	})
	return l, err
}

// warm reads an hour that was announced: it is whole, and it can be read.
func (l *listener) warm(ctx context.Context, hour string) error {
	found, err := l.p.results(ctx, hour+".*")
	if err != nil {
		return err
	}
	if len(found) != tasksPerHour {
		return fmt.Errorf("hour %s was announced and has %d results", hour, len(found))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(l.cache, found)
	if !slices.Contains(l.hours, hour) { // a delivery may come twice
		l.hours = append(l.hours, hour)
	}
	return nil
}

// stop ends the instance. Its consumer stays.
func (l *listener) stop() {
	l.consume.Stop()
	<-l.consume.Closed()
}

func (l *listener) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.hours)
}

func (l *listener) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cache, key)
}

// reconcile compares what the listener has of the hours it was told of with the bucket, and repairs what differs. A
// service runs it on a timer; it needs nobody else.
func (l *listener) reconcile(ctx context.Context) (repaired, checked int, err error) {
	for _, hour := range l.heard() {
		truth, err := l.p.results(ctx, hour+".*")
		if err != nil {
			return repaired, checked, err
		}
		l.mu.Lock()
		for key, value := range truth {
			checked++
			if l.cache[key] != value {
				l.cache[key] = value
				repaired++
			}
		}
		l.mu.Unlock()
	}
	return repaired, checked, nil
}

// caughtUp waits until all listeners were told of an hour.
func caughtUp(ctx context.Context, hour string, all ...*listener) error {
	for _, l := range all {
		for !slices.Contains(l.heard(), hour) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s was not told of hour %s: %w", l.name, hour, ctx.Err())
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// compare measures what the way through the gateway adds to a publish: by turns through it and to the nats-server, so
// that both meet the same load.
func (s *site) compare(ctx context.Context) error {
	var sides [2]jetstream.JetStream
	for i, port := range []int{s.natsPort, s.port} {
		nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", port))
		if err != nil {
			return err
		}
		defer nc.Close()
		if sides[i], err = jetstream.New(nc); err != nil {
			return err
		}
	}
	const stream = "OVERHEAD"
	cfg := jetstream.StreamConfig{Name: stream, Subjects: []string{"overhead"}}
	if _, err := sides[0].CreateStream(ctx, cfg); err != nil {
		return err
	}
	var took [2][]time.Duration
	const rounds = 300
	for range rounds {
		for i, js := range sides {
			since := time.Now()
			if _, err := js.Publish(ctx, "overhead", nil); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(since))
		}
	}
	const median = 0.5
	s.overhead = quantile(took[1], median) - quantile(took[0], median)
	return sides[0].DeleteStream(ctx, stream)
}

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const subject = "bench.js"

// withStream connects and makes a file stream.
func withStream(url string, fn func(js jetstream.JetStream, s jetstream.Stream) error) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		return err
	}
	s, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "BENCH", Subjects: []string{subject}})
	if err != nil {
		return err
	}
	return fn(js, s)
}

// asyncPublish publishes with up to 4096 unacknowledged messages, until the last acknowledgement.
func asyncPublish(url string, p params) (took time.Duration, n int, err error) {
	err = withStream(url, func(js jetstream.JetStream, _ jetstream.Stream) error {
		start := time.Now()
		if err := publishAsync(js, p); err != nil {
			return err
		}
		took = time.Since(start)
		return nil
	})
	return took, p.msgs, err
}

func publishAsync(js jetstream.JetStream, p params) error {
	data := make([]byte, p.size)
	for range p.msgs {
		if _, err := js.PublishAsync(subject, data, jetstream.WithStallWait(30*time.Second)); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-time.After(time.Minute):
		return errTimeout
	}
}

// syncPublish publishes from conns connections, each waiting for every acknowledgement.
func syncPublish(conns int) func(url string, p params) (time.Duration, int, error) {
	return func(url string, p params) (took time.Duration, n int, err error) {
		each := max(1, p.msgs/conns)
		err = withStream(url, func(jetstream.JetStream, jetstream.Stream) error {
			took, err = fromMany(url, conns, each, p.size)
			return err
		})
		return took, each * conns, err
	}
}

func fromMany(url string, conns, each, size int) (time.Duration, error) {
	clients := make([]jetstream.JetStream, conns)
	for i := range clients {
		nc, err := nats.Connect(url)
		if err != nil {
			return 0, err
		}
		defer nc.Close()
		if clients[i], err = jetstream.New(nc); err != nil {
			return 0, err
		}
	}
	data := make([]byte, size)
	errs := make(chan error, conns)
	var wg sync.WaitGroup
	start := time.Now()
	for _, js := range clients {
		wg.Go(func() {
			for range each {
				if _, err := js.Publish(context.Background(), subject, data); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	select {
	case err := <-errs:
		return 0, err
	default:
		return took, nil
	}
}

// fetchConsume fills a stream, then fetches and acknowledges it in batches through a pull consumer.
func fetchConsume(url string, p params) (took time.Duration, n int, err error) {
	err = withStream(url, func(js jetstream.JetStream, s jetstream.Stream) error {
		if err := publishAsync(js, p); err != nil {
			return err
		}
		c, err := s.CreateConsumer(context.Background(), jetstream.ConsumerConfig{
			Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10_000,
		})
		if err != nil {
			return err
		}
		start := time.Now()
		for n < p.msgs {
			batch, err := c.Fetch(min(500, p.msgs-n), jetstream.FetchMaxWait(10*time.Second))
			if err != nil {
				return err
			}
			got := 0
			for m := range batch.Messages() {
				if err := m.Ack(); err != nil {
					return err
				}
				got++
			}
			if n += got; got == 0 {
				return fmt.Errorf("nothing more after %d of %d messages: %w", n, p.msgs, batch.Error())
			}
		}
		took = time.Since(start)
		return nil
	})
	return took, n, err
}

// orderedConsume fills a stream, then reads it through an ordered consumer.
func orderedConsume(url string, p params) (took time.Duration, n int, err error) {
	err = withStream(url, func(js jetstream.JetStream, s jetstream.Stream) error {
		if err := publishAsync(js, p); err != nil {
			return err
		}
		c, err := s.OrderedConsumer(context.Background(), jetstream.OrderedConsumerConfig{})
		if err != nil {
			return err
		}
		done := make(chan struct{})
		start := time.Now()
		cc, err := c.Consume(func(jetstream.Msg) {
			if n++; n == p.msgs {
				close(done)
			}
		}, jetstream.PullMaxMessages(5000))
		if err != nil {
			return err
		}
		defer cc.Stop()
		select {
		case <-done:
			took = time.Since(start)
			return nil
		case <-time.After(time.Minute):
			return errTimeout
		}
	})
	return took, p.msgs, err
}

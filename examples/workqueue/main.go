// Command workqueue hands jobs out to workers. What a worker cannot do is tried again with a growing pause; what nobody
// can do goes to a stream of dead letters, with the reason (docs/extensions.md).
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "JOBS", Subjects: []string{"jobs.>"}, Retention: jetstream.WorkQueuePolicy},
		{Name: "JOBS_DEAD", Subjects: []string{"dead.jobs"}, MaxAge: 7 * 24 * time.Hour},
	} {
		if _, err := js.CreateOrUpdateStream(ctx, cfg); err != nil {
			return err
		}
	}
	queue, err := js.CreateOrUpdateConsumer(ctx, "JOBS", jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy,
		MaxDeliver: 3, BackOff: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond},
		Metadata: map[string]string{"ehdb.dead_letter": "JOBS_DEAD", "ehdb.nak_backoff": "true"},
	})
	if err != nil {
		return err
	}
	dead, err := js.CreateOrUpdateConsumer(ctx, "JOBS_DEAD", jetstream.ConsumerConfig{
		Durable: "undertaker", AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		return err
	}
	working, err := queue.Consume(work, jetstream.PullMaxMessages(10))
	if err != nil {
		return err
	}
	defer working.Stop()
	for _, job := range []string{"resize", "flaky", "garbage", "broken"} {
		if _, err := js.Publish(ctx, "jobs."+job, []byte(job)); err != nil {
			return err
		}
	}
	for range 2 {
		letter, err := dead.Next(jetstream.FetchMaxWait(30 * time.Second))
		if err != nil {
			return err
		}
		h := letter.Headers()
		fmt.Printf("dead: %s after %s deliveries: %s %s\n", letter.Data(), h.Get("Ehdb-Dead-Letter-Deliveries"),
			h.Get("Ehdb-Dead-Letter-Reason"), h.Get("Ehdb-Dead-Letter-Text"))
		if err := letter.DoubleAck(ctx); err != nil {
			return err
		}
	}
	return nil
}

// work does a job, or says what is to become of it.
func work(m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		log.Print(err)
		return
	}
	job := string(m.Data())
	switch {
	case job == "garbage":
		err = m.TermWithReason("cannot be parsed") // never again
	case job == "broken", job == "flaky" && meta.NumDelivered < 2:
		err = m.Nak() // later
	default:
		fmt.Printf("done: %s at delivery %d\n", strings.TrimSpace(job), meta.NumDelivered)
		err = m.Ack()
	}
	if err != nil {
		log.Print(err)
	}
}

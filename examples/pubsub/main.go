// Command pubsub publishes to a stream and consumes from it, with a durable consumer that goes on where it was.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
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
	stream, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "GREETINGS", Subjects: []string{"greetings.>"}, MaxAge: time.Hour,
	})
	if err != nil {
		return err
	}
	reader, err := stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "reader", AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"ada", "grace", "barbara"} {
		ack, err := js.Publish(ctx, "greetings."+name, []byte("hello "+name))
		if err != nil {
			return err
		}
		fmt.Printf("message %d is on disk\n", ack.Sequence)
	}
	batch, err := reader.Fetch(3, jetstream.FetchMaxWait(5*time.Second))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		fmt.Printf("%s: %s\n", m.Subject(), m.Data())
		if err := m.DoubleAck(ctx); err != nil { // as Ack, but certain when it returns
			return err
		}
	}
	return batch.Error()
}

// Command kv keeps settings in a key-value bucket: revisions, a change that must not overwrite another one, a watch.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "example-settings", History: 5})
	if err != nil {
		return err
	}
	watch, err := kv.Watch(ctx, "colour", jetstream.UpdatesOnly())
	if err != nil {
		return err
	}
	defer func() { _ = watch.Stop() }()
	first, err := kv.PutString(ctx, "colour", "blue")
	if err != nil {
		return err
	}
	if _, err := kv.Update(ctx, "colour", []byte("green"), first); err != nil {
		return err
	}
	_, err = kv.Update(ctx, "colour", []byte("red"), first) // who does not know the newest revision changes nothing
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("an update of an old revision: %w", err)
	}
	entry, err := kv.Get(ctx, "colour")
	if err != nil {
		return err
	}
	fmt.Printf("%s is %s\n", entry.Key(), entry.Value())
	for range 2 {
		fmt.Printf("seen: %s\n", (<-watch.Updates()).Value())
	}
	return nil
}

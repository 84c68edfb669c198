// Command objects puts something larger than a message into an object store and reads it back.
package main

import (
	"bytes"
	"cmp"
	"context"
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
	store, err := js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "example-files"})
	if err != nil {
		return err
	}
	report := bytes.Repeat([]byte("a line of a report\n"), 200_000)
	info, err := store.PutBytes(ctx, "report.txt", report)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d bytes in %d chunks\n", info.Name, info.Size, info.Chunks)
	back, err := store.GetBytes(ctx, "report.txt") // the digest is checked on the way
	if err != nil {
		return err
	}
	fmt.Println("the same came back:", bytes.Equal(back, report))
	return store.Delete(ctx, "report.txt")
}

// Command propagation is a small pipeline: every hour a fan-out of tasks through a work queue, results in a key-value
// bucket, an announcement when an hour is whole, and listeners that keep its results in memory. It shows how listeners
// that were away or start late catch up, that seeding an hour twice does nothing, and a reconciler that says what it
// repaired. docs/failure-modes.md has what can go wrong.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// run plays three hours in a few seconds.
func run(ctx context.Context) error {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	p, err := newPipeline(ctx, nc)
	if err != nil {
		return err
	}
	stop, err := p.work(ctx, 3)
	if err != nil {
		return err
	}
	defer stop()
	steady, err := p.listen(ctx, "steady")
	if err != nil {
		return err
	}
	defer steady.stop()
	flaky, err := p.listen(ctx, "flaky")
	if err != nil {
		return err
	}
	if err := p.hour(ctx, "00"); err != nil {
		return err
	}
	if err := caughtUp(ctx, "00", steady, flaky); err != nil {
		return err
	}

	flaky.stop() // two hours pass that it does not hear of
	for _, hour := range []string{"01", "02"} {
		if err := p.hour(ctx, hour); err != nil {
			return err
		}
	}
	if err := caughtUp(ctx, "02", steady); err != nil {
		return err
	}
	if flaky, err = p.listen(ctx, "flaky"); err != nil { // back: the same durable consumer
		return err
	}
	defer flaky.stop()
	late, err := p.listen(ctx, "late") // and one that was never there
	if err != nil {
		return err
	}
	defer late.stop()
	if err := caughtUp(ctx, "02", steady, flaky, late); err != nil {
		return err
	}
	fmt.Printf("announcements: steady %v, flaky %v, late %v\n", steady.heard(), flaky.heard(), late.heard())

	steady.forget("02.f07") // something went wrong with its memory
	for range 2 {
		repaired, checked, err := steady.reconcile(ctx)
		if err != nil {
			return err
		}
		// If it repairs something every time, look for the cause upstream.
		fmt.Printf("reconciler: repaired %d of %d\n", repaired, checked)
	}
	return nil
}

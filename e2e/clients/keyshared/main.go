// Command keyshared is a worker of a consumer with ehdb.key_shared: it prints what it begins and ends to work on, one
// line each with the time (Unix nanoseconds) and the stream sequence. Start as many as you like; end one in any way.
//
//	keyshared -s nats://127.0.0.1:4222 -stream ACCOUNTS -consumer bookings
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	url := flag.String("s", nats.DefaultURL, "server")
	stream := flag.String("stream", "ACCOUNTS", "stream")
	name := flag.String("consumer", "bookings", "consumer")
	work := flag.Duration("work", time.Millisecond, "how long one message takes")
	flag.Parse()
	if err := run(*url, *stream, *name, *work); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(url, stream, name string, work time.Duration) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // there is no caller
	defer stop()
	c, err := js.Consumer(ctx, stream, name)
	if err != nil {
		return err
	}
	// The messages a worker has in its buffer are in its hands: a small one lets keys move soon.
	running, err := c.Consume(func(m jetstream.Msg) {
		meta, err := m.Metadata()
		if err != nil {
			return
		}
		fmt.Fprintln(os.Stdout, "begin", time.Now().UnixNano(), meta.Sequence.Stream, m.Subject())
		<-time.After(work)
		fmt.Fprintln(os.Stdout, "end", time.Now().UnixNano(), meta.Sequence.Stream, m.Subject())
		_ = m.Ack() // lost with the connection: the message comes again
	}, jetstream.PullMaxMessages(8))
	if err != nil {
		return err
	}
	defer running.Stop()
	<-ctx.Done()
	return nil
}

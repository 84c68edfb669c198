package e2e

import (
	"os"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestMovedDirectory: a directory that was copied elsewhere while the gateway was stopped has the streams, and its
// consumers go on where they were.
func TestMovedDirectory(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	ctx := t.Context()
	p := startGateway(t, dir)
	js, err := jetstream.New(connect(t, p.URL))
	noErr(t, err)
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	noErr(t, err)
	c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy})
	noErr(t, err)
	for _, data := range []string{"one", "two"} {
		_, err := js.Publish(ctx, "s", []byte(data))
		noErr(t, err)
	}
	m, err := c.Next()
	noErr(t, err)
	noErr(t, m.DoubleAck(ctx))
	noErr(t, p.Stop())
	noErr(t, os.RemoveAll(elsewhere))
	noErr(t, os.CopyFS(elsewhere, os.DirFS(dir)))
	noErr(t, os.RemoveAll(dir))

	p = startGateway(t, elsewhere)
	js, err = jetstream.New(connect(t, p.URL))
	noErr(t, err)
	c, err = js.Consumer(ctx, "S", "C")
	noErr(t, err)
	m, err = c.Next()
	noErr(t, err)
	if string(m.Data()) != "two" {
		t.Errorf("got %q, want what was not acknowledged", m.Data())
	}
}

package stream_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
)

// counter counts answers.
type counter struct{ n atomic.Int64 }

func (c *counter) Deliver(batch []bus.Delivery) <-chan struct{} {
	c.n.Add(int64(len(batch)))
	return nil
}

// BenchmarkDeliver stores messages in batches of 64, as a read of a busy connection gives, and waits for their PubAcks.
func BenchmarkDeliver(b *testing.B) {
	for _, c := range []struct {
		name   string
		cfg    server.StreamConfig
		reply  string
		header []byte
	}{
		{"acks", server.StreamConfig{}, "_INBOX.x.%d", nil},
		{"no reply", server.StreamConfig{}, "", nil},
		{"max msgs", server.StreamConfig{MaxMsgs: 10_000}, "_INBOX.x.%d", nil},
		{"max bytes", server.StreamConfig{MaxBytes: 1_000_000}, "_INBOX.x.%d", nil},
		{"last of each subject", server.StreamConfig{MaxMsgsPer: 1}, "_INBOX.x.%d", nil},
		{"header", server.StreamConfig{}, "_INBOX.x.%d", []byte("NATS/1.0\r\nSome: header\r\nTraceparent: 00-12-34-01\r\n\r\n")},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, router := benchStream(b, c.cfg, storage.Options{})
			benchDeliver(b, s, router, c.reply, c.header)
		})
	}
}

// BenchmarkDurable is BenchmarkDeliver on a disk: the PubAcks wait for its syncs.
func BenchmarkDurable(b *testing.B) {
	s, router := benchStream(b, server.StreamConfig{Storage: server.FileStorage}, storage.Options{Dir: b.TempDir()})
	benchDeliver(b, s, router, "_INBOX.x.%d", nil)
}

func benchStream(b *testing.B, cfg server.StreamConfig, o storage.Options) (*stream.Stream, *bus.Router) {
	b.Helper()
	store, err := storage.Open(context.WithoutCancel(b.Context()), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	cfg.Name, cfg.Subjects = "S", []string{"s.>"}
	if cfg.Storage == 0 {
		cfg.Storage = server.MemoryStorage
	}
	if err := stream.Complete(&cfg, false, stream.Limits{}); err != nil {
		b.Fatal(err)
	}
	spec := stream.LogSpec("$G", &cfg)
	spec.Shards = []storage.ShardID{0}
	log, err := store.CreateLog(spec)
	if err != nil {
		b.Fatal(err)
	}
	router := bus.NewRouter()
	s, err := stream.New(stream.Options{Account: "$G", Config: cfg, Log: log, Bus: router, Stall: store.Stall})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Stop)
	return s, router
}

func benchDeliver(b *testing.B, s *stream.Stream, router *bus.Router, reply string, header []byte) {
	b.Helper()
	var answers counter
	client, err := router.Open(bus.KindClient, bus.Identity{}, &answers)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Subscribe("1", "_INBOX.x.*", ""); err != nil {
		b.Fatal(err)
	}
	const size = 64
	batch := make([]bus.Delivery, size)
	data := make([]byte, 100)
	for i := range batch {
		batch[i].Msg = bus.Msg{Subject: fmt.Appendf(nil, "s.%d", i), Header: header, Data: data}
		if reply != "" {
			batch[i].Msg.Reply = fmt.Appendf(nil, reply, i)
		}
	}
	b.SetBytes(100)
	b.ReportAllocs()
	sent := int64(0)
	for b.Loop() {
		if sent++; sent%size != 0 {
			continue
		}
		if stall := s.Deliver(batch); stall != nil {
			<-stall
		}
	}
	sent -= sent % size
	for reply != "" && answers.n.Load() < sent {
		time.Sleep(10 * time.Microsecond)
	}
	b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "msgs/s")
}

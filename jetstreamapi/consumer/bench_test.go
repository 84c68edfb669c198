package consumer

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/storage"
)

// counter is a sink that counts, and wakes its owner at a number.
type counter struct {
	n, want atomic.Int64
	full    chan struct{}
}

func (c *counter) Deliver(batch []bus.Delivery) <-chan struct{} {
	n := c.n.Add(int64(len(batch)))
	if w := c.want.Load(); n >= w && n-int64(len(batch)) < w {
		c.full <- struct{}{}
	}
	return nil
}

// fill appends n messages and waits until they are visible.
func (r *rig) fill(n, size int) {
	r.t.Helper()
	data := make([]byte, size)
	for i := range n {
		r.seq++
		rec := storage.Record{Seq: r.seq, Time: time.Now().UnixNano(), Key: fmt.Appendf(nil, "a.%d", i%10), Data: data}
		if err := r.stream.log.Append(&rec, nil); err != nil {
			r.t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	r.stream.log.Sync(func(err error) { done <- err })
	if err := <-done; err != nil {
		r.t.Fatal(err)
	}
}

// BenchmarkFetch is a client that pulls batches of 500 and does not acknowledge.
func BenchmarkFetch(b *testing.B) {
	for _, policy := range []server.AckPolicy{server.AckNone, server.AckExplicit} {
		for _, filter := range []string{"", "a.>", "a.3"} {
			b.Run(fmt.Sprintf("ack=%s/filter=%s", policy, filter), func(b *testing.B) { benchFetch(b, policy, filter) })
		}
	}
}

func benchFetch(b *testing.B, policy server.AckPolicy, filter string) {
	b.Helper()
	r := newRig(b, 1)
	sink := &counter{full: make(chan struct{}, 1)}
	client, err := r.bus.Open(bus.KindClient, bus.Identity{Account: account}, sink)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Subscribe("1", "inbox", ""); err != nil {
		b.Fatal(err)
	}
	const stored, batch = 200_000, 500
	r.fill(stored, 128)
	matching := int64(stored)
	if filter == "a.3" {
		matching /= 10
	}
	cfg := server.ConsumerConfig{Durable: "C", AckPolicy: policy, FilterSubject: filter, MaxAckPending: -1}
	c := r.consumer("C", cfg)
	body := fmt.Appendf(nil, `{"batch":%d,"expires":30000000000}`, batch)
	b.ReportAllocs()
	b.ResetTimer()
	given := int64(0)
	for b.Loop() { // an iteration is a batch
		if given+batch > matching {
			b.StopTimer()
			if _, err := c.Reset(1); err != nil {
				b.Fatal(err)
			}
			given = 0
			b.StartTimer()
		}
		sink.n.Store(0)
		sink.want.Store(batch)
		c.Pull([]byte("inbox"), nil, body)
		<-sink.full
		given += batch
	}
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/msg")
}

// BenchmarkFetchAck is BenchmarkFetch with an acknowledgement of every message.
func BenchmarkFetchAck(b *testing.B) {
	r := newRig(b, 1)
	sink := &counter{full: make(chan struct{}, 1)}
	client, err := r.bus.Open(bus.KindClient, bus.Identity{Account: account}, sink)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Subscribe("1", "inbox", ""); err != nil {
		b.Fatal(err)
	}
	const stored, batch = 200_000, 500
	r.fill(stored, 128)
	c := r.consumer("C", server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit})
	body := fmt.Appendf(nil, `{"batch":%d,"expires":30000000000}`, batch)
	b.ReportAllocs()
	b.ResetTimer()
	given := uint64(0)
	for b.Loop() {
		if given+batch > stored {
			b.StopTimer()
			if _, err := c.Reset(1); err != nil {
				b.Fatal(err)
			}
			given = 0
			b.StartTimer()
		}
		sink.n.Store(0)
		sink.want.Store(batch)
		c.Pull([]byte("inbox"), nil, body)
		<-sink.full
		for i := range uint64(batch) {
			c.Ack(AckID{Delivered: 1, StreamSeq: given + i + 1, ConsumerSeq: given + i + 1}, nil, nil)
		}
		given += batch
	}
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "msg/s")
}

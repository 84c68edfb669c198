package stream

import (
	"fmt"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/storage"
)

// BenchmarkDedupeLoad reads a window back from what is sealed.
func BenchmarkDedupeLoad(b *testing.B) {
	const n = 500_000
	dir := b.TempDir()
	st, err := storage.Open(b.Context(), storage.Options{Dir: dir, Seal: true})
	if err != nil {
		b.Fatal(err)
	}
	l, err := st.CreateLog(storage.LogSpec{Shards: []storage.ShardID{0}})
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 128)
	for i := range n {
		r := storage.Record{
			Seq: uint64(i + 1), Time: time.Now().UnixNano(), Key: []byte("s"), Data: data,
			Header: fmt.Appendf(nil, "NATS/1.0\r\nNats-Msg-Id: id-%d-0123456789\r\n\r\n", i),
		}
		for l.Append(&r, nil) != nil {
			time.Sleep(time.Millisecond)
		}
	}
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
	if st, err = storage.Open(b.Context(), storage.Options{Dir: dir, Seal: true}); err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	if l, err = st.OpenLog(l.ID(), storage.LogSpec{}); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	b.ReportAllocs()
	for range b.N {
		load := &dedupeLoad{upTo: n, found: dedupe{window: time.Hour}, done: make(chan struct{})}
		load.read(l)
		if len(load.found.seqs) != n {
			b.Fatalf("%d ids", len(load.found.seqs))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/id")
}

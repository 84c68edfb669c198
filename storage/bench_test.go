package storage

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func benchStore(b *testing.B, dir string) *Store {
	b.Helper()
	s, err := Open(b.Context(), Options{Dir: dir, Shards: 2})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

func benchLog(b *testing.B, s *Store) *Log {
	b.Helper()
	l, err := s.CreateLog(LogSpec{Shards: []ShardID{0}, Name: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// reportCPU returns what reports the processor time of the process since: on a shared machine that says more than the
// clock.
func reportCPU(b *testing.B) func() {
	b.Helper()
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}

// BenchmarkAppend measures acknowledged records of 128 bytes: each goroutine waits for its last 1 or 64 records.
func BenchmarkAppend(b *testing.B) {
	for _, disk := range []bool{false, true} {
		for _, goroutines := range []int{1, 64} {
			for _, pipeline := range []int{1, 64} {
				b.Run(fmt.Sprintf("disk=%v/goroutines=%d/pipeline=%d", disk, goroutines, pipeline), func(b *testing.B) {
					dir := ""
					if disk {
						dir = b.TempDir()
					}
					benchAppend(b, benchLog(b, benchStore(b, dir)), goroutines, pipeline)
				})
			}
		}
	}
}

func benchAppend(b *testing.B, l *Log, goroutines, pipeline int) {
	b.Helper()
	var (
		mu   sync.Mutex
		seq  uint64
		left atomic.Int64
		wg   sync.WaitGroup
	)
	left.Store(int64(b.N))
	data := make([]byte, 128)
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "orders.created.%d", i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	defer reportCPU(b)()
	for range goroutines {
		wg.Go(func() {
			slots := make(chan struct{}, pipeline)
			done := Done(func(err error) {
				if err != nil {
					panic(err)
				}
				<-slots
			})
			for left.Add(-1) >= 0 {
				slots <- struct{}{}
				mu.Lock()
				seq++
				r := Record{Seq: seq, Time: int64(seq), Key: keys[seq%1000], Data: data}
				err := l.Append(&r, done)
				mu.Unlock()
				if err != nil {
					panic(err)
				}
			}
			for range pipeline {
				slots <- struct{}{}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "acks/s")
}

func fill(b *testing.B, l *Log, n int) {
	b.Helper()
	data := make([]byte, 128)
	for i := 1; i <= n; i++ {
		r := Record{Seq: uint64(i), Time: int64(i), Key: fmt.Appendf(nil, "orders.created.%d", i%1000), Data: data}
		for {
			err := l.Append(&r, nil)
			if err == nil {
				break
			}
			if !errors.Is(err, ErrFull) {
				b.Fatal(err)
			}
			wait(b, l)
		}
	}
	wait(b, l)
}

type fataler interface {
	Helper()
	Fatal(...any)
}

func wait(tb fataler, l *Log) {
	tb.Helper()
	ch := make(chan error, 1)
	l.Sync(func(err error) { ch <- err })
	if err := <-ch; err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkCursor walks 200,000 records in the window.
func BenchmarkCursor(b *testing.B) {
	const n = 200_000
	s := benchStore(b, b.TempDir())
	l := benchLog(b, s)
	fill(b, l, n)
	for name, filters := range map[string][]Filter{
		"all":     nil,
		"one":     {testFilter{prefix: "orders.created.77", literal: true}},
		"sparse":  {testFilter{prefix: "orders.created.77"}},
		"tenth":   {testFilter{prefix: "orders.created.1"}},
		"literal": {testFilter{prefix: "orders.created.1", literal: true}, testFilter{prefix: "orders.created.9", literal: true}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			defer reportCPU(b)()
			c := l.NewCursor(0, filters)
			for range b.N {
				if _, err := c.Next(); err != nil {
					c.Seek(0)
				}
			}
		})
	}
}

// BenchmarkRecover opens a directory with 1,000,000 records.
func BenchmarkRecover(b *testing.B) {
	const n = 1_000_000
	dir := b.TempDir()
	s := benchStore(b, dir)
	fill(b, benchLog(b, s), n)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	defer func(report func()) { report() }(reportCPU(b))
	for range b.N {
		s, err := Open(b.Context(), Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		if got := s.Stats().RecoverRecords; got != n+1 {
			b.Fatalf("recovered %d records", got)
		}
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkSeal measures what sealing costs for each record of 128 bytes, over 100,000 keys.
func BenchmarkSeal(b *testing.B) {
	s, err := Open(b.Context(), Options{
		Dir: b.TempDir(), Shards: 2, Seal: true, SealMaxAge: time.Hour, SealRecords: 1 << 40, SealBytes: 1 << 40,
		MaxUnsealed: 1 << 40, MaxUnsealedBytes: 1 << 40,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	l := benchLog(b, s)
	data := make([]byte, 128)
	for seq := range uint64(b.N) {
		r := Record{Seq: seq + 1, Time: int64(seq), Key: fmt.Appendf(nil, "s.%d.item", uint32(seq*7919)%100_000), Data: data}
		for l.Append(&r, nil) != nil {
			time.Sleep(time.Millisecond)
		}
	}
	if err := s.durable(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	defer reportCPU(b)()
	if err := s.sealer.seal(noPace); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkKeys counts 100,000 keys of eight parts and RAM, when nothing has changed, after an append, and with one record
// in ten deleted; EachKey gives what each key has as well.
func BenchmarkKeys(b *testing.B) {
	const runs, records, keys = 8, 200_000, 100_000
	s, err := Open(b.Context(), Options{
		Dir: b.TempDir(), Shards: 2, Seal: true, SealMaxAge: time.Hour, SealRecords: 1 << 40, SealBytes: 1 << 40,
		MaxUnsealed: 1 << 40, MaxUnsealedBytes: 1 << 40,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	l := benchLog(b, s)
	seq := uint64(0)
	add := func() {
		seq++
		r := Record{Seq: seq, Time: int64(seq), Key: fmt.Appendf(nil, "s.%d.item", uint32(seq*7919)%keys), Data: make([]byte, 16)}
		for l.Append(&r, nil) != nil {
			time.Sleep(time.Millisecond)
		}
	}
	durable := func() {
		if err := s.durable(); err != nil {
			b.Fatal(err)
		}
	}
	for range runs {
		for range records {
			add()
		}
		durable()
		if err := s.sealer.seal(noPace); err != nil {
			b.Fatal(err)
		}
	}
	for range records / 10 {
		add()
	}
	durable()
	count := func(b *testing.B) {
		b.Helper()
		if n := l.Keys(); n != keys {
			b.Fatalf("%d keys", n)
		}
	}
	changed := func(b *testing.B) {
		b.Helper()
		for b.Loop() {
			b.StopTimer()
			add()
			durable()
			b.StartTimer()
			count(b)
		}
	}
	b.Run("same", func(b *testing.B) {
		for b.Loop() {
			count(b)
		}
	})
	b.Run("changed", changed)
	b.Run("each", func(b *testing.B) {
		for b.Loop() {
			l.EachKey(nil, func([]byte, KeyState) bool { return true })
		}
	})
	for i := uint64(1); i < seq; i += 10 {
		if _, err := l.Delete([]uint64{i}, false, nil); err != nil {
			b.Fatal(err)
		}
	}
	durable()
	b.Run("deleted", changed)
}

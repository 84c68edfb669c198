package tail

import (
	"fmt"
	"testing"
)

// BenchmarkAppendSync is one group commit: a block of n records of 128 bytes, each its own slice, and a sync, on the
// real disk.
func BenchmarkAppendSync(b *testing.B) {
	for _, n := range []int{1, 16, 256, 4096} {
		b.Run(fmt.Sprintf("128Bx%d", n), func(b *testing.B) {
			l, err := Open(Options{Dir: b.TempDir() + "/wal"})
			must(b, err)
			must(b, l.Replay(func(LSN, Pos, []byte) error { return nil }))
			must(b, l.Reserve())
			body := make([]byte, 128*n)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				if _, _, err := l.Append(body[:64*n], body[64*n:]); err != nil {
					b.Fatal(err)
				}
				if err := l.Sync(); err != nil {
					b.Fatal(err)
				}
				if next, _ := l.Next(); i%64 == 0 {
					must(b, l.DropBefore(next))
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "syncs/s")
			must(b, l.Close())
		})
	}
}

// BenchmarkAppend is the block alone, without the disk's share.
func BenchmarkAppend(b *testing.B) {
	l, err := Open(Options{Dir: b.TempDir() + "/wal"})
	must(b, err)
	must(b, l.Replay(func(LSN, Pos, []byte) error { return nil }))
	must(b, l.Reserve())
	body := make([]byte, 1000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, _, err := l.Append(body, body, body, body); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 0 {
			next, _ := l.Next()
			must(b, l.Sync())
			must(b, l.DropBefore(next))
		}
	}
	must(b, l.Close())
}

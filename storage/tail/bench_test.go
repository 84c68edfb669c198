package tail

import (
	"fmt"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// BenchmarkAppendSync is one group commit: a block of n records of 128 bytes, each its own slice, and a sync, on the
// real disk.
func BenchmarkAppendSync(b *testing.B) {
	for _, n := range []int{1, 16, 256, 4096} {
		b.Run(fmt.Sprintf("128Bx%d", n), func(b *testing.B) {
			l := warmLog(b)
			body := make([]byte, 128*n)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				if _, _, err := l.Append(body[:64*n], body[64*n:]); err != nil {
					b.Fatal(err)
				}
				if err := l.Sync(); err != nil {
					b.Fatal(err)
				}
				next, _ := l.Next()
				must(b, l.DropBefore(next))
			}
			b.StopTimer()
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "syncs/s")
			must(b, l.Close())
		})
	}
}

// warmLog returns a log that has come round: its segments are files that were used before.
func warmLog(b *testing.B) *File {
	b.Helper()
	l, err := Open(Options{Dir: b.TempDir() + "/wal", SegmentSize: 64 << 20})
	must(b, err)
	must(b, l.Replay(func(LSN, Pos, []byte) error { return nil }))
	body := make([]byte, 1<<20)
	for range 300 {
		_, _, err := l.Append(body)
		must(b, err)
		must(b, l.Sync())
		next, _ := l.Next()
		must(b, l.DropBefore(next))
	}
	return l
}

// BenchmarkDisk is what the disk gives for the same bytes: a write over space that is taken, and a sync.
func BenchmarkDisk(b *testing.B) {
	for _, n := range []int{1, 16, 256, 4096} {
		b.Run(fmt.Sprintf("128Bx%d", n), func(b *testing.B) {
			const size = 64 << 20
			f, err := vfs.OS{}.Create(b.TempDir() + "/file")
			must(b, err)
			must(b, vfs.ZeroFill(f, 0, size, nil))
			must(b, f.Sync())
			body := make([]byte, blockSize(int64(128*n)))
			b.SetBytes(int64(128 * n))
			off := int64(0)
			for b.Loop() {
				if off+int64(len(body)) > size {
					off = 0
				}
				if _, err := f.WriteAt(body, off); err != nil {
					b.Fatal(err)
				}
				if err := f.Sync(); err != nil {
					b.Fatal(err)
				}
				off += int64(len(body))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "syncs/s")
			must(b, f.Close())
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

// BenchmarkReopen is opening a log whose last segment is almost empty: all of it is looked at for remains.
func BenchmarkReopen(b *testing.B) {
	o := Options{Dir: b.TempDir() + "/wal"}
	for b.Loop() {
		l, err := Open(o)
		must(b, err)
		must(b, l.Replay(func(LSN, Pos, []byte) error { return nil }))
		_, _, err = l.Append(make([]byte, 100))
		must(b, err)
		must(b, l.Close())
	}
}

package storage

import (
	"fmt"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/storage/crypt"
)

// BenchmarkEncryption compares what encryption costs: one publisher that waits for each answer, many that do not,
// sealing, and reading what is not in RAM from the write-ahead log and from parts.
func BenchmarkEncryption(b *testing.B) {
	for _, c := range []crypt.Cipher{crypt.Plain, crypt.AES256GCM, crypt.ChaCha20Poly1305} {
		open := func(b *testing.B) (*Store, *Log) {
			b.Helper()
			o := Options{
				Dir: b.TempDir(), Shards: 2, Seal: true, SealMaxAge: time.Hour, SealRecords: 1 << 40, SealBytes: 1 << 40,
				WindowSize: 1,
			}
			if c != crypt.Plain {
				o.Encryption = crypt.RingOptions{Cipher: c, Secret: []byte("k"), Cost: 1}
			}
			s, err := Open(b.Context(), o)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			return s, benchLog(b, s)
		}
		for name, n := range map[string]int{"one": 1, "many": 64} {
			b.Run(fmt.Sprintf("append %s/%v", name, c), func(b *testing.B) {
				_, l := open(b)
				defer reportCPU(b)()
				benchAppend(b, l, n, n)
			})
		}
		b.Run(fmt.Sprintf("seal/%v", c), func(b *testing.B) {
			s, l := open(b)
			fill(b, l, b.N)
			b.ResetTimer()
			defer reportCPU(b)()
			if err := s.sealer.seal(noPace); err != nil {
				b.Fatal(err)
			}
		})
		for name, sealed := range map[string]bool{"log": false, "parts": true} {
			b.Run(fmt.Sprintf("read %s/%v", name, c), func(b *testing.B) {
				s, l := open(b)
				const n = 400_000
				fill(b, l, n)
				if sealed {
					if err := s.sealer.seal(noPace); err != nil {
						b.Fatal(err)
					}
				}
				b.ResetTimer()
				defer reportCPU(b)()
				cur := l.NewCursor(0, nil)
				for range b.N {
					if _, err := cur.Next(); err != nil {
						cur.Seek(0)
					}
				}
			})
		}
	}
}

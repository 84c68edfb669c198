package part_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

const (
	benchRecords = 1_000_000
	benchKeys    = 100_000
)

// benchRecord gives record i of the same 1,000,000, of 128 bytes each under 100,000 keys.
func benchRecord(rnd *rand.Rand, i int, data []byte, key []byte) part.Record {
	k := rnd.IntN(benchKeys)
	key = fmt.Appendf(key[:0], "orders.%d.%s.item.%d", k%1000, [...]string{"eu", "us", "ap", "za"}[k%4], k)
	for j := 0; j < len(data); j += 8 {
		data[j] = byte(rnd.Uint32())
	}
	return part.Record{Seq: uint64(i) + 1, Time: int64(i) * 1000, Key: key, Data: data}
}

func benchPart(b *testing.B, o part.Options) (string, part.Info) {
	b.Helper()
	dir := b.TempDir()
	w, err := part.Create(vfs.OS{}, dir, o)
	check(b, err)
	check(b, w.BeginLog(1, nil))
	rnd, data, key := rand.New(rand.NewPCG(1, 2)), make([]byte, 128), make([]byte, 64)
	for i := range benchRecords {
		r := benchRecord(rnd, i, data, key)
		check(b, w.Add(&r))
	}
	info, err := w.Finish()
	check(b, err)
	return w.Path(), info
}

func BenchmarkBuild(b *testing.B) {
	for _, c := range []part.Codec{part.None, part.S2, part.Zstd} {
		b.Run(fmt.Sprint("codec", c), func(b *testing.B) {
			var info part.Info
			for b.Loop() {
				var path string
				path, info = benchPart(b, part.Options{Codec: c})
				check(b, os.Remove(path))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchRecords, "ns/record")
			b.ReportMetric(float64(info.Size)/benchRecords, "B/record")
			b.ReportMetric(float64(info.Size-info.Data)/benchRecords, "index-B/record")
		})
	}
}

func benchSection(b *testing.B, cache int64) (*part.Reader, *part.Section) {
	b.Helper()
	path, _ := benchPart(b, part.Options{})
	var c part.BlockCache
	if cache > 0 {
		c = part.NewCache(cache)
	}
	r := open(b, vfs.OS{}, path, part.ReadOptions{Cache: c})
	s := section(b, r, 1)
	return r, s
}

func BenchmarkGet(b *testing.B) {
	for name, cache := range map[string]int64{"cached": 512 << 20, "uncached": 0, "small-cache": 16 << 20} {
		b.Run(name, func(b *testing.B) {
			r, s := benchSection(b, cache)
			if cache > 64<<20 {
				for seq := uint64(1); seq <= benchRecords; seq += 300 {
					_, _, err := s.Get(seq, nil)
					check(b, err)
				}
			}
			rnd := rand.New(rand.NewPCG(3, 4))
			b.ResetTimer()
			for b.Loop() {
				s := section(b, r, 1) // as a store asks
				_, ok, err := s.Get(rnd.Uint64N(benchRecords)+1, nil)
				if err != nil || !ok {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

func BenchmarkQuery(b *testing.B) {
	_, s := benchSection(b, 512<<20)
	dead := &part.Tombstones{}
	rnd := rand.New(rand.NewPCG(5, 6))
	for range benchRecords / 20 {
		dead.Add(rnd.Uint32N(benchRecords))
	}
	b.Run("LastOf", func(b *testing.B) {
		for b.Loop() {
			k := rnd.IntN(benchKeys)
			_, _, err := s.LastOf(fmt.Appendf(nil, "orders.%d.%s.item.%d", k%1000, [...]string{"eu", "us", "ap", "za"}[k%4], k), 0, nil)
			check(b, err)
		}
	})
	b.Run("FindKey-absent", func(b *testing.B) {
		for b.Loop() {
			_, _, err := s.FindKey(fmt.Appendf(nil, "orders.%d.none", rnd.Uint32()))
			check(b, err)
		}
	})
	for _, f := range []part.Filter{whole("orders.77."), wild("orders.77.>"), wild("orders.*.eu.>"), wild("orders.*.*.item.77"), wild("orders.>")} {
		name := fmt.Sprintf("%T=%v", f, f)
		m, err := s.Match(f)
		check(b, err)
		b.Run("Match/"+name, func(b *testing.B) {
			for b.Loop() {
				_, err := s.Match(f)
				check(b, err)
			}
		})
		for _, from := range []uint32{0, benchRecords / 2} {
			b.Run(fmt.Sprintf("Count/%s/from=%d", name, from), func(b *testing.B) {
				for b.Loop() {
					_, err := s.Count(from, m, nil)
					check(b, err)
				}
			})
		}
		b.Run("CountDead/"+name, func(b *testing.B) {
			for b.Loop() {
				_, err := s.Count(benchRecords/2, m, dead)
				check(b, err)
			}
		})
		b.Run("Next/"+name, func(b *testing.B) {
			for b.Loop() {
				_, _, err := s.Next(rnd.Uint32N(benchRecords), m, dead)
				check(b, err)
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	path, _ := benchPart(b, part.Options{})
	for b.Loop() {
		r, err := part.Open(vfs.OS{}, path, part.ReadOptions{})
		check(b, err)
		check(b, r.Close())
	}
}

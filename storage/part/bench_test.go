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

// benchKey is one of 100,000 keys.
func benchKey(k int) []byte {
	return fmt.Appendf(nil, "orders.%d.%s.item.%d", k%1000, [...]string{"eu", "us", "ap", "za"}[k%4], k)
}

// benchInput is what 1,000,000 records of 128 bytes under 100,000 keys are made of.
type benchInput struct {
	keys [][]byte
	pick []uint32
	data []byte
}

func newBenchInput() *benchInput {
	rnd := rand.New(rand.NewPCG(1, 2))
	in := &benchInput{pick: make([]uint32, benchRecords), data: make([]byte, 1<<20)}
	for k := range benchKeys {
		in.keys = append(in.keys, benchKey(k))
	}
	for i := range in.pick {
		in.pick[i] = rnd.Uint32N(benchKeys)
	}
	for i := 0; i < len(in.data); i += 8 { // about as compressible as text
		in.data[i] = byte(rnd.Uint32())
	}
	return in
}

func benchPart(b *testing.B, o part.Options, in *benchInput) (string, part.Info) {
	b.Helper()
	w, err := part.Create(vfs.OS{}, b.TempDir(), o)
	check(b, err)
	check(b, w.BeginLog(1, nil))
	for i, k := range in.pick {
		at := i * 128 % (len(in.data) - 128)
		r := part.Record{Seq: uint64(i) + 1, Time: int64(i) * 1000, Key: in.keys[k], Data: in.data[at : at+128]}
		if err := w.Add(&r); err != nil {
			b.Fatal(err)
		}
	}
	info, err := w.Finish()
	check(b, err)
	return w.Path(), info
}

func BenchmarkBuild(b *testing.B) {
	for _, c := range []part.Codec{part.None, part.S2, part.Zstd} {
		b.Run(fmt.Sprint("codec", c), func(b *testing.B) {
			var info part.Info
			in := newBenchInput()
			for b.Loop() {
				var path string
				path, info = benchPart(b, part.Options{Codec: c}, in)
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
	path, _ := benchPart(b, part.Options{}, newBenchInput())
	var c part.BlockCache
	if cache > 0 {
		c = part.NewCache(cache)
	}
	r := open(b, vfs.OS{}, path, part.ReadOptions{Cache: c})
	s := section(b, r, 1)
	return r, s
}

// noErr is check without the cost of Helper, which is more than that of some queries.
func noErr(b *testing.B, err error) { //nolint:thelper // see above
	if err != nil {
		b.Fatal(err)
	}
}

func BenchmarkGet(b *testing.B) {
	for name, cache := range map[string]int64{"cached": 512 << 20, "uncached": 0, "small-cache": 16 << 20} {
		b.Run(name, func(b *testing.B) {
			r, s := benchSection(b, cache)
			if cache > 64<<20 {
				for seq := uint64(1); seq <= benchRecords; seq += 300 {
					_, _, err := s.Get(seq, nil)
					noErr(b, err)
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
			_, _, err := s.LastOf(benchKey(k), 0, nil)
			noErr(b, err)
		}
	})
	b.Run("FindKey-absent", func(b *testing.B) {
		for b.Loop() {
			_, _, err := s.FindKey(fmt.Appendf(nil, "orders.%d.none", rnd.Uint32()))
			noErr(b, err)
		}
	})
	for _, f := range []part.Filter{whole("orders.77."), wild("orders.77.>"), wild("orders.*.eu.>"), wild("orders.*.*.item.77"), wild("orders.>")} {
		name := fmt.Sprintf("%T=%v", f, f)
		m, err := s.Match(f)
		noErr(b, err)
		b.Run("Match/"+name, func(b *testing.B) {
			for b.Loop() {
				_, err := s.Match(f)
				noErr(b, err)
			}
		})
		for _, from := range []uint32{0, benchRecords / 2} {
			b.Run(fmt.Sprintf("Count/%s/from=%d", name, from), func(b *testing.B) {
				for b.Loop() {
					_, err := s.Count(from, m, nil)
					noErr(b, err)
				}
			})
		}
		b.Run("CountDead/"+name, func(b *testing.B) {
			for b.Loop() {
				_, err := s.Count(benchRecords/2, m, dead)
				noErr(b, err)
			}
		})
		b.Run("Next/"+name, func(b *testing.B) {
			for b.Loop() {
				_, _, err := s.Next(rnd.Uint32N(benchRecords), m, dead)
				noErr(b, err)
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	path, _ := benchPart(b, part.Options{}, newBenchInput())
	for b.Loop() {
		r, err := part.Open(vfs.OS{}, path, part.ReadOptions{})
		noErr(b, err)
		check(b, r.Close())
	}
}

package part_test

import (
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// The cache never holds more than its budget, never gives back other bytes than were put, and keeps what is used.
func TestCacheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := rapid.Int64Range(100, 5000).Draw(t, "budget")
		c := part.NewCache(budget)
		put := map[part.BlockKey]int{}
		drawKey := rapid.Custom(func(t *rapid.T) part.BlockKey {
			return part.BlockKey{File: rapid.Uint64Range(1, 3).Draw(t, "file"), Offset: rapid.Int64Range(0, 9).Draw(t, "off")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				k := drawKey.Draw(t, "key")
				n := int(k.File)*700 + int(k.Offset)*130 - 700 // a key has the same bytes each time
				c.Put(k, make([]byte, n))
				put[k] = n
				if b, ok := c.Get(k); ok != (int64(n) <= c.Stats().Largest) || ok && len(b) != n {
					t.Fatalf("put %d, got %d, %v", n, len(b), ok)
				}
			},
			"get": func(t *rapid.T) {
				k := drawKey.Draw(t, "key")
				if b, ok := c.Get(k); ok {
					if n, was := put[k]; !was || n != len(b) {
						t.Fatalf("%v has %d bytes", k, len(b))
					}
				}
			},
			"drop": func(t *rapid.T) {
				file := rapid.Uint64Range(1, 3).Draw(t, "file")
				c.DropFile(file)
				for k := range put {
					if _, ok := c.Get(k); ok && k.File == file {
						t.Fatalf("%v is there after DropFile", k)
					}
				}
			},
			"": func(t *rapid.T) {
				if st := c.Stats(); st.Bytes > budget || st.Bytes < 0 || st.Blocks == 0 && st.Bytes != 0 {
					t.Fatalf("%+v with a budget of %d", st, budget)
				}
			},
		})
	})
}

func TestCacheKeepsWhatIsUsed(t *testing.T) {
	c := part.NewCache(10_000)
	hot := part.BlockKey{File: 1}
	c.Put(hot, make([]byte, 1000))
	for i := range int64(100) {
		c.Put(part.BlockKey{File: 2, Offset: i}, make([]byte, 1000))
		if _, ok := c.Get(hot); !ok {
			t.Fatalf("the block in use was let go after %d others", i)
		}
	}
	if st := c.Stats(); st.Blocks != 8 || st.Hits != 100 {
		t.Fatalf("%+v", st)
	}
}

// RAM does not grow with what is stored: queries of all kinds over a part larger than the cache stay in its budget.
func TestQueriesStayInBudget(t *testing.T) {
	mem := vfs.NewMem()
	recs := records(60_000, 20_000, 1)
	path, info := build(t, mem, part.Options{}, map[uint64][]part.Record{1: recs})
	c := part.NewCache(400_000)
	if c.Stats().Budget*4 > info.Size {
		t.Fatalf("a part of %d bytes is too small for this test", info.Size)
	}
	r := open(t, mem, path, part.ReadOptions{Cache: c})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := g * 7; i < len(recs); i += 997 {
				s, err := r.Section(1)
				if err != nil {
					t.Error(err)
					return
				}
				if got, ok, err := s.Get(recs[i].Seq, nil); err != nil || !ok || !same(&got, &recs[i]) {
					t.Errorf("get %d: %v, %v", recs[i].Seq, ok, err)
				}
				if _, ok, err := s.LastOf(recs[i].Key, 0, nil); err != nil || !ok {
					t.Errorf("last of %q: %v, %v", recs[i].Key, ok, err)
				}
				if _, ok, err := s.FindKey(append([]byte("x"), recs[i].Key...)); err != nil || ok {
					t.Errorf("found a key that is not there: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if st := c.Stats(); st.Bytes > st.Budget || st.Hits == 0 || st.Misses == 0 {
		t.Fatalf("%+v", st)
	}
}

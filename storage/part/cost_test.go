package part_test

import (
	"testing"

	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// A small read costs the same however much there is: with nothing in the cache, a record of sixty thousand takes at most twice
// the reads, and bytes, of one of a thousand.
func TestSmallReadsCostTheSame(t *testing.T) {
	cost := func(n int) (reads, bytes int) {
		mem := vfs.NewMem()
		recs := records(n, 500, 1)
		path, _ := build(t, mem, part.Options{}, map[uint64][]part.Record{1: recs})
		fs := vfs.NewFault(mem, nil)
		const gets = 50
		for i := range gets {
			fs.SetHook(nil)
			r := open(t, fs, path, part.ReadOptions{Cache: part.NewCache(1 << 20)})
			fs.SetHook(func(op vfs.Op) error {
				if op.Kind == vfs.OpRead {
					reads++
					bytes += op.Len
				}
				return nil
			})
			want := &recs[i*len(recs)/gets]
			if got, ok, err := section(t, r, 1).Get(want.Seq, nil); err != nil || !ok || !same(&got, want) {
				t.Fatalf("get %d: %v, %v", want.Seq, ok, err)
			}
		}
		return reads, bytes
	}
	few, fewBytes := cost(1000)
	many, manyBytes := cost(60_000)
	t.Logf("50 reads: of a thousand %d, %d bytes; of sixty thousand %d, %d bytes", few, fewBytes, many, manyBytes)
	if few == 0 || many > 2*few || manyBytes > 2*fewBytes {
		t.Error("the cost of a read grows with what is stored")
	}
}

package part

import (
	"errors"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// A whole block that is not the one a table means is refused, whatever of it is wrong.
func TestBlockOfAnotherKind(t *testing.T) {
	mem := vfs.NewMem()
	b, err := Create(mem, "/", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.BeginLog(5, nil), b.Add(&Record{Seq: 1, Key: []byte("k")})); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Finish(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(mem, b.Path(), ReadOptions{Cache: NewCache(1 << 20)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := r.Section(5)
	if err != nil {
		t.Fatal(err)
	}
	ref := s.dataEntry(0).ref
	if _, err := r.block(ref, kindData, 5); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		ref  blockRef
		kind uint8
		log  uint64
	}{
		{ref, kindKeys, 5},
		{ref, kindData, 6},
		{blockRef{ref.off, ref.len + 1}, kindData, 7}, // from the file: the cache has no other length
		{blockRef{ref.off + 1, ref.len}, kindData, 5},
		{blockRef{-1, ref.len}, kindData, 5},
		{blockRef{ref.off, 3}, kindColumns, 5},
		{blockRef{1 << 62, ^uint32(0)}, kindData, 5},
	} {
		var ce *CorruptError
		if _, err := r.block(bad.ref, bad.kind, bad.log); !errors.As(err, &ce) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

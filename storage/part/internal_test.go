package part

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Packed numbers come back one by one and in chunks, whatever their width.
func TestPacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(0, 64).Draw(t, "width")
		base := rapid.Uint64().Draw(t, "base")
		vals := rapid.SliceOfN(rapid.Uint64(), 1, 300).Draw(t, "vals")
		for i := range vals {
			vals[i] = base + vals[i]>>(64-width)
			vals[i] = max(vals[i], base) // no wrap
		}
		b := append(appendPacked(nil, vals), 1, 2, 3)
		p, rest, err := parsePacked(b, uint32(len(vals)))
		if err != nil || len(rest) != 3 {
			t.Fatal(err, rest)
		}
		for i, v := range vals {
			if got := p.at(uint32(i)); got != v {
				t.Fatalf("number %d of %d is %d, want %d", i, len(vals), got, v)
			}
		}
		from := rapid.IntRange(0, len(vals)-1).Draw(t, "from")
		got := p.unpack(uint32(from), make([]uint32, rapid.IntRange(0, 300).Draw(t, "room")))
		for i, v := range got {
			if v != uint32(vals[from+i]) {
				t.Fatalf("unpack from %d: number %d is %d, want %d", from, i, v, uint32(vals[from+i]))
			}
		}
		for n := range len(b) - 3 {
			if _, _, err := parsePacked(b[:n], uint32(len(vals))); err == nil {
				t.Fatalf("parsed from %d of %d bytes", n, len(b)-3)
			}
		}
	})
}

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

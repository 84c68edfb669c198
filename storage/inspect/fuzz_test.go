package inspect

import (
	"encoding/hex"
	"path"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// The parsers behind the checksums: whatever bytes they get, they return an error or what fits the bytes.

func FuzzMeta(f *testing.F) {
	f.Add(EncodeMeta(4))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := parseMeta(b); err == nil && string(EncodeMeta(n)) != string(b) {
			t.Fatalf("%x reads as %d shards", b, n)
		}
	})
}

func FuzzBody(f *testing.F) {
	for _, s := range []string{
		"0100", "010100010009000001020304", // nothing, nonsense
		"0101000112" + "13" + "00" + "0102" + "01" + "0000000000000000" + "010101" + "6b6864", // a message
		"010102030409" + "0005020a05" + "0103010a",
	} {
		b, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var blk block
		if parseBody(b, &blk) != nil {
			return
		}
		for i := range blk.records {
			r := &blk.records[i]
			_ = r.text()
			if r.Place != uint64(i) || r.off <= 0 || r.off >= len(b) {
				t.Fatalf("record %d has place %d, offset %d of %d", i, r.Place, r.off, len(b))
			}
			again := fields{b: b, pos: r.off}
			var same WALRecord
			if same.parse(&again); again.err != nil || same.Seq != r.Seq || same.Kind != r.Kind {
				t.Fatalf("record %d reads differently from its offset", i)
			}
		}
	})
}

// FuzzSegment reads a directory with one segment.
func FuzzSegment(f *testing.F) {
	s := Segment{ID: 1, Size: 256, Salt: 7}
	b := AppendBlock(EncodeSegmentHeader(&s), s.Salt, 0, 0, []byte{1, 0})
	b = AppendMark(b, s.Salt, 1)
	f.Add(append(b, make([]byte, int(s.Size)-len(b))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		fsys := vfs.NewMem()
		write(t, fsys, "d/META", EncodeMeta(1))
		write(t, fsys, "d/wal/"+SegmentName(1), b)
		d, err := Read(t.Context(), Options{FS: fsys, Dir: "d"})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range d.Logs {
			if err := d.Each(t.Context(), l, 0, ^uint64(0), func(*Record) bool { return true }); err != nil {
				t.Fatal(err)
			}
		}
		if err := EachItem(fsys, "d/wal/"+SegmentName(1), nil, func(Item) bool { return true }); err != nil {
			t.Fatal(err)
		}
	})
}

func write(t *testing.T, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	if err := vfs.MakeDir(fsys, path.Dir(name)); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Create(name)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func FuzzEdit(f *testing.F) {
	f.Add([]byte{2, 1, 0, 100, 1, 'p', 1, 2, 3, 1, 5, 9, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 2})
	f.Add([]byte{1, 7, 3, 1, 2, 1, 9, 4, 5, 6, 9, 7, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := Manifest{
			NextPart: 1, Parts: map[uint64]ManifestPart{}, Tombs: map[TombKey][]byte{}, Logs: map[uint64]ManifestLog{},
		}
		if m.apply(b, false) != nil {
			return
		}
		for k := range m.Tombs {
			if _, ok := m.Parts[k.Part]; !ok {
				t.Fatalf("tombstones of part %d, which is not live", k.Part)
			}
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifestMagic + "\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fsys := vfs.NewMem()
		name := "d/manifest/manifest-00000000000000000001"
		write(t, fsys, "d/META", EncodeMeta(1))
		write(t, fsys, name, b)
		if _, err := Read(t.Context(), Options{FS: fsys, Dir: "d"}); err != nil {
			t.Fatal(err)
		}
		if err := EachItem(fsys, name, nil, func(Item) bool { return true }); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte{3, 'x', 2, 'y'})
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := parseCheckpoint(b)
		n := 0
		for _, r := range out {
			n += len(r.Data) + 1
		}
		if err == nil && n > len(b) {
			t.Fatalf("%d bytes of %d", n, len(b))
		}
	})
}

// FuzzPages gives the same bytes to every parser of a part's blocks.
func FuzzPages(f *testing.F) {
	f.Add(make([]byte, sectionHead), uint32(1))
	f.Add([]byte{1, 0, 0, 0, 3, 0, 0, 0, 0, 1, 'k', 0, 0, 0, 0}, uint32(1))
	f.Fuzz(func(t *testing.T, b []byte, n uint32) {
		n = n%perPage + 1
		if got := unpack(&fields{b: b}, n); got != nil && len(got) != int(n) {
			t.Fatalf("%d numbers, want %d", len(got), n)
		}
		if h, err := parseHead(b); err == nil {
			h.affected(0, 1<<40)
		}
		x := index{h: &head{}}
		if err := x.keyPage(b, n, &pageEntry{}); err == nil && len(x.keys) != int(n) {
			t.Fatalf("%d keys, want %d", len(x.keys), n)
		}
		count := uint32(0)
		if eachRecord(b, func(uint32, *Record) error { count++; return nil }) == nil && count != le.Uint32(b) {
			t.Fatalf("%d records, want %d", count, le.Uint32(b))
		}
		for codec := range uint8(4) {
			if raw, err := decompress(codec, b, n); err == nil && len(raw) != int(n) {
				t.Fatalf("%d bytes, want %d", len(raw), n)
			}
		}
	})
}

func FuzzTombstones(f *testing.F) {
	bm := roaring.BitmapOf(1, 2, 3, 70000)
	raw, err := bm.ToBytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw, uint32(4))
	f.Fuzz(func(t *testing.T, bitmap []byte, count uint32) {
		b := le.AppendUint32(le.AppendUint32([]byte("EHTB"), 1), count)
		b = le.AppendUint32(b, checksum(checksum(0, b), bitmap))
		bm, err := parseTombs(append(b, bitmap...), 100000)
		if err == nil && (bm.GetCardinality() != uint64(count) || count > 0 && bm.Maximum() >= 100000) {
			t.Fatalf("%d deletions, want %d", bm.GetCardinality(), count)
		}
	})
}

func FuzzPart(f *testing.F) {
	f.Add([]byte(partMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		fsys := vfs.NewMem()
		write(t, fsys, "d/x.part", b)
		if _, _, err := CheckFile(fsys, "d", "x.part", nil); err != nil {
			t.Fatal(err)
		}
		if err := EachItem(fsys, "d/x.part", nil, func(Item) bool { return true }); err != nil {
			t.Fatal(err)
		}
	})
}

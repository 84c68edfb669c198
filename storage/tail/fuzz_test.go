package tail

import (
	"errors"
	"hash/crc32"
	"io/fs"
	"runtime"
	"testing"
)

// FuzzOpen opens arbitrary bytes as the only segment of a log. It may be refused or read, but not panic, nor take
// memory that the file's size does not justify.
func FuzzOpen(f *testing.F) {
	h := segHeader{id: 1, size: 1 << 10, salt: 7}
	whole := make([]byte, 1<<10)
	copy(whole, h.encode())
	f.Add(whole)
	f.Add([]byte{})
	f.Add(h.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		openFuzzed(t, b)
	})
}

// FuzzBlocks replays a segment with a whole header and blocks made from the input: with matching checksums, but any
// length, position, type and durable position, at any place; and some damaged afterwards.
func FuzzBlocks(f *testing.F) {
	f.Add([]byte{0, 5, 0, 0, 1, 0, 9, 1, 0, 1, 0, 3, 2, 1, 2, 0})
	f.Add([]byte{0, 5, 1, 0, 0, 4, 5, 1, 3, 0}) // a whole block with a position that does not follow
	f.Add([]byte{3, 255, 1, 0, 1, 0, 0, 2, 9, 9, 2})
	f.Fuzz(func(t *testing.T, in []byte) {
		const size = 4 << 10
		h := segHeader{id: 1, size: size, salt: 99, stale: len(in)%2 == 1}
		b := make([]byte, size)
		off := int64(copy(b, h.encode()[:segHeaderSize]))
		var lsn LSN
		for ; len(in) >= 5 && off+600 < size; in = in[5:] {
			bh := blockHeader{len: uint32(in[1]), lsn: lsn, typ: in[2] % 4, durable: LSN(in[3])}
			if in[0]&1 != 0 {
				bh.len <<= 24 // far beyond the file
			}
			if in[0]&2 == 0 {
				bh.durable = min(bh.durable, lsn)
			}
			if in[0]&4 != 0 {
				bh.lsn += LSN(in[3])
			}
			n := min(blockSize(int64(bh.len)), 300)
			bh.bodyCRC = crc32.Update(h.salt, castagnoli, b[off+blockHeaderSize:off+n])
			bh.put(b[off:off+blockHeaderSize], h.salt)
			if in[0]&8 != 0 {
				b[off+int64(in[4])%n] ^= 0x10
			}
			off += n + int64(in[4]>>5)*8
			lsn++
		}
		openFuzzed(t, b)
	})
}

func openFuzzed(t *testing.T, b []byte) {
	t.Helper()
	d := disk{segName(1): b}
	o := smallOptions(d.mem(t))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	l, err := Open(o)
	if err != nil {
		checkRefusal(t, err)
		return
	}
	next := l.First()
	err = l.Replay(func(lsn LSN, pos Pos, body []byte) error {
		if lsn != next || int64(pos.Offset)+int64(len(body)) > int64(len(b)) {
			t.Fatalf("block %d at %v with %d bytes, want block %d", lsn, pos, len(body), next)
		}
		next++
		return nil
	})
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(10*len(b)+1<<20) {
		t.Fatalf("%d bytes allocated for a file of %d", n, len(b))
	}
	if err != nil {
		checkRefusal(t, err)
		must(t, l.Close())
		return
	}
	lsn, pos, err := l.Append([]byte("after"))
	if err != nil || lsn != next {
		t.Fatal(lsn, err)
	}
	must(t, l.Sync())
	got := make([]byte, 5)
	if err := l.ReadAt(got, pos); err != nil || string(got) != "after" {
		t.Fatalf("%q %v", got, err)
	}
	must(t, l.Close())
	again, err := Open(o)
	must(t, err)
	n := again.First()
	must(t, again.Replay(func(LSN, Pos, []byte) error { n++; return nil }))
	if n != next+1 {
		t.Fatalf("%d blocks after reopening, want %d", n, next+1)
	}
	must(t, again.Close())
}

func checkRefusal(t *testing.T, err error) {
	t.Helper()
	if !isCorrupt(err) || errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("refused without saying where: %v", err)
	}
}

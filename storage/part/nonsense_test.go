package part_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// reseal makes the checksums of the block at off right again.
func reseal(b []byte, off int) {
	h := b[off : off+32]
	end := off + 32 + u32(h, 4)
	binary.LittleEndian.PutUint32(h[28:], castagnoli(0, b[off+32:end]))
	place := binary.LittleEndian.AppendUint64(bytes.Clone(b[16:32]), uint64(off))
	binary.LittleEndian.PutUint32(h, castagnoli(castagnoli(0, place), h[4:]))
}

// isCorrupt accepts a *CorruptError. The offset is where a table says that something is: that may be anywhere.
func isCorrupt(t *testing.T, err error, what string) {
	t.Helper()
	var ce *part.CorruptError
	if err != nil && (!errors.As(err, &ce) || ce.Path != "/bad.part") {
		t.Fatalf("%s: %v", what, err)
	}
}

// ask puts every question to the part, whatever the answers: none may panic or run for ever.
func ask(t *testing.T, b []byte, what string) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Fatalf("%s: panic: %v", what, p)
		}
	}()
	mem := vfs.NewMem()
	put(t, mem, "/bad.part", b)
	_, err := answers(mem, "/bad.part", part.ReadOptions{})
	isCorrupt(t, err, what)
	r, err := part.Open(mem, "/bad.part", part.ReadOptions{Verify: true})
	isCorrupt(t, err, what)
	if err == nil {
		check(t, r.Close())
	}
	if r, err = part.Open(mem, "/bad.part", part.ReadOptions{Cache: part.NewCache(1 << 20)}); err != nil {
		return
	}
	for log := range uint64(3) {
		s, err := r.Section(log)
		if s == nil || err != nil {
			continue
		}
		in := s.Info()
		for _, at := range []int64{in.FirstTime, in.FirstTime/2 + in.LastTime/2, in.LastTime} {
			_, err := s.AtTime(at)
			isCorrupt(t, err, what)
		}
		isCorrupt(t, s.Scan(0, nil, func(uint32, *part.Record) bool { return true }), what)
		_, _, err = s.Prev(in.Count, nil, nil)
		isCorrupt(t, err, what)
		m, err := s.Match(wild("orders.*.1.>"), wild("orders.3.>"))
		isCorrupt(t, err, what)
		if err != nil {
			continue
		}
		_, _, err = s.Prev(in.Count, m, nil)
		isCorrupt(t, err, what)
		isCorrupt(t, s.LastPerKey(m, in.LastSeq-1, nil, func(uint32, uint32) bool { return true }), what)
	}
	w, err := part.Create(mem, "/", part.Options{})
	check(t, err)
	if _, err = part.Merge(w, []part.Input{{Reader: r}}, part.MergeOptions{}); err == nil {
		_, err = w.Finish()
		check(t, err)
	}
	check(t, r.Close())
}

// Bytes that pass their checksums and yet make no sense (a writer's defect, somebody's tampering) lead to an error or
// an answer, in every block; at every byte with EHDB_SLOW=1.
func TestNonsenseWithRightChecksums(t *testing.T) {
	mem, path := smallPart(t, part.Options{BlockSize: 500})
	raw := content(t, mem, path)
	step := 7
	if os.Getenv("EHDB_SLOW") != "" {
		step = 1
	}
	for off := 128; off < len(raw)-96; {
		end := off + 32 + u32(raw, off+4)
		for i := off + 32; i < end; i += step {
			for _, v := range []byte{0, 0xff, raw[i] ^ 1, raw[i] + 1} {
				bad := bytes.Clone(raw)
				bad[i] = v
				reseal(bad, off)
				ask(t, bad, fmt.Sprintf("byte %d = %#x", i, v))
			}
		}
		off = end
	}
}

// FuzzNonsense overwrites bytes of a block and makes its checksums right again.
func FuzzNonsense(f *testing.F) {
	mem, path := smallPart(f, part.Options{BlockSize: 500})
	raw := content(f, mem, path)
	f.Add(uint8(0), uint16(0), []byte{1, 2})
	f.Add(uint8(9), uint16(48), []byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, block uint8, at uint16, patch []byte) {
		bad := bytes.Clone(raw)
		off := 128
		for range block {
			if next := off + 32 + u32(bad, off+4); next < len(bad)-96 {
				off = next
			}
		}
		body := bad[off+32 : off+32+u32(bad, off+4)]
		copy(body[int(at)%len(body):], patch)
		reseal(bad, off)
		ask(t, bad, "patched")
	})
}

package repair_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path"
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/inspect"
)

// TestRepairsForged changes a byte of a block of an encrypted log and makes its checksums match, as somebody might who
// does not have the key: neither the product nor the reader take it for right or for torn, in the last block either, and
// a repair leaves out what was in it.
func TestRepairsForged(t *testing.T) {
	t.Parallel()
	all, h := build(t, 150, form{encrypted: true})
	d, err := inspect.Read(t.Context(), inspect.Options{FS: disk(t, all), Dir: dir, Secrets: [][]byte{storeSecret}})
	must(t, err)
	blocks := d.Blocks()
	for _, i := range []int{0, len(blocks) / 2, len(blocks) - 1} {
		at := blocks[i]
		file := path.Join(dir, d.Segments[at.Segment].File)
		b := bytes.Clone(all[file])
		b[at.Offset+32+60] ^= 1
		forge(b, at.Offset)
		image := with(all, file, b)
		what := fmt.Sprintf("%s, block at %d", file, at.Offset)
		_, err := openStore(t.Context(), disk(t, image))
		if err == nil || !strings.Contains(err.Error(), "does not decrypt") {
			t.Fatalf("%s: the store: %v", what, err)
		}
		if !damaged(t, image) {
			t.Fatalf("%s: the reader says nothing", what)
		}
		if lost := restored(t, image, h, what); lost > 60 {
			t.Fatalf("%s: %d records are lost", what, lost)
		}
	}
}

// forge makes the checksums of the block at off of a segment match what it holds.
func forge(b []byte, off int64) {
	table, le := crc32.MakeTable(crc32.Castagnoli), binary.LittleEndian
	salt, head := le.Uint32(b[40:]), b[off:off+32]
	padded := (int64(le.Uint32(head[4:])) + 7) &^ 7
	le.PutUint32(head[28:], crc32.Update(salt, table, b[off+32:off+32+padded]))
	le.PutUint32(head, crc32.Update(salt, table, head[4:]))
}

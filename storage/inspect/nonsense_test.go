package inspect

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestNonsenseBehindRightChecksums changes the raw bytes of every block of a part and makes its checksums right again: the
// reader reports it or finds it sound, and does not panic.
func TestNonsenseBehindRightChecksums(t *testing.T) {
	t.Parallel()
	fsys := vfs.NewMem()
	if err := vfs.MakeDir(fsys, "d"); err != nil {
		t.Fatal(err)
	}
	b, err := part.Create(fsys, "d", part.Options{BlockSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for log := range uint64(2) {
		if err := b.BeginLog(log+1, nil); err != nil {
			t.Fatal(err)
		}
		for seq := range uint64(800) {
			key := make([]byte, 1+rnd.IntN(40))
			for i := range key {
				key[i] = 'a' + byte(rnd.IntN(3))
			}
			if err := b.Add(&part.Record{Seq: 2*seq + 1, Time: int64(seq), Key: key}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := b.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit("whole.part"); err != nil {
		t.Fatal(err)
	}
	whole, err := readFile(fsys, "d/whole.part")
	if err != nil {
		t.Fatal(err)
	}
	p, bad, err := CheckFile(fsys, "d", "whole.part", nil)
	if err != nil || len(bad) > 0 {
		t.Fatal(err, bad)
	}
	found, rounds := 0, 150
	if os.Getenv("EHDB_SLOW") != "" {
		rounds = 5000
	}
	for round := range rounds {
		blk := p.blocks[rnd.IntN(len(p.blocks))]
		changed := bytes.Clone(whole)
		body := changed[blk.off+partBlockHd:][:blk.len]
		for range 1 + rnd.IntN(3) {
			switch i := rnd.IntN(len(body)); rnd.IntN(3) {
			case 0:
				body[i] ^= 1 << rnd.IntN(8)
			case 1:
				body[i] = 0xff
			default:
				body[i] = 0
			}
		}
		seal(changed[blk.off:], &p.ID, blk.off, body)
		mem := vfs.NewMem()
		write(t, mem, "d/x.part", changed)
		_, bad, err := CheckFile(mem, "d", "x.part", nil)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if len(bad) > 0 {
			found++
		}
		if err := EachItem(mem, "d/x.part", nil, func(Item) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	if found < rounds*2/3 {
		t.Fatalf("only %d of %d changes were found", found, rounds)
	}
	t.Logf("%d of %d changes were found", found, rounds)
}

// seal makes the checksums of a block right.
func seal(h []byte, id *[16]byte, off int64, body []byte) {
	le.PutUint32(h[28:], checksum(0, body))
	var at [8]byte
	le.PutUint64(at[:], uint64(off))
	le.PutUint32(h, checksum(checksum(checksum(0, id[:]), at[:]), h[4:partBlockHd]))
}

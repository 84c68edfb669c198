package storage

import (
	"bytes"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestCompress has one log of a part compressed and the other not, changes that, and has both merged.
func TestCompress(t *testing.T) {
	o := sealedOptions(vfs.NewMem())
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	logs := make([]*Log, 2)
	for i := range logs {
		logs[i], err = s.CreateLog(LogSpec{Shards: []ShardID{0}, Name: "l", Compress: i == 0})
		if err != nil {
			t.Fatal(err)
		}
	}
	text := []byte(`{"status":"shipped","from":"warehouse","to":"customer","items":[]}`)
	const each = 400
	fill := func(first uint64) {
		for _, l := range logs {
			for seq := first; seq < first+each; seq++ {
				if err := l.Append(&Record{Seq: seq, Time: int64(seq), Key: []byte("k"), Data: text}, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.sealer.seal(noPace); err != nil {
			t.Fatal(err)
		}
	}
	raw := int64(each * len(text))
	onDisk := func() (n int64) {
		for _, p := range s.sealer.parts {
			n += p.size
		}
		return n
	}
	fill(1)
	if n := onDisk(); n < raw || n > raw+raw/2 {
		t.Fatalf("of two logs of %d bytes, one of them compressed, there are %d", raw, n)
	}
	logs[1].SetCompress(true)
	before := onDisk()
	fill(1 + each)
	if n := onDisk() - before; n > raw/2 {
		t.Fatalf("two compressed logs of %d bytes took %d", raw, n)
	}
	var group []*sealedPart
	for _, p := range s.sealer.parts {
		group = append(group, p)
	}
	if ageOf(group[0].path) > ageOf(group[1].path) {
		group[0], group[1] = group[1], group[0]
	}
	if err := s.sealer.merge(group, noPace); err != nil {
		t.Fatal(err)
	}
	if n := onDisk(); n > raw {
		t.Fatalf("merged, four times %d bytes take %d", raw, n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, l := range logs {
		l, err := s.OpenLog(l.ID(), LogSpec{})
		if err != nil {
			t.Fatal(err)
		}
		for seq := uint64(1); seq <= 2*each; seq++ {
			r, err := l.Get(seq)
			if err != nil || !bytes.Equal(r.Data, text) {
				t.Fatalf("record %d: %v", seq, err)
			}
		}
	}
}

package part_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

func salvage(t *testing.T, b []byte, k *crypt.Keys) (got map[uint64][]part.Record, lost []part.Lost, err error) {
	t.Helper()
	mem := vfs.NewMem()
	put(t, mem, "/bad.part", b)
	got = map[uint64][]part.Record{}
	lost, err = part.Salvage(mem, "/bad.part", k, func(log uint64, recs []part.Record) error {
		got[log] = append(got[log], recs...)
		return nil
	})
	return got, lost, err
}

// With any one byte damaged all is salvaged but at most one block, and what is lost is said: which log, how many bytes.
func TestSalvage(t *testing.T) {
	logs := map[uint64][]part.Record{1: records(24, 9, 1), 2: records(3, 3, 2)}
	for _, k := range []*crypt.Keys{nil, keys(t, crypt.ChaCha20Poly1305, "k")} {
		mem := vfs.NewMem()
		path, _ := build(t, mem, part.Options{BlockSize: 500, Keys: k}, logs)
		raw := content(t, mem, path)
		step := 1
		if testing.Short() {
			step = 3
		}
		for i := 0; i < len(raw); i += step {
			got, lost, err := salvage(t, flip(raw, i), k)
			if i < 128 && k != nil {
				if err == nil {
					t.Fatalf("byte %d: an encrypted part without its header", i)
				}
				continue
			}
			if err != nil || len(lost) != 1 && i < len(raw)-96 {
				t.Fatalf("byte %d: %v, %v", i, lost, err)
			}
			missing := 0
			for log, want := range logs {
				missing += absent(t, got[log], want)
			}
			if len(lost) == 0 {
				if missing > 0 {
					t.Fatalf("byte %d: %d records missing", i, missing)
				}
				continue
			}
			l := lost[0]
			if off, end := blockAt(raw, i); l.Offset != int64(off) || l.Len != int64(end-off) {
				t.Fatalf("byte %d: lost %+v, it is in the block from %d to %d", i, l, off, end)
			}
			if l.Err == nil || missing > 8 || l.Known && l.Data != (missing > 0) {
				t.Fatalf("byte %d: %d records missing, said to be lost: %+v", i, missing, l)
			}
		}
	}
}

// blockAt returns where the block, the header or the footer with byte i is.
func blockAt(raw []byte, i int) (off, end int) {
	if n := len(raw); i >= n-96 {
		return n - 96, n
	}
	for end = 128; end <= i; {
		off, end = end, end+32+u32(raw, end+4)
	}
	return off, end
}

// absent returns how many of want are not in got, which is to have nothing else and the same order.
func absent(t *testing.T, got, want []part.Record) (n int) {
	t.Helper()
	for i := range want {
		if len(got) > 0 && same(&got[0], &want[i]) {
			got = got[1:]
			continue
		}
		n++
	}
	if len(got) > 0 {
		t.Fatalf("salvaged what was not written: %+v", got[0])
	}
	return n
}

func TestSalvageOfAFragment(t *testing.T) {
	logs := map[uint64][]part.Record{1: records(200, 9, 1)}
	mem := vfs.NewMem()
	path, info := build(t, mem, part.Options{BlockSize: 500}, logs)
	raw := content(t, mem, path)
	for _, n := range []int{0, 50, 128, 140, 1000, 5000, len(raw) - 1} {
		got, lost, err := salvage(t, raw[:n], nil)
		if n < 128 {
			if _, ok := errors.AsType[*part.CorruptError](err); !ok {
				t.Fatalf("%d bytes: %v", n, err)
			}
			continue
		}
		check(t, err)
		if k := absent(t, got[1], logs[1]); n > int(info.Data)+128 && k > 0 || n < int(info.Data) && k == 0 || n == 1000 && k == 200 {
			t.Fatalf("%d bytes: %d records missing, %v", n, k, lost)
		}
	}
	boom := errors.New("boom")
	put(t, mem, "/whole", bytes.Clone(raw))
	if _, err := part.Salvage(mem, "/whole", nil, func(uint64, []part.Record) error { return boom }); !errors.Is(err, boom) {
		t.Fatal(err)
	}
}

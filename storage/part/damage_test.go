package part_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// answers is all that a part says, one string for each question; a *CorruptError ends it.
func answers(fsys vfs.FS, path string, o part.ReadOptions) (out []string, err error) {
	r, err := part.Open(fsys, path, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	logs, err := r.Logs()
	if err != nil {
		return out, err
	}
	for _, log := range logs {
		got, err := sectionAnswers(r, log)
		out = append(out, got...)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func sectionAnswers(r *part.Reader, log uint64) (out []string, err error) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	s, err := r.Section(log)
	if err != nil {
		return nil, err
	}
	say("%d %+v", log, s.Info())
	dead := &part.Tombstones{}
	dead.Add(3)
	for ord := range s.Info().Count {
		seq, err := s.Seq(ord)
		if err != nil {
			return out, err
		}
		rec, ok, err := s.Get(seq, nil)
		if err != nil {
			return out, err
		}
		say("%d %v %+v", seq, ok, rec)
		last, ok, err := s.LastOf(rec.Key, 0, nil)
		if err != nil {
			return out, err
		}
		say("last %d %v", last, ok)
	}
	for _, f := range []part.Filter{wild("orders.1.>"), wild("orders.*.2.>")} {
		m, err := s.Match(f)
		if err != nil {
			return out, err
		}
		n, err := s.Count(2, m, dead)
		if err != nil {
			return out, err
		}
		next, ok, err := s.Next(2, m, dead)
		if err != nil {
			return out, err
		}
		say("%d %d %v", n, next, ok)
	}
	err = s.EachKey(nil, dead, func(key []byte, ks part.KeyState) bool {
		say("%s %+v", key, ks)
		return true
	})
	return out, err
}

func smallPart(tb testing.TB, o part.Options) (mem *vfs.Mem, path string) {
	tb.Helper()
	mem = vfs.NewMem()
	path, _ = build(tb, mem, o, map[uint64][]part.Record{1: records(24, 9, 1), 2: records(3, 3, 2)})
	return mem, path
}

func prefixOf(got, want []string) bool {
	for i, a := range got {
		if i >= len(want) || a != want[i] {
			return false
		}
	}
	return true
}

// Every byte (every fifth with a codec or a cipher, unless EHDB_SLOW=1) of a small part with a bit, or all, flipped: an error that names the file and a place in it, or
// the right answers; and Verify always finds it, but for what only people read.
func TestFlippedBits(t *testing.T) {
	for n, o := range []part.Options{
		{BlockSize: 500}, {BlockSize: 500, Codec: part.S2}, {BlockSize: 500, Codec: part.Zstd, Keys: keys(t, crypt.AES256GCM, "k")},
	} {
		mem, path := smallPart(t, o)
		ro := part.ReadOptions{Keys: o.Keys}
		want, err := answers(mem, path, ro)
		check(t, err)
		raw := content(t, mem, path)
		step := 1
		if testing.Short() || n > 0 && os.Getenv("EHDB_SLOW") == "" {
			step = 5 // all bytes take a while on a busy machine
		}
		for i := 0; i < len(raw); i += step {
			for _, bit := range []byte{1 << (i % 8), 0xff} {
				bad := bytes.Clone(raw)
				bad[i] ^= bit
				m := vfs.NewMem()
				put(t, m, "/bad.part", bad)
				got, err := answers(m, "/bad.part", ro)
				checkDamage(t, err, len(raw), fmt.Sprintf("byte %d ^ %#x", i, bit))
				if !prefixOf(got, want) || err == nil && len(got) != len(want) {
					t.Fatalf("byte %d ^ %#x: a wrong answer: %v", i, bit, err)
				}
				ro := ro
				ro.Verify = true
				if _, err := part.Open(m, "/bad.part", ro); err == nil {
					t.Fatalf("byte %d ^ %#x: not found by Verify", i, bit)
				}
			}
		}
	}
}

func checkDamage(t *testing.T, err error, size int, what string) {
	t.Helper()
	if err == nil || errors.Is(err, crypt.ErrKey) {
		return
	}
	var ce *part.CorruptError
	if !errors.As(err, &ce) {
		t.Fatalf("%s: error without a place: %v", what, err)
	}
	if ce.Path != "/bad.part" || ce.Offset < 0 || ce.Offset > int64(size) || ce.Hint == "" {
		t.Fatalf("%s: %+v", what, ce)
	}
}

// Defect: a sealed part that was cut short was taken for a whole one with fewer records.
func TestTruncated(t *testing.T) {
	mem, path := smallPart(t, part.Options{BlockSize: 500})
	raw := content(t, mem, path)
	for n := range raw {
		for _, bad := range [][]byte{raw[:n], append(bytes.Clone(raw[:n]), make([]byte, len(raw)-n)...)} {
			m := vfs.NewMem()
			put(t, m, "/bad.part", bad)
			_, err := part.Open(m, "/bad.part", part.ReadOptions{})
			if err == nil && !bytes.Equal(bad, raw) {
				if _, err = part.Open(m, "/bad.part", part.ReadOptions{Verify: true}); err == nil {
					t.Fatalf("cut at %d, opened", n)
				}
			}
			checkDamage(t, err, len(raw), fmt.Sprintf("cut at %d", n))
			if len(bad) == n && err == nil {
				t.Fatalf("cut at %d, opened", n)
			}
		}
	}
	m := vfs.NewMem()
	put(t, m, "/bad.part", append(bytes.Clone(raw), 0))
	if _, err := part.Open(m, "/bad.part", part.ReadOptions{}); err == nil {
		t.Fatal("a byte too many, opened")
	}
}

// Damage in one log's section leaves the others readable.
func TestOtherSectionsStayReadable(t *testing.T) {
	mem, path := smallPart(t, part.Options{BlockSize: 500})
	raw := content(t, mem, path)
	raw[128+40] ^= 1 // the first section written is that of log 2
	put(t, mem, "/bad.part", raw)
	r := open(t, mem, "/bad.part", part.ReadOptions{})
	if _, err := sectionAnswers(r, 2); err == nil {
		t.Fatal("damage is not seen")
	}
	if _, err := sectionAnswers(r, 1); err != nil {
		t.Fatal(err)
	}
}

func TestVersionIsNamed(t *testing.T) {
	mem, path := smallPart(t, part.Options{})
	raw := content(t, mem, path)
	raw[8] = 9
	put(t, mem, "/bad.part", raw)
	_, err := part.Open(mem, "/bad.part", part.ReadOptions{})
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("version 9")) {
		t.Fatal(err)
	}
}

func TestReadErrorIsNoDamage(t *testing.T) {
	mem, path := smallPart(t, part.Options{})
	boom := errors.New("boom")
	f := vfs.NewFault(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead {
			return boom
		}
		return nil
	})
	_, err := part.Open(f, path, part.ReadOptions{})
	var ce *part.CorruptError
	if !errors.Is(err, boom) || errors.As(err, &ce) {
		t.Fatal(err)
	}
}

func TestTombstonesDamage(t *testing.T) {
	dead := &part.Tombstones{}
	dead.AddRange(5, 90)
	dead.Add(70_000)
	raw, err := dead.Encode()
	check(t, err)
	for i := range raw {
		for _, bad := range [][]byte{raw[:i], flip(raw, i)} {
			_, err := part.DecodeTombstones("/bad.part", bad, 100_000)
			if err == nil {
				t.Fatalf("byte %d: not seen", i)
			}
			checkDamage(t, err, len(raw), fmt.Sprint("byte ", i))
		}
	}
	if _, err := part.DecodeTombstones("x", raw, 70_000); err == nil {
		t.Fatal("an ordinal beyond the section is not seen")
	}
}

func flip(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 0x10
	return b
}

// FuzzOpen gives any bytes to the reader: it must answer with an error or consistent data, and never panic.
func FuzzOpen(f *testing.F) {
	for _, o := range []part.Options{{BlockSize: 500}, {Codec: part.S2}, {Codec: part.Zstd}} {
		mem, path := smallPart(f, o)
		f.Add(content(f, mem, path))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		name := filepath.Join(dir, fmt.Sprint(os.Getpid()))
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = answers(vfs.OS{}, name, part.ReadOptions{})
		_, _ = answers(vfs.OS{}, name, part.ReadOptions{Verify: true, Cache: part.NewCache(1 << 20)})
		_, _ = part.DecodeTombstones("x", b, 1000)
	})
}

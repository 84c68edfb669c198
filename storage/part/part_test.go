package part_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// wild is a filter of dot-separated tokens with * and a final >.
type wild string

func (w wild) Match(key []byte) bool {
	f, k := strings.Split(string(w), "."), strings.Split(string(key), ".")
	for i, t := range f {
		switch {
		case t == ">" && i == len(f)-1:
			return len(k) > i
		case i >= len(k) || t != "*" && t != k[i]:
			return false
		}
	}
	return len(f) == len(k)
}

func (w wild) Prefix() []byte {
	if i := strings.IndexAny(string(w), "*>"); i >= 0 {
		return []byte(w[:i])
	}
	return []byte(w)
}

func (w wild) Literal() bool { return !strings.ContainsAny(string(w), "*>") }

// whole is a filter of all that starts with it.
type whole string

func (w whole) Match(key []byte) bool { return bytes.HasPrefix(key, []byte(w)) }
func (w whole) Prefix() []byte        { return []byte(w) }
func (w whole) Literal() bool         { return false }
func (w whole) WholePrefix() bool     { return true }

// build writes logs into a part and returns its path.
func build(tb testing.TB, fsys vfs.FS, o part.Options, logs map[uint64][]part.Record) (string, part.Info) {
	tb.Helper()
	check(tb, vfs.MakeDir(fsys, "/d"))
	b, err := part.Create(fsys, "/d", o)
	check(tb, err)
	ids := make([]uint64, 0, len(logs))
	for log := range logs {
		ids = append(ids, log)
	}
	slices.Sort(ids)
	slices.Reverse(ids) // the order of sections is the writer's
	for _, log := range ids {
		check(tb, b.BeginLog(log, nil))
		for i := range logs[log] {
			check(tb, b.Add(&logs[log][i]))
		}
	}
	info, err := b.Finish()
	check(tb, err)
	name := part.Name(1, info.ID)
	check(tb, b.Commit(name))
	return "/d/" + name, info
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func open(tb testing.TB, fsys vfs.FS, path string, o part.ReadOptions) *part.Reader {
	tb.Helper()
	r, err := part.Open(fsys, path, o)
	check(tb, err)
	tb.Cleanup(func() { check(tb, r.Close()) })
	return r
}

func section(tb testing.TB, r *part.Reader, log uint64) *part.Section {
	tb.Helper()
	s, err := r.Section(log)
	check(tb, err)
	if s == nil {
		tb.Fatalf("no section of log %d", log)
	}
	return s
}

// records makes n records with a gap now and then.
func records(n, keys int, seed uint64) []part.Record {
	rnd := rand.New(rand.NewPCG(seed, 1))
	out := make([]part.Record, n)
	seq, at := uint64(100), int64(1_700_000_000_000_000_000)
	for i := range out {
		seq++
		if rnd.IntN(20) == 0 {
			seq += rnd.Uint64N(1000)
		}
		at += rnd.Int64N(1_000_000)
		k := rnd.IntN(keys)
		out[i] = part.Record{
			Seq: seq, Time: at, Key: fmt.Appendf(nil, "orders.%d.%d.item.%d", k%17, k%3, k),
			Data: fmt.Appendf(nil, "payload %d %d", i, rnd.Uint64()),
		}
		if i%5 == 0 {
			out[i].Header = []byte("NATS/1.0\r\nA: b\r\n\r\n")
		}
	}
	return out
}

func same(a, b *part.Record) bool {
	return a.Seq == b.Seq && a.Time == b.Time && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Header, b.Header) &&
		bytes.Equal(a.Data, b.Data)
}

func keys(tb testing.TB, c crypt.Cipher, current string, previous ...string) *crypt.Keys {
	tb.Helper()
	if c == crypt.Plain {
		return nil
	}
	all := [][]byte{[]byte(current)}
	for _, p := range previous {
		all = append(all, []byte(p))
	}
	k, err := crypt.NewKeys(c, all...)
	check(tb, err)
	return k
}

// Every record comes back, through each codec and cipher, from the cache, without one, and through a very small one.
func TestRoundTrip(t *testing.T) {
	logs := map[uint64][]part.Record{
		3: records(9001, 3000, 1), 8: records(1, 1, 2), 2: records(500, 1, 3), 1 << 63: records(4096, 4096, 4),
	}
	for _, codec := range []part.Codec{part.None, part.S2, part.Zstd} {
		for _, c := range []crypt.Cipher{crypt.Plain, crypt.AES256GCM, crypt.ChaCha20Poly1305} {
			t.Run(fmt.Sprint(codec, c), func(t *testing.T) {
				mem, k := vfs.NewMem(), keys(t, c, "secret")
				path, info := build(t, mem, part.Options{Codec: codec, Keys: k, BlockSize: 4096, Shard: 7, Created: 5}, logs)
				size, err := mem.Stat(path)
				check(t, err)
				if info.Size != size || info.Records != 9001+1+500+4096 || len(info.Sections) != 4 || info.Sections[0].Log != 2 {
					t.Fatalf("info %+v", info)
				}
				for _, cache := range []part.BlockCache{nil, part.NewCache(1 << 20), part.NewCache(20_000)} {
					r := open(t, mem, path, part.ReadOptions{Cache: cache, Keys: k, Verify: true})
					if r.Shard() != 7 || r.Created() != 5 || r.Size() != size || r.ID() != info.ID || r.Cipher() != c {
						t.Fatal("header does not come back")
					}
					readAll(t, r, logs)
				}
			})
		}
	}
}

func readAll(t *testing.T, r *part.Reader, logs map[uint64][]part.Record) {
	t.Helper()
	ids, err := r.Logs()
	check(t, err)
	if len(ids) != len(logs) || !slices.IsSorted(ids) {
		t.Fatalf("logs %v", ids)
	}
	for log, want := range logs {
		s := section(t, r, log)
		i := 0
		check(t, s.Scan(0, nil, func(ord uint32, got *part.Record) bool {
			if int(ord) != i || !same(got, &want[i]) {
				t.Fatalf("scan: record %d is %+v", ord, got)
			}
			i++
			return true
		}))
		if i != len(want) {
			t.Fatalf("log %d: scan yields %d of %d", log, i, len(want))
		}
		step := max(1, len(want)/300)
		for i := 0; i < len(want); i += step {
			got, ok, err := s.Get(want[i].Seq, nil)
			if err != nil || !ok || !same(&got, &want[i]) {
				t.Fatalf("log %d: get %d: %+v, %v, %v", log, want[i].Seq, got, ok, err)
			}
			if i > 0 && want[i-1].Seq != want[i].Seq-1 {
				if _, ok, err := s.Get(want[i].Seq-1, nil); ok || err != nil {
					t.Fatalf("get of a gap: %v, %v", ok, err)
				}
			}
		}
	}
	if s, err := r.Section(77); s != nil || err != nil {
		t.Fatalf("section of a log that is not there: %v, %v", s, err)
	}
}

// Defect: a writer that took the last sequence for the highest.
func TestOutOfOrderIsRefused(t *testing.T) {
	mem := vfs.NewMem()
	check(t, vfs.MakeDir(mem, "/d"))
	b, err := part.Create(mem, "/d", part.Options{})
	check(t, err)
	if err := b.Add(&part.Record{Seq: 1}); !errors.Is(err, part.ErrNoLog) {
		t.Fatal(err)
	}
	check(t, b.BeginLog(1, nil))
	check(t, b.Add(&part.Record{Seq: 5, Time: 10, Key: []byte("k")}))
	for _, r := range []part.Record{{Seq: 5, Time: 10}, {Seq: 4, Time: 11}, {Seq: 6, Time: 9}} {
		if err := b.Add(&r); !errors.Is(err, part.ErrOutOfOrder) {
			t.Fatalf("%+v: %v", r, err)
		}
	}
	check(t, b.Add(&part.Record{Seq: 6, Time: 10, Key: []byte("k")}))
	info, err := b.Finish()
	check(t, err)
	if info.Records != 2 {
		t.Fatalf("%+v", info)
	}
	if err := b.Add(&part.Record{Seq: 7, Time: 10}); !errors.Is(err, part.ErrFinished) {
		t.Fatal(err)
	}
	check(t, b.Abort())
	if names, _ := mem.List("/d"); len(names) != 0 {
		t.Fatalf("left behind: %v", names)
	}
}

func TestLogTwiceIsRefused(t *testing.T) {
	mem := vfs.NewMem()
	check(t, vfs.MakeDir(mem, "/d"))
	b, err := part.Create(mem, "/d", part.Options{})
	check(t, err)
	check(t, b.BeginLog(1, nil))
	check(t, b.BeginLog(2, nil))
	if err := b.BeginLog(1, nil); !errors.Is(err, part.ErrNoLog) {
		t.Fatal(err)
	}
	if _, err := b.Finish(); err == nil {
		t.Fatal("finished after a refusal")
	}
	check(t, b.Abort())
}

// Defect: temporary names that collide, names that replace a file, renames without a directory sync.
func TestPublish(t *testing.T) {
	mem := vfs.NewMem()
	check(t, vfs.MakeDir(mem, "/d"))
	var bs []*part.Builder
	for range 50 {
		b, err := part.Create(mem, "/d", part.Options{})
		check(t, err)
		bs = append(bs, b)
	}
	_, err := bs[0].Finish()
	check(t, err)
	if err := bs[1].Commit("x.part"); !errors.Is(err, part.ErrFinished) {
		t.Fatalf("commit of an unfinished part: %v", err)
	}
	check(t, bs[0].Commit("a.part"))
	if c := mem.CrashClone(vfs.CrashOptions{}); !opens(c, "/d/a.part") {
		t.Fatal("a committed part is gone after a power loss")
	}
	_, err = bs[1].Finish()
	check(t, err)
	if err := bs[1].Commit("a.part"); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("a part replaced another: %v", err)
	}
}

func opens(fsys vfs.FS, path string) bool {
	r, err := part.Open(fsys, path, part.ReadOptions{Verify: true})
	if err != nil {
		return false
	}
	return r.Close() == nil
}

// A power loss or an error at each operation: the name is there with the whole part, or not at all.
func TestCrashAndErrorAtEachOperation(t *testing.T) {
	recs := map[uint64][]part.Record{1: records(50, 7, 1)}
	write := func(fsys vfs.FS) error {
		b, err := part.Create(fsys, "/d", part.Options{BlockSize: 512})
		if err != nil {
			return err
		}
		if err := b.BeginLog(1, nil); err != nil {
			return err
		}
		for i := range recs[1] {
			if err := b.Add(&recs[1][i]); err != nil {
				return err
			}
		}
		if _, err := b.Finish(); err != nil {
			_ = b.Abort()
			return err
		}
		return b.Commit("a.part")
	}
	boom := errors.New("boom")
	for n := int64(0); ; n++ {
		mem := vfs.NewMem()
		check(t, vfs.MakeDir(mem, "/d"))
		images := []*vfs.Mem{}
		f := vfs.NewFault(mem, nil)
		f.SetHook(func(op vfs.Op) error {
			if op.N < n {
				return nil
			}
			for seed := range uint64(3) {
				images = append(images, mem.CrashClone(vfs.CrashOptions{Seed: seed, Keep: float64(seed) / 2}))
			}
			return boom
		})
		err := write(f)
		if err == nil {
			if n < 6 {
				t.Fatalf("only %d operations", n)
			}
			return
		}
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		for _, image := range append(images, mem) {
			if _, err := image.Stat("/d/a.part"); err == nil && !opens(image, "/d/a.part") {
				t.Fatalf("after operation %d a damaged part has its name", n)
			}
		}
	}
}

func TestKeyRotation(t *testing.T) {
	mem, old := vfs.NewMem(), keys(t, crypt.AES256GCM, "old")
	logs := map[uint64][]part.Record{1: records(20, 3, 1)}
	path, _ := build(t, mem, part.Options{Keys: old}, logs)
	raw := content(t, mem, path)
	if bytes.Contains(raw, []byte("payload")) || bytes.Contains(raw, []byte("orders")) {
		t.Fatal("an encrypted part shows its records or keys")
	}
	// the same records under the same master key: no key stream is used twice
	other, _ := build(t, mem, part.Options{Keys: old}, logs)
	if again := content(t, mem, other); bytes.Equal(raw[160:260], again[160:260]) {
		t.Fatal("two parts are encrypted with the same data key")
	}
	rotated := keys(t, crypt.ChaCha20Poly1305, "new", "old")
	r := open(t, mem, path, part.ReadOptions{Keys: rotated, Verify: true})
	readAll(t, r, logs)
	for _, k := range []*crypt.Keys{nil, keys(t, crypt.AES256GCM, "new")} {
		if _, err := part.Open(mem, path, part.ReadOptions{Keys: k}); !errors.Is(err, crypt.ErrKey) || !strings.Contains(err.Error(), path) {
			t.Fatalf("without the key: %v", err)
		}
	}
}

func content(tb testing.TB, fsys vfs.FS, path string) []byte {
	tb.Helper()
	f, err := fsys.OpenRead(path)
	check(tb, err)
	n, err := f.Size()
	check(tb, err)
	b := make([]byte, n)
	_, err = f.ReadAt(b, 0)
	check(tb, err)
	check(tb, f.Close())
	return b
}

func put(tb testing.TB, fsys vfs.FS, path string, b []byte) {
	tb.Helper()
	f, err := fsys.Create(path)
	check(tb, err)
	_, err = f.WriteAt(b, 0)
	check(tb, err)
	check(tb, f.Close())
}

// A block from another part, or from another place in the same part, is not taken for the one that was there.
func TestBlocksCannotMove(t *testing.T) {
	for _, c := range []crypt.Cipher{crypt.Plain, crypt.AES256GCM} {
		moveBlocks(t, keys(t, c, "secret"))
	}
}

func moveBlocks(t *testing.T, k *crypt.Keys) {
	t.Helper()
	mem := vfs.NewMem()
	a, _ := build(t, mem, part.Options{Keys: k}, map[uint64][]part.Record{1: records(20, 3, 1)})
	b, _ := build(t, mem, part.Options{Keys: k}, map[uint64][]part.Record{1: records(20, 3, 1)})
	x, y := content(t, mem, a), content(t, mem, b)
	n := 32 + int(binary.LittleEndian.Uint32(y[128+4:]))
	copy(x[128:], y[128:128+n])
	put(t, mem, "/d/mixed", x)
	r := open(t, mem, "/d/mixed", part.ReadOptions{Keys: k})
	var ce *part.CorruptError
	if _, _, err := section(t, r, 1).Get(101, nil); !errors.As(err, &ce) || ce.Offset != 128 {
		t.Fatalf("a block of another part: %v", err)
	}
	if k != nil {
		return // encrypted blocks differ by their number too
	}
	// two logs with the same records have blocks with the same bytes
	two, _ := build(t, mem, part.Options{}, map[uint64][]part.Record{1: records(20, 3, 1), 2: records(20, 3, 1)})
	x = content(t, mem, two)
	n = 32 + int(binary.LittleEndian.Uint32(x[128+4:]))
	body := bytes.Index(x[128+n:], x[128+32:128+n])
	if body < 0 {
		t.Fatal("no second block with the same bytes")
	}
	other := 128 + n + body - 32
	copy(x[128:128+n], x[other:other+n])
	put(t, mem, "/d/moved", x)
	r = open(t, mem, "/d/moved", part.ReadOptions{})
	if _, _, err := section(t, r, 2).Get(101, nil); !errors.As(err, &ce) || ce.Offset != 128 {
		t.Fatalf("a block of another place: %v", err)
	}
}

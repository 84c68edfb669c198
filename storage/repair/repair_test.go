package repair_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/inspect"
	"github.com/noetl/ehdb-gateway/storage/repair"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "data"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func slow() bool { return os.Getenv("EHDB_SLOW") != "" }

func openStore(ctx context.Context, fsys vfs.FS) (*storage.Store, error) {
	return storage.Open(ctx, storeOptions(fsys))
}

func storeOptions(fsys vfs.FS) storage.Options {
	return storage.Options{
		Dir: dir, FS: fsys, Shards: 2, SegmentSize: 4 << 10, SealMaxAge: time.Millisecond, SealRecords: 40,
		Encryption: encryption(fsys),
	}
}

// form is how a store keeps records: in the write-ahead log only, or sealed in parts as they get old; as they are, or
// encrypted and, in parts, compressed.
type form struct{ sealed, encrypted bool }

var forms = map[string]form{
	"tail": {}, "sealed": {sealed: true}, "encrypted tail": {encrypted: true}, "encrypted": {sealed: true, encrypted: true},
}

// storeSecret is what encrypted stores are encrypted with.
var storeSecret = []byte("the secret of a store")

// encryption is that of the directory that is there.
func encryption(fsys vfs.FS) (o crypt.RingOptions) {
	for _, name := range []string{crypt.RingName, crypt.CopyName} {
		if _, err := fsys.Stat(path.Join(dir, name)); err == nil {
			o.Secret, o.Cost = storeSecret, 1
		}
	}
	return o
}

// history is what was written, and what of it is not deleted.
type history struct {
	all  map[uint64]map[uint64]string // log, sequence
	live map[uint64]map[uint64]bool
}

func text(seq uint64, key, header, data []byte) string {
	return fmt.Sprintf("%d %q %q %q", seq, key, header, data)
}

// build writes a data directory of several segments: two logs in one shard each, a spread one, two state logs.
func build(t *testing.T, n int, f form) (map[string][]byte, *history) {
	t.Helper()
	fsys := vfs.NewMem()
	o := storeOptions(fsys)
	if o.Seal = f.sealed; f.encrypted {
		o.Encryption = crypt.RingOptions{Secret: storeSecret, Cost: 1}
	}
	s, err := storage.Open(t.Context(), o)
	must(t, err)
	h := &history{map[uint64]map[uint64]string{}, map[uint64]map[uint64]bool{}}
	rnd := rand.New(rand.NewPCG(3, 3))
	var logs []*storage.Log
	for i := range 3 {
		spec := storage.LogSpec{Shards: []storage.ShardID{storage.ShardID(i % 2)}, Name: fmt.Sprintf("ACC/S%d", i)}
		if i == 2 {
			spec.Shards = []storage.ShardID{0, 1}
			spec.Route = func(key []byte) int { return len(key) % 2 }
		}
		l, err := s.CreateLog(spec)
		must(t, err)
		logs = append(logs, l)
		h.all[uint64(l.ID())], h.live[uint64(l.ID())] = map[uint64]string{}, map[uint64]bool{}
	}
	st, err := s.CreateStateLog(1, "state", false)
	must(t, err)
	for i := range n {
		l := logs[rnd.IntN(len(logs))]
		seq := l.State().LastSeq + 1
		r := storage.Record{
			Seq: seq, Time: int64(seq), Key: []byte(strings.Repeat("k", 1+rnd.IntN(4))),
			Data: fmt.Appendf(nil, "data %d of %d", seq, l.ID()),
		}
		must(t, l.Append(&r, nil))
		h.all[uint64(l.ID())][seq] = text(r.Seq, r.Key, r.Header, r.Data)
		h.live[uint64(l.ID())][seq] = true
		if rnd.IntN(8) == 0 {
			gone := 1 + rnd.Uint64N(seq)
			_, err := l.Delete([]uint64{gone}, false, func(error) {})
			must(t, err)
			delete(h.live[uint64(l.ID())], gone)
		}
		done := make(chan error, 1)
		must(t, st.Append(fmt.Appendf(nil, "change %d", i), func(err error) { done <- err }))
		if i%3 == 0 {
			must(t, <-done)
		}
	}
	for _, l := range logs {
		done := make(chan error, 1)
		l.Sync(func(err error) { done <- err })
		must(t, <-done)
	}
	all := files(t, fsys.CrashClone(vfs.CrashOptions{}))
	must(t, s.Close())
	return all, h
}

func files(t *testing.T, fsys vfs.FS) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, d := range []string{dir, dir + "/wal", dir + "/parts", dir + "/manifest"} {
		names, err := fsys.List(d)
		if err != nil {
			continue
		}
		for _, name := range names {
			f, err := fsys.OpenRead(path.Join(d, name))
			if err != nil {
				continue // a folder
			}
			size, err := f.Size()
			must(t, err)
			b := make([]byte, size)
			if size > 0 {
				_, err = f.ReadAt(b, 0)
				must(t, err)
			}
			out[path.Join(d, name)] = b
			must(t, f.Close())
		}
	}
	return out
}

func disk(t *testing.T, all map[string][]byte) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	for p, b := range all {
		must(t, m.MkdirAll(path.Dir(p)))
		f, err := m.Create(p)
		must(t, err)
		_, err = f.WriteAt(b, 0)
		must(t, err)
		must(t, f.Close())
	}
	return m
}

func with(all map[string][]byte, name string, b []byte) map[string][]byte {
	out := maps.Clone(all)
	if delete(out, name); b != nil {
		out[name] = b
	}
	return out
}

// restored repairs a damaged directory, opens it, and holds what is there against what was written. It returns how many
// records are lost.
func restored(t *testing.T, all map[string][]byte, h *history, what string) (lost int) {
	t.Helper()
	fsys := disk(t, all)
	report, err := repair.Run(t.Context(), repair.Options{FS: fsys, Dir: dir, Shards: 2, Secrets: [][]byte{storeSecret}})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for _, f := range report.After {
		if f.Severity == inspect.Damage {
			t.Fatalf("%s: after the repair: %s\nbefore: %s", what, f.String(), report.Before[0].String())
		}
	}
	for range 2 { // the second opening has what the first has written
		s, err := openStore(t.Context(), fsys)
		if err != nil {
			t.Fatalf("%s: the store does not open: %v\nbefore: %s", what, err, report.Before[0].String())
		}
		lost = compare(t, s, h, report, what)
		l, err := s.OpenLog(firstLog(s), storage.LogSpec{})
		must(t, err)
		done := make(chan error, 1)
		must(t, l.Append(&storage.Record{Seq: l.State().LastSeq + 1, Key: []byte("new")}, func(err error) { done <- err }))
		must(t, <-done)
		must(t, s.Close())
	}
	return lost
}

func firstLog(s *storage.Store) (id storage.LogID) {
	s.EachLog(func(l storage.LogID, _ string, state bool) {
		if !state && (id == 0 || l < id) {
			id = l
		}
	})
	return id
}

func compare(t *testing.T, s *storage.Store, h *history, report *repair.Report, what string) (lost int) {
	t.Helper()
	found := map[uint64]map[uint64]bool{}
	s.EachLog(func(id storage.LogID, _ string, state bool) {
		if state {
			return
		}
		l, err := s.OpenLog(id, storage.LogSpec{})
		must(t, err)
		found[uint64(id)] = map[uint64]bool{}
		for c := l.NewCursor(0, nil); ; {
			r, err := c.Next()
			if errors.Is(err, storage.ErrEOF) {
				break
			}
			must(t, err)
			if string(r.Key) == "new" {
				continue
			}
			if got := text(r.Seq, r.Key, r.Header, r.Data); h.all[uint64(id)][r.Seq] != got {
				t.Fatalf("%s: log %d has %s, which was never written", what, id, got)
			}
			found[uint64(id)][r.Seq] = true
		}
	})
	for log, live := range h.live {
		for seq := range live {
			if found[log][seq] {
				continue
			}
			lost++
			if !reported(report, log, seq) {
				t.Fatalf("%s: record %d of log %d is lost, and that is not reported: %v", what, seq, log, report.Before)
			}
		}
	}
	return lost
}

// reported tells whether a report covers the loss of a record.
func reported(r *repair.Report, log, seq uint64) bool {
	return slices.ContainsFunc(r.Before, func(f inspect.Finding) bool {
		return f.Severity != inspect.Note && (f.Severity == inspect.Torn ||
			slices.ContainsFunc(f.Affected, func(a inspect.Affected) bool {
				return a.Log == 0 || a.Log == log && (a.First == 0 || a.First <= seq && seq <= a.Last)
			}))
	})
}

func damaged(t *testing.T, all map[string][]byte) bool {
	t.Helper()
	d, err := inspect.Read(t.Context(), inspect.Options{FS: disk(t, all), Dir: dir, Secrets: [][]byte{storeSecret}})
	must(t, err)
	return d.Damaged()
}

// TestRepairsFlips repairs a directory with a changed byte anywhere in its files: it opens, nothing is in it that was
// not written, and what is lost is reported.
func TestRepairsFlips(t *testing.T) {
	t.Parallel()
	for name, f := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repairsFlips(t, f)
		})
	}
}

func repairsFlips(t *testing.T, f form) {
	t.Helper()
	all, h := build(t, 150, f)
	step, first := 41, 0
	if slow() { // others each time
		step = 7
		first = rand.IntN(step)
	}
	n, most := 0, 0
	for name, b := range all {
		if strings.HasSuffix(name, "LOCK") || strings.HasSuffix(name, ".spare") {
			continue
		}
		for off := first; off < len(b); off += step {
			changed := append([]byte(nil), b...)
			changed[off] ^= 1 << (off % 8)
			if !damaged(t, with(all, name, changed)) {
				continue
			}
			n++
			lost := restored(t, with(all, name, changed), h, fmt.Sprintf("%s, flip at %d", name, off))
			if most = max(most, lost); off < 64 && lost > 0 && strings.HasSuffix(name, ".seg") {
				t.Fatalf("%s, flip at %d: %d records are lost, with a header only", name, off, lost)
			}
		}
	}
	if n == 0 || most == 0 {
		t.Fatalf("%d repairs, at most %d records lost: nothing was shown", n, most)
	}
	t.Logf("%d repairs, at most %d records lost in one", n, most)
}

// TestRepairsHoles damages several places at once, cuts files short, and takes them away.
func TestRepairsHoles(t *testing.T) {
	t.Parallel()
	for name, f := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repairsHoles(t, f)
		})
	}
}

func repairsHoles(t *testing.T, f form) {
	t.Helper()
	all, h := build(t, 450, f)
	var segs []string
	for name := range all {
		if strings.HasSuffix(name, ".seg") || strings.HasSuffix(name, ".part") || strings.Contains(name, "/manifest-") {
			segs = append(segs, name)
		}
	}
	slices.Sort(segs)
	if len(segs) < 5 && !f.sealed {
		t.Fatalf("only %d segments", len(segs))
	}
	rounds := 60
	if slow() {
		rounds = 500
	}
	rnd := rand.New(rand.NewPCG(5, 5))
	for range rounds {
		bad := all
		what := ""
		for range 1 + rnd.IntN(4) {
			name := segs[rnd.IntN(len(segs)-1)] // the last one may be gone without a trace
			b := append([]byte(nil), bad[name]...)
			if bad[name] == nil {
				continue
			}
			switch rnd.IntN(4) {
			case 0:
				bad = with(bad, name, nil)
				what += name + " is gone; "
			case 1:
				n := rnd.IntN(len(b))
				bad = with(bad, name, b[:n])
				what += fmt.Sprintf("%s cut to %d; ", name, n)
			default:
				from := rnd.IntN(len(b))
				to := min(len(b), from+1+rnd.IntN(300))
				clear(b[from:to])
				bad = with(bad, name, b)
				what += fmt.Sprintf("%s zeroed from %d to %d; ", name, from, to)
			}
		}
		if bad[segs[0]] == nil || !damaged(t, bad) {
			continue // the first one may have been dropped: nothing says that it was not
		}
		restored(t, bad, h, what)
	}
}

// TestRefusesTheRunning refuses a directory that is open, and one that is none.
func TestRefusesTheRunning(t *testing.T) {
	t.Parallel()
	fsys := vfs.NewMem()
	s, err := openStore(t.Context(), fsys)
	must(t, err)
	if _, err := repair.Run(t.Context(), repair.Options{FS: fsys, Dir: dir}); !errors.Is(err, repair.ErrInUse) {
		t.Fatalf("got %v", err)
	}
	must(t, s.Close())
	must(t, fsys.MkdirAll("empty"))
	if _, err := repair.Run(t.Context(), repair.Options{FS: fsys, Dir: "empty"}); !errors.Is(err, inspect.ErrNoDirectory) {
		t.Fatalf("got %v", err)
	}
	if names, err := fsys.List("empty"); err != nil || len(names) > 0 {
		t.Fatalf("%v were made (%v)", names, err)
	}
}

// TestNothingToRepair leaves a directory without damage as it is.
func TestNothingToRepair(t *testing.T) {
	t.Parallel()
	all, _ := build(t, 20, form{})
	fsys := disk(t, all)
	r, err := repair.Run(t.Context(), repair.Options{FS: fsys, Dir: dir, Out: "out"})
	must(t, err)
	if r.Changed() {
		t.Fatalf("%+v", r.Actions)
	}
	unchanged(t, fsys, all)
	if _, err := fsys.List("out"); err == nil {
		t.Fatal("out was made")
	}
}

func unchanged(t *testing.T, fsys vfs.FS, all map[string][]byte) {
	t.Helper()
	for name, b := range files(t, fsys) {
		if !strings.HasSuffix(name, "LOCK") && string(b) != string(all[name]) {
			t.Fatalf("%s was changed", name)
		}
	}
}

// TestRepairsACopy leaves the damaged directory as it is, and keeps what it replaced of the copy.
func TestRepairsACopy(t *testing.T) {
	t.Parallel()
	all, h := build(t, 200, form{})
	name := path.Join(dir, "wal", inspect.SegmentName(2))
	if all[name] == nil {
		t.Fatal(slices.Sorted(maps.Keys(all)))
	}
	all[name][700] ^= 1
	fsys := disk(t, all)
	r, err := repair.Run(t.Context(), repair.Options{FS: fsys, Dir: dir, Out: "out"})
	must(t, err)
	if !r.Changed() || r.Dir != "out" {
		t.Fatalf("%+v", r)
	}
	unchanged(t, fsys, all)
	s, err := storage.Open(t.Context(), storage.Options{Dir: "out", FS: fsys, SegmentSize: 4 << 10})
	must(t, err)
	compare(t, s, h, r, "copy")
	must(t, s.Close())
	if _, err := fsys.Stat(path.Join("out", repair.Quarantine, "wal", inspect.SegmentName(2))); err != nil {
		t.Fatal(err)
	}
	if _, err := repair.Run(t.Context(), repair.Options{FS: fsys, Dir: dir, Out: "out"}); err == nil {
		t.Fatal("a repair into a directory that is not empty went through")
	}
}

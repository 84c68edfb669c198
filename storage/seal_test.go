package storage

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// sealTest is a logTest whose records go to parts, step by step, between everything else.
type sealTest struct {
	logTest
	o       Options
	round   *round
	parts   []*sealedPart
	written bool

	merge      *merged
	mergedPart *sealedPart
}

func noPace(int64) error { return nil }

func (x *sealTest) SealBegin(t *rapid.T) {
	if x.round != nil || x.merge != nil || x.freeze != nil {
		t.Skip("not now")
	}
	r := x.s.sealer.begin()
	if err := x.s.durable(); err != nil {
		t.Fatal(err)
	}
	x.round = &r
}

func (x *sealTest) SealWrite(t *rapid.T) {
	if x.round == nil || x.written {
		t.Skip("nothing to write")
	}
	var err error
	if x.parts, err = x.s.sealer.writeParts(x.round.jobs, noPace); err != nil {
		t.Fatal(err)
	}
	x.written = true
}

func (x *sealTest) SealCommit(t *rapid.T) {
	if !x.written {
		t.Skip("nothing is written")
	}
	if err := x.s.sealer.commit(x.round, x.parts); err != nil {
		t.Fatal(err)
	}
	x.round, x.parts, x.written = nil, nil, false
	if err := x.s.sealer.dropTail(); err != nil {
		t.Fatal(err)
	}
}

func (x *sealTest) Seal(t *rapid.T) {
	if x.round != nil || x.merge != nil || x.freeze != nil {
		t.Skip("not now")
	}
	if err := x.s.sealer.seal(noPace); err != nil {
		t.Fatal(err)
	}
}

// MergeBegin merges neighbours, whatever their size. The logs read them until MergeCommit.
func (x *sealTest) MergeBegin(t *rapid.T) {
	if x.merge != nil || x.round != nil {
		t.Skip("not now")
	}
	sl := x.s.sealer
	parts := slices.SortedFunc(maps.Values(sl.parts), func(a, b *sealedPart) int {
		return cmp.Or(cmp.Compare(ageOf(a.path), ageOf(b.path)), cmp.Compare(a.id, b.id))
	})
	if len(parts) == 0 {
		t.Skip("no parts")
	}
	from := rapid.IntRange(0, len(parts)-1).Draw(t, "from")
	group := parts[from:min(len(parts), from+rapid.IntRange(1, 3).Draw(t, "parts"))]
	if !sl.contiguous(group) {
		t.Fatal("parts are not in order of age")
	}
	var err error
	if x.merge, x.mergedPart, err = sl.writeMerged(group, noPace); err != nil {
		t.Fatal(err)
	}
}

func (x *sealTest) MergeCommit(t *rapid.T) {
	if x.merge == nil {
		t.Skip("nothing is merged")
	}
	if err := x.s.sealer.commitMerged(x.merge, x.mergedPart); err != nil {
		t.Fatal(err)
	}
	x.merge, x.mergedPart = nil, nil
}

func (x *sealTest) Tidy(t *rapid.T) {
	if x.round != nil || x.merge != nil {
		t.Skip("not now")
	}
	if err := x.s.sealer.tidy(noPace); err != nil {
		t.Fatal(err)
	}
}

// abandon ends a round that was begun, as an error would.
func (x *sealTest) abandon() {
	if x.mergedPart != nil {
		x.mergedPart.release()
	}
	x.merge, x.mergedPart = nil, nil
	if x.round != nil {
		x.s.sealer.undo(x.round)
		for _, p := range x.parts {
			p.release()
		}
		x.round, x.parts, x.written = nil, nil, false
	}
}

func (x *sealTest) Compress(t *rapid.T) { x.l.SetCompress(rapid.Bool().Draw(t, "compress")) }

func (x *sealTest) SealAbandon(t *rapid.T) {
	if x.round == nil && x.merge == nil {
		t.Skip("no round")
	}
	x.abandon()
}

func (x *sealTest) Reopen(t *rapid.T) {
	if x.freeze != nil || rapid.IntRange(0, 2).Draw(t, "rare") > 0 {
		t.Skip("not now")
	}
	x.abandon()
	if rapid.Bool().Draw(t, "crash") {
		disk, _ := x.o.FS.(*vfs.Mem)
		x.o.FS = disk.CrashClone(vfs.CrashOptions{Seed: rapid.Uint64().Draw(t, "seed"), Keep: 0.5})
	}
	if err := x.s.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if x.s, err = Open(t.Context(), x.o); err != nil {
		t.Fatal(err)
	}
	if x.l, err = x.s.OpenLog(x.l.ID(), LogSpec{Size: testSize, Route: testRoute}); err != nil {
		t.Fatal(err)
	}
	for _, c := range x.cursors {
		c.c = x.l.NewCursor(c.pos, c.filters)
	}
}

// TestModelSealed mixes what is in RAM and in parts at random.
func TestModelSealed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := &sealTest{o: Options{
			Dir: "d", FS: vfs.NewMem(), Shards: 2, SegmentSize: 4 << 10, WindowSize: 1 << 10,
			Seal: true, SealMaxAge: 1 << 60, SealRecords: 1 << 20, bulkLeast: 2,
		}}
		if rapid.Bool().Draw(t, "encrypted") {
			x.o.Encryption = secret("s")
		}
		s, err := Open(t.Context(), x.o)
		if err != nil {
			t.Fatal(err)
		}
		x.s = s
		defer func() { x.s.Close() }()
		first := rapid.SampledFrom([]uint64{0, 1, 1000}).Draw(t, "first")
		x.l, err = s.CreateLog(LogSpec{Shards: []ShardID{0, 1}, FirstSeq: first, Size: testSize, Route: testRoute})
		if err != nil {
			t.Fatal(err)
		}
		x.m.lastSeq = max(first, 1) - 1
		if err := s.durable(); err != nil {
			t.Fatal(err)
		}
		x.m.show()
		defer x.abandon()
		defer x.thaw()
		t.Repeat(map[string]func(*rapid.T){
			"": x.Check, "append": x.Append, "appendMany": x.AppendMany, "outOfOrder": x.OutOfOrder,
			"delete": x.Delete, "deleteRun": x.DeleteRun, "purge": x.Purge, "freeze": x.Freeze, "thaw": x.Thaw,
			"newCursor": x.NewCursor, "useCursor": x.UseCursor, "seekCursor": x.SeekCursor,
			"seal": x.Seal, "sealBegin": x.SealBegin, "sealWrite": x.SealWrite, "sealCommit": x.SealCommit,
			"sealAbandon": x.SealAbandon, "reopen": x.Reopen, "mergeBegin": x.MergeBegin, "mergeCommit": x.MergeCommit,
			"tidy": x.Tidy, "compress": x.Compress,
		})
	})
}

// sealedOptions are those of a store that seals only when it is told to.
func sealedOptions(disk vfs.FS) Options {
	return Options{
		Dir: "data", FS: disk, Shards: 3, SegmentSize: 2 << 10, WindowSize: 2 << 10,
		Seal: true, SealMaxAge: time.Hour, bulkLeast: 2,
	}
}

// script changes logs and state logs, seals and merges after each few changes, and returns what was there after each
// step. Each step is told to be durable before the next.
func sealScript(t *testing.T, s *Store, step func(n int)) (history []world, err error) {
	t.Helper()
	spread, err := s.CreateLog(LogSpec{Shards: []ShardID{1, 2}, Name: "spread", Size: testSize, Route: testRoute})
	if err != nil {
		return nil, err
	}
	one, err := s.CreateLog(LogSpec{Shards: []ShardID{0}, Name: "one", Size: testSize, Route: testRoute})
	if err != nil {
		return nil, err
	}
	state, err := s.CreateStateLog(2, "state", false)
	if err != nil {
		return nil, err
	}
	if err := s.durable(); err != nil {
		return nil, err
	}
	note := func() error {
		if err := s.durable(); err != nil {
			return err
		}
		now, err := readWorld(s)
		history = append(history, now)
		step(len(history) - 1)
		return err
	}
	if err := note(); err != nil {
		return history, err
	}
	for i := uint64(1); i <= 9; i++ {
		for _, do := range []func() error{
			func() error { return one.Append(rec(i, "k", 5), nil) },
			func() error { return spread.Append(rec(40*i, "key.x", 300), nil) },
			func() error { return spread.Append(rec(40*i+7, "key", 300), nil) },
			func() error { _, err := spread.Delete([]uint64{40 * (i - 1), 40 * i}, false, nil); return err },
			func() error { return state.Append([]byte{byte(i)}, nil) },
			func() error {
				if i%4 != 0 {
					return nil
				}
				_, err := one.Purge(nil, 0, i%2, nil)
				return err
			},
			func() error {
				if i != 7 {
					return nil
				}
				_, err := one.Purge(nil, 0, 0, nil)
				return err
			},
		} {
			if err := do(); err != nil {
				return history, err
			}
			if err := note(); err != nil {
				return history, err
			}
		}
		if err := s.sealer.seal(noPace); err != nil {
			return history, err
		}
		if err := s.sealer.tidy(noPace); err != nil {
			return history, err
		}
	}
	return history, nil
}

// TestSealCrashAtEveryOp loses power at each operation on the disk: what is there afterwards is what was after one of
// the steps, not before the last that was told to be durable, and the directory goes on from there.
func TestSealCrashAtEveryOp(t *testing.T) {
	type crash struct {
		disk  *vfs.Mem
		acked int
	}
	var (
		mu      sync.Mutex
		crashes []crash
		acked   = -1
	)
	disk := vfs.NewMem()
	fault := vfs.NewFault(disk, func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if !op.Kind.Changes() || acked < 0 {
			return nil
		}
		for seed, keep := range []float64{0, 0.5, 1} {
			crashes = append(crashes, crash{disk.CrashClone(vfs.CrashOptions{Seed: uint64(seed), Keep: keep}), acked})
		}
		return nil
	})
	s := open(t, sealedOptions(fault))
	history, err := sealScript(t, s, func(n int) { mu.Lock(); acked = n; mu.Unlock() })
	if err != nil {
		t.Fatal(err)
	}
	st := s.Stats()
	if st.Merges == 0 || st.Seals < 9 {
		t.Fatalf("%d seals, %d merges", st.Seals, st.Merges)
	}
	s.Close()
	t.Logf("%d crashes, %d seals, %d merges", len(crashes), st.Seals, st.Merges)
	for i, c := range crashes {
		for range 2 { // the second time from what the first has left
			after, err := Open(t.Context(), sealedOptions(c.disk))
			if err != nil {
				t.Fatalf("crash %d: %v", i, err)
			}
			got, err := readWorld(after)
			if err != nil {
				t.Fatal(err)
			}
			found := slices.IndexFunc(history, got.equal)
			if last := lastEqual(history, got); last < c.acked {
				t.Fatalf("crash %d, with %d steps told to be durable, left what is after %d (-1: none):%s", i, c.acked, found,
					got.differs(history[c.acked]))
			}
			if err := after.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func lastEqual(history []world, w world) int {
	for i, h := range slices.Backward(history) {
		if w.equal(h) {
			return i
		}
	}
	return -1
}

// TestSealFailAtEveryOp fails each operation on the disk: nothing that was told to be durable is missing, nothing else
// is there, and the directory opens again.
func TestSealFailAtEveryOp(t *testing.T) {
	broken := errors.New("injected")
	failed := 0
	for n := int64(0); ; n++ {
		disk := vfs.NewMem()
		hook := vfs.FailAt(n, broken)
		var hit atomic.Bool
		fault := vfs.NewFault(disk, func(op vfs.Op) error {
			err := hook(op)
			if err != nil {
				hit.Store(true)
			}
			return err
		})
		s, err := Open(t.Context(), sealedOptions(fault))
		if err != nil {
			failed++
			continue
		}
		acked := -1
		history, err := sealScript(t, s, func(n int) { acked = n })
		s.Close()
		if err != nil {
			failed++
		} else if !hit.Load() {
			break
		}
		again, err := Open(t.Context(), sealedOptions(disk.CrashClone(vfs.CrashOptions{})))
		if err != nil {
			t.Fatalf("operation %d failed, then: %v", n, err)
		}
		got, err := readWorld(again)
		again.Close()
		if err != nil {
			t.Fatal(err)
		}
		if len(history) > 0 && lastEqual(history, got) < acked && lastEqual(history, got) >= 0 {
			t.Fatalf("operation %d failed after %d steps: what is there is of step %d", n, acked, lastEqual(history, got))
		}
	}
	if failed < 20 {
		t.Fatalf("only %d operations failed anything", failed)
	}
}

// TestOldDirectory: a directory from before parts, with records that were moved, is sealed from then on.
func TestOldDirectory(t *testing.T) {
	disk := vfs.NewMem()
	o := Options{Dir: "d", FS: disk, Shards: 2, SegmentSize: 32 << 10, WindowSize: 8 << 10}
	s := open(t, o)
	l := create(t, s, 0, 1)
	churn(t, l, 3000)
	eventually(t, "records are moved", func() bool { return s.Stats().MovedRecords > 0 })
	if err := s.Catalog().Append([]byte("catalog"), nil); err != nil {
		t.Fatal(err)
	}
	s.Close()
	o.Seal, o.SealMaxAge = true, time.Hour
	for range 3 {
		s = open(t, o)
		again, err := s.OpenLog(l.ID(), LogSpec{})
		if err != nil {
			t.Fatal(err)
		}
		check(t, again)
		if got := loadState(s.Catalog()); len(got) != 1 || got[0].data != "catalog" {
			t.Fatalf("the catalog holds %v", got)
		}
		s.Close()
		if n := s.Stats().Parts; n == 0 {
			t.Fatal("closing did not seal")
		}
		o.Seal = false // it has parts: it is sealed in any case
	}
	if n := s.Stats().RecoverRecords; n != 0 {
		t.Fatalf("%d records were read again after a seal", n)
	}
	if err := disk.Remove("d/manifest/" + manifestNames(t, disk)[0]); err != nil {
		t.Fatal(err)
	}
	for _, o.Seal = range []bool{false, true} {
		if _, err := Open(t.Context(), o); !errors.Is(err, errNoManifest) {
			t.Fatalf("open without the manifest: %v", err)
		}
	}
}

func manifestNames(t *testing.T, disk *vfs.Mem) []string {
	t.Helper()
	names, err := disk.List("d/manifest")
	if err != nil || len(names) != 1 {
		t.Fatalf("manifests: %v, %v", names, err)
	}
	return names
}

// TestDamagedPart: a part that is damaged stops its log, and no other.
func TestDamagedPart(t *testing.T) {
	disk := vfs.NewMem()
	o := sealedOptions(disk)
	s := open(t, o)
	bad, good := create(t, s, 0), create(t, s, 1)
	for seq := uint64(1); seq <= 20; seq++ {
		for _, l := range []*Log{bad, good} {
			if err := l.Append(rec(seq, "k", 100), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	wait(t, good)
	s.Close()
	names, err := disk.List("data/parts")
	if err != nil || len(names) != 2 {
		t.Fatalf("parts: %v, %v", names, err)
	}
	f, err := disk.Open("data/parts/" + names[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1000); err != nil {
		t.Fatal(err)
	}
	var told []error
	o.Events.Damaged = func(err error) { told = append(told, err) }
	s = open(t, o)
	if bad, err = s.OpenLog(bad.ID(), LogSpec{}); err != nil {
		t.Fatal(err)
	}
	if good, err = s.OpenLog(good.ID(), LogSpec{}); err != nil {
		t.Fatal(err)
	}
	var corrupt *vfs.CorruptError
	if err := bad.Append(rec(21, "k", 1), nil); !errors.As(err, &corrupt) {
		t.Fatalf("append to a log with a damaged part: %v", err)
	}
	if _, err := bad.Get(5); !errors.As(err, &corrupt) {
		t.Fatalf("get: %v", err)
	}
	if len(told) != 1 {
		t.Fatalf("told of %v", told)
	}
	if r, err := good.Get(5); err != nil || len(r.Data) != 100 {
		t.Fatalf("another log: %v", err)
	}
	if err := good.Append(rec(21, "k", 1), nil); err != nil {
		t.Fatal(err)
	}
	wait(t, good)
}

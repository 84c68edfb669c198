package storage

import (
	"cmp"
	"maps"
	"slices"
	"testing"

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
			Seal: true, SealMaxAge: 1 << 60, SealRecords: 1 << 20,
		}}
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
			"tidy": x.Tidy,
		})
	})
}

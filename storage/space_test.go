package storage

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// eventually waits for something the sweeper does.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

// churn appends n records and deletes all but every hundredth, always the oldest first.
func churn(t *testing.T, l *Log, n uint64) {
	t.Helper()
	from := l.State().LastSeq + 1
	for seq := from; seq < from+n; seq++ {
		if err := l.Append(rec(seq, fmt.Sprint("key.", seq%10), 200), nil); err != nil {
			t.Fatal(err)
		}
		if old := seq - 50; seq >= from+50 && old%100 != 0 {
			if _, err := l.Delete([]uint64{old}, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		if seq%100 == 0 {
			wait(t, l)
		}
	}
	wait(t, l)
}

// check demands that what churn left is there, whole.
func check(t *testing.T, l *Log) {
	t.Helper()
	st := l.State()
	n := uint64(0)
	for c := l.NewCursor(0, nil); ; n++ {
		r, err := c.Next()
		if errors.Is(err, ErrEOF) {
			break
		}
		if err != nil || string(r.Key) != fmt.Sprint("key.", r.Seq%10) || len(r.Data) != 200 || r.Time != int64(r.Seq) {
			t.Fatalf("record %d: %q, %d bytes, %v", r.Seq, r.Key, len(r.Data), err)
		}
	}
	if n != st.Messages || n < st.LastSeq/100 {
		t.Fatalf("%d records are there of %+v", n, st)
	}
}

func TestSweepSegments(t *testing.T) {
	disk := vfs.NewMem()
	o := Options{Dir: "d", FS: disk, Shards: 3, SegmentSize: 32 << 10, WindowSize: 8 << 10}
	s := open(t, o)
	l := create(t, s, 0, 1)
	idle, err := s.CreateStateLog(1, "idle", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []string{"one", "two"} {
		if err := idle.Append([]byte(b), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Catalog().Checkpoint([]byte("catalog"), nil); err != nil {
		t.Fatal(err)
	}
	quiet := create(t, s, 1)
	if err := quiet.Append(&Record{Seq: 5, Time: 77, Key: []byte("k")}, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := quiet.Purge(nil, 1000, 0, nil); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	gone := create(t, s, 2) // all that its shard ever has
	if err := s.DropLog(gone.ID(), nil); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		churn(t, l, 3000)
		// about 200 live records of 240 bytes at most: 2 segments, and as many dead, and a few
		eventually(t, "the directory shrinks", func() bool {
			return s.Stats().DiskBytes <= 2*int64(l.State().Messages)*240+8*o.SegmentSize
		})
		check(t, l)
		st := s.Stats()
		if st.MovedRecords == 0 || st.DroppedSegments == 0 {
			t.Fatalf("nothing was swept: %+v", st)
		}
		s.Close()
		o.FS = disk.CrashClone(vfs.CrashOptions{})
		disk, _ = o.FS.(*vfs.Mem)
		s = open(t, o)
		for i, sh := range s.Stats().Shards {
			if sh.Head < st.Shards[i].Committed {
				t.Fatalf("shard %d went back from %d to %d", i, st.Shards[i].Committed, sh.Head)
			}
		}
		if l, err = s.OpenLog(l.ID(), LogSpec{}); err != nil {
			t.Fatal(err)
		}
		check(t, l)
		if quiet, err = s.OpenLog(quiet.ID(), LogSpec{}); err != nil {
			t.Fatal(err)
		}
		if st := quiet.State(); st.LastSeq != 999 || st.FirstSeq != 1000 || st.LastTime != 77 || quiet.Visible() != 999 {
			t.Fatalf("the empty log is at %+v", st)
		}
		if idle, err = s.OpenStateLog(idle.ID()); err != nil {
			t.Fatal(err)
		}
		if got := loadState(idle); len(got) != 2 || got[0].data != "one" || got[1].data != "two" {
			t.Fatalf("the idle state log holds %v", got)
		}
		if got := loadState(s.Catalog()); len(got) != 1 || got[0].data != "catalog" || !got[0].checkpoint {
			t.Fatalf("the catalog holds %v", got)
		}
		if l := create(t, s); l.ID() <= gone.ID() {
			t.Fatalf("log id %d is used again", l.ID())
		} else if err := s.DropLog(l.ID(), nil); err != nil {
			t.Fatal(err)
		} else {
			gone = l
		}
	}
}

// TestMoveLeavesWhatIsDeleted: a record whose deletion is queued must not be written again behind it, or replay would
// bring it back.
func TestMoveLeavesWhatIsDeleted(t *testing.T) {
	s := open(t, Options{Dir: "d", FS: vfs.NewMem(), Shards: 1})
	l := create(t, s)
	for seq := uint64(1); seq <= 2; seq++ {
		if err := l.Append(rec(seq, "k", 10), nil); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, l)
	hold, held := make(chan struct{}), make(chan struct{})
	defer close(hold)
	if err := l.settle(func(error) { close(held); <-hold }); err != nil {
		t.Fatal(err)
	}
	<-held
	if n, err := l.Delete([]uint64{1}, false, nil); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for seq, want := range []bool{1: false, 2: true} {
		if seq == 0 {
			continue
		}
		r, err := l.Get(uint64(seq)) // the deletion of 1 is not durable: it is still shown
		if err != nil {
			t.Fatal(err)
		}
		ord, _ := l.vis.tail.find(r.Seq)
		e := *l.vis.tail.at(ord)
		n, err := l.move(&decoded{log: l.ID(), rec: r, off: int(e.off)}, e.sec, 0)
		if err != nil || n > 0 != want {
			t.Fatalf("record %d: %d bytes moved, %v", seq, n, err)
		}
	}
}

func TestSweepSlabs(t *testing.T) {
	s := open(t, Options{Shards: 2})
	l := create(t, s, 0)
	churn(t, l, 100_000)
	live := int64(l.State().Messages) * 240
	eventually(t, "memory is given back", func() bool {
		return s.w.space.slabs.Load() <= 2*live+(spareSlabs+4)*slabSize
	})
	if got := s.w.space.slabs.Load(); got > 8<<20 {
		t.Fatalf("%d bytes are kept for %d live ones", got, live)
	}
	check(t, l)
	if s.Stats().MovedRecords == 0 {
		t.Fatal("nothing was moved")
	}
	if n, err := l.Purge(nil, 0, 0, nil); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	wait(t, l)
	if got := s.w.space.slabs.Load(); got > 2*slabSize {
		t.Fatalf("%d bytes are kept for nothing", got)
	}
	if got := s.w.space.live.Load(); got != 0 {
		t.Fatalf("%d bytes live in an empty store", got)
	}
}

package storage

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/storage/tail"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// fullDisk is a store whose disk was filled by two logs: of every hundred records, pct are of the first.
type fullDisk struct {
	disk    *vfs.Mem
	o       Options
	s       *Store
	a, b    *Log
	na, nb  uint64
	resumed chan struct{}
}

func fillDisk(t *testing.T, seal bool, segments, pct int) *fullDisk {
	t.Helper()
	f := &fullDisk{disk: vfs.NewMem(), resumed: make(chan struct{}, 100)}
	f.o = Options{
		Dir: "d", FS: f.disk, Shards: 2, SegmentSize: 64 << 10, WindowSize: 64 << 10,
		Seal: seal, SealMaxAge: time.Hour,
		Events: Events{Resumed: func() { f.resumed <- struct{}{} }},
	}
	f.s = open(t, f.o)
	f.a, f.b = create(t, f.s), create(t, f.s, 1)
	idle, err := f.s.CreateStateLog(0, "idle", false)
	if err == nil {
		err = idle.Append([]byte("kept"), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.disk.SetCapacity(int64(segments)*f.o.SegmentSize + 20<<10)
	for i := 0; ; i++ {
		l, n := f.a, &f.na
		if i*37%100 >= pct {
			l, n = f.b, &f.nb
		}
		err := l.Append(rec(*n+1, "k", 700), nil)
		if err != nil {
			if !errors.Is(err, ErrStopped) || !errors.Is(err, tail.ErrNoSpace) || err.Error() != textNoRoom {
				t.Fatal(err)
			}
			break
		}
		*n++
		if i%8 == 0 {
			wait(t, l)
		}
	}
	wait(t, f.a)
	wait(t, f.b)
	return f
}

// kept demands that all of the second log is there.
func (f *fullDisk) kept(t *testing.T, s *Store) {
	t.Helper()
	l, err := s.OpenLog(f.b.ID(), LogSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if st := l.State(); st.Messages < f.nb || st.FirstSeq != 1 && f.nb > 0 {
		t.Fatalf("%d records were kept: %+v", f.nb, st)
	}
	for seq := uint64(1); seq <= f.nb; seq++ {
		if r, err := l.Get(seq); err != nil || len(r.Data) != 700 {
			t.Fatalf("record %d: %v", seq, err)
		}
	}
}

// awaitRoom waits until a message is taken.
func (f *fullDisk) awaitRoom(t *testing.T, s *Store, l *Log) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		err := l.Append(rec(l.State().LastSeq+1, "k", 700), nil)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("never resumed: %v; %d segments, room %d", err, len(s.w.space.starts()), s.w.tail.(roomy).Room())
		}
	}
	wait(t, l)
}

// TestPurgeOfFullDisk: whatever part of a full disk is purged, few segments or many, messages are taken again, and
// again after it was filled once more.
func TestPurgeOfFullDisk(t *testing.T) { bothKinds(t, testPurgeOfFullDisk) }

// bothKinds runs a test with a store that moves records and with one that seals them.
func bothKinds(t *testing.T, test func(t *testing.T, seal bool)) {
	t.Helper()
	for _, seal := range []bool{false, true} {
		t.Run(fmt.Sprintf("seal=%v", seal), func(t *testing.T) { test(t, seal) })
	}
}

func testPurgeOfFullDisk(t *testing.T, seal bool) {
	t.Helper()
	for _, segments := range []int{3, 4, 5, 12} {
		for _, pct := range []int{50, 80, 95, 100} {
			t.Run(fmt.Sprintf("%d segments, %d percent", segments, pct), func(t *testing.T) {
				f := fillDisk(t, seal, segments, pct)
				if n, err := f.a.Purge(nil, 0, 0, nil); n != f.na || err != nil {
					t.Fatalf("purged %d of %d, %v", n, f.na, err)
				}
				f.awaitRoom(t, f.s, f.a)
				f.kept(t, f.s)
				if pct == 100 {
					eventually(t, "only one segment is left", func() bool { return len(f.s.w.space.starts()) == 1 })
				}
			})
		}
	}
}

// TestPurgeOfFullDiskThenOpen: the same, but with the power lost at any time after the purge, and what had been
// acknowledged is there in each case.
func TestPurgeOfFullDiskThenOpen(t *testing.T) { bothKinds(t, testPurgeOfFullDiskThenOpen) }

func testPurgeOfFullDiskThenOpen(t *testing.T, seal bool) {
	t.Helper()
	for _, pct := range []int{50, 80, 100} {
		t.Run(fmt.Sprint(pct), func(t *testing.T) {
			f := fillDisk(t, seal, 5, pct)
			if n, err := f.a.Purge(nil, 0, 0, nil); n != f.na || err != nil {
				t.Fatalf("purged %d of %d, %v", n, f.na, err)
			}
			wait(t, f.a)
			var worlds []*vfs.Mem
			for len(worlds) < 12 && f.s.Err() != nil {
				worlds = append(worlds, f.disk.CrashClone(vfs.CrashOptions{}))
				time.Sleep(200 * time.Microsecond)
			}
			f.awaitRoom(t, f.s, f.a)
			worlds = append(worlds, f.disk.CrashClone(vfs.CrashOptions{}))
			for _, disk := range worlds {
				disk.SetCapacity(5*f.o.SegmentSize + 20<<10)
				o := f.o
				o.FS = disk
				s := open(t, o)
				f.kept(t, s)
				l, err := s.OpenLog(f.a.ID(), LogSpec{})
				if err != nil {
					t.Fatal(err)
				}
				f.awaitRoom(t, s, l)
				f.kept(t, s)
				s.Close()
			}
		})
	}
}

// TestAcksLeaveRoomForDeletions: state changes cannot use up what deletions need on a full disk; they wait.
func TestAcksLeaveRoomForDeletions(t *testing.T) { bothKinds(t, testAcksLeaveRoomForDeletions) }

func testAcksLeaveRoomForDeletions(t *testing.T, seal bool) {
	t.Helper()
	f := fillDisk(t, seal, 5, 80)
	acks, err := f.s.OpenStateLog(f.b.ID() + 1)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		if err := acks.Checkpoint(make([]byte, 500), nil); err != nil {
			if !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
			break
		}
		wait(t, f.a)
		if n > 1000 {
			t.Fatal("acks have no end")
		}
	}
	if n, err := f.a.Purge(nil, 0, 0, nil); n != f.na || err != nil {
		t.Fatalf("purged %d of %d, %v", n, f.na, err)
	}
	wait(t, f.a)
	if err := f.s.DropLog(f.b.ID(), nil); err != nil {
		t.Fatal(err)
	}
	f.awaitRoom(t, f.s, f.a)
	if err := acks.Append(nil, nil); err != nil {
		t.Fatal(err)
	}
}

// TestFloodOfFullDisk: what was queued when the disk turned out to be full may use up what is kept. Then a new start,
// which forgets what was not acknowledged, makes room for deletions.
func TestFloodOfFullDisk(t *testing.T) { bothKinds(t, testFloodOfFullDisk) }

func testFloodOfFullDisk(t *testing.T, seal bool) {
	t.Helper()
	f := fillDisk(t, seal, 5, 80)
	f.s.w.mu.Lock()
	f.s.w.noRoom = nil // as if it had not been noticed yet
	f.s.w.mu.Unlock()
	for f.a.Append(rec(f.a.State().LastSeq+1, "k", 700), nil) == nil {
		time.Sleep(10 * time.Microsecond)
	}
	f.s.Close()
	s := open(t, f.o)
	a, err := s.OpenLog(f.a.ID(), LogSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := a.Purge(nil, 0, 0, nil); n < f.na || err != nil {
		t.Fatalf("purged %d, %v", n, err)
	}
	f.awaitRoom(t, s, a)
	f.kept(t, s)
}

// TestDeletedBehindWhatStays: whole segments that must stay cannot be moved out of the way of those that are dead. The
// refusal says so, and purging what is older, or more room, helps.
func TestDeletedBehindWhatStays(t *testing.T) { bothKinds(t, testDeletedBehindWhatStays) }

//nolint:revive // seal is a kind of store
func testDeletedBehindWhatStays(t *testing.T, seal bool) {
	t.Helper()
	f := fillDisk(t, seal, 12, 100)
	var seqs []uint64
	for seq := f.na * 6 / 10; seq <= f.na; seq++ {
		seqs = append(seqs, seq)
	}
	if n, err := f.a.Delete(seqs, false, nil); n != len(seqs) || err != nil {
		t.Fatal(n, err)
	}
	wait(t, f.a)
	if seal { // what stays is in parts, which are written again one by one
		f.awaitRoom(t, f.s, f.a)
		return
	}
	want := fmt.Sprintf(textStuck, 1)
	eventually(t, "the refusal says what to do", func() bool {
		err := f.a.Append(rec(f.na+1, "k", 700), nil)
		return err != nil && err.Error() == want
	})
	f.disk.SetCapacity(13*f.o.SegmentSize + 20<<10)
	f.awaitRoom(t, f.s, f.a)
	eventually(t, "what is dead is given back", func() bool { return len(f.s.w.space.starts()) < 10 })
}

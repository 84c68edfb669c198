package storage

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/storage/tail"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

func TestSyncErrorStops(t *testing.T) {
	broken := errors.New("disk is broken")
	disk := vfs.NewMem()
	fault := vfs.NewFault(disk, nil)
	var stops atomic.Int32
	s := open(t, Options{Dir: "d", FS: fault, Shards: 2, Events: Events{Stopped: func(error) { stops.Add(1) }}})
	l, other := create(t, s, 0, 1), create(t, s, 1)
	var a answers
	for seq := uint64(1); seq <= 10; seq++ {
		if err := l.Append(rec(seq, "k", 10), a.done(seq)); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, l)
	var mu sync.Mutex
	told := map[*Log][]error{}
	for _, l := range []*Log{l, other} {
		l.OnVisible(func(visible uint64, err error) {
			mu.Lock()
			defer mu.Unlock()
			told[l] = append(told[l], err)
			if l.Visible() != visible {
				t.Errorf("told that %d is visible, it is %d", visible, l.Visible())
			}
		})
	}
	fault.SetHook(vfs.FailKind(broken, vfs.OpSync))
	seq := uint64(11)
	for ; seq < 5000; seq++ {
		if err := l.Append(rec(seq, "k", 10), a.done(seq)); err != nil {
			if !errors.Is(err, ErrStopped) || !errors.Is(err, broken) {
				t.Fatalf("append after the failure: %v", err)
			}
			break
		}
		if seq > 20 {
			time.Sleep(time.Millisecond)
		}
	}
	if err := s.Err(); !errors.Is(err, ErrStopped) || !errors.Is(err, broken) {
		t.Fatalf("health: %v", err)
	}
	if _, err := l.Delete([]uint64{1}, false, nil); !errors.Is(err, ErrStopped) {
		t.Fatalf("delete after the failure: %v", err)
	}
	if err := s.Catalog().Append([]byte("x"), nil); !errors.Is(err, ErrStopped) {
		t.Fatalf("state change after the failure: %v", err)
	}
	s.Close()
	for i := uint64(1); i < seq; i++ {
		if len(a.got[i]) != 1 {
			t.Fatalf("done of %d was called %d times", i, len(a.got[i]))
		}
		if err := a.got[i][0]; i <= 10 && err != nil || i > 10 && !errors.Is(err, broken) {
			t.Fatalf("done of %d was told %v", i, err)
		}
	}
	if v := l.Visible(); v != 10 {
		t.Fatalf("visible is %d", v)
	}
	for _, l := range []*Log{l, other} {
		if got := told[l]; len(got) != 1 || !errors.Is(got[0], broken) {
			t.Fatalf("OnVisible was told %v", got)
		}
	}
	if stops.Load() != 1 {
		t.Fatalf("Stopped was called %d times", stops.Load())
	}
	s = open(t, Options{Dir: "d", FS: disk})
	again, err := s.OpenLog(l.ID(), LogSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if v := again.Visible(); v < 10 || v >= seq {
		t.Fatalf("after opening again %d is visible", v)
	}
}

// TestFailAtEveryOp fails each file operation in turn: what was acknowledged is there afterwards, each done is called
// once, and nothing is acknowledged after the failure.
func TestFailAtEveryOp(t *testing.T) {
	broken := errors.New("injected")
	failed := 0
	for n := int64(0); ; n++ {
		disk := vfs.NewMem()
		fault := vfs.NewFault(disk, vfs.FailAt(n, broken))
		o := Options{Dir: "d", FS: fault, Shards: 1, SegmentSize: 4 << 10}
		s, err := Open(t.Context(), o)
		if err != nil {
			if !errors.Is(err, broken) {
				t.Fatalf("open with operation %d failing: %v", n, err)
			}
			failed++
			continue
		}
		l := create(t, s)
		var a answers
		seq, acked := uint64(1), uint64(0)
		for ; seq <= 40; seq++ {
			if l.Append(rec(seq, "k", 300), a.done(seq)) != nil {
				break
			}
			l.Sync(func(error) {})
			if seq%4 == 0 {
				time.Sleep(100 * time.Microsecond)
			}
		}
		s.Close()
		for i := uint64(1); i < seq; i++ {
			if len(a.got[i]) != 1 {
				t.Fatalf("operation %d failing: done of %d was called %d times", n, i, len(a.got[i]))
			}
			if a.got[i][0] == nil {
				if acked != i-1 {
					t.Fatalf("operation %d failing: %d is acknowledged, %d is not", n, i, acked+1)
				}
				acked = i
			}
		}
		if s.Err() != nil && !errors.Is(s.Err(), errClosed) {
			failed++
		}
		o.FS = disk.CrashClone(vfs.CrashOptions{})
		s = open(t, o)
		l, err = s.OpenLog(l.ID(), LogSpec{})
		if acked == 0 && errors.Is(err, ErrNoLog) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if v := l.Visible(); v < acked || v >= seq {
			t.Fatalf("operation %d failing: %d were acknowledged, %d are there of %d", n, acked, v, seq-1)
		}
		s.Close()
		if fault.Ops() <= n {
			break
		}
	}
	if failed < 20 {
		t.Fatalf("only %d failures were felt", failed)
	}
}

func TestNoSpace(t *testing.T) {
	disk := vfs.NewMem()
	full, resumed := make(chan error, 8), make(chan struct{}, 8)
	o := Options{
		Dir: "d", FS: disk, Shards: 1, SegmentSize: 4 << 10,
		Events: Events{NoSpace: func(err error) { full <- err }, Resumed: func() { resumed <- struct{}{} }},
	}
	s := open(t, o)
	l := create(t, s)
	disk.SetCapacity(20 << 10)
	var a answers
	seq := uint64(1)
	for ; ; seq++ {
		if err := l.Append(rec(seq, "k", 200), a.done(seq)); err != nil {
			if !errors.Is(err, ErrStopped) || !errors.Is(err, tail.ErrNoSpace) {
				t.Fatalf("append without room: %v", err)
			}
			break
		}
		if seq%8 == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
	if err := <-full; !errors.Is(err, tail.ErrNoSpace) {
		t.Fatalf("event: %v", err)
	}
	if err := s.Err(); !errors.Is(err, tail.ErrNoSpace) {
		t.Fatalf("health: %v", err)
	}
	disk.SetCapacity(0)
	<-resumed
	wait(t, l)
	if err := s.Err(); err != nil {
		t.Fatalf("health once there is room: %v", err)
	}
	for i := uint64(1); i < seq; i++ {
		if got := a.got[i]; len(got) != 1 || got[0] != nil {
			t.Fatalf("done of %d was told %v", i, got)
		}
	}
	if err := l.Append(rec(seq, "k", 200), nil); err != nil {
		t.Fatal(err)
	}
	wait(t, l)
}

// TestPurgeWithoutSpace: what removes records has room when messages have none, and makes room for them.
func TestPurgeWithoutSpace(t *testing.T) {
	disk := vfs.NewMem()
	full, resumed := make(chan error, 8), make(chan struct{}, 8)
	o := Options{
		Dir: "d", FS: disk, Shards: 1, SegmentSize: 8 << 10,
		Events: Events{NoSpace: func(err error) { full <- err }, Resumed: func() { resumed <- struct{}{} }},
	}
	s := open(t, o)
	l, keep := create(t, s), create(t, s)
	if err := keep.Append(rec(1, "keep", 100), nil); err != nil {
		t.Fatal(err)
	}
	disk.SetCapacity(60 << 10)
	last := uint64(0)
	for l.Append(rec(last+1, "k", 200), nil) == nil {
		last++
		wait(t, l)
	}
	if err := <-full; !errors.Is(err, tail.ErrNoSpace) {
		t.Fatalf("event: %v", err)
	}
	if err := l.Append(rec(last+1, "k", 200), nil); !errors.Is(err, tail.ErrNoSpace) {
		t.Fatalf("append without room: %v", err)
	}
	if err := s.Catalog().Append([]byte("an ack"), nil); err != nil {
		t.Fatalf("state change without room for messages: %v", err)
	}
	if n, err := l.Purge(nil, 0, 0, nil); n != last || err != nil {
		t.Fatalf("purge without room for messages: %d of %d, %v", n, last, err)
	}
	wait(t, l)
	<-resumed
	if err := l.Append(rec(last+1, "k", 200), nil); err != nil {
		t.Fatal(err)
	}
	wait(t, l)
	if r, err := keep.Get(1); err != nil || string(r.Key) != "keep" {
		t.Fatalf("the record that was in the way: %v, %v", r, err)
	}
}

func TestCloseWithoutSpace(t *testing.T) {
	disk := vfs.NewMem()
	full := make(chan error, 8)
	s := open(t, Options{
		Dir: "d", FS: disk, Shards: 1, SegmentSize: 4 << 10, Events: Events{NoSpace: func(err error) { full <- err }},
	})
	l := create(t, s)
	disk.SetCapacity(20 << 10)
	var a answers
	seq := uint64(1)
	for l.Append(rec(seq, "k", 200), a.done(seq)) == nil {
		if seq++; seq%8 == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
	<-full
	for s.Catalog().Append(make([]byte, 500), a.done(seq)) == nil { // what is kept for state changes is full in the end too
		if seq++; seq%8 == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
	if err := s.Catalog().Append(nil, nil); !errors.Is(err, ErrStopped) || !errors.Is(err, tail.ErrNoSpace) {
		t.Fatalf("state change without room: %v", err)
	}
	s.Close()
	bad := 0
	for i := uint64(1); i < seq; i++ {
		if len(a.got[i]) != 1 {
			t.Fatalf("done of %d was called %d times", i, len(a.got[i]))
		}
		if errors.Is(a.got[i][0], tail.ErrNoSpace) {
			bad++
		} else if a.got[i][0] != nil || bad > 0 {
			t.Fatalf("done of %d was told %v", i, a.got[i][0])
		}
	}
	if bad == 0 {
		t.Fatal("nothing was reported failed")
	}
}

// TestIdleFailureIsTold: a failure that no append meets, of the sweeper say, is told all the same.
func TestIdleFailureIsTold(t *testing.T) {
	broken := errors.New("disk is broken")
	disk := vfs.NewMem()
	fault := vfs.NewFault(disk, nil)
	o := Options{Dir: "d", FS: fault, Shards: 1, SegmentSize: 8 << 10}
	events := make(chan error, 8)
	o.Events.Stopped = func(err error) { events <- err }
	s := open(t, o)
	l := create(t, s)
	told := make(chan error, 8)
	for seq := uint64(1); seq <= 600; seq++ {
		if err := l.Append(rec(seq, "k", 300), nil); err != nil {
			t.Fatal(err)
		}
		wait(t, l)
	}
	fault.SetHook(vfs.FailKind(broken, vfs.OpRename, vfs.OpRemove)) // what dropping a segment does
	l.OnVisible(func(_ uint64, err error) {
		if err != nil {
			told <- err
		}
	})
	if n, err := l.Purge(nil, 0, 0, nil); n != 600 || err != nil {
		t.Fatal(n, err)
	}
	for name, ch := range map[string]chan error{"event": events, "OnVisible": told} {
		select {
		case err := <-ch:
			if !errors.Is(err, ErrStopped) || !errors.Is(err, broken) {
				t.Fatalf("%s: %v", name, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: not told", name)
		}
	}
	if err := s.Err(); !errors.Is(err, broken) {
		t.Fatalf("health: %v", err)
	}
}

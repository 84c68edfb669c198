package storage

import (
	"errors"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestSequencesUsedUp: the last record can be read on from, and none comes after it, before and after a restart.
func TestSequencesUsedUp(t *testing.T) {
	disk := vfs.NewMem()
	s := open(t, Options{Dir: "d", FS: disk})
	l := create(t, s)
	if _, err := l.Purge(nil, MaxSeq, 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(rec(MaxSeq, "k", 1), nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wait(t, l)
		if err := l.Append(rec(MaxSeq+1, "k", 1), nil); !errors.Is(err, ErrUsedUp) {
			t.Fatalf("append after the last sequence: %v", err)
		}
		if r, err := l.Next(0, nil); err != nil || r.Seq != MaxSeq {
			t.Fatalf("the first record: %d, %v", r.Seq, err)
		}
		if r, err := l.Next(MaxSeq+1, nil); !errors.Is(err, ErrEOF) {
			t.Fatalf("after the last record: %d, %v", r.Seq, err)
		}
		s.Close()
		s = open(t, Options{Dir: "d", FS: disk})
		var err error
		if l, err = s.OpenLog(l.ID(), LogSpec{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPurgeBeyondTheEnd: a purge moves the sequence on, and a restart does not move it back.
func TestPurgeBeyondTheEnd(t *testing.T) {
	disk := vfs.NewMem()
	s := open(t, Options{Dir: "d", FS: disk})
	l := create(t, s)
	for seq := uint64(1); seq <= 3; seq++ {
		if err := l.Append(rec(seq, "k", 1), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := l.Purge(nil, 100, 0, nil); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for range 2 {
		wait(t, l)
		want := State{FirstSeq: 100, LastSeq: 99, LastTime: 3}
		if st := l.State(); st != want || l.Visible() != 99 {
			t.Fatalf("state is %+v, visible %d", st, l.Visible())
		}
		if err := l.Append(rec(99, "k", 1), nil); !errors.Is(err, ErrOutOfOrder) {
			t.Fatalf("append below the head: %v", err)
		}
		s.Close()
		s = open(t, Options{Dir: "d", FS: disk})
		var err error
		if l, err = s.OpenLog(l.ID(), LogSpec{}); err != nil {
			t.Fatal(err)
		}
	}
}

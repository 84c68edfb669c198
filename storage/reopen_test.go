package storage

import (
	"errors"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

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

package tail

import (
	"fmt"
	"testing"
)

// TestReopenOnDisk writes, closes and reopens a log on the real disk, and reads it both ways.
func TestReopenOnDisk(t *testing.T) {
	dir := t.TempDir() + "/a/wal"
	var at []Pos
	for round := range 3 {
		l, err := Open(Options{Dir: dir, SegmentSize: 16 << 10})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		err = l.Replay(func(lsn LSN, p Pos, body []byte) error {
			if string(body) != fmt.Sprintf("hello %d", lsn) || at[lsn] != p {
				t.Fatalf("block %d at %v: %q", lsn, p, body)
			}
			n++
			return nil
		})
		if err != nil || n != round*500 {
			t.Fatal(n, err)
		}
		for i := range 500 {
			_, p, err := l.Append([]byte("hello "), fmt.Append(nil, n+i))
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, p)
			if i%10 == 0 {
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, p := range at {
			want := fmt.Sprintf("hello %d", i)
			b := make([]byte, len(want))
			if err := l.ReadAt(b, p); err != nil || string(b) != want {
				t.Fatalf("block %d: %q, %v", i, b, err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

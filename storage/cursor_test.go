package storage

import (
	"errors"
	"testing"
)

// TestCursorAheadOfWhatDies: a cursor that waits in the middle of records which are not visible yet counts none of them
// when they become visible and are gone at once, whole chunks of the index among them.
func TestCursorAheadOfWhatDies(t *testing.T) {
	s := open(t, Options{Shards: 1})
	l := create(t, s)
	var seqs []uint64
	for seq := uint64(1); seq <= 600; seq++ {
		if err := l.Append(rec(seq, "k", 1), nil); err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, seq)
	}
	wait(t, l)
	hold, held := make(chan struct{}), make(chan struct{})
	if err := l.settle(func(error) { close(held); <-hold }); err != nil {
		t.Fatal(err)
	}
	<-held
	for seq := uint64(610); seq < 1000; seq++ { // a gap: ordinals are not sequences
		if err := l.Append(rec(seq, "k", 1), nil); err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, seq)
	}
	all, some := l.NewCursor(640, nil), l.NewCursor(640, []Filter{testFilter{prefix: "k"}})
	for _, c := range []*Cursor{all, some} {
		if n := c.Pending(); n != 0 {
			t.Fatalf("%d pending of what is not visible", n)
		}
	}
	if n, err := l.Delete(seqs[1:len(seqs)-1], false, nil); n != len(seqs)-2 || err != nil {
		t.Fatal(n, err)
	}
	close(hold)
	wait(t, l)
	for _, c := range []*Cursor{all, some} {
		if n := c.Pending(); n != 1 {
			t.Fatalf("%d pending, want 1", n)
		}
		if r, err := c.Next(); err != nil || r.Seq != 999 {
			t.Fatalf("next is %d, %v", r.Seq, err)
		}
		if _, err := c.Next(); !errors.Is(err, ErrEOF) || c.Pending() != 0 {
			t.Fatalf("at the end: %v, %d pending", err, c.Pending())
		}
	}
}

package storage

import (
	"slices"
	"testing"
)

// TestSubset: a subset knows what is left of it after single deletes, after more of them than are remembered, and after
// a purge of everything, which makes a new index.
func TestSubset(t *testing.T) {
	const n = maxRemovals + 2000
	s := open(t, Options{Shards: 1})
	l := create(t, s)
	var picked []uint64
	for seq := uint64(1); seq <= n; seq++ {
		if err := l.Append(rec(seq, "k", 1), nil); err != nil {
			t.Fatal(err)
		}
		if seq%3 == 0 {
			picked = append(picked, seq)
		}
	}
	wait(t, l)
	sub := l.NewSubset(picked)
	check := func(what string, want []uint64) {
		t.Helper()
		if got := sub.Seqs(); !slices.Equal(got, want) || sub.Len() != len(want) {
			t.Fatalf("%s: %d records are left, counted as %d; want %d", what, len(got), sub.Len(), len(want))
		}
		first, ok := sub.First()
		if ok != (len(want) > 0) || ok && (first != want[0] || sub.LenAfter(first) != len(want)-1) {
			t.Fatalf("%s: the first is %d (%v)", what, first, ok)
		}
	}
	del := func(seqs ...uint64) {
		t.Helper()
		if _, err := l.Delete(seqs, false, nil); err != nil {
			t.Fatal(err)
		}
		wait(t, l)
	}
	check("new", picked)
	del(3, 4, 9, n-n%3)
	want := slices.Concat([]uint64{6}, picked[3:len(picked)-1])
	check("four deleted", want)
	sub.Pass(12)
	check("up to 12 passed", want[2:])
	if got := sub.LenAfter(14); got != len(want)-2 { // 15 is the first
		t.Fatalf("%d are left after one that is gone", got)
	}
	if _, err := l.Purge(nil, n-10, 0, nil); err != nil {
		t.Fatal(err)
	}
	wait(t, l)
	left := slices.DeleteFunc(slices.Clone(want), func(seq uint64) bool { return seq < n-10 })
	check("most purged", left)
	if _, err := l.Purge(nil, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	wait(t, l)
	check("all purged", nil)
	if sub.Pass(n); sub.Len() != 0 {
		t.Fatal("records came back")
	}
}

// TestPassWhatIsGone: Pass after Peek moves past that record alone, also when it was removed in between, and the count
// stays right.
func TestPassWhatIsGone(t *testing.T) {
	s := open(t, Options{Shards: 1})
	l := create(t, s)
	for seq := uint64(1); seq <= 4; seq++ {
		if err := l.Append(rec(seq, "k", 1), nil); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, l)
	c := l.NewCursor(0, nil)
	for seq := uint64(1); seq <= 4; seq++ {
		r, err := c.Peek()
		if err != nil || r.Seq != seq {
			t.Fatalf("Peek gave %d, %v; want %d", r.Seq, err, seq)
		}
		if seq%2 == 0 {
			if _, err := l.Delete([]uint64{seq}, false, nil); err != nil {
				t.Fatal(err)
			}
			wait(t, l)
		}
		after := c.PendingAfter(seq)
		c.Pass(seq)
		if want := 4 - seq; after != want || c.Pending() != want || c.Position() != seq+1 {
			t.Fatalf("after %d: %d pending, %d announced, at %d", seq, c.Pending(), after, c.Position())
		}
	}
}

// TestSubsetGrows: a subset that records are added to and taken out of one by one keeps count, through deletes, and
// does not keep what is gone.
func TestSubsetGrows(t *testing.T) {
	s := open(t, Options{Shards: 1})
	l := create(t, s)
	const n = 2000
	for seq := uint64(1); seq <= n; seq++ {
		if err := l.Append(rec(seq, "k", 1), nil); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, l)
	if _, err := l.Delete([]uint64{2}, false, nil); err != nil {
		t.Fatal(err)
	}
	wait(t, l)
	sub := l.NewSubset(nil)
	if sub.Add(2) || sub.Add(n+1) || sub.Len() != 0 {
		t.Fatal("a record that is not there was added")
	}
	if !sub.Add(1) || !sub.Add(3) { // 1 stays in front
		t.Fatal("a record that is there was not added")
	}
	if _, err := l.Delete([]uint64{3, 5}, false, nil); err != nil {
		t.Fatal(err)
	}
	wait(t, l)
	if sub.Has(3) || !sub.Has(1) || sub.Len() != 1 {
		t.Fatalf("after a delete: %v", sub.Seqs())
	}
	for seq := uint64(6); seq <= n; seq++ {
		if !sub.Add(seq) {
			t.Fatalf("%d was not added", seq)
		}
		sub.Remove(seq - 1)
		sub.Remove(seq - 1)
		if want := []uint64{1, seq}; !slices.Equal(sub.Seqs(), want) || sub.Len() != 2 || sub.Has(seq-1) {
			t.Fatalf("%v are left, counted as %d; want %v", sub.Seqs(), sub.Len(), want)
		}
	}
	if len(sub.members) > 2*subsetSlack {
		t.Errorf("%d members are kept for 2", len(sub.members))
	}
	sub.Pass(n - 1)
	if first, ok := sub.First(); !ok || first != n {
		t.Errorf("the first is %d (%v)", first, ok)
	}
	sub.Remove(n)
	if _, ok := sub.First(); ok || sub.Len() != 0 {
		t.Error("the last one is still there")
	}
}

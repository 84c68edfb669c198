package storage

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Batch changes several logs and state logs at once: to a crash it is one operation.
func (x *crashTest) Batch(t *rapid.T) {
	w, done := x.now(), x.done()
	var b Batch
	for range rapid.IntRange(1, 8).Draw(t, "changes") {
		if what := rapid.IntRange(0, 5).Draw(t, "what"); what == 0 {
			s := rapid.SampledFrom(append(slices.Clip(x.states), x.s.Catalog())).Draw(t, "state")
			e := worldEntry{fmt.Sprint(len(x.history)), rapid.IntRange(0, 4).Draw(t, "checkpoint") == 0}
			old := w.states[s.ID()]
			if e.checkpoint {
				old = nil
				b.Checkpoint(s, []byte(e.data))
			} else {
				b.Change(s, []byte(e.data))
			}
			w = w.withState(s.ID(), append(slices.Clip(old), e))
		} else if len(x.logs) > 0 {
			l := rapid.SampledFrom(x.logs).Draw(t, "log")
			w = w.with(l.ID(), batchOn(t, &b, l, w.logs[l.ID()], what))
		}
	}
	if b.Len() == 0 {
		t.Skip("no log")
	}
	if err := b.Commit(done); err != nil {
		t.Fatal(err)
	}
	x.did(w)
}

// batchOn adds a change of l to b, and returns what is in l after it.
func batchOn(t *rapid.T, b *Batch, l *Log, wl worldLog, what int) worldLog {
	switch {
	case what == 1 && len(wl.recs) > 0:
		var seqs []uint64
		for range rapid.IntRange(1, 5).Draw(t, "n") {
			seqs = append(seqs, rapid.SampledFrom(wl.recs).Draw(t, "rec").Seq)
		}
		b.Delete(l, seqs...)
		wl.recs = slices.DeleteFunc(slices.Clone(wl.recs), func(r Record) bool { return slices.Contains(seqs, r.Seq) })
	case what == 2:
		m := model{head: wl.recs, lastSeq: wl.lastSeq}
		f, keep := drawFilter(t), rapid.Uint64Range(1, 3).Draw(t, "keep")
		m.purge(f, 0, keep)
		b.Purge(l, f, keep)
		wl.recs = m.head
	default:
		for range rapid.IntRange(1, 10).Draw(t, "n") {
			r := Record{
				Seq: wl.lastSeq + rapid.SampledFrom([]uint64{1, 1, 1, 7}).Draw(t, "step"), Time: wl.lastTime + 1,
				Key: drawKey(t), Data: make([]byte, rapid.SampledFrom([]int{0, 100, 900}).Draw(t, "data")),
			}
			b.Append(l, &r)
			wl = worldLog{recs: append(slices.Clip(wl.recs), r), lastSeq: r.Seq, lastTime: r.Time}
		}
	}
	return wl
}

// TestBatchCrashAtEveryOp loses power at each operation on the disk, in several ways: what is there afterwards is a
// whole number of batches, not less than were told to be durable.
func TestBatchCrashAtEveryOp(t *testing.T) {
	type crash struct {
		disk  *vfs.Mem
		acked int
	}
	var (
		mu      sync.Mutex
		crashes []crash
		acked   atomic.Int64
		armed   atomic.Bool
	)
	disk := vfs.NewMem()
	fault := vfs.NewFault(disk, func(op vfs.Op) error {
		if !op.Kind.Changes() || !armed.Load() {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		told := int(acked.Load())
		for seed, keep := range []float64{0, 0.3, 0.7, 1} {
			crashes = append(crashes, crash{disk.CrashClone(vfs.CrashOptions{Seed: uint64(seed), Keep: keep}), told})
		}
		return nil
	})
	o := crashOptions(disk)
	o.FS = fault
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	history := runBatches(t, s, &acked, &armed)
	s.Close()
	whole := map[int]bool{}
	for i, c := range crashes {
		after, err := Open(t.Context(), crashOptions(c.disk))
		if err != nil {
			t.Fatal(err)
		}
		got, err := readWorld(after)
		after.Close()
		if err != nil {
			t.Fatal(err)
		}
		found := slices.IndexFunc(history, got.equal)
		if found < c.acked {
			t.Fatalf("crash %d, with %d batches told to be durable, left what is after %d (-1: part of one)\n%+v", i, c.acked, found, got)
		}
		whole[found] = true
	}
	if len(crashes) < 50 || len(whole) != len(history) {
		t.Fatalf("%d crashes came after %d numbers of batches of %d", len(crashes), len(whole), len(history))
	}
}

// runBatches commits batches over three logs in all shards and returns what was there after each.
func runBatches(t *testing.T, s *Store, acked *atomic.Int64, armed *atomic.Bool) []world {
	t.Helper()
	spread, err := s.CreateLog(LogSpec{Shards: []ShardID{1, 2}, Name: "spread", Size: testSize, Route: testRoute})
	if err != nil {
		t.Fatal(err)
	}
	one := create(t, s, 0)
	one.configure(LogSpec{Size: testSize})
	state, err := s.CreateStateLog(2, "state", false)
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, state)
	armed.Store(true)
	now, err := readWorld(s)
	if err != nil {
		t.Fatal(err)
	}
	history := []world{now}
	for i := 1; i <= 12; i++ {
		var b Batch
		seq := uint64(20 * i)
		for j := range uint64(i) {
			b.Append(spread, rec(seq+j, "key.x"[:3+j%3], 700))
			b.Append(one, rec(seq+j, "k", 5))
		}
		b.Purge(one, testFilter{prefix: "k", literal: true}, 2)
		if i%3 == 0 {
			b.Purge(spread, nil, 4)
		} else {
			b.Delete(spread, seq, 20)
		}
		b.Change(state, fmt.Append(nil, i))
		done := make(chan error, 1)
		if err := b.Commit(func(err error) { acked.Add(1); done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if now, err = readWorld(s); err != nil {
			t.Fatal(err)
		}
		if n := len(now.logs[one.ID()].recs); n != min(2, 1+2*(i-1)) {
			t.Fatalf("a limit of 2 leaves %d", n)
		}
		history = append(history, now)
	}
	return history
}

func waitState(t *testing.T, s *StateLog) {
	t.Helper()
	ch := make(chan error, 1)
	if err := s.Append([]byte("x"), func(err error) { ch <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-ch; err != nil {
		t.Fatal(err)
	}
}

// TestBatchRefused: what is refused leaves no trace.
func TestBatchRefused(t *testing.T) {
	var disk stalledDisk
	s := open(t, Options{Dir: "d", FS: vfs.NewFault(vfs.NewMem(), disk.hook), Shards: 2, QueueBytes: 64 << 10})
	other := create(t, open(t, Options{Dir: "d", FS: vfs.NewMem()}))
	a, b, gone := create(t, s, 0), create(t, s, 1), create(t, s, 0)
	state, err := s.CreateStateLog(0, "state", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DropLog(gone.ID(), nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Append(rec(5, "k", 1), nil); err != nil {
		t.Fatal(err)
	}
	wait(t, b)
	before := []State{a.State(), b.State()}
	cases := []struct {
		what string
		then func(*Batch)
		want error
	}{
		{"below the head", func(x *Batch) { x.Append(b, rec(5, "k", 1)) }, ErrOutOfOrder},
		{"below another of the batch", func(x *Batch) { x.Append(a, rec(7, "k", 1)); x.Append(a, rec(7, "k", 1)) }, ErrOutOfOrder},
		{"above the last there is", func(x *Batch) { x.Append(a, rec(MaxSeq+1, "k", 1)) }, ErrUsedUp},
		{"a log that is gone", func(x *Batch) { x.Append(gone, rec(1, "k", 1)) }, ErrNoLog},
		{"another store", func(x *Batch) { x.Append(other, rec(1, "k", 1)) }, errForeign},
		{"too large", func(x *Batch) { x.Change(state, make([]byte, maxRecord)) }, ErrTooLarge},
	}
	for _, c := range cases {
		var x Batch
		x.Append(a, rec(1, "k", 1))
		x.Delete(b, 5)
		c.then(&x)
		if err := x.Commit(nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	gate := make(chan struct{})
	disk.gate.Store(&gate)
	for a.Append(rec(a.State().LastSeq+1, "k", 1000), nil) == nil {
	}
	full := a.State()
	var x Batch
	x.Append(b, rec(6, "k", 1))
	x.Append(a, rec(full.LastSeq+1, "k", 2000))
	if err := x.Commit(nil); !errors.Is(err, ErrFull) {
		t.Errorf("a full queue: %v", err)
	}
	if a.State() != full || b.State() != before[1] {
		t.Errorf("a refused batch left a trace: %+v, %+v", a.State(), b.State())
	}
	disk.gate.Store(nil)
	close(gate)
	wait(t, a)
	if err := x.Commit(nil); err != nil {
		t.Fatal(err)
	}
	wait(t, a)
	if a.State().LastSeq != full.LastSeq+1 || b.State().LastSeq != 6 {
		t.Errorf("%+v, %+v", a.State(), b.State())
	}
}

// TestBatchLarge: a batch beyond a group's and a slab's usual size is still one block.
func TestBatchLarge(t *testing.T) {
	disk := vfs.NewMem()
	for _, dir := range []string{"", "d"} {
		o := Options{Dir: dir, FS: disk, Shards: 2, SegmentSize: 1 << 20}
		s := open(t, o)
		l, err := s.CreateLog(LogSpec{Shards: []ShardID{0, 1}, Route: testRoute})
		if err != nil {
			t.Fatal(err)
		}
		waitState(t, s.Catalog())
		commits := s.Stats().Commits
		var b Batch
		for seq := range uint64(1000) {
			b.Append(l, rec(seq+1, "key"[:1+seq%3], 10<<10))
		}
		done := make(chan error, 1)
		if err := b.Commit(func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if l.Visible() != 0 && l.Visible() != 1000 {
			t.Fatalf("%d are visible", l.Visible())
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := s.Stats().Commits - commits; n != 1 || l.VisibleState().Messages != 1000 {
			t.Fatalf("%d commits, %+v", n, l.VisibleState())
		}
		s.Close()
		if dir == "" {
			continue
		}
		s = open(t, o)
		if l, err = s.OpenLog(l.ID(), LogSpec{Route: testRoute}); err != nil || l.VisibleState().Messages != 1000 {
			t.Fatalf("%v, %+v", err, l.VisibleState())
		}
	}
}

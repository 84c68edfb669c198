package storage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// world is everything a directory should hold. It is a value: a change makes a new one, and old ones stay as they were.
type world struct {
	logs   map[LogID]worldLog
	states map[LogID][]worldEntry
}

type worldLog struct {
	recs     []Record
	lastSeq  uint64
	lastTime int64
}

type worldEntry struct {
	data       string
	checkpoint bool
}

func (w world) with(id LogID, l worldLog) world {
	w.logs = maps.Clone(w.logs)
	w.logs[id] = l
	return w
}

func (w world) withState(id LogID, s []worldEntry) world {
	w.states = maps.Clone(w.states)
	w.states[id] = s
	return w
}

// readWorld reads everything there is out of a store.
func readWorld(s *Store) (world, error) {
	w := world{logs: map[LogID]worldLog{}, states: map[LogID][]worldEntry{}}
	var ids, states []LogID
	s.EachLog(func(id LogID, _ string, state bool) {
		if state {
			states = append(states, id)
		} else {
			ids = append(ids, id)
		}
	})
	for _, id := range ids {
		l, err := s.OpenLog(id, LogSpec{Size: testSize, Route: testRoute, Compress: id%2 == 0})
		if err != nil {
			return w, err
		}
		wl := worldLog{lastSeq: l.State().LastSeq, lastTime: l.State().LastTime}
		for c := l.NewCursor(0, nil); ; {
			r, err := c.Next()
			if errors.Is(err, ErrEOF) {
				break
			}
			if err != nil {
				return w, err
			}
			wl.recs = append(wl.recs, r)
		}
		if got, want := l.State(), state(wl.recs, wl.lastSeq, wl.lastTime); got != want {
			return w, fmt.Errorf("log %d: state is %+v, its records make %+v", id, got, want)
		}
		w.logs[id] = wl
	}
	for _, id := range states {
		l, err := s.OpenStateLog(id)
		if err != nil {
			return w, err
		}
		w.states[id] = loadState(l)
	}
	return w, nil
}

func loadState(l *StateLog) (out []worldEntry) {
	_ = l.Load(func(b []byte, checkpoint bool) error {
		out = append(out, worldEntry{string(b), checkpoint})
		return nil
	})
	return out
}

func (w world) equal(o world) bool {
	return maps.EqualFunc(w.logs, o.logs, func(a, b worldLog) bool {
		return a.lastSeq == b.lastSeq && a.lastTime == b.lastTime && slices.EqualFunc(a.recs, b.recs, same)
	}) && maps.EqualFunc(w.states, o.states, slices.Equal)
}

// differs says in which logs w is not o.
func (w world) differs(o world) string {
	var b strings.Builder
	for id, l := range w.logs {
		h, ok := o.logs[id]
		if !ok {
			fmt.Fprintf(&b, " log %d was not there;", id)
		} else if l.lastSeq != h.lastSeq || l.lastTime != h.lastTime || !slices.EqualFunc(l.recs, h.recs, same) {
			fmt.Fprintf(&b, " log %d has %s, had %s;", id, l, h)
		}
	}
	for id := range o.logs {
		if _, ok := w.logs[id]; !ok {
			fmt.Fprintf(&b, " log %d is missing;", id)
		}
	}
	for id, s := range w.states {
		if h, ok := o.states[id]; !ok || !slices.Equal(s, h) {
			fmt.Fprintf(&b, " state log %d has %v, had %v;", id, s, h)
		}
	}
	for id := range o.states {
		if _, ok := w.states[id]; !ok {
			fmt.Fprintf(&b, " state log %d is missing;", id)
		}
	}
	return b.String()
}

func (l worldLog) String() string {
	var seqs []uint64
	for _, r := range l.recs {
		seqs = append(seqs, r.Seq)
	}
	return fmt.Sprintf("last %d at %d, records %v", l.lastSeq, l.lastTime, seqs)
}

func testRoute(key []byte) int { return len(key) % 2 }

// crashTest drives a store over a disk that loses power, and knows every world it went through: history[i] is the one
// after i operations. acked is how many of them were told to be durable.
type crashTest struct {
	disk    *vfs.Mem
	options func(disk *vfs.Mem) Options
	s       *Store
	logs    []*Log
	states  []*StateLog
	history []world
	secrets int // how often the directory got another secret

	mu    sync.Mutex
	acked int
	order []int // operations in the order in which they were told
}

func crashOptions(disk *vfs.Mem) Options {
	return Options{Dir: "data", FS: disk, Shards: 3, SegmentSize: 2 << 10, WindowSize: 2 << 10}
}

func (x *crashTest) now() world { return x.history[len(x.history)-1] }

// did notes a new world and returns what is to be called when it is durable.
func (x *crashTest) did(w world) { x.history = append(x.history, w) }

func (x *crashTest) done() Done {
	op := len(x.history)
	return func(err error) {
		if err != nil {
			panic(err)
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.acked = max(x.acked, op)
		x.order = append(x.order, op)
	}
}

func (x *crashTest) log(t *rapid.T) (*Log, worldLog) {
	if len(x.logs) == 0 {
		t.Skip("no log")
	}
	l := rapid.SampledFrom(x.logs).Draw(t, "log")
	return l, x.now().logs[l.ID()]
}

func (x *crashTest) CreateLog(t *rapid.T) {
	if len(x.logs) > 3 {
		t.Skip("enough")
	}
	shards := rapid.SampledFrom([][]ShardID{{0}, {1}, {2}, {0, 2}, {2, 1}}).Draw(t, "shards")
	first := rapid.SampledFrom([]uint64{0, 50}).Draw(t, "first")
	l, err := x.s.CreateLog(LogSpec{
		Shards: shards, FirstSeq: first, Name: "a", Size: testSize, Route: testRoute,
		Compress: rapid.Bool().Draw(t, "compress"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := x.now().logs[l.ID()]; ok {
		t.Fatalf("log id %d is used twice", l.ID())
	}
	x.logs = append(x.logs, l)
	x.did(x.now().with(l.ID(), worldLog{lastSeq: max(first, 1) - 1}))
}

func (x *crashTest) CreateState(t *rapid.T) {
	if len(x.states) > 3 {
		t.Skip("enough")
	}
	l, err := x.s.CreateStateLog(ShardID(rapid.IntRange(0, 2).Draw(t, "shard")), "s", false)
	if err != nil {
		t.Fatal(err)
	}
	x.states = append(x.states, l)
	x.did(x.now().withState(l.ID(), nil))
}

func (x *crashTest) Append(t *rapid.T) {
	l, wl := x.log(t)
	for range rapid.IntRange(1, 20).Draw(t, "n") {
		r := Record{
			Seq: wl.lastSeq + rapid.SampledFrom([]uint64{1, 1, 1, 1, 5, 1000}).Draw(t, "step"), Time: wl.lastTime + 1, Key: drawKey(t),
			Header: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "header"),
			Data:   make([]byte, rapid.SampledFrom([]int{0, 1, 100, 900}).Draw(t, "data")),
		}
		for i := range r.Data {
			r.Data[i] = byte(int(r.Seq) + i)
		}
		if err := l.Append(&r, x.done()); err != nil {
			t.Fatal(err)
		}
		wl = worldLog{recs: append(slices.Clip(wl.recs), r), lastSeq: r.Seq, lastTime: r.Time}
		x.did(x.now().with(l.ID(), wl))
	}
}

// Churn writes many records and deletes all but a few of them at once, so that there is something to sweep.
func (x *crashTest) Churn(t *rapid.T) {
	l, wl := x.log(t)
	before := wl.lastSeq
	stay := rapid.Uint64Range(2, 40).Draw(t, "stay")
	for i := range rapid.IntRange(20, 80).Draw(t, "n") {
		r := Record{Seq: wl.lastSeq + 1, Time: wl.lastTime + 1, Key: []byte(testParts[i%5]), Data: fmt.Append(make([]byte, 90), i)}
		if err := l.Append(&r, x.done()); err != nil {
			t.Fatal(err)
		}
		wl = worldLog{recs: append(slices.Clip(wl.recs), r), lastSeq: r.Seq, lastTime: r.Time}
		x.did(x.now().with(l.ID(), wl))
		if i%16 == 0 {
			wait(t, l)
		}
	}
	var seqs []uint64
	for seq := before + 1; seq <= wl.lastSeq; seq++ {
		if seq%stay != 0 {
			seqs = append(seqs, seq)
		}
	}
	x.remove(t, l, wl, seqs, func(done Done) (uint64, error) {
		n, err := l.Delete(seqs, false, done)
		return uint64(n), err
	})
}

func (x *crashTest) Delete(t *rapid.T) {
	l, wl := x.log(t)
	if len(wl.recs) == 0 {
		t.Skip("empty")
	}
	var seqs []uint64
	for range rapid.IntRange(1, 5).Draw(t, "n") {
		seqs = append(seqs, rapid.SampledFrom(wl.recs).Draw(t, "rec").Seq)
	}
	x.remove(t, l, wl, seqs, func(done Done) (uint64, error) {
		n, err := l.Delete(seqs, false, done)
		return uint64(n), err
	})
}

// remove does what removes seqs from l.
func (x *crashTest) remove(t *rapid.T, l *Log, wl worldLog, seqs []uint64, do func(Done) (uint64, error)) {
	left := slices.DeleteFunc(slices.Clone(wl.recs), func(r Record) bool { return slices.Contains(seqs, r.Seq) })
	n, err := do(x.done())
	if err != nil || int(n) != len(wl.recs)-len(left) {
		t.Fatalf("removed %d, %v, want %d", n, err, len(wl.recs)-len(left))
	}
	wl.recs = left
	x.did(x.now().with(l.ID(), wl))
}

func (x *crashTest) Purge(t *rapid.T) {
	l, wl := x.log(t)
	m := model{head: wl.recs, lastSeq: wl.lastSeq}
	f := drawFilter(t)
	upTo := rapid.SampledFrom([]uint64{0, wl.lastSeq / 2, wl.lastSeq - min(wl.lastSeq, 5), wl.lastSeq + 7}).Draw(t, "upTo")
	keep := rapid.SampledFrom([]uint64{0, 2, 9}).Draw(t, "keep")
	want := m.purge(f, upTo, keep)
	got, err := l.Purge(f, upTo, keep, x.done())
	if err != nil || got != want {
		t.Fatalf("purge: %d, %v, want %d", got, err, want)
	}
	x.did(x.now().with(l.ID(), worldLog{recs: m.head, lastSeq: m.lastSeq, lastTime: wl.lastTime}))
}

func (x *crashTest) Change(t *rapid.T) {
	s := rapid.SampledFrom(append(slices.Clip(x.states), x.s.Catalog())).Draw(t, "state")
	old := x.now().states[s.ID()]
	e := worldEntry{fmt.Sprint(len(x.history)), rapid.IntRange(0, 4).Draw(t, "checkpoint") == 0}
	var err error
	if e.checkpoint {
		old = nil
		err = s.Checkpoint([]byte(e.data), x.done())
	} else {
		err = s.Append([]byte(e.data), x.done())
	}
	if err != nil {
		t.Fatal(err)
	}
	x.did(x.now().withState(s.ID(), append(slices.Clip(old), e)))
}

func (x *crashTest) Drop(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rare") > 0 {
		t.Skip("rare")
	}
	w := x.now()
	if len(x.logs) > 0 && rapid.Bool().Draw(t, "log") {
		i := rapid.IntRange(0, len(x.logs)-1).Draw(t, "which")
		id := x.logs[i].ID()
		if err := x.s.DropLog(id, x.done()); err != nil {
			t.Fatal(err)
		}
		if err := x.logs[i].Append(&Record{Seq: 1 << 60}, nil); !errors.Is(err, ErrNoLog) {
			t.Fatalf("append to a dropped log: %v", err)
		}
		x.logs = slices.Delete(x.logs, i, i+1)
		w.logs = maps.Clone(w.logs)
		delete(w.logs, id)
	} else if len(x.states) > 0 {
		i := rapid.IntRange(0, len(x.states)-1).Draw(t, "which")
		id := x.states[i].ID()
		if err := x.s.DropLog(id, x.done()); err != nil {
			t.Fatal(err)
		}
		x.states = slices.Delete(x.states, i, i+1)
		w.states = maps.Clone(w.states)
		delete(w.states, id)
	} else {
		t.Skip("nothing to drop")
	}
	x.did(w)
}

// Read compares what is visible with a world that was, and reads from disk too.
func (x *crashTest) Read(t *rapid.T) {
	x.sync(t)
	w, err := readWorld(x.s)
	if err != nil {
		t.Fatal(err)
	}
	if !w.equal(x.now()) {
		t.Fatalf("what is there is not what was written\n%+v\n%+v", w, x.now())
	}
}

func (x *crashTest) sync(t *rapid.T) {
	ch := make(chan error, 1)
	if err := x.s.Catalog().Append([]byte("sync"), func(err error) { ch <- err }); err != nil {
		t.Fatal(err)
	}
	x.did(x.now().withState(catalogID, append(slices.Clip(x.now().states[catalogID]), worldEntry{data: "sync"})))
	if err := <-ch; err != nil {
		t.Fatal(err)
	}
}

// Crash loses power, opens what is left, and demands a world that was, with everything that was told to be durable.
func (x *crashTest) Crash(t *rapid.T) {
	x.mu.Lock()
	before, acked := x.s.Stats(), x.acked
	after := x.disk.CrashClone(vfs.CrashOptions{
		Seed: rapid.Uint64().Draw(t, "seed"), Keep: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "keep"),
	})
	x.mu.Unlock()
	x.reopen(t, after, acked, before)
}

// Restart closes the store, which must lose nothing.
func (x *crashTest) Restart(t *rapid.T) {
	if err := x.s.Close(); err != nil {
		t.Fatal(err)
	}
	before := x.s.Stats()
	x.reopen(t, x.disk, len(x.history)-1, before)
}

func (x *crashTest) reopen(t *rapid.T, disk *vfs.Mem, acked int, before Stats) {
	crashed.dropped.Add(before.DroppedSegments)
	crashed.moved.Add(before.MovedRecords)
	crashed.seals.Add(before.Seals)
	crashed.merges.Add(before.Merges)
	x.s.Close()
	if !slices.IsSorted(x.order) {
		t.Fatalf("operations were told in the order %v", x.order)
	}
	if rapid.IntRange(0, 3).Draw(t, "another secret") == 0 {
		x.secrets++
	}
	s, err := Open(t.Context(), x.encrypted(disk))
	if err != nil {
		t.Fatal(err)
	}
	w, err := readWorld(s)
	if err != nil {
		t.Fatal(err)
	}
	found := -1
	for i := len(x.history) - 1; i >= acked && found < 0; i-- {
		if w.equal(x.history[i]) {
			found = i
		}
	}
	if found < 0 {
		var diffs strings.Builder
		for i := acked; i < len(x.history); i++ {
			fmt.Fprintf(&diffs, "\n%d: %s", i, w.differs(x.history[i]))
		}
		t.Fatalf("after a crash with %d of %d operations acknowledged there is what never was:%s", acked, len(x.history)-1, diffs.String())
	}
	for i, sh := range s.Stats().Shards {
		if sh.Head < before.Shards[i].Committed {
			t.Fatalf("shard %d is at %d, it was at %d", i, sh.Head, before.Shards[i].Committed)
		}
	}
	x.s, x.disk, x.history, x.acked, x.order = s, disk, x.history[:found+1], found, nil
	x.logs, x.states = x.logs[:0], x.states[:0]
	for _, id := range slices.Sorted(maps.Keys(w.logs)) {
		l, err := s.OpenLog(id, LogSpec{Size: testSize, Route: testRoute})
		if err != nil {
			t.Fatal(err)
		}
		x.logs = append(x.logs, l)
	}
	for _, id := range slices.Sorted(maps.Keys(w.states)) {
		if id == catalogID {
			continue
		}
		l, err := s.OpenStateLog(id)
		if err != nil {
			t.Fatal(err)
		}
		x.states = append(x.states, l)
	}
}

// encrypted returns the options with the secret of the moment.
func (x *crashTest) encrypted(disk *vfs.Mem) Options {
	o := x.options(disk)
	if x.secrets > 0 {
		o.Encryption = secret(fmt.Sprint("s", x.secrets), fmt.Sprint("s", x.secrets-1))
	}
	return o
}

// crashed counts what the crash test came across.
var crashed struct{ dropped, moved, seals, merges atomic.Uint64 }

func TestCrash(t *testing.T) {
	defer func() {
		t.Logf("%d segments dropped, %d records moved", crashed.dropped.Load(), crashed.moved.Load())
		if !t.Failed() && crashed.moved.Load() == 0 {
			t.Error("no record was moved")
		}
	}()
	// A short run may come across none by chance: then it is not over.
	for rounds := 0; rounds == 0 || rounds < 100 && !t.Failed() && crashed.moved.Load() == 0; rounds++ {
		checkCrash(t, crashOptions)
	}
}

// TestCrashSealed does the same while records go to parts all the time.
func TestCrashSealed(t *testing.T) {
	checkCrash(t, func(disk *vfs.Mem) Options {
		o := crashOptions(disk)
		o.Seal, o.SealMaxAge, o.SealRecords = true, time.Millisecond, 40
		return o
	})
	t.Logf("%d segments dropped, %d seals, %d merges", crashed.dropped.Load(), crashed.seals.Load(), crashed.merges.Load())
}

func checkCrash(t *testing.T, options func(disk *vfs.Mem) Options) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		x := &crashTest{disk: vfs.NewMem(), options: options}
		x.secrets = rapid.IntRange(0, 1).Draw(t, "encrypted")
		s, err := Open(t.Context(), x.encrypted(x.disk))
		if err != nil {
			t.Fatal(err)
		}
		x.s = s
		x.history = []world{{logs: map[LogID]worldLog{}, states: map[LogID][]worldEntry{catalogID: nil}}}
		defer func() { x.s.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"createLog": x.CreateLog, "createState": x.CreateState, "append": x.Append, "churn": x.Churn, "batch": x.Batch,
			"delete": x.Delete, "purge": x.Purge, "change": x.Change, "drop": x.Drop, "read": x.Read, "crash": x.Crash,
			"restart": x.Restart,
		})
	})
}

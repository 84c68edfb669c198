package storage

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// testFilter selects keys by prefix and, if set, a part they contain.
type testFilter struct {
	prefix  string
	part    string
	literal bool
}

func (f testFilter) Match(key []byte) bool {
	if f.literal {
		return string(key) == f.prefix
	}
	return strings.HasPrefix(string(key), f.prefix) && strings.Contains(string(key), f.part)
}
func (f testFilter) Prefix() []byte { return []byte(f.prefix) }
func (f testFilter) Literal() bool  { return f.literal }

// model is the plain reference for one log: all its live records in a slice, once at the head and once as readers see
// them.
type model struct {
	head, vis         []Record
	lastSeq, visSeq   uint64
	lastTime, visTime int64
}

func testSize(key, header, data int) uint64 { return uint64(10 + key + 2*header + 3*data) }

func matches(filters []Filter, key []byte) bool {
	for _, f := range filters {
		if f.Match(key) {
			return true
		}
	}
	return len(filters) == 0
}

func (m *model) show() {
	m.vis = slices.Clone(m.head)
	m.visSeq, m.visTime = m.lastSeq, m.lastTime
}

func state(recs []Record, lastSeq uint64, lastTime int64) State {
	s := State{FirstSeq: lastSeq + 1, LastSeq: lastSeq, LastTime: lastTime, Messages: uint64(len(recs))}
	for i, r := range recs {
		if i == 0 {
			s.FirstSeq, s.FirstTime = r.Seq, r.Time
		}
		s.Bytes += testSize(len(r.Key), len(r.Header), len(r.Data))
	}
	s.Deleted = s.LastSeq + 1 - s.FirstSeq - s.Messages
	return s
}

func keyState(recs []Record, key []byte) (ks KeyState) {
	for _, r := range recs {
		if bytes.Equal(r.Key, key) {
			if ks.Count == 0 {
				ks.First = r.Seq
			}
			ks.Last = r.Seq
			ks.Count++
		}
	}
	return ks
}

func (m *model) purge(f Filter, upTo, keep uint64) (n uint64) {
	var hit []uint64
	for _, r := range m.head {
		if (upTo == 0 || r.Seq < upTo) && (f == nil || f.Match(r.Key)) {
			hit = append(hit, r.Seq)
		}
	}
	hit = hit[:len(hit)-int(min(keep, uint64(len(hit))))]
	m.delete(hit)
	if f == nil && keep == 0 && upTo > m.lastSeq {
		m.lastSeq = upTo - 1
	}
	return uint64(len(hit))
}

func (m *model) delete(seqs []uint64) int {
	n := len(m.head)
	gone := map[uint64]bool{}
	for _, seq := range seqs {
		gone[seq] = true
	}
	m.head = slices.DeleteFunc(slices.Clone(m.head), func(r Record) bool { return gone[r.Seq] })
	return n - len(m.head)
}

func (m *model) find(from uint64, filters []Filter) (Record, error) {
	for _, r := range m.vis {
		if r.Seq >= from && matches(filters, r.Key) {
			return r, nil
		}
	}
	return Record{}, ErrEOF
}

func (m *model) count(from uint64, filters []Filter) (n uint64) {
	for _, r := range m.vis {
		if r.Seq >= from && matches(filters, r.Key) {
			n++
		}
	}
	return n
}

// modelCursor is a cursor and what it should be.
type modelCursor struct {
	c       *Cursor
	pos     uint64
	filters []Filter
}

// logTest drives one log and its model.
type logTest struct {
	aheadOf *Log
	ahead   map[string]*KeyAhead // by key, looked up at different times

	s       *Store
	l       *Log
	m       model
	cursors []*modelCursor
	freeze  chan struct{} // not nil: the ack loop stands still until it is closed
}

var testParts = []string{"a", "b", "c", "dd", "e"}

func drawKey(t *rapid.T) []byte {
	parts := rapid.SliceOfN(rapid.SampledFrom(testParts), 1, 3).Draw(t, "key")
	return []byte(strings.Join(parts, "."))
}

func drawFilter(t *rapid.T) Filter {
	switch rapid.IntRange(0, 4).Draw(t, "filter") {
	case 0:
		return nil
	case 1:
		return testFilter{prefix: string(drawKey(t)), literal: true}
	case 2:
		return testFilter{prefix: rapid.SampledFrom(testParts).Draw(t, "prefix")}
	case 3:
		return testFilter{part: "." + rapid.SampledFrom(testParts).Draw(t, "part")}
	default:
		return testFilter{prefix: "nothing"}
	}
}

func drawFilters(t *rapid.T) (fs []Filter) {
	for range rapid.IntRange(0, 2).Draw(t, "filters") {
		if f := drawFilter(t); f != nil {
			fs = append(fs, f)
		}
	}
	return fs
}

func (x *logTest) drawSeq(t *rapid.T) uint64 {
	lo := uint64(0)
	if x.m.lastSeq > 40 {
		lo = x.m.lastSeq - 40
	}
	return rapid.Uint64Range(lo, x.m.lastSeq+3).Draw(t, "seq")
}

// settle waits until everything is visible, unless the ack loop stands still.
func (x *logTest) settle() {
	if x.freeze != nil {
		return
	}
	ch := make(chan error, 1)
	x.l.Sync(func(err error) { ch <- err })
	if err := <-ch; err != nil {
		panic(err)
	}
	x.m.show()
}

func (x *logTest) Append(t *rapid.T) {
	for range rapid.IntRange(1, 12).Draw(t, "n") {
		x.append(t)
	}
	x.settle()
}

func (x *logTest) append(t *rapid.T) {
	r := Record{
		Seq: x.m.lastSeq + 1, Time: x.m.lastTime + rapid.Int64Range(-2, 5).Draw(t, "dt"), Key: drawKey(t),
		Header: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "header"), Data: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "data"),
	}
	if rapid.IntRange(0, 9).Draw(t, "gap") == 0 {
		r.Seq += rapid.SampledFrom([]uint64{1, 7, 300, 1 << 40}).Draw(t, "by")
	}
	in := r
	in.Key, in.Data = slices.Clone(r.Key), slices.Clone(r.Data)
	if err := x.l.Append(&in, nil); err != nil {
		t.Fatal(err)
	}
	clear(in.Key) // the log has its own copy
	clear(in.Data)
	r.Time = max(r.Time, x.m.lastTime)
	if in.Time != r.Time {
		t.Fatalf("time given is %d, want %d", in.Time, r.Time)
	}
	x.m.lastSeq, x.m.lastTime = r.Seq, r.Time
	x.m.head = append(slices.Clone(x.m.head), r)
}

// AppendMany fills chunks.
func (x *logTest) AppendMany(t *rapid.T) {
	n := rapid.IntRange(100, 600).Draw(t, "n")
	keys := rapid.SliceOfN(rapid.Custom(drawKey), 1, 5).Draw(t, "keys")
	x.m.head = slices.Clone(x.m.head)
	for i := range n {
		r := Record{Seq: x.m.lastSeq + 1, Time: x.m.lastTime + 1, Key: keys[i%len(keys)]}
		if err := x.l.Append(&r, nil); err != nil {
			t.Fatal(err)
		}
		x.m.lastSeq, x.m.lastTime = r.Seq, r.Time
		x.m.head = append(x.m.head, r)
	}
	x.settle()
}

func (x *logTest) OutOfOrder(t *rapid.T) {
	before := x.s.Stats().OutOfOrderAppends
	seq := rapid.Uint64Range(0, x.m.lastSeq).Draw(t, "seq")
	if err := x.l.Append(&Record{Seq: seq, Key: []byte("a")}, nil); !errors.Is(err, ErrOutOfOrder) {
		t.Fatalf("append of %d below head %d: %v", seq, x.m.lastSeq, err)
	}
	if after := x.s.Stats().OutOfOrderAppends; after != before+1 {
		t.Fatalf("out_of_order_appends went from %d to %d", before, after)
	}
}

func (x *logTest) Delete(t *rapid.T) {
	var seqs []uint64
	for range rapid.IntRange(1, 6).Draw(t, "n") {
		seqs = append(seqs, x.drawSeq(t))
	}
	if len(x.m.head) > 0 && rapid.Bool().Draw(t, "first") {
		seqs = append(seqs, x.m.head[0].Seq)
	}
	x.delete(t, seqs)
}

func (x *logTest) DeleteRun(t *rapid.T) {
	if len(x.m.head) == 0 {
		return
	}
	from := rapid.IntRange(0, len(x.m.head)-1).Draw(t, "from")
	n := rapid.IntRange(1, 400).Draw(t, "n")
	var seqs []uint64
	for _, r := range x.m.head[from:min(from+n, len(x.m.head))] {
		seqs = append(seqs, r.Seq)
	}
	x.delete(t, seqs)
}

func (x *logTest) delete(t *rapid.T, seqs []uint64) {
	want := x.m.delete(seqs)
	got, err := x.l.Delete(seqs, false, nil)
	if err != nil || got != want {
		t.Fatalf("delete %v: %d, %v, want %d", seqs, got, err, want)
	}
	x.settle()
}

func (x *logTest) Purge(t *rapid.T) {
	f := drawFilter(t)
	var upTo uint64
	if rapid.Bool().Draw(t, "bounded") {
		upTo = x.drawSeq(t)
	}
	keep := rapid.SampledFrom([]uint64{0, 0, 0, 1, 3, 50}).Draw(t, "keep")
	if f == nil && keep == 0 && upTo == 0 && rapid.IntRange(0, 2).Draw(t, "spare") > 0 {
		keep = 20
	}
	want := x.m.purge(f, upTo, keep)
	got, err := x.l.Purge(f, upTo, keep, nil)
	if err != nil || got != want {
		t.Fatalf("purge(%v, %d, %d): %d, %v, want %d", f, upTo, keep, got, err, want)
	}
	x.settle()
}

// Freeze makes the ack loop stand still: what follows stays invisible.
func (x *logTest) Freeze(t *rapid.T) {
	if x.freeze != nil {
		t.Skip("frozen")
	}
	ch, in := make(chan struct{}), make(chan struct{})
	if err := x.l.settle(func(error) { close(in); <-ch }); err != nil {
		t.Fatal(err)
	}
	<-in
	x.freeze = ch
}

func (x *logTest) Thaw(t *rapid.T) {
	if x.freeze == nil {
		t.Skip("not frozen")
	}
	x.thaw()
}

func (x *logTest) thaw() {
	if x.freeze != nil {
		close(x.freeze)
		x.freeze = nil
		x.settle()
	}
}

func (x *logTest) NewCursor(t *rapid.T) {
	if len(x.cursors) > 4 {
		x.cursors = x.cursors[1:]
	}
	c := &modelCursor{pos: x.drawSeq(t), filters: drawFilters(t)}
	c.c = x.l.NewCursor(c.pos, c.filters)
	x.cursors = append(x.cursors, c)
}

func (x *logTest) UseCursor(t *rapid.T) {
	if len(x.cursors) == 0 {
		t.Skip("no cursor")
	}
	c := rapid.SampledFrom(x.cursors).Draw(t, "cursor")
	for range rapid.IntRange(1, 30).Draw(t, "n") {
		want, wantErr := x.m.find(c.pos, c.filters)
		if got, err := c.c.Peek(); !errors.Is(err, wantErr) || !same(got, want) {
			t.Fatalf("cursor at %d: peek: %v, %v, want %v, %v", c.pos, got, err, want, wantErr)
		}
		if wantErr == nil && rapid.Bool().Draw(t, "pass") {
			if got, want := c.c.PendingAfter(want.Seq), x.m.count(want.Seq+1, c.filters); got != want {
				t.Fatalf("cursor at %d: pending after the next is %d, want %d", c.pos, got, want)
			}
			c.c.Pass(want.Seq)
		} else if got, err := c.c.Next(); !errors.Is(err, wantErr) || !same(got, want) {
			t.Fatalf("cursor at %d: %v, %v, want %v, %v", c.pos, got, err, want, wantErr)
		}
		if wantErr == nil {
			c.pos = want.Seq + 1
		}
		if got, want := c.c.Pending(), x.m.count(c.pos, c.filters); got != want {
			t.Fatalf("cursor at %d: pending %d, want %d", c.pos, got, want)
		}
	}
}

func (x *logTest) SeekCursor(t *rapid.T) {
	if len(x.cursors) == 0 {
		t.Skip("no cursor")
	}
	c := rapid.SampledFrom(x.cursors).Draw(t, "cursor")
	c.pos = x.drawSeq(t)
	c.c.Seek(c.pos)
}

func same(a, b Record) bool {
	return a.Seq == b.Seq && a.Time == b.Time && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Header, b.Header) && bytes.Equal(a.Data, b.Data)
}

// Check compares everything that can be asked.
func (x *logTest) Check(t *rapid.T) {
	x.checkState(t)
	x.checkReads(t)
	x.checkKeys(t)
	for _, c := range x.cursors {
		if rapid.IntRange(0, 2).Draw(t, "lazy") == 0 {
			continue
		}
		if got, want := c.c.Pending(), x.m.count(c.pos, c.filters); got != want {
			t.Fatalf("cursor at %d with %v: pending %d, want %d", c.pos, c.filters, got, want)
		}
	}
}

func (x *logTest) checkState(t *rapid.T) {
	if got, want := x.l.State(), state(x.m.head, x.m.lastSeq, x.m.lastTime); got != want {
		t.Fatalf("state is\n%+v, want\n%+v", got, want)
	}
	if got, want := x.l.VisibleState(), state(x.m.vis, x.m.visSeq, x.m.visTime); got != want {
		t.Fatalf("visible state is\n%+v, want\n%+v", got, want)
	}
	if got := x.l.Visible(); got != x.m.visSeq {
		t.Fatalf("visible is %d, want %d", got, x.m.visSeq)
	}
	x.checkWithin(t)
	keys := map[string]bool{}
	for _, r := range x.m.vis {
		keys[string(r.Key)] = true
	}
	if got, want := x.l.Keys(), len(keys); got != want {
		t.Fatalf("there are %d keys, want %d", got, want)
	}
	key := drawKey(t)
	want := keyState(x.m.head, key)
	if got := x.l.Key(key); got != want {
		t.Fatalf("key %q is %+v, want %+v", key, got, want)
	}
	x.checkAhead(t, key, want)
}

func (x *logTest) checkReads(t *rapid.T) {
	seq := x.drawSeq(t)
	i, ok := slices.BinarySearchFunc(x.m.vis, seq, func(r Record, s uint64) int { return cmp.Compare(r.Seq, s) })
	got, err := x.l.Get(seq)
	switch {
	case ok && (err != nil || !same(got, x.m.vis[i])):
		t.Fatalf("get %d: %v, %v, want %v", seq, got, err, x.m.vis[i])
	case seq > x.m.visSeq && !errors.Is(err, ErrEOF), !ok && seq <= x.m.visSeq && !errors.Is(err, ErrNotFound):
		t.Fatalf("get %d of something not there: %v", seq, err)
	}
	f := drawFilter(t)
	var fs []Filter
	if f != nil {
		fs = []Filter{f}
	}
	want, wantErr := x.m.find(seq, fs)
	if got, err := x.l.Next(seq, f); !errors.Is(err, wantErr) || !same(got, want) {
		t.Fatalf("next %d %v: %v, %v, want %v, %v", seq, f, got, err, want, wantErr)
	}
	want, wantErr = Record{}, ErrNotFound
	for _, r := range x.m.vis {
		if (seq == 0 || r.Seq <= seq) && matches(fs, r.Key) {
			want, wantErr = r, nil
		}
	}
	if got, err := x.l.Last(f, seq); !errors.Is(err, wantErr) || !same(got, want) {
		t.Fatalf("last %d %v: %v, %v, want %v, %v", seq, f, got, err, want, wantErr)
	}
	if got, want := x.l.Count(seq, fs), x.m.count(seq, fs); got != want {
		t.Fatalf("count %d %v: %d, want %d", seq, f, got, want)
	}
	when := x.m.lastTime - rapid.Int64Range(-3, 60).Draw(t, "ago")
	wantSeq := x.m.visSeq + 1
	if i := slices.IndexFunc(x.m.vis, func(r Record) bool { return r.Time >= when }); i >= 0 {
		wantSeq = x.m.vis[i].Seq
	}
	if got := x.l.SeqAtTime(when); got != wantSeq {
		t.Fatalf("seq at %d: %d, want %d", when, got, wantSeq)
	}
}

func (x *logTest) checkKeys(t *rapid.T) {
	f := drawFilter(t)
	want := map[string]KeyState{}
	for _, r := range x.m.vis {
		if f == nil || f.Match(r.Key) {
			ks := want[string(r.Key)]
			if ks.Count++; ks.Count == 1 {
				ks.First = r.Seq
			}
			ks.Last = r.Seq
			want[string(r.Key)] = ks
		}
	}
	got := map[string]KeyState{}
	x.l.EachKey(f, func(key []byte, ks KeyState) bool { got[string(key)] = ks; return true })
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("keys of %v:\n%v, want\n%v", f, got, want)
	}
	fs, upTo, limit := drawFilters(t), x.drawSeq(t), rapid.IntRange(0, 4).Draw(t, "limit")
	last := map[string]uint64{}
	for _, r := range x.m.vis {
		if (upTo == 0 || r.Seq <= upTo) && matches(fs, r.Key) {
			last[string(r.Key)] = r.Seq
		}
	}
	var wantSeqs []uint64
	for _, seq := range last {
		wantSeqs = append(wantSeqs, seq)
	}
	slices.Sort(wantSeqs)
	more := limit > 0 && len(wantSeqs) > limit
	if more {
		wantSeqs = wantSeqs[:limit]
	}
	if gotSeqs, gotMore := x.l.LastPerKey(fs, upTo, limit); !slices.Equal(gotSeqs, wantSeqs) || gotMore != more {
		t.Fatalf("last per key of %v up to %d: %v, %v, want %v, %v", fs, upTo, gotSeqs, gotMore, wantSeqs, more)
	}
	x.checkDeleted(t)
}

func (x *logTest) checkDeleted(t *rapid.T) {
	const most = 2000
	var got, want []uint64
	x.l.EachDeleted(func(seq uint64) bool { got = append(got, seq); return len(got) < most })
	if len(x.m.vis) > 0 {
		i := 0
		for seq := x.m.vis[0].Seq; seq <= x.m.visSeq && len(want) < most; seq++ {
			if i < len(x.m.vis) && x.m.vis[i].Seq == seq {
				i++
			} else {
				want = append(want, seq)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("deleted are %v, want %v", got, want)
	}
}

func TestModelInMemory(t *testing.T) {
	checkModel(t, func() Options { return Options{Shards: 2} })
}

// TestModelOnDisk reads most records from disk, while their segments are swept.
func TestModelOnDisk(t *testing.T) {
	checkModel(t, func() Options {
		return Options{Dir: "d", FS: vfs.NewMem(), Shards: 2, SegmentSize: 4 << 10, WindowSize: 1 << 10}
	})
}

func checkModel(t *testing.T, options func() Options) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		s, err := Open(t.Context(), options())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		first := rapid.SampledFrom([]uint64{0, 1, 1000}).Draw(t, "first")
		route := func(key []byte) int { return len(key) % 2 }
		l, err := s.CreateLog(LogSpec{Shards: []ShardID{0, 1}, FirstSeq: first, Size: testSize, Route: route})
		if err != nil {
			t.Fatal(err)
		}
		x := &logTest{s: s, l: l}
		x.m.lastSeq = max(first, 1) - 1
		x.m.show()
		defer x.thaw()
		t.Repeat(map[string]func(*rapid.T){
			"": x.Check, "append": x.Append, "appendMany": x.AppendMany, "outOfOrder": x.OutOfOrder,
			"delete": x.Delete, "deleteRun": x.DeleteRun, "purge": x.Purge, "freeze": x.Freeze, "thaw": x.Thaw,
			"newCursor": x.NewCursor, "useCursor": x.UseCursor, "seekCursor": x.SeekCursor,
		})
	})
}

package parity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/cutover"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWindowOfZeroIsRefused(t *testing.T) {
	for _, w := range []Window{{}, {Min: 1, Max: 1, Margin: 2}, {Initial: 1, Max: 1, Margin: 2}} {
		if _, err := New(Options{Asynchronous: true, Window: w}); !errors.Is(err, ErrWindow) {
			t.Fatalf("%+v: %v", w, err)
		}
	}
	if _, err := New(Options{Asynchronous: true, Window: Window{Initial: 1, Min: 1, Max: 1, Margin: .5}}); err == nil {
		t.Fatal("a margin below 1")
	}
	if _, err := New(Options{}); err != nil {
		t.Fatal("a copy that is written before the answer needs no window", err)
	}
}

func TestWindowFollowsTheLag(t *testing.T) {
	w, l := DefaultWindow(), &lags{}
	for range lagEnough - 1 {
		l.add(time.Millisecond)
	}
	if w.of(l.sum()) != w.Initial {
		t.Fatal("too little is measured")
	}
	for range 10 {
		l.add(700 * time.Millisecond)
	}
	if got := w.of(l.sum()); got != 14*time.Second {
		t.Fatal(got)
	}
	for range lagSamples {
		l.add(time.Millisecond)
	}
	if got := w.of(l.sum()); got != w.Min {
		t.Fatal(got)
	}
}

// A message that turns up behind a consumer that has passed is stranded, though its lag is 0: the consumer's own
// figures say nothing of it. With a filter too.
func TestStrandedWhileLagIsZero(t *testing.T) {
	js, nc := natsServer(t, jetstream.StreamConfig{})
	n := natsReader{nc, js}
	book := NewBook(0)
	book.Open(testScope, 1)
	last := publish(t, js, book, 60)
	l := newLens(n)
	l.gone[30] = true // appended, and not to be seen yet
	victim, err := n.Get(t.Context(), 30)
	if err != nil {
		t.Fatal(err)
	}
	for name, filter := range map[string]string{"all": "", "one": string(victim.Subject)} {
		book.Watch(testScope, name, 1)
		for seq := uint64(1); seq <= last; seq++ {
			if r, _ := n.Get(t.Context(), seq); seq != 30 && (filter == "" || string(r.Subject) == filter) {
				book.Offer(testScope, name, seq)
			}
		}
	}
	e := newEngine(t, book)
	err = e.Attach(Stream{
		Scope: testScope, NATS: l, EHDB: l, Config: &server.StreamConfig{},
		Consumers: func(context.Context) ([]Consumer, error) {
			return []Consumer{
				{Name: "all", Side: "nats", Delivered: last, AckFloor: last},
				{Name: "one", Side: "nats", Delivered: last, AckFloor: last, Config: server.ConsumerConfig{
					FilterSubject: string(victim.Subject),
				}},
				{Name: "unknown", Side: "nats", Delivered: last, AckFloor: last},
			}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	strandedOf := func(st Status) (sum uint64) {
		for _, c := range st.Consumers {
			sum += c.Stranded
		}
		return sum
	}
	st := tickUntil(t, e, "looked at", func(st Status) bool { return len(st.Consumers) == 3 })
	if strandedOf(st) != 0 || st.Consumers[0].Drift != 0 || st.Consumers[1].Drift != 0 {
		t.Fatalf("%+v", st.Consumers)
	}
	l.do(func() { delete(l.gone, 30) })
	st = tickUntil(t, e, "stranded", func(st Status) bool { return strandedOf(st) == 2 })
	for _, c := range st.Consumers[:2] {
		if !slices.Equal(c.StrandedSeqs, []uint64{30}) || c.Drift != 1 || c.NumPending != 0 {
			t.Fatalf("%+v", c)
		}
	}
	if c := st.Consumers[2]; c.Known || c.Stranded > 0 {
		t.Fatalf("nothing is known of it: %+v", c)
	}
	tickUntil(
		t,
		e,
		"out of balance for longer than the window",
		func(st Status) bool { return !st.Consumers[0].Balanced },
	)
	book.Offer(testScope, "all", 30)
	book.Offer(testScope, "one", 30)
	tickUntil(
		t,
		e,
		"delivered after all",
		func(st Status) bool { return strandedOf(st) == 0 && st.Consumers[0].Balanced },
	)
}

// An engine whose comparator sees nothing says so, and keeps saying nothing else.
func TestEngineWithoutEyes(t *testing.T) {
	e := newEngine(t, nil)
	e.compare = func(context.Context, *Pair, *Progress, int) (bool, error) { return false, nil }
	f := newFixture(time.Now(), old)
	if err := e.Attach(Stream{Scope: testScope, NATS: &f.authority, EHDB: &memory{}, Config: &server.StreamConfig{}}); err != nil {
		t.Fatal(err)
	}
	e.Tick(t.Context())
	if st := e.SelfTest(); st.OK {
		t.Fatalf("%+v", st)
	}
	if _, err := e.Verify(t.Context(), testScope, fixtureSize); !errors.Is(err, ErrControls) {
		t.Fatal(err)
	}
	if m := e.Stats(); m.Controls["missing"].Unexpected == 0 || m.ControlsOK {
		t.Fatalf("%+v", m.Controls)
	}
}

func attachFixture(t *testing.T, change func(s *Stream)) (*Engine, *fixture) {
	t.Helper()
	e, f := newEngine(t, nil), newFixture(time.Now(), old)
	s := Stream{Scope: testScope, NATS: &f.authority, EHDB: &f.copy, Config: &server.StreamConfig{}}
	if change != nil {
		change(&s)
	}
	if err := e.Attach(s); err != nil {
		t.Fatal(err)
	}
	return e, f
}

func TestKnownDivergencesAreIgnoredUntilTheyExpire(t *testing.T) {
	e, f := attachFixture(t, nil)
	dir := t.TempDir()
	if err := e.known.load(dir); err != nil {
		t.Fatal(err)
	}
	f.copy.at(3).Data[0] ^= 1
	tickUntil(t, e, "found", func(st Status) bool { return st.Counts.By[Mismatch] == 1 })
	k := Known{Name: "case-1", Scope: testScope, First: 3, Last: 3, Reason: "written by an older build"}
	if err := e.AddKnown(k); err == nil {
		t.Fatal("one that does not expire")
	}
	k.Expires = time.Now().Add(2 * testWindow)
	if err := e.AddKnown(k); err != nil {
		t.Fatal(err)
	}
	if again, err := New(Options{Dir: dir}); err != nil || len(again.Known()) != 1 ||
		again.Known()[0].Reason != k.Reason {
		t.Fatal("a restart forgets it", err)
	}
	tickUntil(t, e, "ignored", func(st Status) bool {
		return st.Counts.By[Ignored] == 1 && st.Counts.Diverged() == 0 && st.Digest.Equal
	})
	tickUntil(t, e, "found again", func(st Status) bool { return st.Counts.By[Mismatch] == 1 && len(e.Known()) == 0 })
}

func TestSuspendedIsNotPending(t *testing.T) {
	e, _ := attachFixture(t, func(s *Stream) {
		s.Expected = func() (uint64, string) { return 5, "it is being filled" }
	})
	st := tickUntil(t, e, "suspended", func(st Status) bool { return st.Counts.By[Suspended] == 3 })
	if st.Counts.By[Match] != 5 || st.Suspended == "" {
		t.Fatalf("%+v", st)
	}
}

// What the authority removed is superseded for a while, and extra if the copy keeps it; a gap on an authority whose
// rules do not make any is extra at once.
func TestRemovals(t *testing.T) {
	for _, interior := range []bool{true, false} {
		t.Run(fmt.Sprint(interior), func(t *testing.T) {
			e, f := attachFixture(t, func(s *Stream) { s.Config.AllowRollup = interior })
			f.authority.drop(1)
			f.authority.drop(4)
			e.Tick(t.Context())
			st, _ := e.Status(testScope)
			if interior != (st.Counts.By[Superseded] == 2) || interior != (st.Counts.By[Extra] == 0) {
				t.Fatalf("%+v", st.Counts)
			}
			tickUntil(t, e, "kept for too long", func(st Status) bool { return st.Counts.By[Extra] == 2 })
			f.copy.drop(1)
			f.copy.drop(4)
			tickUntil(t, e, "removed at last", func(st Status) bool {
				return st.Counts.Diverged() == 0 && st.Counts.By[Superseded] == 2 && st.Digest.Equal
			})
		})
	}
}

// standby is a copy that can be repaired.
type standby struct {
	*memory
	role   cutover.Role
	broken error
}

func (s *standby) Role() cutover.Role { return s.role }

func (s *standby) Put(_ context.Context, records []cutover.Record) error {
	if s.broken != nil {
		return s.broken
	}
	for _, r := range records {
		s.drop(r.Seq)
		s.records = append(s.records, cloneRecord(&r))
	}
	slices.SortFunc(s.records, func(a, b cutover.Record) int { return compareSeq(a.Seq, b.Seq) })
	return nil
}

func (s *standby) Remove(_ context.Context, seqs []uint64) error {
	for _, seq := range seqs {
		s.drop(seq)
	}
	return nil
}

func TestRepair(t *testing.T) {
	var sb *standby
	e, f := attachFixture(t, nil)
	sb = &standby{memory: &f.copy}
	f.copy.drop(2)
	f.copy.at(4).Data[0] ^= 1
	f.authority.drop(6)
	if _, err := e.Repair(t.Context(), testScope, []uint64{2}); err == nil {
		t.Fatal("what cannot be repaired")
	}
	if err := e.Attach(Stream{
		Scope: testScope, NATS: &f.authority, EHDB: &f.copy, Config: &server.StreamConfig{}, Repair: sb,
	}); err != nil {
		t.Fatal(err)
	}
	tickUntil(t, e, "found", func(st Status) bool { return st.Counts.Diverged() == 3 })
	sb.role = cutover.Authority
	if _, err := e.Repair(t.Context(), testScope, []uint64{2, 4, 6}); !errors.Is(err, cutover.ErrRole) {
		t.Fatal(err)
	}
	sb.role, sb.broken = cutover.Standby, ErrRefill
	if r, err := e.Repair(t.Context(), testScope, []uint64{2, 4}); err != nil || r.Outcome != "refused" ||
		len(r.Left) != 2 {
		t.Fatalf("%+v %v", r, err)
	}
	sb.broken = nil
	r, err := e.Repair(t.Context(), testScope, []uint64{2, 4, 6})
	if err != nil || r.Outcome != "repaired" || r.Content != 3 || r.Copied != 2 || r.Removed != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	tickUntil(t, e, "equal", func(st Status) bool { return st.Counts.Diverged() == 0 && st.Digest.Equal })
}

func TestStoreOfFindingsIsBounded(t *testing.T) {
	e, f := newEngine(t, nil), newFixture(time.Now(), old)
	e.store.limit = 3
	for i := range f.copy.records {
		f.copy.records[i].Data[0] ^= 1
	}
	if err := e.Attach(Stream{Scope: testScope, NATS: &f.authority, EHDB: &f.copy, Config: &server.StreamConfig{}}); err != nil {
		t.Fatal(err)
	}
	tickUntil(t, e, "found", func(st Status) bool { return st.Counts.By[Mismatch] == fixtureSize })
	if list, dropped := e.Findings(Query{}); len(list) != 3 || dropped < fixtureSize-3 {
		t.Fatalf("%d kept, %d dropped", len(list), dropped)
	}
}

// Whatever the sides hold, each sequence has one state, and the digests are equal exactly if the contents are.
func TestSumAndDigest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFixture(time.Now(), old)
		size := rapid.IntRange(1, 3000).Draw(rt, "size")
		f.authority, f.copy, f.ledger = memory{}, memory{}, notes{}
		for seq := uint64(1); seq <= uint64(size); seq++ { //nolint:gosec // small
			if rapid.IntRange(0, 9).Draw(rt, "gap") == 0 {
				continue
			}
			r := cutover.Record{Seq: seq, Time: 1, Subject: []byte("a"), Data: fmt.Append(nil, seq%7)}
			f.authority.records = append(f.authority.records, r)
			f.copy.records = append(f.copy.records, cloneRecord(&r))
		}
		f.authority.last, f.copy.last = uint64(size), uint64(size) //nolint:gosec // small
		for range rapid.IntRange(0, 5).Draw(rt, "faults") {
			if len(f.copy.records) == 0 {
				break
			}
			i := rapid.IntRange(0, len(f.copy.records)-1).Draw(rt, "at")
			switch rapid.IntRange(0, 3).Draw(rt, "fault") {
			case 0:
				f.copy.records[i].Data = fmt.Append(nil, rapid.IntRange(0, 8).Draw(rt, "data"))
			case 1:
				f.copy.drop(f.copy.records[i].Seq)
			case 2:
				j := rapid.IntRange(0, len(f.copy.records)-1).Draw(rt, "with")
				f.copy.records[i].Data, f.copy.records[j].Data = f.copy.records[j].Data, f.copy.records[i].Data
			case 3:
				f.copy.last++
				f.copy.records = append(f.copy.records, cutover.Record{Seq: f.copy.last, Time: 1, Data: []byte("x")})
			}
		}
		same := slices.EqualFunc(f.authority.records, f.copy.records, func(a, b cutover.Record) bool {
			return a.Seq == b.Seq && slices.Equal(a.Data, b.Data)
		})
		all := map[uint64]bool{}
		for _, side := range [][]cutover.Record{f.authority.records, f.copy.records} {
			for _, r := range side {
				all[r.Seq] = true
			}
		}
		p, g := f.pair(), &Progress{}
		p.Settled = math.MaxInt64
		for more := true; more; {
			var err error
			if more, err = Compare(t.Context(), p, g, rapid.IntRange(1, 500).Draw(rt, "budget")); err != nil {
				rt.Fatal(err)
			}
		}
		n := g.Counts()
		a, c := g.leaves.digests()
		if !n.Accounted() || n.Examined != uint64(len(all)) || (n.Diverged() == 0) != same || (a == c) != same {
			rt.Fatalf("same %v, digests equal %v, %d sequences: %v", same, a == c, len(all), n.Map())
		}
		if (len(g.leaves.ranges()) == 0) != same {
			rt.Fatalf("ranges %v", g.leaves.ranges())
		}
	})
}

func TestDifferenceIsLocatedInLogTime(t *testing.T) {
	a := make([]uint64, 1<<14)
	b := slices.Clone(a)
	b[777]++
	at, looked := differing(grow(a), grow(b))
	if !slices.Equal(at, []int{777}) || looked > 2*15 {
		t.Fatal(at, looked)
	}
}

func TestBook(t *testing.T) {
	b := NewBook(4)
	b.Note(testScope, cutover.Acked{Seq: 1}) // not open
	b.Open(testScope, 10)
	for _, seq := range []uint64{12, 11, 9, 11, 14, 13, 15} {
		b.Note(testScope, cutover.Acked{Seq: seq})
	}
	var got []uint64
	b.Acked(testScope, 0, 100, func(e cutover.Acked) bool { got = append(got, e.Seq); return true })
	if first, last, ok := b.Span(testScope); !ok || first != 12 || last != 15 ||
		!slices.Equal(got, []uint64{12, 13, 14, 15}) {
		t.Fatal(first, last, ok, got)
	}
	b.Settled(testScope, 14)
	if first, _, _ := b.Span(testScope); first != 15 {
		t.Fatal(first)
	}
	b.Watch(testScope, "c", 3)
	for _, seq := range []uint64{5, 7, 6, 9} {
		b.Offer(testScope, "c", seq)
	}
	var ranges []Range
	since, ok := b.Offered(testScope, "c", func(f, l uint64) bool { ranges = append(ranges, Range{f, l}); return true })
	if !ok || since != 3 || !slices.Equal(ranges, []Range{{5, 7}, {9, 9}}) {
		t.Fatal(since, ok, ranges)
	}
}

// reading counts the records that are read of a stream.
type reading struct {
	*memory
	records int
}

func (r *reading) Read(ctx context.Context, from uint64, fn func(*cutover.Record, error) bool) error {
	return r.memory.Read(ctx, from, func(rec *cutover.Record, err error) bool {
		r.records++
		return fn(rec, err)
	})
}

// TestYoungIsNotRead: what is too young to be compared is not read, however much of it there is: else each look at a busy
// stream takes as long as the window is wide. What is old enough before it is compared all the same.
func TestYoungIsNotRead(t *testing.T) {
	now := time.Now()
	a := &reading{memory: &memory{}}
	for seq := uint64(1); seq <= 5000; seq++ {
		at := now
		if seq <= 40 {
			at = now.Add(-time.Hour)
		}
		a.memory.records = append(a.memory.records, cutover.Record{Seq: seq, Time: at.UnixNano(), Subject: []byte("s")})
		a.last = seq
	}
	c := &reading{memory: &memory{records: a.memory.records, last: a.last}}
	p := &Pair{
		Scope: testScope, Authority: a, Copy: c, Config: &server.StreamConfig{}, Now: now.UnixNano(),
		Settled: now.Add(-time.Minute).UnixNano(), Expected: math.MaxUint64,
	}
	g := &Progress{}
	for range 3 {
		if _, err := Compare(t.Context(), p, g, 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := g.Counts(); n.By[Match] != 40 || n.By[Pending] != 4960 || !n.Accounted() {
		t.Errorf("counts %+v", n.Map())
	}
	if a.records > 60 || c.records > 60 {
		t.Errorf("%d and %d records were read for 40 that are old enough", a.records, c.records)
	}
}

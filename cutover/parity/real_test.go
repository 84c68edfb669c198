package parity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
)

var testScope = cutover.Scope{Account: "$G", Stream: "S"}

// natsServer starts a real nats-server with a stream S on s.>.
func natsServer(t *testing.T, cfg jetstream.StreamConfig) (jetstream.JetStream, *nats.Conn) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the nats-server does not come up")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Name, cfg.Subjects = "S", []string{"s.>"}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return js, nc
}

// natsReader reads a stream of a real nats-server by its API.
type natsReader struct {
	nc *nats.Conn
	js jetstream.JetStream
}

//nolint:revive // as in cutover.Reader
func (r natsReader) State(ctx context.Context, deleted bool) (st server.StreamState, err error) {
	var req []byte
	if deleted {
		req = []byte(`{"deleted_details":true}`)
	}
	m, err := r.nc.RequestWithContext(ctx, "$JS.API.STREAM.INFO.S", req)
	if err != nil {
		return st, err
	}
	var info server.StreamInfo
	if err := json.Unmarshal(m.Data, &info); err != nil {
		return st, err
	}
	return info.State, nil
}

func (r natsReader) get(ctx context.Context, req string) (*cutover.Record, error) {
	m, err := r.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.S", []byte(req))
	if err != nil {
		return nil, err
	}
	var a server.JSApiMsgGetResponse
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return nil, err
	}
	if a.Error != nil {
		return nil, fmt.Errorf("%s: %w", a.Error.Description, cutover.ErrNoRecord)
	}
	return &cutover.Record{
		Seq: a.Message.Sequence, Time: a.Message.Time.UnixNano(), Subject: []byte(a.Message.Subject),
		Header: a.Message.Header, Data: a.Message.Data,
	}, nil
}

func (r natsReader) Read(ctx context.Context, from uint64, fn func(*cutover.Record, error) bool) error {
	for {
		rec, err := r.get(ctx, fmt.Sprintf(`{"seq":%d,"next_by_subj":">"}`, from))
		if errors.Is(err, cutover.ErrNoRecord) {
			return nil
		}
		if err != nil {
			return err
		}
		if !fn(rec, nil) {
			return nil
		}
		from = rec.Seq + 1
	}
}

func (r natsReader) Get(ctx context.Context, seq uint64) (*cutover.Record, error) {
	return r.get(ctx, fmt.Sprintf(`{"seq":%d}`, seq))
}

// lens is a copy with faults: what it shows is read from a real stream and then spoilt.
type lens struct {
	cutover.Reader
	mu    sync.Mutex
	last  uint64 // it has got no further; 0: it follows
	bad   map[uint64]bool
	gone  map[uint64]bool
	other map[uint64]*cutover.Record // in the place of that sequence, or where there is none
}

func newLens(r cutover.Reader) *lens {
	return &lens{Reader: r, bad: map[uint64]bool{}, gone: map[uint64]bool{}, other: map[uint64]*cutover.Record{}}
}

func (l *lens) do(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
}

func (l *lens) State(ctx context.Context, deleted bool) (server.StreamState, error) {
	st, err := l.Reader.State(ctx, deleted)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last > 0 {
		st.LastSeq = min(st.LastSeq, l.last)
	}
	for seq := range l.other {
		st.LastSeq = max(st.LastSeq, seq)
	}
	for seq := range l.gone {
		st.Deleted, st.Msgs = append(st.Deleted, seq), st.Msgs-1
	}
	return st, err
}

// through is what the lens makes of a record: nil if it hides it.
func (l *lens) through(seq uint64, r *cutover.Record) (*cutover.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.bad[seq]:
		return nil, &cutover.UnreadableError{Seq: seq, Err: errors.New("a frame is larger than the reader takes")}
	case l.gone[seq]:
		return nil, nil
	case l.other[seq] != nil:
		return l.other[seq], nil
	case l.last > 0 && seq > l.last:
		return nil, nil
	}
	return r, nil
}

func (l *lens) Read(ctx context.Context, from uint64, fn func(*cutover.Record, error) bool) error {
	next, stopped := from, false
	show := func(seq uint64, rec *cutover.Record) bool {
		next = seq + 1
		r, err := l.through(seq, rec)
		if r == nil && err == nil {
			return true
		}
		stopped = !fn(r, err)
		return !stopped
	}
	err := l.Reader.Read(ctx, from, func(r *cutover.Record, err error) bool {
		if err != nil {
			return fn(nil, err)
		}
		return show(r.Seq, r)
	})
	if err != nil || stopped {
		return err
	}
	l.mu.Lock()
	seqs := slices.Sorted(maps.Keys(l.other))
	l.mu.Unlock()
	for _, seq := range seqs {
		if seq >= next && !show(seq, nil) {
			break
		}
	}
	return nil
}

func (l *lens) Get(ctx context.Context, seq uint64) (*cutover.Record, error) {
	r, err := l.Reader.Get(ctx, seq)
	if err != nil && !errors.Is(err, cutover.ErrNoRecord) {
		return nil, err
	}
	shown, bad := l.through(seq, r)
	if bad != nil {
		return nil, bad
	}
	if shown == nil {
		return nil, cutover.ErrNoRecord
	}
	return shown, nil
}

// publish publishes n messages and notes their acknowledgements.
func publish(t *testing.T, js jetstream.JetStream, book *Book, n int) (last uint64) {
	t.Helper()
	for i := range n {
		m := nats.NewMsg(fmt.Sprintf("s.%d", rand.IntN(5)))
		m.Data = fmt.Appendf(nil, "message %d %d", i, rand.Uint64())
		if i%3 > 0 {
			m.Header.Set("Nats-Msg-Id", fmt.Sprint(rand.Uint64()))
			m.Header.Set("Kind", "test")
		}
		ack, err := js.PublishMsg(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if book != nil {
			header := []byte(nil)
			if len(m.Header) > 0 {
				header = []byte("NATS/1.0\r\n")
				for k, v := range m.Header {
					header = append(header, k+": "+v[0]+"\r\n"...)
				}
				header = append(header, "\r\n"...)
			}
			book.Note(testScope, cutover.Acked{
				Seq: ack.Sequence, Subject: m.Subject, Hash: cutover.Hash([]byte(m.Subject), header, m.Data),
				When: time.Now().UnixNano(),
			})
		}
		last = ack.Sequence
	}
	return last
}

const testWindow = 400 * time.Millisecond

func newEngine(t *testing.T, book *Book) *Engine {
	t.Helper()
	return newEngineWindow(t, book, testWindow)
}

func newEngineWindow(t *testing.T, book *Book, window time.Duration) *Engine {
	t.Helper()
	o := Options{
		Window:       Window{Initial: window, Min: window, Max: window, Margin: 1},
		Asynchronous: true, Interval: 20 * time.Millisecond, Delivery: 20 * time.Millisecond, Removal: testWindow,
	}
	if book != nil {
		o.Ledger, o.Deliveries = book, book
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// tickUntil ticks until ok, for at most a few windows.
func tickUntil(t *testing.T, e *Engine, what string, ok func(Status) bool) Status {
	t.Helper()
	var st Status
	for end := time.Now().Add(20 * testWindow); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		e.Tick(t.Context())
		var err error
		if st, err = e.Status(testScope); err != nil {
			t.Fatal(err)
		}
		if !st.Counts.Accounted() {
			t.Fatalf("%d states for %d examined: %+v", st.Counts.Sum(), st.Counts.Examined, st)
		}
		if ok(st) {
			return st
		}
	}
	b, _ := json.MarshalIndent(st, "", " ")
	list, _ := e.Findings(Query{})
	t.Fatalf("%s: %s\n%+v", what, b, list)
	return st
}

// Each fault between a real nats-server and a copy is found with the right verdict, and what was not touched is not.
func TestFaultMatrix(t *testing.T) {
	js, nc := natsServer(t, jetstream.StreamConfig{})
	n := natsReader{nc, js}
	book := NewBook(0)
	book.Open(testScope, 1)
	last := publish(t, js, book, 60)
	equal := func(st Status) bool {
		return st.Counts.By[Match] == last && st.Counts.Examined == last && st.Digest.Equal
	}
	for name, tc := range map[string]struct {
		inject func(l *lens, get func(uint64) *cutover.Record)
		state  State
		n      uint64
		field  string
	}{
		"drop": {func(l *lens, _ func(uint64) *cutover.Record) { l.gone[30] = true }, Missing, 1, ""},
		"alter": {func(l *lens, get func(uint64) *cutover.Record) {
			r := get(30)
			r.Data[len(r.Data)-1] ^= 4
			l.other[30] = r
		}, Mismatch, 1, "data"},
		"alter the time": {func(l *lens, get func(uint64) *cutover.Record) {
			r := get(30)
			r.Time++
			l.other[30] = r
		}, Mismatch, 1, "time"},
		"swap": {func(l *lens, get func(uint64) *cutover.Record) {
			a, b := get(30), get(31)
			a.Seq, b.Seq, a.Time, b.Time = 31, 30, b.Time, a.Time
			l.other[30], l.other[31] = b, a
		}, Reordered, 2, ""},
		"duplicate": {func(l *lens, get func(uint64) *cutover.Record) {
			r := get(30)
			r.Seq = last + 1
			l.other[r.Seq] = r
		}, Duplicate, 1, ""},
		"spurious": {func(l *lens, get func(uint64) *cutover.Record) {
			r := get(30)
			r.Seq, r.Data = last+1, []byte("never published")
			l.other[r.Seq] = r
		}, Extra, 1, ""},
		"unreadable":  {func(l *lens, _ func(uint64) *cutover.Record) { l.bad[30] = true }, NotComparable, 1, ""},
		"late, still": {func(l *lens, _ func(uint64) *cutover.Record) { l.last = last - 3 }, Missing, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e, l := newEngine(t, book), newLens(n)
			if err := e.Attach(Stream{Scope: testScope, NATS: n, EHDB: l, Config: &server.StreamConfig{}}); err != nil {
				t.Fatal(err)
			}
			tickUntil(t, e, "everything is equal at first", equal)
			l.do(func() {
				tc.inject(l, func(seq uint64) *cutover.Record {
					r, err := n.Get(t.Context(), seq)
					if err != nil {
						t.Fatal(err)
					}
					return r
				})
			})
			if err := e.Full(testScope); err != nil { // what was compared already is looked at again
				t.Fatal(err)
			}
			st := tickUntil(t, e, "the fault", func(st Status) bool { return st.Counts.By[tc.state] == tc.n })
			if tc.state.Diverged() && st.Outcome != "divergent" ||
				!tc.state.Diverged() && st.Outcome != "not_comparable" {
				t.Fatalf("outcome %s", st.Outcome)
			}
			if tc.state.Diverged() && name != "late, still" && st.Digest.Equal {
				t.Fatal("the digests do not tell")
			}
			list, _ := e.Findings(Query{States: []State{tc.state}})
			if uint64(len(list)) != tc.n || tc.field != "" && list[0].Field != tc.field {
				t.Fatalf("%+v", list)
			}
			if f, err := e.Explain(t.Context(), testScope, list[0].Seq); err != nil || f.State == Match {
				t.Fatalf("%+v, %v", f, err)
			}
			l.do(func() {
				l.gone, l.bad, l.other, l.last = map[uint64]bool{}, map[uint64]bool{}, map[uint64]*cutover.Record{}, 0
			})
			tickUntil(t, e, "what is put right is equal again", equal)
			if list, _ := e.Findings(Query{}); len(list) > 0 {
				t.Fatalf("%+v", list)
			}
			if list, _ := e.Findings(Query{Healed: true}); len(list) == 0 {
				t.Fatal("what healed is forgotten")
			}
		})
	}
}

// What the copy lacks is pending within the window and missing beyond it, and what was acknowledged and is gone is
// lost.
func TestWitnesses(t *testing.T) {
	js, nc := natsServer(t, jetstream.StreamConfig{})
	n := natsReader{nc, js}
	book := NewBook(0)
	book.Open(testScope, 1)
	last := publish(t, js, book, 20)
	e, l := newEngine(t, book), newLens(n)
	if err := e.Attach(Stream{Scope: testScope, NATS: n, EHDB: l, Config: &server.StreamConfig{}}); err != nil {
		t.Fatal(err)
	}
	tickUntil(t, e, "equal", func(st Status) bool { return st.Counts.By[Match] == last })
	l.do(func() { l.last = last })
	late := publish(t, js, book, 2)
	e.Tick(t.Context())
	if st, _ := e.Status(testScope); st.Counts.By[Pending] != 2 || st.Counts.By[Match] != last ||
		st.Outcome != "match" {
		t.Fatalf("%+v", st)
	}
	tickUntil(t, e, "missing once they are old", func(st Status) bool { return st.Counts.By[Missing] == 2 })
	l.do(func() { l.last = 0 })
	tickUntil(t, e, "late", func(st Status) bool { return st.Counts.By[Match] == late && st.Digest.Equal })

	publish(t, js, nil, 1)
	st := tickUntil(t, e, "without an ack", func(st Status) bool { return st.Unacknowledged == 1 })
	if !slices.Equal(st.UnacknowledgedSeqs, []uint64{late + 1}) || st.Counts.Diverged() > 0 {
		t.Fatalf("%+v", st)
	}
	book.Note(testScope, cutover.Acked{Seq: late + 5, Subject: "s.1", Hash: 1, When: time.Now().UnixNano()})
	tickUntil(t, e, "acknowledged and nowhere", func(st Status) bool { return st.Counts.By[LostByNATS] == 1 })
}

// With a copier that works, random traffic and removals make no findings.
func TestNothingInjected(t *testing.T) {
	length := 12 * time.Second
	if os.Getenv("EHDB_SLOW") != "" {
		length = 10 * time.Minute
	}
	const most = 800 // well above what comes within the window: the rest is compared, or was removed by the limit
	js, nc := natsServer(t, jetstream.StreamConfig{MaxMsgs: most, AllowDirect: true})
	other, onc := natsServer(t, jetstream.StreamConfig{MaxMsgs: most})
	a, c := natsReader{nc, js}, natsReader{onc, other}
	e := newEngineWindow(t, nil, 4*time.Second) // far above the lag of this copier on a machine that is busy
	cfg := &server.StreamConfig{MaxMsgs: most}
	if err := e.Attach(Stream{Scope: testScope, Reverse: true, NATS: c, EHDB: a, Config: cfg}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { e.Run(ctx) })
	wg.Go(func() {
		for next := uint64(1); ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			err := a.Read(ctx, next, func(r *cutover.Record, _ error) bool {
				m := nats.NewMsg(string(r.Subject))
				m.Data = r.Data
				if len(r.Header) > 0 {
					m.Header, _ = nats.DecodeHeadersMsg(r.Header)
				}
				m.Header.Set(cutover.HeaderOrigin, "test")
				m.Header.Del("Nats-Msg-Id")
				if id := headerOf(r.Header, "Nats-Msg-Id"); id != "" {
					m.Header.Set("Nats-Msg-Id", id)
				}
				if _, err := other.PublishMsg(ctx, m, jetstream.WithExpectLastSequence(r.Seq-1)); err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return false
				}
				next = r.Seq + 1
				return true
			})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	for ctx.Err() == nil {
		publish(t, js, nil, 1+rand.IntN(4))
		time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
	}
	wg.Wait()
	st, err := e.Status(testScope)
	list, dropped := e.Findings(Query{Healed: true})
	if err != nil || len(list) > 0 || dropped > 0 || !st.Digest.Equal || !st.Counts.Accounted() ||
		st.Counts.By[Match] < 100 {
		t.Fatalf("%+v %v %d findings, the first %+v", st, err, len(list), list[:min(len(list), 2)])
	}
	t.Logf("%+v", st.Counts.Map())
}

func headerOf(block []byte, name string) string {
	for _, f := range cutover.Fields(nil, block) {
		if string(f.Name) == name {
			return string(f.Value)
		}
	}
	return ""
}

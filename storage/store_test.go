package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/tail"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

func open(t *testing.T, o Options) *Store {
	t.Helper()
	if o.SegmentSize == 0 {
		o.SegmentSize = 64 << 10
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func create(t *testing.T, s *Store, shards ...ShardID) *Log {
	t.Helper()
	if len(shards) == 0 {
		shards = []ShardID{0}
	}
	l, err := s.CreateLog(LogSpec{Shards: shards, Name: "ACC/S"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func rec(seq uint64, key string, size int) *Record {
	return &Record{Seq: seq, Time: int64(seq), Key: []byte(key), Data: make([]byte, size)}
}

// answers counts what done functions were told.
type answers struct {
	mu   sync.Mutex
	got  map[uint64][]error
	seqs []uint64
}

func (a *answers) done(seq uint64) Done {
	return func(err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.got == nil {
			a.got = map[uint64][]error{}
		}
		a.got[seq] = append(a.got[seq], err)
		a.seqs = append(a.seqs, seq)
	}
}

// TestCreateWithItsRecord: a log that is made is committed together with what is written next, not on its own.
func TestCreateWithItsRecord(t *testing.T) {
	s := open(t, Options{FS: vfs.NewMem(), Dir: "data", Shards: 2})
	before := s.Stats().Commits
	for i := range 20 {
		l, err := s.CreateStateLog(ShardID(i%2), "state", false)
		if err != nil {
			t.Fatal(err)
		}
		runtime.Gosched() // the commit loop may run, if it was woken
		durable := make(chan error, 1)
		if err := s.Catalog().Append([]byte{byte(l.ID())}, func(err error) { durable <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-durable; err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Stats().Commits - before; n != 20 {
		t.Errorf("%d commits, want 20", n)
	}
}

// stalledDisk is a hook that keeps syncs waiting.
type stalledDisk struct{ gate atomic.Pointer[chan struct{}] }

func (d *stalledDisk) hook(op vfs.Op) error {
	if g := d.gate.Load(); op.Kind == vfs.OpSync && g != nil {
		<-*g
	}
	return nil
}

func TestQueueBound(t *testing.T) {
	var disk stalledDisk
	const bound = 64 << 10
	s := open(t, Options{Dir: "d", FS: vfs.NewFault(vfs.NewMem(), disk.hook), Shards: 2, QueueBytes: bound})
	l, other := create(t, s, 0), create(t, s, 1)
	wait(t, l)
	if s.Stall() != nil {
		t.Fatal("an idle store asks for a pause")
	}
	gate := make(chan struct{})
	disk.gate.Store(&gate)
	var a answers
	seq, stalledAt := uint64(1), uint64(0)
	for ; ; seq++ {
		err := l.Append(rec(seq, "k", 1000), a.done(seq))
		if stalledAt == 0 && s.Stall() != nil {
			stalledAt = seq
		}
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil || seq > 1000 {
			t.Fatalf("append %d: %v", seq, err)
		}
	}
	queued := s.Stats().Shards[0].QueuedBytes
	if queued > bound || queued < bound-2000 || stalledAt < 10 || stalledAt > 20 {
		t.Fatalf("full at %d bytes of %d, pause asked for at record %d of %d", queued, bound, stalledAt, seq)
	}
	if st := l.State(); st.LastSeq != seq-1 || st.Messages != seq-1 {
		t.Fatalf("the refused record left a trace: %+v", st)
	}
	if err := other.Append(rec(1, "k", 1000), nil); err != nil {
		t.Fatalf("the other shard: %v", err)
	}
	if n, err := l.Delete([]uint64{1, 2}, false, nil); n != 2 || err != nil {
		t.Fatalf("a deletion must have room: %d, %v", n, err)
	}
	stall := s.Stall()
	disk.gate.Store(nil)
	close(gate)
	<-stall
	wait(t, l)
	if len(a.seqs) != int(seq-1) || !slices.IsSorted(a.seqs) {
		t.Fatalf("%d of %d were told, in order: %v", len(a.seqs), seq-1, slices.IsSorted(a.seqs))
	}
	if got := s.Stats().Shards[0].QueuedBytes; got != 0 {
		t.Fatalf("%d bytes stay queued", got)
	}
}

// TestOrder holds invariants 1 and 2: records reach the tail in the order of Append over all logs, done functions run
// in that order, when the record is durable and visible, under no lock.
func TestOrder(t *testing.T) {
	disk := vfs.NewMem()
	s := open(t, Options{Dir: "d", FS: disk, Shards: 3})
	logs := []*Log{create(t, s, 0), create(t, s, 1, 2), create(t, s, 2)}
	for _, l := range logs {
		l.route = func(key []byte) int { return int(key[0]) % 2 }
	}
	var (
		mu     sync.Mutex // makes the order of Append known
		order  []string
		told   []string // belongs to the ack loop
		wg     sync.WaitGroup
		visits atomic.Int64
	)
	for i, l := range logs {
		l.OnVisible(func(visible uint64, err error) {
			visits.Add(1)
			if err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			for seq := uint64(1); seq <= 3000; seq++ {
				mu.Lock()
				name := fmt.Sprint(i, ":", seq)
				order = append(order, name)
				err := l.Append(&Record{Seq: seq, Key: []byte{byte(seq)}, Data: []byte(name)}, func(err error) {
					told = append(told, name)
					if r, getErr := l.Get(seq); err != nil || getErr != nil || string(r.Data) != name || l.Visible() < seq {
						t.Errorf("%s: %v, %v, %q", name, err, getErr, r.Data)
					}
					l.State() // would hang if a lock were held
					s.Stats()
				})
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, l := range logs {
		wait(t, l)
	}
	s.Close()
	if !slices.Equal(order, told) {
		t.Fatal("done functions did not run in the order of Append")
	}
	if v := visits.Load(); v < 3 || v > int64(3*s.Stats().Commits) {
		t.Fatalf("OnVisible was called %d times for %d commits", v, s.Stats().Commits)
	}
	if got := tailOrder(t, disk); !slices.Equal(order, got) {
		t.Fatal("the tail does not have the order of Append")
	}
}

// tailOrder reads the data of the messages in the tail in the order of their places in their blocks.
func tailOrder(t *testing.T, disk *vfs.Mem) (names []string) {
	t.Helper()
	f, err := tail.Open(tail.Options{FS: disk, Dir: "d/wal", SegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = f.Replay(func(_ tail.LSN, _ tail.Pos, body []byte) error {
		d := decoder{b: body}
		d.byte()
		block := map[uint64]string{}
		last := uint64(0)
		for n := d.uvarint(); n > 0; n-- {
			d.uvarint()
			d.uvarint()
			d.uvarint()
			in := decoder{b: d.bytes(d.length())}
			for in.pos < len(in.b) {
				var r decoded
				place := in.uvarint()
				if err := in.next(&r); err != nil {
					return err
				}
				last = max(last, place)
				if r.kind == kindMessage {
					block[place] = string(r.rec.Data)
				}
			}
		}
		for i := uint64(0); i <= last; i++ {
			if name := block[i]; name != "" {
				names = append(names, name)
			}
		}
		return d.err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestReadersDuringAppends is for the race detector: everything that reads runs while records come and go.
func TestReadersDuringAppends(t *testing.T) {
	for _, dir := range []string{"", "d"} {
		s := open(t, Options{Dir: dir, FS: vfs.NewMem(), Shards: 2, WindowSize: 16 << 10, SegmentSize: 256 << 10})
		l := create(t, s, 0, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		f := testFilter{prefix: "a"}
		readers := []func(*rand.Rand){
			func(r *rand.Rand) { l.Get(r.Uint64N(l.Visible() + 1)) },
			func(*rand.Rand) { l.Last(f, 0) },
			func(r *rand.Rand) { l.Next(r.Uint64N(l.Visible()+1), f) },
			func(*rand.Rand) { l.LastPerKey([]Filter{f}, 0, 3) },
			func(*rand.Rand) { l.EachKey(f, func([]byte, KeyState) bool { return true }) },
			func(*rand.Rand) { l.EachDeleted(func(uint64) bool { return true }) },
			func(r *rand.Rand) {
				l.SeqAtTime(r.Int64N(3000))
				l.State()
				l.VisibleState()
				l.Key([]byte("a.1"))
				s.Stats()
			},
		}
		for i, read := range readers {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(1, uint64(i)))
				for ctx.Err() == nil {
					read(rnd)
					runtime.Gosched()
				}
			})
		}
		for i := range 2 {
			wg.Go(func() { checkCursor(ctx, t, l, i) })
		}
		for seq := uint64(1); seq <= 1500; seq++ {
			r := rec(seq, fmt.Sprintf("%c.%d", 'a'+seq%3, seq%50), 100)
			binary.LittleEndian.PutUint64(r.Data, seq)
			if err := l.Append(r, nil); err != nil {
				t.Fatal(err)
			}
			if seq%3 == 0 {
				l.Delete([]uint64{seq / 2, seq}, false, nil)
			}
			if seq%500 == 0 {
				l.Purge(nil, 0, 100, nil)
			}
		}
		wait(t, l)
		cancel()
		wg.Wait()
		s.Close()
	}
}

// checkCursor demands rising sequences and whole records.
func checkCursor(ctx context.Context, t *testing.T, l *Log, i int) {
	t.Helper()
	var filters []Filter
	if i > 0 {
		filters = []Filter{testFilter{prefix: "b"}}
	}
	c, last := l.NewCursor(0, filters), uint64(0)
	for ctx.Err() == nil {
		r, err := c.Next()
		if errors.Is(err, ErrEOF) {
			if c.Pending() > 1<<40 {
				t.Errorf("pending is %d", c.Pending())
				return
			}
			continue
		}
		if err != nil || r.Seq <= last || binary.LittleEndian.Uint64(r.Data) != r.Seq || i > 0 && r.Key[0] != 'b' {
			t.Errorf("after %d: %d %q, %v", last, r.Seq, r.Key, err)
			return
		}
		last = r.Seq
	}
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	open(t, Options{Dir: dir, SegmentSize: 64 << 10})
	_, err := Open(t.Context(), Options{Dir: dir})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "process ") {
		t.Fatalf("second open: %v", err)
	}
}

// TestDirectoryKeepsItsShards: the number of shards and their positions survive restarts.
func TestDirectoryKeepsItsShards(t *testing.T) {
	disk := vfs.NewMem()
	s := open(t, Options{Dir: "d", FS: disk, Shards: 3})
	l := create(t, s, 2)
	for seq := uint64(1); seq <= 5; seq++ {
		if err := l.Append(rec(seq, "k", 1), nil); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, l)
	s.Close()
	for range 2 {
		s = open(t, Options{Dir: "d", FS: disk, Shards: 7})
		if s.Shards() != 3 {
			t.Fatalf("%d shards", s.Shards())
		}
		if sh := s.Stats().Shards[2]; sh.Head != 6 || sh.Committed != 6 {
			t.Fatalf("shard 2 is at %+v", sh)
		}
		s.Close()
	}
}

func TestUnknownFormats(t *testing.T) {
	for name, body := range map[string][]byte{
		"version": {9, 0},
		"kind":    {1, 1, 0, 1, 0, 3, 0, 77, 2},
		"shard":   {1, 1, 5, 1, 0, 3, 0, 5, 2},
		"order":   {1, 1, 0, 1, 0, 3, 4, 5, 2},
		"count":   {1, 1, 0, 2, 0, 3, 0, 5, 2},
		"rest":    {1, 1, 0, 1, 0, 3, 0, 5, 2, 0},
		"nolog":   {1, 1, 0, 1, 0, 5, 0, 6, 2, 1, 'x'},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			open(t, Options{Dir: "d", FS: disk, Shards: 2}).Close()
			f, err := tail.Open(tail.Options{FS: disk, Dir: "d/wal", SegmentSize: 64 << 10})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Replay(func(tail.LSN, tail.Pos, []byte) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if _, _, err := f.Append(body); err != nil {
				t.Fatal(err)
			}
			f.Close()
			_, err = Open(t.Context(), Options{Dir: "d", FS: disk, SegmentSize: 64 << 10})
			corrupt, ok := errors.AsType[*CorruptError](err)
			if !ok || corrupt.Hint == "" || corrupt.Path == "" {
				t.Fatalf("open: %v", err)
			}
			if name == "kind" && !strings.Contains(err.Error(), "kind 77 is not known to format version 1") {
				t.Fatalf("open: %v", err)
			}
		})
	}
}

func TestDamagedMeta(t *testing.T) {
	good := encodeMeta(3)
	if n, err := decodeMeta(good); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for i := range good {
		for bit := range 8 {
			bad := slices.Clone(good)
			bad[i] ^= 1 << bit
			if _, err := decodeMeta(bad); err == nil {
				t.Fatalf("bit %d of byte %d changed unseen", bit, i)
			}
		}
		if _, err := decodeMeta(good[:i]); err == nil {
			t.Fatalf("cut at %d unseen", i)
		}
	}
}

func TestMissingMeta(t *testing.T) {
	disk := vfs.NewMem()
	s := open(t, Options{Dir: "d", FS: disk})
	create(t, s)
	s.Close()
	if err := disk.Remove("d/" + metaName); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Options{Dir: "d", FS: disk, SegmentSize: 64 << 10})
	if _, ok := errors.AsType[*CorruptError](err); !ok {
		t.Fatalf("open: %v", err)
	}
}

package inspect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/inspect"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dataDir = "data"

// contents is all that can be read of a data directory, by log.
type contents map[uint64][]string

func (c contents) add(log uint64, format string, args ...any) {
	c[log] = append(c[log], fmt.Sprintf(format, args...))
}

func same(a, b contents) string {
	for log := range maps.Keys(a) {
		if !slices.Equal(a[log], b[log]) {
			for i, r := range a[log] {
				if i >= len(b[log]) || b[log][i] != r {
					return fmt.Sprintf("log %d: %d and %d, number %d is %s", log, len(a[log]), len(b[log]), i, r)
				}
			}
			return fmt.Sprintf("log %d: %d and %d", log, len(a[log]), len(b[log]))
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("%d logs and %d", len(a), len(b))
	}
	return ""
}

// open opens a store in small segments.
func open(t *testing.T, fsys vfs.FS) *storage.Store {
	t.Helper()
	s, err := openStore(t.Context(), fsys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openStore(ctx context.Context, fsys vfs.FS) (*storage.Store, error) {
	return storage.Open(ctx, storeOptions(fsys))
}

func storeOptions(fsys vfs.FS) storage.Options {
	return storage.Options{
		Dir: dataDir, FS: fsys, Shards: 2, SegmentSize: 4 << 10, SealMaxAge: time.Millisecond, SealRecords: 40,
		Encryption: encryption(fsys),
	}
}

// form is how a store keeps records: in the write-ahead log only, or sealed in parts as they get old; as they are, or
// encrypted and, in parts, compressed.
type form struct{ sealed, encrypted bool }

var forms = map[string]form{
	"tail": {}, "sealed": {sealed: true}, "encrypted tail": {encrypted: true}, "encrypted": {sealed: true, encrypted: true},
}

// storeSecret is what encrypted stores are encrypted with.
var storeSecret = []byte("the secret of a store")

// encryption is that of the directory that is there.
func encryption(fsys vfs.FS) (o crypt.RingOptions) {
	for _, name := range []string{crypt.RingName, crypt.CopyName} {
		if _, err := fsys.Stat(path.Join(dataDir, name)); err == nil {
			o.Secret, o.Cost = storeSecret, 1
		}
	}
	return o
}

// create makes a store in one of the forms. It keeps to it when it is opened again.
func create(t *testing.T, fsys vfs.FS, f form) *storage.Store {
	t.Helper()
	o := storeOptions(fsys)
	if o.Seal = f.sealed; f.encrypted {
		o.Encryption = crypt.RingOptions{Secret: storeSecret, Cost: 1}
	}
	s, err := storage.Open(t.Context(), o)
	must(t, err)
	return s
}

// product is what the store reads.
func product(s *storage.Store) (contents, error) {
	c := contents{}
	type meta struct {
		id    storage.LogID
		state bool
	}
	var all []meta
	s.EachLog(func(id storage.LogID, _ string, state bool) { all = append(all, meta{id, state}) })
	for _, m := range all {
		c[uint64(m.id)] = nil
		if m.state {
			l, err := s.OpenStateLog(m.id)
			if err != nil {
				return nil, err
			}
			err = l.Load(func(b []byte, cp bool) error {
				c.add(uint64(m.id), "%v %q", cp, b)
				return nil
			})
			if err != nil {
				return nil, err
			}
			continue
		}
		l, err := s.OpenLog(m.id, storage.LogSpec{})
		if err != nil {
			return nil, err
		}
		cur := l.NewCursor(0, nil)
		for {
			r, err := cur.Next()
			if errors.Is(err, storage.ErrEOF) {
				break
			}
			if err != nil {
				return nil, err
			}
			c.add(uint64(m.id), "%d %d %q %q %q", r.Seq, r.Time, r.Key, r.Header, r.Data)
		}
		st := l.State()
		c.add(uint64(m.id), "last %d", st.LastSeq)
	}
	return c, nil
}

// independent is what this package reads.
func independent(t *testing.T, d *inspect.Directory) contents {
	t.Helper()
	c := contents{}
	for _, l := range d.Logs {
		c[l.ID] = nil
		err := d.Each(t.Context(), l, 0, ^uint64(0), func(r *inspect.Record) bool {
			if l.State {
				c.add(l.ID, "%v %q", r.Checkpoint, r.Data)
			} else {
				c.add(l.ID, "%d %d %q %q %q", r.Seq, r.Time, r.Key, r.Header, r.Data)
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		if !l.State {
			c.add(l.ID, "last %d", l.LastSeq)
		}
	}
	return c
}

func read(t *testing.T, fsys vfs.FS) *inspect.Directory {
	t.Helper()
	d, err := inspect.Read(t.Context(), inspect.Options{FS: fsys, Dir: dataDir, Secrets: [][]byte{storeSecret}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// files copies all files of a directory and those below.
func files(t *testing.T, fsys vfs.FS) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, dir := range []string{dataDir, dataDir + "/wal", dataDir + "/parts", dataDir + "/manifest"} {
		names, err := fsys.List(dir)
		if err != nil {
			continue
		}
		for _, name := range names {
			p := path.Join(dir, name)
			if f, err := fsys.OpenRead(p); err == nil {
				size, err := f.Size()
				must(t, err)
				b := make([]byte, size)
				if size > 0 {
					_, err = f.ReadAt(b, 0)
					must(t, err)
				}
				out[p] = b
				must(t, f.Close())
			}
		}
	}
	return out
}

// disk makes a file system of files.
func disk(t *testing.T, all map[string][]byte) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	for p, b := range all {
		must(t, m.MkdirAll(path.Dir(p)))
		f, err := m.Create(p)
		must(t, err)
		_, err = f.WriteAt(b, 0)
		must(t, err)
		must(t, f.Close())
	}
	return m
}

// with returns all with one file replaced; nil removes it.
func with(all map[string][]byte, name string, b []byte) map[string][]byte {
	out := maps.Clone(all)
	if delete(out, name); b != nil {
		out[name] = b
	}
	return out
}

// workload writes to a store: logs in one shard and spread over two, state logs, deletions of all kinds, drops.
type workload struct {
	s      *storage.Store
	rnd    *rand.Rand
	logs   []*storage.Log
	states []*storage.StateLog
}

func newWorkload(t *testing.T, s *storage.Store, seed uint64) *workload {
	t.Helper()
	w := &workload{s: s, rnd: rand.New(rand.NewPCG(seed, seed))}
	for i := range 3 {
		w.create(t, i)
	}
	for i := range 2 {
		l, err := s.CreateStateLog(storage.ShardID(i), fmt.Sprintf("state %d", i), false)
		must(t, err)
		w.states = append(w.states, l)
	}
	return w
}

func (w *workload) create(t *testing.T, i int) {
	t.Helper()
	spec := storage.LogSpec{Shards: []storage.ShardID{storage.ShardID(i % 2)}, Name: fmt.Sprintf("ACC/S%d", i)}
	if i%3 == 2 {
		spec.Shards = []storage.ShardID{0, 1}
		spec.Route = func(key []byte) int { return len(key) % 2 }
	}
	l, err := w.s.CreateLog(spec)
	must(t, err)
	w.logs = append(w.logs, l)
}

// run does n steps.
func (w *workload) run(t *testing.T, n int) {
	t.Helper()
	for range n {
		switch l := w.logs[w.rnd.IntN(len(w.logs))]; w.rnd.IntN(12) {
		case 0:
			w.delete(t, l)
		case 1:
			_, err := l.Purge(nil, l.State().FirstSeq+uint64(w.rnd.IntN(3)), 0, func(error) {})
			must(t, err)
		case 2:
			must(t, w.states[w.rnd.IntN(len(w.states))].Append([]byte(fmt.Sprintf("change %d", w.rnd.Int())), nil))
		case 3:
			must(t, w.states[w.rnd.IntN(len(w.states))].Checkpoint([]byte(fmt.Sprintf("all %d", w.rnd.Int())), nil))
		case 4:
			w.settle(t)
		default:
			w.append(t, l)
		}
	}
	w.settle(t)
}

func (w *workload) append(t *testing.T, l *storage.Log) {
	t.Helper()
	seq := l.State().LastSeq + 1
	if w.rnd.IntN(10) == 0 {
		seq += uint64(w.rnd.IntN(3))
	}
	r := storage.Record{
		Seq: seq, Time: int64(seq) * 1e9, Key: []byte("key" + strings.Repeat("x", w.rnd.IntN(4))),
		Header: bytes.Repeat([]byte("h"), w.rnd.IntN(20)), Data: fmt.Appendf(nil, "data %d %d", seq, w.rnd.Int()),
	}
	must(t, l.Append(&r, nil))
}

func (w *workload) delete(t *testing.T, l *storage.Log) {
	t.Helper()
	st := l.State()
	if st.Messages == 0 {
		return
	}
	seq := st.FirstSeq + uint64(w.rnd.Int64N(int64(st.LastSeq-st.FirstSeq+1)))
	_, err := l.Delete([]uint64{seq}, w.rnd.IntN(2) == 0, func(error) {})
	must(t, err)
}

func (w *workload) settle(t *testing.T) {
	t.Helper()
	done := make(chan error, 1)
	for _, l := range w.logs {
		l.Sync(func(err error) { done <- err })
		must(t, <-done)
	}
	must(t, w.states[0].Append([]byte("settled"), func(err error) { done <- err }))
	must(t, <-done)
}

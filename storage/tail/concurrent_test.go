package tail

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestConcurrent runs, on the real disk, a writer that does not wait for syncs, a syncer, readers of all positions,
// and a dropper whose segments are used again at once: a reader gets the right bytes or ErrDropped, and the bound of
// open files holds.
func TestConcurrent(t *testing.T) {
	o := Options{Dir: t.TempDir(), SegmentSize: 8 << 10, OpenFiles: 3}
	w, err := open(o, image{})
	must(t, err)
	var (
		mu    sync.RWMutex
		all   [][]byte
		at    []Pos
		stop  atomic.Bool
		reads atomic.Int64
		wg    sync.WaitGroup
	)
	loop := func(step func() error) {
		wg.Go(func() {
			for !stop.Load() {
				if err := step(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	loop(w.log.Sync)
	loop(func() error {
		_, durable := w.log.Next()
		return w.log.DropBefore(durable - min(durable, 100))
	})
	for range 3 {
		loop(func() error {
			mu.RLock()
			if len(at) == 0 {
				mu.RUnlock()
				return nil
			}
			i := len(at) - 1 - rand.IntN(min(len(at), 300))
			want, pos := all[i], at[i]
			mu.RUnlock()
			got := make([]byte, len(want))
			err := w.log.ReadAt(got, pos)
			if errors.Is(err, ErrDropped) {
				return nil
			}
			if err == nil && !bytes.Equal(got, want) {
				return errors.New("wrong bytes")
			}
			reads.Add(1)
			return err
		})
	}
	for i := range 1500 {
		body := w.body(i % 700)
		_, pos, err := w.log.Append(body)
		must(t, err)
		mu.Lock()
		all, at = append(all, body), append(at, pos)
		mu.Unlock()
	}
	stop.Store(true)
	wg.Wait()
	w.log.segs.mu.Lock()
	if n := w.log.segs.open; n > o.OpenFiles {
		t.Errorf("%d files open, bound is %d", n, o.OpenFiles)
	}
	w.log.segs.mu.Unlock()
	if reads.Load() == 0 || w.log.First() == 0 {
		t.Error("nothing was read, or nothing dropped")
	}
	next, _ := w.log.Next()
	must(t, w.log.Close())
	again, err := open(o, image{written: all, synced: next, dropped: next})
	must(t, err)
	must(t, again.close())
}

// TestFilesClosed counts this process's descriptors of the directory: none is left after Close.
func TestFilesClosed(t *testing.T) {
	dir := t.TempDir()
	w, err := open(Options{Dir: dir, SegmentSize: 1 << 10, OpenFiles: 4}, image{})
	must(t, err)
	for range 60 {
		must(t, w.append(300))
	}
	must(t, w.sync())
	must(t, w.readAll())
	if n := openFiles(t, dir); n > 4+1+1+1 { // the bound, the active segment, the lock, a spare being made
		t.Errorf("%d files open", n)
	}
	must(t, w.drop(40))
	must(t, w.close())
	if n := openFiles(t, dir); n != 0 {
		t.Errorf("%d files open after Close", n)
	}
}

func openFiles(t *testing.T, dir string) int {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	must(t, err)
	n := 0
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, dir) {
			n++
		}
	}
	return n
}

// TestLock opens a directory twice.
func TestLock(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"os": vfs.OS{}, "mem": vfs.NewMem()} {
		o := Options{FS: fsys, Dir: t.TempDir(), SegmentSize: 1 << 10}
		l, err := Open(o)
		must(t, err)
		var locked *vfs.LockedError
		if _, err := Open(o); !errors.As(err, &locked) || locked.PID != strconv.Itoa(os.Getpid()) ||
			!strings.Contains(err.Error(), "process "+locked.PID) {
			t.Fatalf("%s: second Open: %v", name, err)
		}
		must(t, l.Close())
		l, err = Open(o)
		must(t, err)
		must(t, l.Close())
	}
}

// TestSyncDuringAppend stalls a sync on the disk; blocks appended meanwhile are written, and not taken for durable
// when it ends.
func TestSyncDuringAppend(t *testing.T) {
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem, nil)
	w, err := open(smallOptions(fault), image{})
	must(t, err)
	must(t, w.append(10))
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fault.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			once.Do(func() { close(entered); <-release })
		}
		return nil
	})
	done := make(chan error, 1)
	go func() { done <- w.log.Sync() }()
	select {
	case <-entered:
	case err := <-done:
		t.Fatalf("Sync returned %v and did not sync", err)
	}
	must(t, w.append(20))
	must(t, w.append(30))
	close(release)
	must(t, <-done)
	if next, durable := w.log.Next(); next != 3 || durable != 1 {
		t.Fatalf("next %d, durable %d", next, durable)
	}
	must(t, w.sync())
	if _, durable := w.log.Next(); durable != 3 {
		t.Fatal(durable)
	}
	must(t, w.close())
}

// TestBounds holds the answers to what cannot be done.
func TestBounds(t *testing.T) {
	mem := vfs.NewMem()
	l, err := Open(smallOptions(mem))
	must(t, err)
	if _, _, err := l.Append([]byte("x")); !errors.Is(err, ErrNotReplayed) {
		t.Fatalf("Append before Replay: %v", err)
	}
	must(t, l.Replay(func(LSN, Pos, []byte) error { return nil }))
	_, pos, err := l.Append([]byte("hello"))
	must(t, err)
	for _, bad := range []Pos{{}, {Segment: 9, Offset: 64}, {Segment: 1, Offset: 3}, {Segment: 1, Offset: pos.Offset + 40}, {Segment: 1, Offset: 1 << 31}} {
		if err := l.ReadAt(make([]byte, 5), bad); err == nil {
			t.Fatalf("read at %v", bad)
		}
	}
	if err := l.ReadAt(make([]byte, 5), Pos{Segment: 9, Offset: 64}); !errors.Is(err, ErrDropped) {
		t.Fatal(err)
	}
	huge := make([]byte, MaxBody/4+1)
	if _, _, err := l.Append(huge, huge, huge, huge); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	must(t, l.Close())
	if _, _, err := l.Append([]byte("x")); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if err := l.ReadAt(make([]byte, 5), pos); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if err := l.Sync(); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	for _, o := range []Options{{}, {Dir: "/x", SegmentSize: 10}, {Dir: "/x", SegmentSize: 1 << 40}} {
		o.FS = mem
		if _, err := Open(o); err == nil {
			t.Fatalf("opened with %+v", o)
		}
	}
}

// TestSizeAndRecycling: dropped segments are used again, within a bound, so the log does not grow while it is dropped
// from.
func TestSizeAndRecycling(t *testing.T) {
	mem := vfs.NewMem()
	w, err := open(smallOptions(mem), image{})
	must(t, err)
	recycled, salts := map[uint64]bool{}, map[uint32]uint64{}
	for range 200 {
		must(t, w.append(300))
		must(t, w.sync())
		seg := w.log.active
		if seg.stale {
			recycled[seg.id] = true
		}
		if other, ok := salts[seg.salt]; ok && other != seg.id {
			t.Fatalf("segments %d and %d have the same salt", other, seg.id)
		}
		salts[seg.salt] = seg.id
		must(t, w.drop(w.synced-1))
		if size := w.log.Size(); size > 6*1024 {
			t.Fatalf("%d bytes", size)
		}
	}
	if len(recycled) < 10 {
		t.Fatalf("%d segments lie in files that were used before", len(recycled))
	}
	must(t, w.reopen())
	must(t, w.close())
	if size, used := w.log.spares.bytes(), mem.Used(); used > size+4*1024 {
		t.Fatalf("%d bytes on disk", used)
	}
}

// TestMemory holds the log that keeps nothing to its contract.
func TestMemory(t *testing.T) {
	l := NewMemory()
	must(t, l.Replay(func(LSN, Pos, []byte) error { return errors.New("there is nothing to replay") }))
	for want := range LSN(3) {
		lsn, _, err := l.Append([]byte("x"))
		if lsn != want || err != nil {
			t.Fatal(lsn, err)
		}
		must(t, l.Sync())
	}
	must(t, l.DropBefore(2))
	if err := l.ReadAt(make([]byte, 1), Pos{}); err == nil || l.Size() != 0 {
		t.Fatal("kept something")
	}
	must(t, l.Close())
	if _, _, err := l.Append([]byte("x")); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

// TestReadOfDroppedSegment stalls a read on the disk while its segment is dropped and space for new blocks is needed: the
// file must not be used again under the reader.
func TestReadOfDroppedSegment(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem(), nil)
	w, err := open(smallOptions(fault), image{})
	must(t, err)
	for range 5 {
		must(t, w.append(400))
	}
	must(t, w.sync())
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fault.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpRead {
			once.Do(func() { close(entered); <-release })
		}
		return nil
	})
	want, at := w.written[0], w.at[0]
	done := make(chan error)
	go func() {
		got := make([]byte, len(want))
		err := w.log.ReadAt(got, at)
		if err == nil && !bytes.Equal(got, want) {
			err = errors.New("wrong bytes")
		}
		done <- err
	}()
	<-entered
	must(t, w.drop(4))
	for range 12 {
		must(t, w.append(400))
	}
	must(t, w.sync())
	close(release)
	must(t, <-done)
	if err := w.log.ReadAt(make([]byte, 1), at); !errors.Is(err, ErrDropped) {
		t.Fatal(err)
	}
	must(t, w.close())
}

// TestSyncDuringWrite stalls a block on its way to the disk: a sync that ends meanwhile does not count it.
func TestSyncDuringWrite(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem(), nil)
	w, err := open(smallOptions(fault), image{})
	must(t, err)
	must(t, w.append(10))
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fault.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite {
			once.Do(func() { close(entered); <-release })
		}
		return nil
	})
	done := make(chan error)
	go func() { done <- w.append(20) }()
	<-entered
	must(t, w.log.Sync())
	next, durable := w.log.Next()
	close(release)
	must(t, <-done)
	if next != 1 || durable != 1 {
		t.Fatalf("next %d, durable %d while block 1 was being written", next, durable)
	}
	must(t, w.close())
}

// TestOtherSegmentSize opens a log with larger and then smaller segments than it was made with, spares of the old size lying
// there.
func TestOtherSegmentSize(t *testing.T) {
	mem := vfs.NewMem()
	w, err := open(smallOptions(mem), image{})
	must(t, err)
	for _, size := range []int64{1 << 10, 8 << 10, 2 << 10} {
		must(t, w.log.Reserve())
		must(t, w.close())
		w.opts.SegmentSize = size
		must(t, w.openAgain())
		for range 5 {
			must(t, w.append(900))
			must(t, w.append(int(size)-segHeaderSize-blockHeaderSize-reserved))
			must(t, w.sync())
		}
		must(t, w.readAll())
	}
	must(t, w.reopen())
	must(t, w.close())
}

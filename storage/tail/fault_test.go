package tail

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestErrorAtEveryOp fails each operation of the script once, in several ways. The log must stop (or, where that is
// what the error says, report that there is no space), everything synced must be there when it is opened again in the
// same system and after a power loss, and nothing must be there that was not written.
func TestErrorAtEveryOp(t *testing.T) {
	faults := []error{
		syscall.EIO,
		syscall.ENOSPC,
		fmt.Errorf("%w: %w", vfs.ErrSyncLost, syscall.EIO),
		&vfs.ShortWriteError{N: 21, Err: syscall.EIO},
	}
	step := int64(len(faults)) // each operation fails in one way, or with EHDB_SLOW in each
	if slow() {
		step = 1
	}
	for i, cause := range faults {
		poisoned, points := 0, 0
		for n := int64(i); ; n += step {
			reached, stopped := failOnce(t, n, cause)
			if !reached {
				break
			}
			points++
			if stopped {
				poisoned++
			}
		}
		t.Logf("%v: %d points, %d stopped the log", cause, points, poisoned)
		if poisoned == 0 || points < 50 {
			t.Fatal("the faults do not reach the log")
		}
	}
}

// failOnce runs the script with operation n failing. It reports whether n was reached and whether the log was poisoned.
func failOnce(t *testing.T, n int64, cause error) (reached, stopped bool) {
	t.Helper()
	mem := vfs.NewMem()
	what := ""
	fault := vfs.NewFault(mem, nil)
	fault.SetHook(func(op vfs.Op) error {
		if op.N != n {
			return nil
		}
		what = fmt.Sprintf("op %d (kind %d, %s)", n, op.Kind, op.Path)
		return cause
	})
	w, err := open(smallOptions(fault), image{})
	im := image{what: what}
	if err == nil {
		err = w.script()
		im = w.expect()
		stopped = errors.Is(err, ErrPoisoned)
		checkStopped(t, w, what, err)
	} else if what == "" {
		t.Fatalf("open: %v", err)
	}
	if fault.Ops() <= n {
		must(t, err)
		return false, false
	}
	// A power loss, before anybody has had the chance to write again, and then the same system once more.
	for i, keep := range []float64{0, 0.5, 1} {
		if n%3 != int64(i) && !slow() {
			continue
		}
		im.disk = mem.CrashClone(vfs.CrashOptions{Seed: uint64(n), Keep: keep, Sector: 64})
		cut := 0
		if err := liveOn(im, smallOptions, &cut); err != nil {
			t.Fatalf("%s failed with %v, crash %d: %v", what, cause, i, err)
		}
	}
	fault.SetHook(nil)
	im.disk = mem
	cut := 0
	if err := liveOn(im, smallOptions, &cut); err != nil {
		t.Fatalf("%s failed with %v, opened again: %v", what, cause, err)
	}
	return true, stopped
}

// checkStopped closes a log that failed, after seeing that it stays failed.
func checkStopped(t *testing.T, w *world, what string, err error) {
	t.Helper()
	if errors.Is(err, ErrPoisoned) {
		stopped := func(err error) bool { return errors.Is(err, ErrPoisoned) || errors.Is(err, ErrClosed) }
		if _, _, err := w.log.Append([]byte("x")); !stopped(err) {
			t.Fatalf("%s: Append after an I/O error: %v", what, err)
		}
		if err := w.log.Sync(); !stopped(err) {
			t.Fatalf("%s: Sync after an I/O error: %v", what, err)
		}
		if err := w.log.DropBefore(1); !stopped(err) {
			t.Fatalf("%s: DropBefore after an I/O error: %v", what, err)
		}
		if w.log.Room() != 0 {
			t.Fatalf("%s: room after an I/O error", what)
		}
	}
	_ = w.log.Close() // says again why it stopped
	if err := w.log.Close(); err != nil {
		t.Fatalf("%s: second Close: %v", what, err)
	}
}

// TestLostSync is a sync that fails and takes the dirty pages with it, as Linux does: the block can still be read,
// and a later sync succeeds without writing it. A log opened again in the same system shows it, so it must make it
// durable.
func TestLostSync(t *testing.T) {
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem, nil)
	w, err := open(smallOptions(fault), image{})
	must(t, err)
	must(t, w.append(100))
	must(t, w.sync())
	must(t, w.append(100))
	fault.SetHook(vfs.FailKind(vfs.ErrSyncLost, vfs.OpSync))
	if err := w.sync(); !errors.Is(err, ErrPoisoned) {
		t.Fatal(err)
	}
	fault.SetHook(nil)
	if err := w.sync(); !errors.Is(err, ErrPoisoned) {
		t.Fatalf("a sync after a failed one: %v", err)
	}
	if err := w.log.Close(); !errors.Is(err, ErrPoisoned) {
		t.Fatal(err)
	}
	must(t, w.openAgain())
	if w.synced != 2 {
		t.Fatalf("%d blocks", w.synced)
	}
	im := w.expect()
	im.disk = mem.CrashClone(vfs.CrashOptions{})
	again, err := open(smallOptions(im.disk), im)
	must(t, err)
	must(t, again.close())
	must(t, w.close())
}

// TestNoSpace fills the disk. Append says so and the log goes on: with what fits, and with everything once there is
// space.
func TestNoSpace(t *testing.T) {
	mem := vfs.NewMem()
	mem.SetCapacity(3*1024 + 500)
	w, err := open(smallOptions(mem), image{})
	must(t, err)
	for err == nil {
		if err = w.append(200); err == nil {
			err = w.sync()
		}
	}
	if !errors.Is(err, ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrPoisoned) {
		t.Fatal(err)
	}
	full := len(w.written)
	if full < 9 {
		t.Fatalf("only %d blocks in three segments", full)
	}
	used := mem.Used()
	if used > 3*1024 {
		t.Fatalf("%d bytes used: what could not be finished was not given back", used)
	}
	if err := w.append(5000); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("large block: %v", err)
	}
	if err := w.log.Reserve(); !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	room := w.log.Room()
	must(t, w.append(int(room)-blockHeaderSize&^7-8)) // what fits still does
	must(t, w.sync())
	must(t, w.reopen()) // a restart on a full disk
	if err := w.append(200); !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	must(t, w.drop(LSN(full-3))) // dropping makes room without new space
	must(t, w.append(200))
	must(t, w.sync())
	mem.SetCapacity(0)
	must(t, w.log.Reserve())
	if w.log.Room() < 1024-200 {
		t.Fatalf("room for %d bytes after Reserve", w.log.Room())
	}
	must(t, w.append(5000))
	for range 20 {
		must(t, w.append(200))
	}
	must(t, w.reopen())
	must(t, w.close())
}

// TestRoomIsTrue appends what Room promises, byte by byte, with no more space to be had.
func TestRoomIsTrue(t *testing.T) {
	mem := vfs.NewMem()
	w, err := open(smallOptions(mem), image{})
	must(t, err)
	must(t, w.log.Reserve())
	mem.SetCapacity(mem.Used())
	for w.log.Room() >= blockSize(100) {
		must(t, w.append(100))
	}
	must(t, w.append(int(w.log.Room()-blockHeaderSize)))
	if err := w.append(0); !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	must(t, w.reopen())
	must(t, w.close())
}

// TestTwoSyncsOneError lets two syncs of one file meet a disk whose error only one of them is told. The other must not
// report success.
func TestTwoSyncsOneError(t *testing.T) {
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem, nil)
	w, err := open(smallOptions(fault), image{})
	must(t, err)
	defer w.log.Close()
	must(t, w.append(10))
	entered := make(chan struct{}, 2)
	release := make(chan struct{})
	var once sync.Once
	fault.SetHook(func(op vfs.Op) (err error) {
		if op.Kind != vfs.OpSync {
			return nil
		}
		entered <- struct{}{}
		<-release
		once.Do(func() { err = vfs.ErrSyncLost })
		return err
	})
	errs := make(chan error, 2)
	for range 2 {
		go func() { errs <- w.log.Sync() }()
	}
	select {
	case <-entered:
	case err := <-errs:
		t.Fatalf("Sync returned %v and did not sync", err)
	}
	select { // the other one may not come so far; if it does, it does so now
	case <-entered:
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	for range 2 {
		if err := <-errs; !errors.Is(err, ErrPoisoned) {
			t.Fatalf("a sync reported %v after the bytes were lost", err)
		}
	}
	fault.SetHook(nil)
}

// TestReadErrorIsNotDamage: a disk that cannot be read at open is an I/O error, not a reason to cut anything.
func TestReadErrorIsNotDamage(t *testing.T) {
	mem := vfs.NewMem()
	w, err := open(smallOptions(mem), image{})
	must(t, err)
	must(t, w.append(100))
	must(t, w.close())
	fault := vfs.NewFault(mem, vfs.FailKind(syscall.EIO, vfs.OpRead))
	if _, err := Open(smallOptions(fault)); !errors.Is(err, syscall.EIO) || isCorrupt(err) {
		t.Fatal(err)
	}
	fault.SetHook(nil)
	l, err := Open(smallOptions(fault))
	must(t, err)
	fault.SetHook(vfs.FailKind(syscall.EIO, vfs.OpRead))
	err = l.Replay(func(LSN, Pos, []byte) error { return nil })
	if !errors.Is(err, syscall.EIO) || isCorrupt(err) || !strings.Contains(err.Error(), segName(1)) {
		t.Fatal(err)
	}
	if _, _, err := l.Append([]byte("x")); err == nil {
		t.Fatal("appended to a log whose end is not known")
	}
	must(t, l.Close())
	fault.SetHook(nil)
	must(t, w.openAgain())
	must(t, w.close())
}

// TestReplayStops holds what becomes of an error of the function that Replay calls.
func TestReplayStops(t *testing.T) {
	mem := vfs.NewMem()
	w, err := open(smallOptions(mem), image{})
	must(t, err)
	must(t, w.append(100))
	must(t, w.close())
	l, err := Open(smallOptions(mem))
	must(t, err)
	if err := l.Replay(func(LSN, Pos, []byte) error { return io.ErrNoProgress }); !errors.Is(err, io.ErrNoProgress) {
		t.Fatal(err)
	}
	if _, _, err := l.Append([]byte("x")); !errors.Is(err, ErrNotReplayed) {
		t.Fatal(err)
	}
	if err := l.Replay(func(LSN, Pos, []byte) error { return nil }); !errors.Is(err, errReplayed) {
		t.Fatal(err)
	}
	must(t, l.Close())
}

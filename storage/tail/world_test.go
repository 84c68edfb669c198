package tail

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

// slow reports whether tests may take their time: all cases instead of a sample.
func slow() bool { return os.Getenv("EHDB_SLOW") == "1" }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// world is a log together with what it must hold: every block that was appended, how many of them were synced, and how
// many it was told to drop. A crash image is taken of both together.
type world struct {
	opts Options
	log  *File

	mu      sync.Mutex // images are taken on the log's goroutines too
	written [][]byte   // by LSN; the last may have been on its way
	at      []Pos
	synced  LSN
	dropped LSN
	serial  uint64 // makes the bytes of each block different from any other's, also after a crash
}

// image is a world's expectation at one moment, with the disk a crash then left.
type image struct {
	disk            *vfs.Mem
	written         [][]byte
	synced, dropped LSN
	serial          uint64
	what            string
	boxed           bool // the log is encrypted
}

// expect returns the expectation without a disk. It must be taken before the disk is: what is synced in between is then
// not demanded.
func (w *world) expect() image {
	w.mu.Lock()
	defer w.mu.Unlock()
	return image{written: append([][]byte(nil), w.written...), synced: w.synced, dropped: w.dropped, serial: w.serial}
}

// open opens and replays a log that must hold what im says, and returns its world.
func open(o Options, im image) (*world, error) {
	l, err := Open(o)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	w := &world{opts: o, log: l, dropped: im.dropped, serial: im.serial + 1000}
	first, next := l.First(), l.First()
	w.at = make([]Pos, first)
	err = l.Replay(func(lsn LSN, pos Pos, body []byte) error {
		if lsn != next {
			return fmt.Errorf("block %d comes after block %d", lsn, next)
		}
		if lsn >= LSN(len(im.written)) {
			return fmt.Errorf("block %d was never written", lsn)
		}
		if !bytes.Equal(body, im.written[lsn]) {
			return fmt.Errorf("block %d has wrong bytes", lsn)
		}
		w.at = append(w.at, pos)
		next++
		return nil
	})
	switch {
	case err != nil:
	case first > im.dropped:
		err = fmt.Errorf("the log starts with block %d, but only those below %d were dropped", first, im.dropped)
	case next < im.synced:
		err = fmt.Errorf("%d blocks were synced, %d are there", im.synced, next)
	}
	if err == nil {
		w.written, w.synced = im.written[:next:next], next
		err = w.readAll()
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return w, nil
}

// readAll reads every block through ReadAt.
func (w *world) readAll() error {
	for lsn := w.log.First(); lsn < LSN(len(w.written)); lsn++ {
		b := make([]byte, len(w.written[lsn]))
		if err := w.log.ReadAt(b, w.at[lsn]); err != nil {
			return fmt.Errorf("read block %d: %w", lsn, err)
		}
		if !bytes.Equal(b, w.written[lsn]) {
			return fmt.Errorf("block %d reads wrong bytes", lsn)
		}
	}
	return nil
}

// body returns n bytes that no other block has.
func (w *world) body(n int) []byte {
	w.mu.Lock()
	w.serial++
	rnd := rand.New(rand.NewPCG(w.serial, 1))
	w.mu.Unlock()
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

func (w *world) append(n int) error {
	body := w.body(n)
	w.mu.Lock()
	w.written = append(w.written, body)
	w.mu.Unlock()
	lsn, pos, err := w.log.Append(body[:n/3], body[n/3:n/2], nil, body[n/2:])
	if err != nil {
		if errors.Is(err, ErrNoSpace) || errors.Is(err, ErrTooLarge) { // surely not written
			w.mu.Lock()
			w.written = w.written[:len(w.written)-1]
			w.mu.Unlock()
		}
		return err
	}
	if want := LSN(len(w.written) - 1); lsn != want {
		return fmt.Errorf("block got position %d, want %d", lsn, want)
	}
	w.at = append(w.at, pos)
	return nil
}

func (w *world) sync() error {
	n := LSN(len(w.written))
	if err := w.log.Sync(); err != nil {
		return err
	}
	w.mu.Lock()
	w.synced = n
	w.mu.Unlock()
	return nil
}

func (w *world) drop(lsn LSN) error {
	_, durable := w.log.Next() // rotation may have synced more than sync did
	w.mu.Lock()
	w.dropped = max(w.dropped, min(lsn, durable))
	w.mu.Unlock()
	return w.log.DropBefore(lsn)
}

// close closes the log, which syncs it.
func (w *world) close() error {
	n := LSN(len(w.written))
	if err := w.log.Close(); err != nil {
		return err
	}
	w.mu.Lock()
	w.synced = n
	w.mu.Unlock()
	return nil
}

// reopen closes and opens the log.
func (w *world) reopen() error {
	if err := w.close(); err != nil {
		return err
	}
	return w.openAgain()
}

func (w *world) openAgain() error {
	again, err := open(w.opts, w.expect())
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log, w.written, w.at, w.synced, w.serial = again.log, again.written, again.at, again.synced, again.serial
	return nil
}

// script is a life of a log in which all of its operations happen: blocks of many sizes, several in one sync, some too
// large for a segment, rotation, dropping, reuse of dropped segments, reopening. It ends with the log closed.
func (w *world) script() error {
	sizes := []int{0, 1, 7, 8, 100, 333, 40, 500, 3, 2500, 64, 900, 1, 250, 250, 250, 250}
	for round := range 3 {
		for i, size := range sizes {
			if err := w.append(size + round); err != nil {
				return err
			}
			if i%4 == 1 {
				continue // two blocks in one sync
			}
			if err := w.sync(); err != nil {
				return err
			}
			if i%7 == 6 {
				if err := w.drop(LSN(len(w.written) - 5)); err != nil {
					return err
				}
			}
		}
		if err := w.append(33); err != nil { // left to Close to sync
			return err
		}
		if err := w.reopen(); err != nil {
			return err
		}
	}
	return w.close()
}

// smallOptions makes segments that a few blocks fill.
func smallOptions(fsys vfs.FS) Options {
	return Options{FS: fsys, Dir: "/data/wal", SegmentSize: 1 << 10, OpenFiles: 2}
}

// growingOptions makes such segments at first, and larger ones after them.
func growingOptions(fsys vfs.FS) Options {
	o := smallOptions(fsys)
	o.SegmentSize, o.FirstSegment = 4<<10, 1<<10
	return o
}

// boxedOptions makes small segments that are encrypted.
func boxedOptions(fsys vfs.FS) Options {
	o := smallOptions(fsys)
	o.Keys = testKeys
	return o
}

var testKeys = sync.OnceValues(func() (*crypt.Keys, error) { return crypt.NewKeys(crypt.AES256GCM, []byte("test")) })

// smallOr returns smallOptions, or boxedOptions.
//
//nolint:revive // which of the two is asked for
func smallOr(boxed bool) func(vfs.FS) Options {
	if boxed {
		return boxedOptions
	}
	return smallOptions
}

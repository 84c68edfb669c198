package tail

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestModel lets random operations happen to a log: appends, syncs, drops, restarts, crashes with random shares of
// what was not synced, full disks and failing ones. After each opening all that was synced is there, and nothing that
// was not written.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := machine{mem: vfs.NewMem(), size: int64(rapid.SampledFrom([]int{1 << 10, 2 << 10, 16 << 10}).Draw(t, "segment"))}
		m.first = max(1<<10, m.size/rapid.SampledFrom([]int64{1, 2, 16}).Draw(t, "part"))
		m.boxed = rapid.Bool().Draw(t, "encrypted")
		m.open(t, image{})
		defer func() { _ = m.w.log.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				size := rapid.SampledFrom([]int{0, 1, 50, 300, 900, 1500}).Draw(t, "size")
				m.did(t, m.w.append(size+rapid.IntRange(0, 9).Draw(t, "odd")))
			},
			"sync": func(t *rapid.T) { m.did(t, m.w.sync()) },
			"drop": func(t *rapid.T) {
				m.did(t, m.w.drop(LSN(rapid.IntRange(0, len(m.w.written)).Draw(t, "below"))))
			},
			"reserve": func(t *rapid.T) {
				if !m.did(t, m.w.log.Reserve()) {
					return
				}
				if room, step := m.w.log.Room(), m.w.log.Step(); room < step-segHeaderSize-reserved {
					t.Fatalf("after Reserve there is room for %d bytes, less than a segment of %d", room, step)
				}
			},
			"restart": func(t *rapid.T) {
				if m.did(t, m.w.close()) {
					m.open(t, m.w.expect())
				}
			},
			"crash": func(t *rapid.T) {
				im := m.w.expect()
				im.disk = m.mem.CrashClone(vfs.CrashOptions{
					Seed:    rapid.Uint64().Draw(t, "seed"),
					Keep:    rapid.SampledFrom([]float64{0, 0.3, 0.7, 0.95, 1}).Draw(t, "keep"),
					Sector:  rapid.SampledFrom([]int64{8, 64, 512, 4096}).Draw(t, "sector"),
					Journal: rapid.Bool().Draw(t, "journal"),
				})
				_ = m.w.log.Close()
				m.mem = im.disk
				m.open(t, im)
			},
			"fill disk": func(*rapid.T) { m.mem.SetCapacity(max(1, m.mem.Used())) },
			"make room": func(*rapid.T) { m.mem.SetCapacity(0) },
			"break disk": func(t *rapid.T) {
				n := m.fault.Ops() + rapid.Int64Range(0, 8).Draw(t, "after")
				cause := rapid.SampledFrom([]error{errBroken, vfs.ErrSyncLost, &vfs.ShortWriteError{N: 9, Err: errBroken}}).Draw(t, "how")
				m.fault.SetHook(vfs.FailAt(n, cause))
			},
			"mend disk": func(*rapid.T) { m.fault.SetHook(nil) },
			"": func(t *rapid.T) {
				if err := m.w.readAll(); err != nil && !errors.Is(err, errBroken) && !errors.Is(err, vfs.ErrSyncLost) {
					t.Fatal(err)
				}
			},
		})
	})
}

var errBroken = errors.New("broken disk")

// machine is the system under the model: a disk and the log on it.
type machine struct {
	mem   *vfs.Mem
	fault *vfs.Fault
	size  int64 // of a segment
	first int64 // of the first segment
	w     *world
	boxed bool // from here on the log is encrypted
}

// open opens the log on whatever disk there is now, which works.
func (m *machine) open(t *rapid.T, im image) {
	m.mem.SetCapacity(0)
	m.fault = vfs.NewFault(m.mem, nil)
	m.boxed = m.boxed || rapid.IntRange(0, 5).Draw(t, "encrypt now") == 0
	o := Options{FS: m.fault, Dir: wal, SegmentSize: m.size, FirstSegment: m.first, OpenFiles: 1}
	if m.boxed {
		o.Keys = testKeys
	}
	w, err := open(o, im)
	if err != nil {
		t.Fatal(err)
	}
	m.w = w
}

// did looks at the outcome of an operation: no space is an answer, a broken disk means to open again in the same
// system, and anything else is wrong. It reports whether the operation was done.
func (m *machine) did(t *rapid.T, err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, ErrNoSpace):
		return false
	case errors.Is(err, errBroken) || errors.Is(err, vfs.ErrSyncLost):
		_ = m.w.log.Close()
		m.open(t, m.w.expect())
		return false
	}
	t.Fatal(err)
	return false
}

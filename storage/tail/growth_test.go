package tail

import (
	"errors"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// fill appends blocks until the active segment is another one, and returns the size of the one that was filled.
func fill(t *testing.T, w *world) int64 {
	t.Helper()
	list := w.log.segs.snapshot()
	active := list[len(list)-1]
	for len(w.log.segs.snapshot()) == len(list) {
		must(t, w.append(200))
		must(t, w.sync())
	}
	return active.size
}

// TestGrowth fills a new log's segments: each is twice as large as the one before it until they have the usual size. The
// growth goes on where it was after the log was opened again.
func TestGrowth(t *testing.T) {
	mem := vfs.NewMem()
	o := smallOptions(mem)
	o.SegmentSize, o.FirstSegment = 12<<10, 1<<10
	w, err := open(o, image{})
	must(t, err)
	if used := mem.Used(); used > 2<<10 {
		t.Fatalf("a new log takes %d bytes", used)
	}
	for i, want := range []int64{1 << 10, 2 << 10, 4 << 10, 8 << 10, 12 << 10, 12 << 10} {
		if got := fill(t, w); got != want {
			t.Fatalf("segment %d has %d bytes, want %d", i, got, want)
		}
		if i%2 == 1 {
			must(t, w.reopen())
		}
	}
	must(t, w.readAll())
	must(t, w.close())
}

// TestGrowthForLargeBlock appends a block larger than the segment that is next in turn: that becomes large enough, and what
// was made already is used later.
func TestGrowthForLargeBlock(t *testing.T) {
	mem := vfs.NewMem()
	o := smallOptions(mem)
	o.SegmentSize, o.FirstSegment = 64<<10, 1<<10
	w, err := open(o, image{})
	must(t, err)
	must(t, w.log.Reserve())
	must(t, w.append(7<<10))
	must(t, w.append(100<<10))
	must(t, w.append(3900)) // fills it
	must(t, w.append(100))
	var sizes []int64
	for _, seg := range w.log.segs.snapshot() {
		sizes = append(sizes, seg.size)
	}
	want := []int64{1 << 10, 8 << 10, 104 << 10, 2 << 10}
	if len(sizes) != len(want) {
		t.Fatalf("segments of %d bytes, want %d", sizes, want)
	}
	for i := range want {
		if sizes[i] != want[i] {
			t.Fatalf("segments of %d bytes, want %d", sizes, want)
		}
	}
	must(t, w.reopen())
	must(t, w.close())
}

// TestGrowthWithoutSpace fills the disk under a growing log: it says so before a byte is written, keeps what room there is,
// and goes on when there is space.
func TestGrowthWithoutSpace(t *testing.T) {
	mem := vfs.NewMem()
	w, err := open(growingOptions(mem), image{})
	must(t, err)
	mem.SetCapacity(mem.Used() + 1<<10)
	if err := w.log.Reserve(); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("Reserve without space: %v", err)
	}
	must(t, w.append(int(w.log.Room())-blockHeaderSize))
	must(t, w.sync())
	if err := w.append(1); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("Append without space: %v", err)
	}
	mem.SetCapacity(0)
	must(t, w.log.Reserve())
	must(t, w.append(1000))
	must(t, w.sync())
	must(t, w.reopen())
	must(t, w.close())
}

// TestGrowthOnSmallDisk fills segments on a disk that large ones would take most of: they stay small, until there is space.
func TestGrowthOnSmallDisk(t *testing.T) {
	mem := vfs.NewMem()
	mem.SetCapacity(64 << 10)
	o := smallOptions(mem)
	o.SegmentSize, o.FirstSegment = 32<<10, 1<<10
	w, err := open(o, image{})
	must(t, err)
	for i, want := range []int64{1 << 10, 2 << 10, 4 << 10, 4 << 10, 4 << 10} {
		if got := fill(t, w); got != want {
			t.Fatalf("segment %d has %d bytes, want %d", i, got, want)
		}
		if i == 3 {
			must(t, w.reopen())
		}
	}
	must(t, w.append(10<<10)) // larger than a segment would be
	must(t, w.sync())
	mem.SetCapacity(0)
	var last int64
	for range 4 {
		last = fill(t, w)
	}
	if last != o.SegmentSize {
		t.Fatalf("with space again a segment has %d bytes", last)
	}
	must(t, w.close())
}

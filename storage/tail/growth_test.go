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

// TestGrowth fills a new log's segments: each but the first is followed by one twice as large until they have the usual
// size. After the log was opened again they go on from the last one's size.
func TestGrowth(t *testing.T) {
	mem := vfs.NewMem()
	o := smallOptions(mem)
	o.SegmentSize, o.FirstSegment = 12<<10, 1<<10
	w, err := open(o, image{})
	must(t, err)
	if used := mem.Used(); used > 2<<10 {
		t.Fatalf("a new log takes %d bytes", used)
	}
	for i, want := range []int64{1 << 10, 1 << 10, 2 << 10, 4 << 10, 4 << 10, 4 << 10, 8 << 10, 12 << 10, 12 << 10} {
		if got := fill(t, w); got != want {
			t.Fatalf("segment %d has %d bytes, want %d", i, got, want)
		}
		if i == 2 {
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
	want := []int64{1 << 10, 8 << 10, 104 << 10, 1 << 10}
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
	mem.SetCapacity(mem.Used() + 1<<9)
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
	for i, want := range []int64{1 << 10, 1 << 10, 2 << 10, 4 << 10, 4 << 10, 4 << 10} {
		if got := fill(t, w); got != want {
			t.Fatalf("segment %d has %d bytes, want %d", i, got, want)
		}
		if i == 4 {
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

// TestShrink lets a log whose segments have grown do less and less: they become smaller again, and what is all dropped
// leaves a small one.
func TestShrink(t *testing.T) {
	mem := vfs.NewMem()
	o := smallOptions(mem)
	o.SegmentSize, o.FirstSegment = 64<<10, 1<<10
	w, err := open(o, image{})
	must(t, err)
	shrink := func(lsn LSN) bool {
		t.Helper()
		more, err := w.log.Shrink(lsn)
		must(t, err)
		must(t, w.drop(lsn))
		return more
	}
	for fill(t, w) < o.SegmentSize {
	}
	must(t, w.log.Reserve())
	if !shrink(0) { // fast so far: nothing changes
		t.Fatal("large segments are none")
	}
	if got := w.log.Step(); got != o.SegmentSize {
		t.Fatalf("a busy log's segments have %d bytes", got)
	}
	must(t, w.append(3<<10))
	must(t, w.sync())
	next, _ := w.log.Next()
	if !shrink(next - 1) { // not everything may go: the active one stays
		t.Fatal("a large segment is none")
	}
	if size, step := w.log.Size(), w.log.Step(); size < o.SegmentSize || step != 4<<10 {
		t.Fatalf("%d bytes, segments of %d", size, step)
	}
	shrink(next)
	must(t, w.log.Reserve())
	if shrink(next) {
		t.Fatal("there is still more to give back")
	}
	if size := w.log.Size(); size > 4<<10 {
		t.Fatalf("an idle log takes %d bytes", size)
	}
	must(t, w.reopen())
	for range 40 {
		must(t, w.append(1000))
		must(t, w.sync())
	}
	must(t, w.reopen())
	must(t, w.readAll())
	must(t, w.close())
}

// TestReserveOnSmallDisk has no space for a segment as large as those before it: a smaller one is enough.
func TestReserveOnSmallDisk(t *testing.T) {
	mem := vfs.NewMem()
	o := smallOptions(mem)
	o.SegmentSize, o.FirstSegment, o.Recycle = 32<<10, 1<<10, -1
	w, err := open(o, image{})
	must(t, err)
	for fill(t, w) < o.SegmentSize {
	}
	mem.SetCapacity(mem.Used() + 5<<10)
	must(t, w.log.Reserve())
	if step := w.log.Step(); step != 4<<10 {
		t.Fatalf("the next segment has %d bytes", step)
	}
	for err == nil {
		if err = w.append(200); err == nil {
			err = w.sync()
		}
	}
	if !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	must(t, w.reopen())
	must(t, w.close())
}

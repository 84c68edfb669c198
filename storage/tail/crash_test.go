package tail

import (
	"fmt"
	"sync"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestCrashAtEveryOp takes a crash image before every operation of the script, with different shares of what was not
// synced, in sectors of a disk and in far smaller ones. From each image the log must open with all that was synced
// and nothing else, take new blocks, and survive a second crash.
func TestCrashAtEveryOp(t *testing.T) {
	for name, options := range map[string]func(vfs.FS) Options{
		"small": smallOptions, "growing": growingOptions, "encrypted": boxedOptions,
	} {
		images := crashImages(t, options)
		cut := 0
		for _, im := range images {
			if err := liveOn(im, options, &cut); err != nil {
				t.Fatalf("%s segments: %s: %v", name, im.what, err)
			}
		}
		t.Logf("%s segments: %d images, %d torn tails cut", name, len(images), cut)
		if len(images) < 1000 || cut == 0 {
			t.Fatal("the script does too little")
		}
	}
}

func crashImages(t *testing.T, options func(vfs.FS) Options) []image {
	t.Helper()
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem, nil)
	w, err := open(options(fault), image{})
	must(t, err)
	var mu sync.Mutex
	var images []image
	fault.SetHook(func(op vfs.Op) error {
		if !op.Kind.Changes() {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		for i, o := range []vfs.CrashOptions{
			{Keep: 0},
			{Keep: 0.3, Sector: 512},
			{Keep: 0.6, Sector: 512, Journal: true},
			{Keep: 0.3, Sector: 16},
			{Keep: 0.6, Sector: 8},
			{Keep: 0.9, Sector: 64},
			{Keep: 1},
		} {
			o.Seed = uint64(op.N)*10 + uint64(i)
			im := w.expect()
			im.disk = mem.CrashClone(o)
			im.what = fmt.Sprintf("crash before op %d (kind %d, %s), %+v", op.N, op.Kind, op.Path, o)
			images = append(images, im)
		}
		return nil
	})
	must(t, w.script())
	return images
}

// liveOn opens a crash image, goes on, crashes again and opens again.
func liveOn(im image, options func(vfs.FS) Options, cut *int) error {
	o := options(im.disk)
	o.OnCut = func(string, int64, int64) { *cut++ }
	w, err := open(o, im)
	if err != nil {
		return err
	}
	for i, size := range []int{10, 700, 300, 45} {
		if err := w.append(size); err != nil {
			return err
		}
		if i != 2 {
			if err := w.sync(); err != nil {
				return err
			}
		}
	}
	if err := w.append(5); err != nil { // not synced
		return err
	}
	seed := uint64(len(im.written))*7 + uint64(im.synced)
	for i, keep := range []float64{0, 0.5, 1} {
		second := w.expect()
		second.disk = im.disk.CrashClone(vfs.CrashOptions{Seed: seed, Keep: keep, Sector: int64(16 << (2 * i))})
		again, err := open(options(second.disk), second)
		if err != nil {
			return fmt.Errorf("second crash, %v kept: %w", keep, err)
		}
		if err := again.close(); err != nil {
			return err
		}
	}
	return w.close()
}

// TestCrashDuringRecovery crashes before every operation of a recovery that has a torn tail of several blocks to cut.
func TestCrashDuringRecovery(t *testing.T) {
	torn := tornImages(t)
	n := 0
	for _, im := range torn {
		fault := vfs.NewFault(im.disk, nil)
		var images []image
		fault.SetHook(func(op vfs.Op) error {
			if !op.Kind.Changes() {
				return nil
			}
			for i, keep := range []float64{0, 0.5, 1} {
				second := im
				second.disk = im.disk.CrashClone(vfs.CrashOptions{Seed: uint64(op.N), Keep: keep, Sector: int64(8 << (3 * i))})
				second.what = fmt.Sprintf("%s, then before op %d of recovery, %v kept", im.what, op.N, keep)
				images = append(images, second)
			}
			return nil
		})
		w, err := open(smallOptions(fault), im)
		must(t, err)
		fault.SetHook(nil)
		must(t, w.close())
		for _, second := range images {
			n++
			cut := 0
			if err := liveOn(second, smallOptions, &cut); err != nil {
				t.Fatalf("%s: %v", second.what, err)
			}
		}
	}
	t.Logf("%d images", n)
}

// tornImages returns disks with a row of blocks of which none was synced and only some sectors survived.
func tornImages(t *testing.T) []image {
	t.Helper()
	mem := vfs.NewMem()
	o := smallOptions(mem)
	o.SegmentSize = 4 << 10
	w, err := open(o, image{})
	must(t, err)
	must(t, w.append(100))
	must(t, w.sync())
	for i := range 20 {
		must(t, w.append(20+i*5))
	}
	var images []image
	for seed := range uint64(30) {
		im := w.expect()
		c := vfs.CrashOptions{Seed: seed, Keep: 0.8, Sector: 64}
		im.disk, im.what = mem.CrashClone(c), fmt.Sprintf("torn tail %+v", c)
		images = append(images, im)
	}
	must(t, w.close())
	return images
}

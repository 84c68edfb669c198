package tail

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// disk is the files of a directory as they lie there, to be damaged.
type disk map[string][]byte

const wal = "/data/wal"

func readDisk(t *testing.T, m *vfs.Mem) disk {
	t.Helper()
	m = m.CrashClone(vfs.CrashOptions{Keep: 1}) // all of it, but of one moment: spares are made in the background
	names, err := m.List(wal)
	must(t, err)
	d := disk{}
	for _, name := range names {
		f, err := m.OpenRead(path.Join(wal, name))
		must(t, err)
		size, err := f.Size()
		must(t, err)
		d[name] = make([]byte, size)
		if size > 0 {
			_, err = f.ReadAt(d[name], 0)
			must(t, err)
		}
		must(t, f.Close())
	}
	return d
}

// mem returns the disk as a file system, all of it durable.
func (d disk) mem(t *testing.T) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	must(t, m.MkdirAll(wal))
	for name, b := range d {
		f, err := m.Create(path.Join(wal, name))
		must(t, err)
		_, err = f.WriteAt(b, 0)
		must(t, err)
		must(t, f.Sync())
		must(t, f.Close())
	}
	must(t, m.SyncDir(wal))
	return m
}

func (d disk) with(name string, b []byte) disk {
	out := maps.Clone(d)
	if b == nil {
		delete(out, name)
	} else {
		out[name] = b
	}
	return out
}

func (d disk) segments() []string {
	var names []string
	for name := range d {
		if strings.HasSuffix(name, segSuffix) {
			names = append(names, name)
		}
	}
	return names
}

// smallLog writes three segments, of which one lives in a file that was used before. Each block is synced before the
// next one is written.
//
//nolint:revive // clean is what is asked for, closed or crashed, not how it is done
func smallLog(t *testing.T, clean, boxed bool) (disk, image) {
	t.Helper()
	m := vfs.NewMem()
	w, err := open(smallOr(boxed)(m), image{})
	must(t, err)
	for i := 0; len(w.log.segs.snapshot()) < 3 || w.dropped == 0 || i%5 != 4; i++ {
		must(t, w.append(60+i*13%90))
		must(t, w.sync())
		if n := w.log.segs.snapshot(); len(n) == 3 && w.dropped == 0 {
			must(t, w.drop(n[1].base))
		}
	}
	im := w.expect()
	im.boxed = boxed
	d := readDisk(t, m.CrashClone(vfs.CrashOptions{}))
	must(t, w.close())
	if clean {
		d = readDisk(t, m)
	}
	return d, im
}

// outcome opens a damaged disk and sorts what happens into: whole, cut by n blocks, or a CorruptError. Anything else
// fails.
func outcome(t *testing.T, d disk, im image, file string, floor LSN) (lost int, corrupted *CorruptError) {
	t.Helper()
	im.disk = d.mem(t)
	o := smallOr(im.boxed)(im.disk)
	o.Floor = floor
	cutAt := int64(-1)
	o.OnCut = func(p string, off, n int64) {
		cutAt = off
		if path.Base(p) != file || off < segHeaderSize || n <= 0 {
			t.Fatalf("%s: cut of %d bytes at %s %d", im.what, n, p, off)
		}
	}
	demanded := im.synced
	im.synced = 0 // how many may be lost is for the caller to judge
	w, err := open(o, im)
	if errors.As(err, &corrupted) {
		if corrupted.Hint == "" || corrupted.Err == nil || corrupted.Offset < 0 {
			t.Fatalf("%s: incomplete error: %+v", im.what, corrupted)
		}
		return 0, corrupted
	}
	if err != nil {
		t.Fatalf("%s: %v", im.what, err)
	}
	lost = int(demanded) - len(w.written)
	must(t, w.append(20))
	must(t, w.close())
	if lost > 0 && cutAt < 0 {
		t.Fatalf("%s: %d blocks lost and nobody told", im.what, lost)
	}
	return lost, nil
}

// TestFlipEveryBit flips each bit of each segment. What is read is never wrong. After a clean close no flip loses a
// block unseen; after a crash only the last block can be taken for a torn one, since nothing after it proves that it
// was synced.
func TestFlipEveryBit(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) { flipEveryBit(t, clean, false) })
		t.Run(fmt.Sprintf("encrypted,clean=%v", clean), func(t *testing.T) { flipEveryBit(t, clean, true) })
	}
}

//nolint:revive // what is asked for
func flipEveryBit(t *testing.T, clean, boxed bool) {
	t.Helper()
	d, im := smallLog(t, clean, boxed)
	harmless, refused, cut := 0, 0, 0
	for _, name := range d.segments() {
		used := usedEnd(t, d[name])
		for i := range len(d[name]) * 8 {
			if i%11 != 0 && !slow() {
				continue
			}
			b := bytes.Clone(d[name])
			b[i/8] ^= 1 << (i % 8)
			im.what = fmt.Sprintf("%s, bit %d of byte %d", name, i%8, i/8)
			lost, err := outcome(t, d.with(name, b), im, name, 0)
			switch {
			case err != nil:
				refused++
				checkPlace(t, im.what, err, name, int64(i/8))
			case lost == 0 && int64(i/8) >= used:
				harmless++
			case lost == 1 && !clean:
				cut++
			default:
				t.Fatalf("%s: %d blocks lost, damage not seen", im.what, lost)
			}
		}
	}
	t.Logf("%d flips refused, %d cut the last block, %d in unused space", refused, cut, harmless)
	if refused == 0 || (cut > 0) == clean {
		t.Fatal("the flips do not reach what they should")
	}
}

// usedEnd returns where the last data block of a segment ends.
func usedEnd(t *testing.T, b []byte) int64 {
	t.Helper()
	h, err := decodeSegHeader(b)
	must(t, err)
	r := newBlockReader(bytes.NewReader(b), &segment{segHeader: h})
	end := r.off
	for lsn := h.base; ; {
		block, _, ok, err := r.next(lsn)
		must(t, err)
		if !ok {
			return end
		}
		if block.typ == typeData {
			lsn, end = lsn+1, r.off
		}
	}
}

// checkPlace holds an error to the damaged file and to the block or header that holds the damage.
func checkPlace(t *testing.T, what string, err *CorruptError, name string, at int64) {
	t.Helper()
	if path.Base(err.Path) != name {
		t.Fatalf("%s: error names %s: %v", what, err.Path, err)
	}
	if err.Offset > at || at-err.Offset > 260 {
		t.Fatalf("%s: error names offset %d: %v", what, err.Offset, err)
	}
}

// TestTruncateEverywhere cuts each segment file short at each byte: its header says how long it was made.
func TestTruncateEverywhere(t *testing.T) {
	for _, boxed := range []bool{false, true} {
		d, im := smallLog(t, true, boxed)
		for _, name := range d.segments() {
			for size := range len(d[name]) {
				im.what = fmt.Sprintf("%s cut to %d bytes", name, size)
				if _, err := outcome(t, d.with(name, d[name][:size]), im, name, 0); err == nil || path.Base(err.Path) != name {
					t.Fatalf("%s: %v", im.what, err)
				}
			}
		}
	}
}

// TestZeroTail sets each segment to zero from each byte on, with its length kept: what a file system may do to a file
// whose size reached the disk before its bytes.
func TestZeroTail(t *testing.T) {
	for _, boxed := range []bool{false, true} {
		zeroTail(t, boxed)
	}
}

func zeroTail(t *testing.T, boxed bool) {
	t.Helper()
	d, im := smallLog(t, true, boxed)
	last := ""
	for _, name := range d.segments() {
		last = max(last, name)
	}
	for _, name := range d.segments() {
		for from := range len(d[name]) {
			b := bytes.Clone(d[name])
			changed := bytes.Count(b[from:], []byte{0}) != len(b)-from
			clear(b[from:])
			im.what = fmt.Sprintf("%s zero from %d", name, from)
			lost, err := outcome(t, d.with(name, b), im, name, im.synced)
			if err == nil && lost != 0 {
				t.Fatalf("%s: %d blocks lost", im.what, lost)
			}
			if err != nil && !changed {
				t.Fatalf("%s: nothing was changed: %v", im.what, err)
			}
		}
	}
	// Without a floor the last segment loses what nothing later proves, but never anything wrong appears.
	for from := range len(d[last]) {
		b := bytes.Clone(d[last])
		clear(b[from:])
		im.what = fmt.Sprintf("%s zero from %d, no floor", last, from)
		im.disk = d.with(last, b).mem(t)
		o, unsynced := smallOr(boxed)(im.disk), im
		unsynced.synced = 0
		if w, err := open(o, unsynced); err == nil {
			must(t, w.close())
		} else if !isCorrupt(err) {
			t.Fatalf("%s: %v", im.what, err)
		}
	}
}

func isCorrupt(err error) bool {
	var c *CorruptError
	return errors.As(err, &c)
}

// TestMisplacedFiles takes segments away, swaps them and gives them other names.
func TestMisplacedFiles(t *testing.T) {
	d, im := smallLog(t, true, false)
	name := func(id uint64) string { return segName(id) }
	for _, c := range []struct {
		what  string
		disk  disk
		floor LSN
		want  []string
	}{
		{"middle missing", d.with(name(3), nil), 0, []string{name(2), name(4), "missing"}},
		{"first missing", d.with(name(2), nil), im.dropped, []string{name(3), "missing"}},
		{"last missing", d.with(name(4), nil), im.synced, []string{name(3), "ends before"}},
		{"all missing", d.with(name(2), nil).with(name(3), nil).with(name(4), nil), im.synced, []string{wal, "no segment"}},
		{"two swapped", d.with(name(2), d[name(3)]).with(name(3), d[name(2)]), 0, []string{name(2), "renamed"}},
		{"one twice", d.with(name(5), d[name(4)]), 0, []string{name(5), "renamed"}},
		{"one twice, with its header changed", d.with(name(5), readdress(t, d[name(4)], 5)), 0, []string{name(4), name(5)}},
		{"old one at the end", d.with(name(5), readdress(t, d[name(2)], 5)), 0, []string{name(4), name(5), "starts with"}},
		{"not a segment", d.with("x.seg", []byte("hello")), 0, []string{"x.seg", "name"}},
		{"another file", d.with(name(3), bytes.Repeat([]byte("hello "), 200)), 0, []string{name(3), "not a log segment"}},
		{"another version", d.with(name(3), withVersion(d[name(3)], 9)), 0, []string{name(3), "version 9"}},
	} {
		im.what = c.what
		_, err := outcome(t, c.disk, im, "", c.floor)
		if err == nil {
			t.Fatalf("%s: opened", c.what)
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Fatalf("%s: %q is not in %q", c.what, part, err)
			}
		}
	}
}

// readdress gives a segment another id, with a matching checksum.
func readdress(t *testing.T, b []byte, id uint64) []byte {
	t.Helper()
	h, err := decodeSegHeader(b)
	must(t, err)
	h.id = id
	return append(h.encode()[:segHeaderSize], b[segHeaderSize:]...)
}

func withVersion(b []byte, version byte) []byte {
	b = bytes.Clone(b)
	b[8] = version
	return b
}

// TestUnsyncedRow damages each byte of a row of blocks that were appended without a sync after one that
// was synced: what was synced is there, and what follows the damage is cut.
func TestUnsyncedRow(t *testing.T) {
	m := vfs.NewMem()
	w, err := open(smallOptions(m), image{})
	must(t, err)
	must(t, w.append(50))
	must(t, w.sync())
	synced := w.log.active.end.Load()
	for range 5 {
		must(t, w.append(70))
	}
	im := w.expect()
	d := readDisk(t, m)
	end := w.log.active.end.Load()
	must(t, w.close())
	name := segName(1)
	for at := synced; at < end; at++ {
		b := bytes.Clone(d[name])
		b[at] ^= 0xff
		im.what = fmt.Sprintf("byte %d", at)
		if lost, err := outcome(t, d.with(name, b), im, name, 0); err != nil || lost > 0 {
			t.Fatalf("%s: %d synced blocks lost, %v", im.what, lost, err)
		}
	}
}

// TestCutStaysCut tears one of a row of blocks of the same size, none of which was synced. The blocks after it are whole, and
// lie where new blocks will end; they must not come back after them, even if the zeros behind the new block are lost.
func TestCutStaysCut(t *testing.T) {
	m := vfs.NewMem()
	w, err := open(smallOptions(m), image{})
	must(t, err)
	for range 6 {
		must(t, w.append(40))
	}
	im := w.expect()
	d := readDisk(t, m)
	torn := w.at[2].Offset
	must(t, w.close())
	b := d[segName(1)]
	b[torn+7] ^= 1
	im.disk = d.mem(t)
	again, err := open(smallOptions(im.disk), im)
	must(t, err)
	if len(again.written) != 2 {
		t.Fatalf("%d blocks before the torn one", len(again.written))
	}
	must(t, again.append(40))
	for seed := range uint64(300) {
		after := again.expect()
		after.disk = im.disk.CrashClone(vfs.CrashOptions{Seed: seed, Keep: 0.9, Sector: 8})
		last, err := open(smallOptions(after.disk), after)
		must(t, err)
		must(t, last.close())
	}
	must(t, again.close())
}

// TestProofFarAway damages a block of which only a header about one read further says that it was durable.
func TestProofFarAway(t *testing.T) {
	for d := -48; d <= 16; d += 8 {
		m := vfs.NewMem()
		o := smallOptions(m)
		o.SegmentSize = 600 << 10
		w, err := open(o, image{})
		must(t, err)
		must(t, w.append(readAhead-blockHeaderSize+d))
		must(t, w.sync())
		must(t, w.append(10))
		at := w.at[0].Offset
		files := readDisk(t, m)
		must(t, w.close())
		files[segName(1)][at] ^= 1
		o.FS = files.mem(t)
		_, err = open(o, image{})
		if !isCorrupt(err) {
			t.Fatalf("proof %d bytes after the damage: %v", readAhead+d, err)
		}
	}
}

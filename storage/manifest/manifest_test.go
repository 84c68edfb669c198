package manifest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/manifest"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func part(id manifest.PartID, logs ...uint64) manifest.Part {
	p := manifest.Part{ID: id, Path: fmt.Sprintf("parts/%d.part", id), Shard: uint32(id % 3), Size: int64(id) * 100}
	for _, log := range logs {
		p.Sections = append(p.Sections, manifest.Section{
			Log: log, Count: 10, Keys: 3, FirstSeq: uint64(id) * 100, LastSeq: uint64(id)*100 + 40, FirstTime: -5, LastTime: 7, Bytes: 999,
		})
	}
	return p
}

func open(tb testing.TB, fsys vfs.FS, o manifest.Options) *manifest.Manifest {
	tb.Helper()
	m, err := manifest.Open(fsys, "/d/m", o)
	check(tb, err)
	return m
}

// script is edits that use everything.
func script() []*manifest.Edit {
	return []*manifest.Edit{
		{Store: []byte("shards=4"), Logs: []manifest.Log{{ID: 1, Spec: []byte("A/S")}, {ID: 2, Spec: []byte("A/C"), Checkpoint: []byte("state")}}},
		{AddParts: []manifest.Part{part(1, 1), part(2, 1, 7)}, Floor: 50},
		{Tombs: []manifest.Tomb{{TombKey: manifest.TombKey{Part: 2, Log: 7}, Blob: []byte("bitmap")}, {TombKey: manifest.TombKey{Part: 1, Log: 1}, Blob: []byte("b")}}},
		{AddParts: []manifest.Part{part(9, 1)}, Floor: 70, Logs: []manifest.Log{{
			ID: 1, Spec: []byte("A/S"), FirstSeq: 3, LastSeq: 140, LastTime: -8, Messages: 9, Bytes: 10, Deleted: 2, CheckpointPosition: 60,
		}}},
		{DropParts: []manifest.PartID{1, 2}, AddParts: []manifest.Part{part(10, 1, 7)}},
		{DropLogs: []uint64{2}, Tombs: []manifest.Tomb{{TombKey: manifest.TombKey{Part: 10, Log: 7}, Blob: []byte("xyz")}}},
		{Tombs: []manifest.Tomb{{TombKey: manifest.TombKey{Part: 10, Log: 7}}}, Store: []byte{}},
	}
}

// states returns what the manifest says after 0, 1, ... edits.
func states(tb testing.TB) []manifest.State {
	tb.Helper()
	m := open(tb, vfs.NewMem(), manifest.Options{Create: true})
	out := []manifest.State{m.State()}
	for _, e := range script() {
		check(tb, m.Apply(e))
		out = append(out, m.State())
	}
	return out
}

func TestReopen(t *testing.T) {
	want := states(t)
	for _, minRewrite := range []int64{1, 0} {
		mem := vfs.NewMem()
		m := open(t, mem, manifest.Options{Create: true, MinRewrite: minRewrite})
		for i, e := range script() {
			check(t, m.Apply(e))
			check(t, m.Close())
			m = open(t, mem, manifest.Options{MinRewrite: minRewrite})
			if got := m.State(); !reflect.DeepEqual(got, want[i+1]) {
				t.Fatalf("after edit %d:\n%+v\nwant\n%+v", i, got, want[i+1])
			}
		}
		if id := m.NewPart(); id != 11 {
			t.Fatalf("next part is %d", id)
		}
		check(t, m.Snapshot())
		check(t, m.Close())
		if got := open(t, mem, manifest.Options{}).State(); !reflect.DeepEqual(got, want[len(want)-1]) {
			t.Fatalf("after a snapshot: %+v", got)
		}
		if names, _ := mem.List("/d/m"); len(names) != 1 {
			t.Fatalf("files left: %v", names)
		}
	}
}

func TestMissingIsNotMade(t *testing.T) {
	mem := vfs.NewMem()
	check(t, vfs.MakeDir(mem, "/d/m"))
	if _, err := manifest.Open(mem, "/d/m", manifest.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestRefusals(t *testing.T) {
	m := open(t, vfs.NewMem(), manifest.Options{Create: true})
	check(t, m.Apply(&manifest.Edit{AddParts: []manifest.Part{part(5, 1)}, Floor: 9}))
	empty, twice := part(6), part(6, 1, 1)
	empty.Sections = []manifest.Section{{Log: 1}}
	same := part(6, 1)
	same.Path = part(5).Path
	before := m.State()
	for name, e := range map[string]*manifest.Edit{
		"used number":    {AddParts: []manifest.Part{part(5, 1)}},
		"lower number":   {AddParts: []manifest.Part{part(4, 1)}},
		"twice":          {AddParts: []manifest.Part{part(7, 1), part(7, 1)}},
		"number zero":    {AddParts: []manifest.Part{part(0, 1)}},
		"same path":      {AddParts: []manifest.Part{same}},
		"empty section":  {AddParts: []manifest.Part{empty}},
		"section twice":  {AddParts: []manifest.Part{twice}},
		"drop unknown":   {DropParts: []manifest.PartID{1}},
		"drop twice":     {DropParts: []manifest.PartID{5, 5}},
		"tomb unknown":   {Tombs: []manifest.Tomb{{TombKey: manifest.TombKey{Part: 3, Log: 1}, Blob: []byte("x")}}},
		"tomb of no log": {Tombs: []manifest.Tomb{{TombKey: manifest.TombKey{Part: 5, Log: 2}, Blob: []byte("x")}}},
		"tomb of gone": {DropParts: []manifest.PartID{5}, Tombs: []manifest.Tomb{
			{TombKey: manifest.TombKey{Part: 5, Log: 1}, Blob: []byte("x")},
		}},
		"drop log":   {DropLogs: []uint64{1}},
		"floor back": {Floor: 8},
	} {
		if err := m.Apply(e); !errors.Is(err, manifest.ErrEdit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !reflect.DeepEqual(m.State(), before) {
		t.Fatal("a refused edit changed the state")
	}
	check(t, m.Apply(&manifest.Edit{DropParts: []manifest.PartID{5}, AddParts: []manifest.Part{same}}))
}

// Numbers given out are used in any order, each once, also after reopening.
func TestPartNumbers(t *testing.T) {
	mem := vfs.NewMem()
	m := open(t, mem, manifest.Options{Create: true})
	a, b, c := m.NewPart(), m.NewPart(), m.NewPart()
	add := func(id manifest.PartID) error { return m.Apply(&manifest.Edit{AddParts: []manifest.Part{part(id, 1)}}) }
	check(t, add(b))
	check(t, add(a))
	check(t, m.Apply(&manifest.Edit{DropParts: []manifest.PartID{a}}))
	if err := add(a); !errors.Is(err, manifest.ErrEdit) {
		t.Fatalf("a number was used twice: %v", err)
	}
	check(t, m.Close())
	m = open(t, mem, manifest.Options{})
	if id := m.NewPart(); id != c {
		t.Fatalf("after reopening the next number is %d, want %d: %d was never used", id, c, c)
	}
	if err := add(a); !errors.Is(err, manifest.ErrEdit) {
		t.Fatalf("a number was used twice: %v", err)
	}
}

// Defect: two writers of one manifest, each overwriting what the other wrote.
func TestConcurrentEdits(t *testing.T) {
	mem := vfs.NewMem()
	m := open(t, mem, manifest.Options{Create: true, MinRewrite: 2000})
	const writers, each = 4, 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			var last manifest.PartID
			for i := range each {
				id := m.NewPart()
				e := &manifest.Edit{AddParts: []manifest.Part{part(id, uint64(w))}, Logs: []manifest.Log{{ID: uint64(w*each + i)}}}
				if i%2 == 1 {
					e.DropParts = []manifest.PartID{last}
				}
				if last = id; m.Apply(e) != nil {
					t.Errorf("writer %d: edit %d is refused", w, i)
				}
				if s := m.State(); s.Parts[id].ID != id {
					t.Errorf("writer %d: its part %d is not there", w, id)
				}
			}
		})
	}
	wg.Wait()
	want := m.State()
	if len(want.Logs) != writers*each || len(want.Parts) != writers*each/2 || want.Edits != writers*each {
		t.Fatalf("%d logs, %d parts, %d edits", len(want.Logs), len(want.Parts), want.Edits)
	}
	check(t, m.Close())
	if got := open(t, mem, manifest.Options{}).State(); !reflect.DeepEqual(got, want) {
		t.Fatal("another state when opened again")
	}
}

// Defect: a full snapshot at every change, kept for ever. Ten thousand seals, merged as they go, stay small; and what
// is written for them too.
func TestSizeIsLinearInLiveParts(t *testing.T) {
	mem := vfs.NewMem()
	written := int64(0)
	f := vfs.NewFault(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite {
			written += int64(op.Len)
		}
		return nil
	})
	m := open(t, f, manifest.Options{Create: true})
	const seals, merged = 10_000, 20
	var small, big []manifest.PartID
	most := 0
	for range seals {
		id := m.NewPart()
		check(t, m.Apply(&manifest.Edit{AddParts: []manifest.Part{part(id, 1, 2, 3)}, Floor: uint64(id)}))
		if small = append(small, id); len(small) == merged {
			id := m.NewPart()
			check(t, m.Apply(&manifest.Edit{DropParts: small, AddParts: []manifest.Part{part(id, 1, 2, 3)}}))
			small, big = nil, append(big, id)
		}
		if len(big) == merged {
			check(t, m.Apply(&manifest.Edit{DropParts: big}))
			big = nil
		}
		most = max(most, len(small)+len(big))
	}
	perPart := int64(len(fmt.Sprint(part(10_000, 1, 2, 3)))) // generous
	if bound := 3*perPart*int64(most) + 3*(64<<10); mem.Used() > bound {
		t.Fatalf("%d bytes for at most %d live parts, want <= %d", mem.Used(), most, bound)
	}
	if st := m.Stats(); written > 12*perPart*seals || st.Snapshots == 0 || st.Snapshots > seals/50 {
		t.Fatalf("%d bytes written for %d seals, %+v", written, seals, st)
	}
}

func TestSizeWithManyLiveParts(t *testing.T) {
	mem := vfs.NewMem()
	m := open(t, mem, manifest.Options{Create: true})
	for range 3000 {
		check(t, m.Apply(&manifest.Edit{AddParts: []manifest.Part{part(m.NewPart(), 1)}}))
	}
	check(t, m.Snapshot())
	if mem.Used() > 3000*100 {
		t.Fatalf("%d bytes for 3,000 parts of one section", mem.Used())
	}
	check(t, m.Close())
	if n := len(open(t, mem, manifest.Options{}).State().Parts); n != 3000 {
		t.Fatalf("%d parts come back", n)
	}
}

func TestOrphansAndMissing(t *testing.T) {
	mem := vfs.NewMem()
	check(t, vfs.MakeDir(mem, "/d/parts"))
	m := open(t, mem, manifest.Options{Create: true})
	for _, name := range []string{"1.part", "2.part", "3.part", "x.tmp", "LOCK"} {
		f, err := mem.Create("/d/parts/" + name)
		check(t, err)
		check(t, f.Truncate(100))
		check(t, f.Close())
	}
	check(t, m.Apply(&manifest.Edit{AddParts: []manifest.Part{part(1, 1), part(2, 1), part(4, 1)}}))
	got, err := m.Orphans("/d", "m", "parts", "nowhere")
	check(t, err)
	want := []manifest.Orphan{{Path: "parts/3.part", Size: 100}, {Path: "parts/x.tmp", Size: 100, Temp: true}}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v", got)
	}
	damaged, err := m.Missing("/d")
	check(t, err)
	if len(damaged) != 2 || !strings.Contains(damaged[0].Error(), "/d/parts/2.part") || !strings.Contains(damaged[1].Error(), "/d/parts/4.part") {
		t.Fatalf("%v", damaged)
	}
	if names, _ := mem.List("/d/parts"); len(names) != 5 {
		t.Fatalf("a file was removed: %v", names)
	}
}

func raw(tb testing.TB, fsys vfs.FS, path string) []byte {
	tb.Helper()
	f, err := fsys.OpenRead(path)
	check(tb, err)
	n, err := f.Size()
	check(tb, err)
	b := make([]byte, n)
	_, err = f.ReadAt(b, 0)
	check(tb, err)
	check(tb, f.Close())
	return b
}

func with(tb testing.TB, name string, b []byte) *vfs.Mem {
	tb.Helper()
	mem := vfs.NewMem()
	check(tb, vfs.MakeDir(mem, "/d/m"))
	f, err := mem.Create(name)
	check(tb, err)
	_, err = f.WriteAt(b, 0)
	check(tb, err)
	check(tb, f.Close())
	return mem
}

func closed(tb testing.TB, keys *crypt.Keys) (name string, b []byte) {
	tb.Helper()
	mem := vfs.NewMem()
	m := open(tb, mem, manifest.Options{Create: true, Keys: keys})
	for _, e := range script() {
		check(tb, m.Apply(e))
	}
	name = m.Path()
	check(tb, m.Close())
	return name, raw(tb, mem, name)
}

// Any byte flipped: an error with file and offset, or the right state; in all edits, the last too.
func TestFlippedBits(t *testing.T) {
	for _, keys := range []*crypt.Keys{nil, keysOf("k")} {
		flippedBits(t, keys)
	}
}

func flippedBits(t *testing.T, keys *crypt.Keys) {
	t.Helper()
	want := states(t)
	name, b := closed(t, keys)
	for i := range b {
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			m, err := manifest.Open(with(t, name, bad), "/d/m", manifest.Options{Keys: keys})
			if err != nil {
				isDamage(t, err, name, len(b), fmt.Sprintf("byte %d bit %d", i, bit))
				continue
			}
			if got := m.State(); !reflect.DeepEqual(got, want[len(want)-1]) {
				t.Fatalf("byte %d bit %d: opens with %d of %d edits", i, bit, got.Edits, len(want)-1)
			}
		}
	}
}

func isDamage(t *testing.T, err error, name string, size int, what string) {
	t.Helper()
	var ce *manifest.CorruptError
	if !errors.As(err, &ce) || ce.Path != name || ce.Offset < 0 || ce.Offset > int64(size) || ce.Hint == "" {
		t.Fatalf("%s: %v", what, err)
	}
}

// Cut at any byte, with and without zeros instead: what is left of the edits, in order, or an error. And what was cut
// can be added to.
func TestTruncated(t *testing.T) {
	for _, keys := range []*crypt.Keys{nil, keysOf("k")} {
		truncated(t, keys)
	}
}

func truncated(t *testing.T, keys *crypt.Keys) {
	t.Helper()
	want := states(t)
	name, b := closed(t, keys)
	var best [2]uint64 // edits seen: with the rest gone, and with zeros instead
	for n := range b {
		for kind, bad := range [][]byte{b[:n], append(bytes.Clone(b[:n]), make([]byte, 600)...)} {
			last := best[kind]
			mem := with(t, name, bad)
			m, err := manifest.Open(mem, "/d/m", manifest.Options{Keys: keys})
			if err != nil {
				isDamage(t, err, name, n+600, fmt.Sprint("cut at ", n))
				if last > 0 {
					t.Fatalf("cut at %d: %v, less was readable", n, err)
				}
				continue
			}
			got := m.State()
			if got.Edits < last || !reflect.DeepEqual(got, want[got.Edits]) {
				t.Fatalf("cut at %d: %d edits", n, got.Edits)
			}
			best[kind] = got.Edits
			if size, err := mem.Stat(name); err != nil || size != m.Stats().Bytes {
				t.Fatalf("cut at %d: the file has %d bytes, %d of them are known: %v", n, size, m.Stats().Bytes, err)
			}
			check(t, m.Apply(&manifest.Edit{Floor: 1000}))
			check(t, m.Close())
			if s := open(t, mem, manifest.Options{Keys: keys}).State(); s.Floor != 1000 || s.Edits != got.Edits+1 {
				t.Fatalf("cut at %d: what was added is not there: %+v", n, s)
			}
		}
	}
	if best[0] != uint64(len(want)-1) || best[1] != best[0] {
		t.Fatalf("only %v edits", best)
	}
}

// crash runs the script with a hook and checks each image it took: what was acknowledged is there, and it is a state
// that was, at most one edit further.
type image struct {
	mem   *vfs.Mem
	acked int
	what  string
	keys  *crypt.Keys
}

func TestCrashBeforeEachOperation(t *testing.T) {
	for _, minRewrite := range []int64{1, 400, 0} {
		crashBeforeEach(t, minRewrite, nil)
	}
	crashBeforeEach(t, 700, keysOf("k"))
}

func crashBeforeEach(t *testing.T, minRewrite int64, keys *crypt.Keys) {
	t.Helper()
	want := states(t)
	var images []image
	mem, acked := vfs.NewMem(), -1
	f := vfs.NewFault(mem, func(op vfs.Op) error {
		if op.Kind.Changes() {
			for seed := range uint64(12) {
				images = append(images, image{
					mem.CrashClone(vfs.CrashOptions{Seed: seed, Keep: float64(seed%4) / 3, Sector: 16, Journal: seed%2 == 0}),
					acked, fmt.Sprintf("before operation %d (%d %s), seed %d", op.N, op.Kind, op.Path, seed), keys,
				})
			}
		}
		return nil
	})
	m := open(t, f, manifest.Options{Create: true, MinRewrite: minRewrite, Keys: keys})
	acked = 0
	for _, e := range script() {
		check(t, m.Apply(e))
		acked++
	}
	check(t, m.Close())
	for _, im := range images {
		// the crash of the recovery is tried too
		fault := vfs.NewFault(im.mem, nil)
		var again []*vfs.Mem
		fault.SetHook(func(op vfs.Op) error {
			if op.Kind.Changes() {
				again = append(again, im.mem.CrashClone(vfs.CrashOptions{Seed: uint64(op.N), Keep: 0.5, Sector: 16}))
			}
			return nil
		})
		n := im.survives(t, fault, want)
		for _, mem := range again {
			image{mem, im.acked, im.what + ", then in recovery", keys}.survives(t, mem, want)
		}
		if n >= 0 { // what recovery showed is durable
			image{im.mem.CrashClone(vfs.CrashOptions{}), n, im.what + ", then after recovery", keys}.survives(t, im.mem, want)
		}
	}
}

func (im image) survives(t *testing.T, fsys vfs.FS, want []manifest.State) int {
	t.Helper()
	m, err := manifest.Open(fsys, "/d/m", manifest.Options{Create: im.acked < 0, Keys: im.keys})
	if err != nil {
		t.Fatalf("%s: %v", im.what, err)
	}
	got := m.State()
	if int(got.Edits) < im.acked || int(got.Edits) > im.acked+1 || !reflect.DeepEqual(got, want[got.Edits]) {
		t.Fatalf("%s: %d edits, %d were acknowledged", im.what, got.Edits, im.acked)
	}
	return int(got.Edits)
}

// An error at each operation: the manifest says so and stops, or goes on; after reopening what was acknowledged is
// there.
func TestErrorAtEachOperation(t *testing.T) {
	want := states(t)
	boom := errors.New("boom")
	for _, lose := range []error{boom, fmt.Errorf("%w: %w", boom, vfs.ErrSyncLost)} {
		for n := int64(0); ; n++ {
			mem := vfs.NewMem()
			f := vfs.NewFault(mem, func(op vfs.Op) error {
				if op.N == n {
					return lose
				}
				return nil
			})
			acked, hit := runScript(t, f, boom)
			done := hit == nil && acked == len(want)-1
			f.SetHook(nil)
			for _, reader := range []vfs.FS{f, mem.CrashClone(vfs.CrashOptions{}), mem.CrashClone(vfs.CrashOptions{Keep: 0.5, Seed: uint64(n)})} {
				got := image{mem, acked, fmt.Sprintf("error %q at operation %d", lose, n), nil}.survives(t, reader, want)
				if reader == vfs.FS(f) { // the one that reopened in process showed it, so it stays
					image{mem, got, fmt.Sprintf("after reopening, error at %d", n), nil}.survives(t, mem.CrashClone(vfs.CrashOptions{}), want)
				}
			}
			if done && n > 60 {
				break
			}
		}
	}
}

// runScript returns how many edits were acknowledged, -1 if it did not open, and the error that ended it.
func runScript(t *testing.T, fsys vfs.FS, boom error) (acked int, err error) {
	t.Helper()
	m, err := manifest.Open(fsys, "/d/m", manifest.Options{Create: true, MinRewrite: 300})
	if err != nil {
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		return -1, err
	}
	for _, e := range script() {
		if err := m.Apply(e); err != nil {
			if !errors.Is(err, boom) || !errors.Is(err, manifest.ErrStopped) {
				t.Fatal(err)
			}
			if err := m.Apply(e); !errors.Is(err, manifest.ErrStopped) {
				t.Fatalf("it goes on after an error: %v", err)
			}
			_ = m.Close()
			return acked, err
		}
		acked++
	}
	return acked, m.Close()
}

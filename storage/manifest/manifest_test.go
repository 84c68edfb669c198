package manifest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/storage/manifest"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
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

func open(t testing.TB, fsys vfs.FS, o manifest.Options) *manifest.Manifest {
	t.Helper()
	m, err := manifest.Open(fsys, "/d/m", o)
	check(t, err)
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
func states(t testing.TB) []manifest.State {
	t.Helper()
	m := open(t, vfs.NewMem(), manifest.Options{Create: true})
	out := []manifest.State{m.State()}
	for _, e := range script() {
		check(t, m.Apply(e))
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
		if m.NextPart() != 11 {
			t.Fatalf("next part is %d", m.NextPart())
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
		"descending":     {AddParts: []manifest.Part{part(8, 1), part(7, 1)}},
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
		id := m.NextPart()
		check(t, m.Apply(&manifest.Edit{AddParts: []manifest.Part{part(id, 1, 2, 3)}, Floor: uint64(id)}))
		if small = append(small, id); len(small) == merged {
			check(t, m.Apply(&manifest.Edit{DropParts: small, AddParts: []manifest.Part{part(id+1, 1, 2, 3)}}))
			small, big = nil, append(big, id+1)
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
		check(t, m.Apply(&manifest.Edit{AddParts: []manifest.Part{part(m.NextPart(), 1)}}))
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

func raw(t testing.TB, fsys vfs.FS, path string) []byte {
	t.Helper()
	f, err := fsys.OpenRead(path)
	check(t, err)
	n, err := f.Size()
	check(t, err)
	b := make([]byte, n)
	_, err = f.ReadAt(b, 0)
	check(t, err)
	check(t, f.Close())
	return b
}

func with(t testing.TB, name string, b []byte) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	check(t, vfs.MakeDir(mem, "/d/m"))
	f, err := mem.Create(name)
	check(t, err)
	_, err = f.WriteAt(b, 0)
	check(t, err)
	check(t, f.Close())
	return mem
}

func closed(t testing.TB) (name string, b []byte) {
	t.Helper()
	mem := vfs.NewMem()
	m := open(t, mem, manifest.Options{Create: true})
	for _, e := range script() {
		check(t, m.Apply(e))
	}
	name = m.Path()
	check(t, m.Close())
	return name, raw(t, mem, name)
}

// Any byte flipped: an error with file and offset, or the right state; in all edits, the last too.
func TestFlippedBits(t *testing.T) {
	want := states(t)
	name, b := closed(t)
	for i := range b {
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			m, err := manifest.Open(with(t, name, bad), "/d/m", manifest.Options{})
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

// Cut at any byte, with and without zeros instead: what is left of the edits, in order, or an error. And what was cut can
// be added to.
func TestTruncated(t *testing.T) {
	want := states(t)
	name, b := closed(t)
	var best [2]uint64 // edits seen: with the rest gone, and with zeros instead
	for n := range b {
		for kind, bad := range [][]byte{b[:n], append(bytes.Clone(b[:n]), make([]byte, 600)...)} {
			last := best[kind]
			mem := with(t, name, bad)
			m, err := manifest.Open(mem, "/d/m", manifest.Options{})
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
			if s := open(t, mem, manifest.Options{}).State(); s.Floor != 1000 || s.Edits != got.Edits+1 {
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
}

func TestCrashBeforeEachOperation(t *testing.T) {
	want := states(t)
	for _, minRewrite := range []int64{1, 400, 0} {
		var images []image
		mem, acked := vfs.NewMem(), -1
		f := vfs.NewFault(mem, func(op vfs.Op) error {
			if op.Kind.Changes() {
				for seed := range uint64(12) {
					images = append(images, image{
						mem.CrashClone(vfs.CrashOptions{Seed: seed, Keep: float64(seed%4) / 3, Sector: 16, Journal: seed%2 == 0}),
						acked, fmt.Sprintf("before operation %d (%d %s), seed %d", op.N, op.Kind, op.Path, seed),
					})
				}
			}
			return nil
		})
		m := open(t, f, manifest.Options{Create: true, MinRewrite: minRewrite})
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
				image{mem, im.acked, im.what + ", then in recovery"}.survives(t, mem, want)
			}
			if n >= 0 { // what recovery showed is durable
				image{im.mem.CrashClone(vfs.CrashOptions{}), n, im.what + ", then after recovery"}.survives(t, im.mem, want)
			}
		}
	}
}

func (im image) survives(t *testing.T, fsys vfs.FS, want []manifest.State) int {
	t.Helper()
	m, err := manifest.Open(fsys, "/d/m", manifest.Options{Create: im.acked < 0})
	if err != nil {
		t.Fatalf("%s: %v", im.what, err)
	}
	got := m.State()
	if int(got.Edits) < im.acked || int(got.Edits) > im.acked+1 || !reflect.DeepEqual(got, want[got.Edits]) {
		t.Fatalf("%s: %d edits, %d were acknowledged", im.what, got.Edits, im.acked)
	}
	return int(got.Edits)
}

// An error at each operation: the manifest says so and stops, or goes on; after reopening what was acknowledged is there.
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
				got := image{mem, acked, fmt.Sprintf("error %q at operation %d", lose, n)}.survives(t, reader, want)
				if reader == vfs.FS(f) { // the one that reopened in process showed it, so it stays
					image{mem, got, fmt.Sprintf("after reopening, error at %d", n)}.survives(t, mem.CrashClone(vfs.CrashOptions{}), want)
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

// Random edits, crashes and reopenings against the states in memory.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := vfs.NewMem()
		o := manifest.Options{Create: true, MinRewrite: rapid.SampledFrom([]int64{1, 500, 5000}).Draw(t, "rewrite")}
		m := openRapid(t, mem, o)
		state := m.State()
		t.Repeat(map[string]func(*rapid.T){
			"apply": func(t *rapid.T) {
				e := drawEdit(t, &state)
				if err := m.Apply(e); err != nil {
					t.Fatal(err)
				}
				state = m.State()
			},
			"refused": func(t *rapid.T) {
				if err := m.Apply(&manifest.Edit{DropParts: []manifest.PartID{state.NextPart}}); !errors.Is(err, manifest.ErrEdit) {
					t.Fatal(err)
				}
			},
			"crash": func(t *rapid.T) {
				mem = mem.CrashClone(vfs.CrashOptions{Seed: rapid.Uint64().Draw(t, "seed"), Keep: rapid.Float64Range(0, 1).Draw(t, "keep")})
				m = openRapid(t, mem, o)
			},
			"reopen": func(t *rapid.T) {
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
				m = openRapid(t, mem, o)
			},
			"": func(t *rapid.T) {
				if got := m.State(); !reflect.DeepEqual(got, state) {
					t.Fatalf("state is\n%+v\nwant\n%+v", got, state)
				}
			},
		})
	})
}

func openRapid(t *rapid.T, mem *vfs.Mem, o manifest.Options) *manifest.Manifest {
	m, err := manifest.Open(mem, "/d/m", o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func drawEdit(t *rapid.T, s *manifest.State) *manifest.Edit {
	e := &manifest.Edit{}
	gone := map[manifest.PartID]bool{}
	for id := range s.Parts {
		if id%3 == 0 && len(s.Parts) > 4 {
			e.DropParts = append(e.DropParts, id)
			gone[id] = true
		}
	}
	next := s.NextPart
	for range rapid.IntRange(0, 3).Draw(t, "parts") {
		next += manifest.PartID(rapid.IntRange(0, 2).Draw(t, "skip"))
		e.AddParts = append(e.AddParts, part(next, 1, 2))
		next++
	}
	for id := range s.Parts {
		if !gone[id] && len(e.Tombs) < 3 {
			e.Tombs = append(e.Tombs, manifest.Tomb{
				TombKey: manifest.TombKey{Part: id, Log: uint64(id%2) + 1},
				Blob:    rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "blob"),
			})
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "logs") {
		e.Logs = append(e.Logs, manifest.Log{
			ID: rapid.Uint64Range(1, 4).Draw(t, "log"), LastSeq: rapid.Uint64().Draw(t, "seq"), Spec: []byte("spec"),
			LastTime: rapid.Int64().Draw(t, "time"),
		})
	}
	e.Floor = s.Floor + rapid.Uint64Range(0, 3).Draw(t, "floor")
	return e
}

// FuzzOpen gives any bytes to Open: an error or a state, never a panic; and a state that opens again.
func FuzzOpen(f *testing.F) {
	_, b := closed(f)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := with(t, "/d/m/manifest-00000000000000000001", b)
		m, err := manifest.Open(mem, "/d/m", manifest.Options{})
		if err != nil {
			return
		}
		want := m.State()
		check(t, m.Close())
		if got := open(t, mem, manifest.Options{}).State(); !reflect.DeepEqual(got, want) {
			t.Fatal("another state when opened again")
		}
	})
}

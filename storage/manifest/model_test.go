package manifest_test

import (
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/noetl/ehdb-gateway/storage/manifest"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Random edits, crashes and reopenings against the states in memory.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := vfs.NewMem()
		o := manifest.Options{Create: true, MinRewrite: rapid.SampledFrom([]int64{1, 500, 5000}).Draw(t, "rewrite")}
		lists := [][]string{nil, {"a"}, {"b", "a"}, {"c", "b", "a"}}
		rotate := func() {
			if n := rapid.IntRange(0, 3).Draw(t, "secrets"); n < len(lists) && n > 0 {
				lists = lists[n:]
				o.Keys = keysOf(lists[0]...)
			}
		}
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
				rotate()
				m = openRapid(t, mem, o)
			},
			"reopen": func(t *rapid.T) {
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
				rotate()
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
	_, b := closed(f, nil)
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

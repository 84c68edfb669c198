package inspect_test

import (
	"fmt"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/inspect"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestReadsWhatTheStoreReads holds the independent reader against the store, on directories with deletions of all kinds,
// moved records, dropped segments, spread logs and state logs; closed, and after a crash.
func TestReadsWhatTheStoreReads(t *testing.T) {
	t.Parallel()
	for name, f := range forms {
		for seed := range uint64(12) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				t.Parallel()
				readsTheSame(t, seed, f)
			})
		}
	}
}

func readsTheSame(t *testing.T, seed uint64, f form) {
	t.Helper()
	fsys := vfs.NewMem()
	s := create(t, fsys, f)
	w := newWorkload(t, s, seed)
	for round := range 4 {
		w.run(t, 150)
		if round == 2 {
			must(t, s.DropLog(w.logs[1].ID(), nil))
			w.logs = append(w.logs[:1], w.logs[2:]...)
			w.create(t, 3+round)
		}
	}
	for try := 0; f.sealed && len(read(t, fsys.CrashClone(vfs.CrashOptions{})).Parts) == 0; try++ {
		if try == 500 {
			t.Fatal("no part was made")
		}
		w.run(t, 20) // what is sealed when is a matter of time
	}
	want, err := product(s)
	must(t, err)
	check := func(fsys vfs.FS) {
		t.Helper()
		d := read(t, fsys)
		for _, f := range d.Findings {
			if f.Severity == inspect.Damage {
				t.Fatal(f.String())
			}
		}
		if diff := same(want, independent(t, d)); diff != "" {
			t.Fatal(diff)
		}
	}
	if !f.sealed { // else it is moving records all the time, and this reader has no lock
		check(fsys)
	}
	check(fsys.CrashClone(vfs.CrashOptions{}))
	must(t, s.Close())
	check(fsys)
	s = open(t, fsys)
	must(t, s.Close())
	check(fsys)
}

// small builds a data directory with several segments of which little is dead.
func small(t *testing.T, f form) map[string][]byte {
	t.Helper()
	fsys := vfs.NewMem()
	s := create(t, fsys, f)
	w := newWorkload(t, s, 7)
	w.run(t, 160)
	crashed := files(t, fsys.CrashClone(vfs.CrashOptions{}))
	must(t, s.Close())
	return crashed
}

// outcome says what the store and the independent reader make of a damaged directory, and fails where the reader says
// less than it should. name is the damaged file.
func outcome(t *testing.T, all map[string][]byte, name string, whole contents, what string) {
	t.Helper()
	d, err := inspect.Read(t.Context(), inspect.Options{FS: disk(t, all), Dir: dataDir, Secrets: [][]byte{storeSecret}})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	said := ""
	for _, f := range d.Findings {
		if f.Severity != inspect.Note && path.Join(dataDir, f.File) == name && f.What != "" {
			said = f.String()
		}
	}
	ours := independent(t, d)
	s, err := openStore(t.Context(), disk(t, all))
	if err != nil {
		// a manifest that is cut where an edit ends is not damaged in itself: what does not fit it is
		if !d.Damaged() || said == "" && !strings.Contains(name, "manifest-") {
			t.Fatalf("%s: the store does not open (%v), the reader says %q", what, err, said)
		}
		return
	}
	theirs, err := product(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	switch {
	case err != nil && !d.Damaged():
		t.Fatalf("%s: the store does not read (%v), the reader says %q", what, err, said)
	case err == nil && same(theirs, whole) != "" && said == "":
		t.Fatalf("%s: the store reads something else, the reader says nothing:\n%s", what, same(theirs, whole))
	case err == nil && !d.Damaged() && same(theirs, ours) != "":
		t.Fatalf("%s: the store reads something else than the reader:\n%s", what, same(theirs, ours))
	}
}

func slow() bool { return os.Getenv("EHDB_SLOW") != "" }

// counted says which files of a directory are data.
func counted(name string) bool {
	return strings.HasSuffix(name, ".seg") || strings.HasSuffix(name, "META") || strings.Contains(name, "KEYS") || strings.HasSuffix(name, ".part") ||
		strings.Contains(name, "manifest-")
}

// TestFlips changes bits of every file of a data directory: each time the reader reports the file and the offset, or the
// change is without effect, for the store as for the reader.
func TestFlips(t *testing.T) {
	t.Parallel()
	eachDamage(t, 37, func(b []byte, off int) []byte {
		changed := append([]byte(nil), b...)
		changed[off] ^= 1 << (off % 8)
		return changed
	})
}

// TestTruncations cuts every file of a data directory short.
func TestTruncations(t *testing.T) {
	t.Parallel()
	eachDamage(t, 61, func(b []byte, off int) []byte { return b[:off] })
}

// eachDamage damages each file at every so many bytes, at every one with EHDB_SLOW.
func eachDamage(t *testing.T, step int, damage func(b []byte, off int) []byte) {
	t.Helper()
	if slow() {
		step = 1
	}
	for name, f := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := small(t, f)
			s := open(t, disk(t, all))
			whole, err := product(s)
			must(t, err)
			must(t, s.Close())
			n := 0
			for name, b := range all {
				if !counted(name) {
					continue
				}
				for off := 0; off < len(b); off += step {
					image := with(all, name, damage(b, off))
					outcome(t, image, name, whole, fmt.Sprintf("%s, offset %d", name, off))
					n++
				}
			}
			t.Logf("%d times", n)
		})
	}
}

// TestMissingFiles takes each file away.
func TestMissingFiles(t *testing.T) {
	t.Parallel()
	all := small(t, form{})
	s := open(t, disk(t, all))
	whole, err := product(s)
	must(t, err)
	must(t, s.Close())
	segs := 0
	for name := range all {
		if strings.HasSuffix(name, ".seg") {
			segs++
		}
	}
	if segs < 3 {
		t.Fatalf("only %d segments", segs)
	}
	for name := range all {
		if !counted(name) {
			continue
		}
		d, err := inspect.Read(t.Context(), inspect.Options{FS: disk(t, with(all, name, nil)), Dir: dataDir, Secrets: [][]byte{storeSecret}})
		must(t, err)
		s, err := openStore(t.Context(), disk(t, with(all, name, nil)))
		if err != nil {
			if !d.Damaged() {
				t.Errorf("without %s the store does not open (%v), the reader says nothing", name, err)
			}
			continue
		}
		got, err := product(s)
		must(t, err)
		must(t, s.Close())
		// the lowest and the last segment cannot be told from ones that never were (docs/format/tail.md)
		if same(got, whole) != "" && !d.Damaged() && same(got, independent(t, d)) != "" {
			t.Errorf("without %s: %s", name, same(got, whole))
		}
	}
}

package repair_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/inspect"
	"github.com/noetl/ehdb-gateway/storage/repair"
)

// TestRepairsALostLog takes the whole write-ahead log of a sealed directory away: what is in parts is there.
func TestRepairsALostLog(t *testing.T) {
	t.Parallel()
	var image map[string][]byte
	var h *history
	for try := 0; image == nil || !damaged(t, image) || !holds(t, image); try++ {
		if try == 50 {
			t.Fatal("nothing is said of a log that is missing, or nothing was sealed")
		}
		image, h = build(t, 450, form{sealed: true}) // how much of it is sealed is a matter of time
		maps.DeleteFunc(image, func(name string, _ []byte) bool { return strings.HasSuffix(name, ".seg") })
	}
	fsys := disk(t, image)
	report, err := repair.Run(t.Context(), repair.Options{FS: fsys, Dir: dir})
	must(t, err)
	for _, f := range report.After {
		if f.Severity == inspect.Damage {
			t.Fatal(f.String())
		}
	}
	for range 2 {
		s, err := openStore(t.Context(), fsys)
		must(t, err)
		found := 0
		s.EachLog(func(id storage.LogID, _ string, state bool) {
			if state {
				return
			}
			l, err := s.OpenLog(id, storage.LogSpec{})
			must(t, err)
			for c := l.NewCursor(0, nil); ; found++ {
				r, err := c.Next()
				if errors.Is(err, storage.ErrEOF) {
					break
				}
				must(t, err)
				if got := text(r.Seq, r.Key, r.Header, r.Data); string(r.Key) != "new" && h.all[uint64(id)][r.Seq] != got {
					t.Fatalf("log %d has %s", id, got)
				}
			}
			done := make(chan error, 1)
			rec := storage.Record{Seq: l.State().LastSeq + 1, Key: []byte("new")}
			must(t, l.Append(&rec, func(err error) { done <- err }))
			must(t, <-done)
		})
		if found == 0 {
			t.Fatal("no record is there")
		}
		must(t, s.Close())
	}
}

// holds reports whether a repair of a directory leaves a record in it.
func holds(t *testing.T, image map[string][]byte) (yes bool) {
	t.Helper()
	fsys := disk(t, image)
	_, err := repair.Run(t.Context(), repair.Options{FS: fsys, Dir: dir})
	must(t, err)
	s, err := openStore(t.Context(), fsys)
	must(t, err)
	s.EachLog(func(id storage.LogID, _ string, state bool) {
		if !state && !yes {
			l, err := s.OpenLog(id, storage.LogSpec{})
			must(t, err)
			_, err = l.NewCursor(0, nil).Next()
			yes = err == nil
		}
	})
	must(t, s.Close())
	return yes
}

package repair_test

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/inspect"
	"github.com/noetl/ehdb-gateway/storage/manifest"
	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/repair"
	"github.com/noetl/ehdb-gateway/storage/tail"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

var secret = []byte("a secret")

const recordsEach = 90

// sealed makes a directory with three parts of two logs, of which every fifth record is deleted.
//
//nolint:revive // what is asked for
func sealed(t *testing.T, o part.Options, encrypted bool) (map[string][]byte, *history, *crypt.Keys) {
	t.Helper()
	fsys := vfs.NewMem()
	must(t, fsys.MkdirAll(dir+"/parts"))
	f, err := fsys.Create(dir + "/META")
	must(t, err)
	_, err = f.WriteAt(inspect.EncodeMeta(2), 0)
	must(t, err)
	must(t, f.Close())
	if encrypted {
		r, err := crypt.OpenRing(fsys, dir, crypt.RingOptions{Cipher: crypt.AES256GCM, Secret: secret, Cost: 1})
		must(t, err)
		o.Keys = r.Keys
	}
	w, err := tail.Open(tail.Options{
		FS: fsys, Dir: dir + "/wal", SegmentSize: 1 << 10, Keys: func() (*crypt.Keys, error) { return o.Keys, nil },
	})
	must(t, err)
	must(t, w.Replay(func(tail.LSN, tail.Pos, []byte) error { return nil }))
	must(t, w.Close())
	m, err := manifest.Open(fsys, dir+"/manifest", manifest.Options{Create: true, Keys: o.Keys})
	must(t, err)
	must(t, m.Apply(&manifest.Edit{Logs: []manifest.Log{
		{ID: 2, Spec: logSpec(2, "ACC/A")}, {ID: 3, Spec: logSpec(3, "ACC/B")},
	}}))
	h := &history{map[uint64]map[uint64]string{2: {}, 3: {}}, map[uint64]map[uint64]bool{2: {}, 3: {}}}
	for n := range uint64(3) {
		sealPart(t, fsys, m, o, h, n*recordsEach)
	}
	must(t, m.Close())
	return files(t, fsys), h, o.Keys
}

// logSpec is a log record from its kind on (docs/format/records.md).
func logSpec(id byte, name string) []byte {
	b := []byte{4, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}
	return append(append(b, byte(len(name))), name...)
}

func sealPart(t *testing.T, fsys vfs.FS, m *manifest.Manifest, o part.Options, h *history, after uint64) {
	t.Helper()
	b, err := part.Create(fsys, dir+"/parts", o)
	must(t, err)
	id := m.NewPart()
	e := manifest.Edit{}
	for _, log := range []uint64{2, 3} {
		must(t, b.BeginLog(log, func(k, h, d int) uint64 { return uint64(k+h+d) + 7 }))
		var dead part.Tombstones
		for ord := range uint64(recordsEach) {
			seq := after + ord + 1
			r := part.Record{
				Seq: seq, Time: int64(seq), Key: fmt.Appendf(nil, "key.%d", seq%11), Data: fmt.Appendf(nil, "data %d", seq),
			}
			must(t, b.Add(&r))
			h.all[log][seq] = text(seq, r.Key, r.Header, r.Data)
			if h.live[log][seq] = true; seq%5 == 0 {
				dead.Add(uint32(ord))
				delete(h.live[log], seq)
			}
		}
		blob, err := dead.Encode()
		must(t, err)
		e.Tombs = append(e.Tombs, manifest.Tomb{TombKey: manifest.TombKey{Part: id, Log: log}, Blob: blob})
	}
	info, err := b.Finish()
	must(t, err)
	name := part.Name(uint64(id), info.ID)
	must(t, b.Commit(name))
	p := manifest.Part{ID: id, Path: "parts/" + name, Size: info.Size, Shard: info.Shard}
	for _, s := range info.Sections {
		p.Sections = append(p.Sections, manifest.Section(s))
	}
	e.AddParts = []manifest.Part{p}
	must(t, m.Apply(&e))
}

// verified opens manifest and parts with the product's readers, and verifies all of them.
func verified(t *testing.T, fsys vfs.FS, keys *crypt.Keys) {
	t.Helper()
	m, err := manifest.Open(fsys, dir+"/manifest", manifest.Options{Keys: keys})
	must(t, err)
	missing, err := m.Missing(dir)
	must(t, err)
	if len(missing) > 0 {
		t.Fatal(missing[0])
	}
	for _, p := range m.State().Parts {
		r, err := part.Open(fsys, path.Join(dir, p.Path), part.ReadOptions{Verify: true, Keys: keys})
		must(t, err)
		must(t, r.Close())
	}
	must(t, m.Close())
}

// TestRepairsParts changes, cuts and takes away parts: what is whole is in new ones afterwards, what was deleted stays
// deleted, and what is lost is reported.
func TestRepairsParts(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]part.Options{
		"plain": {BlockSize: 400}, "zstd": {BlockSize: 400, Codec: part.Zstd}, "encrypted": {BlockSize: 400, Codec: part.S2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, h, keys := sealed(t, o, name == "encrypted")
			step := 397
			if slow() {
				step = 7
			}
			some := 0
			for file, b := range all {
				if !strings.HasSuffix(file, ".part") {
					continue
				}
				some += repairPart(t, with(all, file, nil), h, keys, file+" is gone")
				for off := 0; off < len(b); off += step {
					changed := append([]byte(nil), b...)
					changed[off] ^= 1 << (off % 8)
					some += repairPart(t, with(all, file, changed), h, keys, fmt.Sprintf("%s, flip at %d", file, off))
					some += repairPart(t, with(all, file, b[:off]), h, keys, fmt.Sprintf("%s, cut to %d", file, off))
				}
			}
			if some == 0 {
				t.Fatal("nothing was lost")
			}
		})
	}
}

func repairPart(t *testing.T, all map[string][]byte, h *history, keys *crypt.Keys, what string) (lost int) {
	t.Helper()
	fsys := disk(t, all)
	r, err := repair.Run(t.Context(), repair.Options{FS: fsys, Dir: dir, Secrets: [][]byte{secret}})
	must(t, err)
	if !r.Changed() {
		t.Fatalf("%s: nothing was done", what)
	}
	for _, f := range r.After {
		if f.Severity == inspect.Damage {
			t.Fatalf("%s: after the repair: %s", what, f.String())
		}
	}
	verified(t, fsys, keys)
	d, err := inspect.Read(t.Context(), inspect.Options{FS: fsys, Dir: dir, Secrets: [][]byte{secret}})
	must(t, err)
	found := map[uint64]map[uint64]bool{2: {}, 3: {}}
	for _, l := range d.Logs {
		must(t, d.Each(t.Context(), l, 0, ^uint64(0), func(rec *inspect.Record) bool {
			got := text(rec.Seq, rec.Key, rec.Header, rec.Data)
			if h.all[l.ID][rec.Seq] != got || !h.live[l.ID][rec.Seq] && !resurrected(r) {
				t.Fatalf("%s: log %d has %s", what, l.ID, got)
			}
			found[l.ID][rec.Seq] = true
			return true
		}))
	}
	for log, live := range h.live {
		for seq := range live {
			if found[log][seq] {
				continue
			}
			if lost++; !reported(r, log, seq) {
				t.Fatalf("%s: record %d of log %d is lost, and that is not reported: %v", what, seq, log, r.Before)
			}
		}
	}
	return lost
}

// resurrected tells whether the report says that deletions are undone.
func resurrected(r *repair.Report) bool {
	for _, a := range r.Actions {
		if strings.Contains(a.What, "are there again") {
			return true
		}
	}
	return false
}

// TestRepairsManifests changes, cuts and takes away the manifest: it is made again of what can be read of it and of the
// parts that are there, and no record is lost.
func TestRepairsManifests(t *testing.T) {
	t.Parallel()
	all, h, _ := sealed(t, part.Options{BlockSize: 400}, false)
	step := 31
	if slow() {
		step = 1
	}
	n := 0
	for file, b := range all {
		if !strings.Contains(file, "/manifest-") {
			continue
		}
		images := map[string]map[string][]byte{file + " is gone": with(all, file, nil)}
		for off := 0; off < len(b); off += step {
			changed := append([]byte(nil), b...)
			changed[off] ^= 1 << (off % 8)
			images[fmt.Sprintf("flip at %d", off)] = with(all, file, changed)
			images[fmt.Sprintf("cut to %d", off)] = with(all, file, b[:off])
		}
		for what, image := range images {
			if !damaged(t, image) {
				continue
			}
			n++
			if lost := rebuilt(t, image, h, what); lost > 0 {
				t.Fatalf("%s: %d records are lost", what, lost)
			}
		}
	}
	if n == 0 {
		t.Fatal("nothing was shown")
	}
}

// rebuilt repairs a directory whose manifest is damaged. What was deleted may be there again.
func rebuilt(t *testing.T, all map[string][]byte, h *history, what string) (lost int) {
	t.Helper()
	fsys := disk(t, all)
	r, err := repair.Run(t.Context(), repair.Options{FS: fsys, Dir: dir})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for _, f := range r.After {
		if f.Severity == inspect.Damage {
			t.Fatalf("%s: after the repair: %s", what, f.String())
		}
	}
	verified(t, fsys, nil)
	d, err := inspect.Read(t.Context(), inspect.Options{FS: fsys, Dir: dir})
	must(t, err)
	found := map[uint64]map[uint64]bool{}
	for _, l := range d.Logs {
		found[l.ID] = map[uint64]bool{}
		must(t, d.Each(t.Context(), l, 0, ^uint64(0), func(rec *inspect.Record) bool {
			if got := text(rec.Seq, rec.Key, rec.Header, rec.Data); !l.State && h.all[l.ID][rec.Seq] != got {
				t.Fatalf("%s: log %d has %s", what, l.ID, got)
			}
			found[l.ID][rec.Seq] = true
			return true
		}))
	}
	for log, live := range h.live {
		for seq := range live {
			if !found[log][seq] {
				lost++
			}
		}
	}
	if lost > 0 {
		t.Logf("found %v\ndone %v", r.Before, r.Actions)
	}
	return lost
}

// TestKeyIsMissing: a damaged part that is encrypted is not touched without its key, and neither is anything else.
func TestKeyIsMissing(t *testing.T) {
	t.Parallel()
	all, _, keys := sealed(t, part.Options{BlockSize: 400}, true)
	for file, b := range all {
		if strings.HasSuffix(file, ".part") {
			b[500] ^= 1
		}
		if strings.HasSuffix(file, "META") {
			b[9] ^= 1
		}
	}
	fsys := disk(t, all)
	_, err := repair.Run(t.Context(), repair.Options{FS: fsys, Dir: dir, Secrets: [][]byte{[]byte("another")}, Shards: 2})
	if !errors.Is(err, inspect.ErrKeys) || !strings.Contains(err.Error(), "another key") {
		t.Fatal(err)
	}
	unchanged(t, fsys, all)
	r, err := repair.Run(t.Context(), repair.Options{FS: fsys, Dir: dir, Secrets: [][]byte{secret}, Shards: 2})
	must(t, err)
	verified(t, fsys, keys)
	if !r.Changed() {
		t.Fatal("nothing was done")
	}
}

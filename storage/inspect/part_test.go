package inspect_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/inspect"
	"github.com/noetl/ehdb-gateway/storage/manifest"
	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/tail"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// sealed is a data directory whose records are in parts.
type sealed struct {
	fsys *vfs.Mem
	want contents
	keys *crypt.Keys
}

// partForm is how parts are made: ring says that the directory is encrypted, and with what before that.
type partForm struct {
	part.Options
	ring   crypt.RingOptions
	before []byte // the secret before, which some parts are made under
}

var secret, oldSecret = []byte("a secret"), []byte("the one before")

// logSpec is a log record from its kind on (docs/format/records.md).
func logSpec(id byte, name string) []byte {
	b := []byte{4, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}
	return append(append(b, byte(len(name))), name...)
}

// buildSealed makes a directory with an empty write-ahead log, and parts of two logs with deletions, in options o.
func buildSealed(t *testing.T, o partForm, nparts, n, keys int) *sealed {
	t.Helper()
	x := &sealed{fsys: vfs.NewMem(), want: contents{1: nil}}
	must(t, x.fsys.MkdirAll(dataDir+"/parts"))
	f, err := x.fsys.Create(dataDir + "/META")
	must(t, err)
	_, err = f.WriteAt(inspect.EncodeMeta(2), 0)
	must(t, err)
	must(t, f.Close())
	x.ring(t, &o)
	w, err := tail.Open(tail.Options{
		FS: x.fsys, Dir: dataDir + "/wal", SegmentSize: 1 << 10, Keys: func() (*crypt.Keys, error) { return x.keys, nil },
	})
	must(t, err)
	must(t, w.Replay(func(tail.LSN, tail.Pos, []byte) error { return nil }))
	must(t, w.Close())
	m, err := manifest.Open(x.fsys, dataDir+"/manifest", manifest.Options{Create: true, Keys: x.keys})
	must(t, err)
	must(t, m.Apply(&manifest.Edit{Logs: []manifest.Log{
		{ID: 2, Spec: logSpec(2, "ACC/A")}, {ID: 3, Spec: logSpec(3, "ACC/B")},
	}}))
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	seqs := map[uint64]uint64{}
	for range nparts {
		x.part(t, m, o.Options, rnd, seqs, n, keys)
		o.Keys = x.keys // the first part may be made under an older key
	}
	for log := range seqs {
		x.want.add(log, "last %d", seqs[log])
	}
	must(t, m.Close())
	return x
}

// ring makes the directory's keys, if it is to be encrypted.
func (x *sealed) ring(t *testing.T, o *partForm) {
	t.Helper()
	if o.ring.Secret == nil {
		return
	}
	o.ring.Cost = 1
	now := o.ring
	if o.before != nil {
		o.ring.Secret, now.Previous = o.before, [][]byte{o.before}
	}
	r, err := crypt.OpenRing(x.fsys, dataDir, o.ring)
	must(t, err)
	o.Keys = r.Keys
	r, err = crypt.OpenRing(x.fsys, dataDir, now)
	must(t, err)
	if x.keys = r.Keys; r.Rotated != (o.before != nil) {
		t.Fatalf("%+v", r)
	}
}

// part seals n records a log.
func (x *sealed) part(
	t *testing.T, m *manifest.Manifest, o part.Options, rnd *rand.Rand, seqs map[uint64]uint64, n, keys int,
) {
	t.Helper()
	b, err := part.Create(x.fsys, dataDir+"/parts", o)
	must(t, err)
	id := m.NewPart()
	var tombs []manifest.Tomb
	for _, log := range []uint64{3, 2} {
		must(t, b.BeginLog(log, nil))
		var dead part.Tombstones
		for ord := range n {
			if seqs[log]++; rnd.IntN(9) == 0 {
				seqs[log] += uint64(rnd.IntN(3))
			}
			r := part.Record{
				Seq: seqs[log], Time: int64(seqs[log]) * 1e6, Key: fmt.Appendf(nil, "key.%d.x", rnd.IntN(keys)),
				Header: []byte(strings.Repeat("h", rnd.IntN(9))), Data: []byte(strings.Repeat("data", rnd.IntN(9))),
			}
			must(t, b.Add(&r))
			if rnd.IntN(4) == 0 {
				dead.Add(uint32(ord))
				continue
			}
			x.want.add(log, "%d %d %q %q %q", r.Seq, r.Time, r.Key, r.Header, r.Data)
		}
		blob, err := dead.Encode()
		must(t, err)
		tombs = append(tombs, manifest.Tomb{TombKey: manifest.TombKey{Part: id, Log: log}, Blob: blob})
	}
	info, err := b.Finish()
	must(t, err)
	name := part.Name(uint64(id), info.ID)
	must(t, b.Commit(name))
	p := manifest.Part{ID: id, Path: "parts/" + name, Size: info.Size, Shard: info.Shard}
	for _, s := range info.Sections {
		p.Sections = append(p.Sections, manifest.Section(s))
	}
	must(t, m.Apply(&manifest.Edit{AddParts: []manifest.Part{p}, Tombs: tombs}))
}

func (x *sealed) read(t *testing.T, fsys vfs.FS, secrets ...[]byte) *inspect.Directory {
	t.Helper()
	d, err := inspect.Read(t.Context(), inspect.Options{FS: fsys, Dir: dataDir, Secrets: secrets})
	must(t, err)
	return d
}

func options() map[string]partForm {
	aes := crypt.RingOptions{Cipher: crypt.AES256GCM, Secret: secret}
	chacha := crypt.RingOptions{Cipher: crypt.ChaCha20Poly1305, Secret: oldSecret}
	return map[string]partForm{
		"plain":       {Options: part.Options{BlockSize: 512}},
		"s2":          {Options: part.Options{BlockSize: 512, Codec: part.S2, Shard: 1}},
		"zstd":        {Options: part.Options{BlockSize: 512, Codec: part.Zstd}},
		"aes zstd":    {Options: part.Options{BlockSize: 512, Codec: part.Zstd}, ring: aes, before: oldSecret},
		"chacha s2":   {Options: part.Options{BlockSize: 512, Codec: part.S2}, ring: chacha},
		"large block": {},
	}
}

// TestReadsParts holds the independent reader against what was put into parts of every codec and cipher.
func TestReadsParts(t *testing.T) {
	t.Parallel()
	for name, o := range options() {
		for _, n := range []int{1, 100, 9000} {
			x := buildSealed(t, o, 2, n, n)
			d := x.read(t, x.fsys, secret, oldSecret)
			if len(d.Findings) > 0 {
				t.Fatalf("%s, %d: %v", name, n, d.Findings[0].String())
			}
			if diff := same(x.want, independent(t, d)); diff != "" {
				t.Fatalf("%s, %d: %s", name, n, diff)
			}
			if l := d.Logs[1]; l.Name != "ACC/A" {
				t.Fatalf("log %d is called %q", l.ID, l.Name)
			}
			checkRanges(t, d)
			st := d.Stat(d.Logs[1])
			if got := uint64(len(x.want[2]) - 1); st.Messages != got || st.Parts != 2 || st.Dead != uint64(2*n)-got {
				t.Fatalf("%s, %d: %+v, want %d messages", name, n, st, got)
			}
		}
	}
}

// checkRanges reads from every so often sequence on.
func checkRanges(t *testing.T, d *inspect.Directory) {
	t.Helper()
	l := d.Logs[1]
	var seqs []uint64
	must(t, d.Each(t.Context(), l, 0, ^uint64(0), func(r *inspect.Record) bool {
		seqs = append(seqs, r.Seq)
		return true
	}))
	for i := 0; i < len(seqs); i += 97 {
		var got []uint64
		must(t, d.Each(t.Context(), l, seqs[i], seqs[min(i+5, len(seqs)-1)], func(r *inspect.Record) bool {
			got = append(got, r.Seq)
			return true
		}))
		if want := seqs[i:min(i+6, len(seqs))]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("from %d: %v, want %v", seqs[i], got, want)
		}
	}
}

// TestKeyIsMissing: without the key a directory is not read, and the error says what to do.
func TestKeyIsMissing(t *testing.T) {
	t.Parallel()
	x := buildSealed(t, options()["aes zstd"], 1, 50, 5)
	refused := func(fsys vfs.FS, want string, secrets ...[]byte) {
		t.Helper()
		_, err := inspect.Read(t.Context(), inspect.Options{FS: fsys, Dir: dataDir, Secrets: secrets})
		if !errors.Is(err, inspect.ErrKeys) || !strings.Contains(err.Error(), want) {
			t.Fatal(err)
		}
	}
	refused(x.fsys, "give its key")
	refused(x.fsys, "another key", []byte("another"), oldSecret)
	all := files(t, x.fsys)
	gone := with(with(all, dataDir+"/KEYS", nil), dataDir+"/KEYS.copy", nil)
	refused(disk(t, gone), "are missing", secret)
	bad := with(with(all, dataDir+"/KEYS", []byte("x")), dataDir+"/KEYS.copy", []byte("y"))
	refused(disk(t, bad), "both damaged", secret)
	d := x.read(t, disk(t, with(all, dataDir+"/KEYS.copy", nil)), secret)
	if len(d.Findings) != 1 || d.Findings[0].File != inspect.KeysCopy || !strings.Contains(d.Findings[0].What, "missing") {
		t.Fatalf("%v", d.Findings)
	}
}

// TestForeignKey: of a part that is encrypted with a key that the directory does not have, what can be is verified.
func TestForeignKey(t *testing.T) {
	t.Parallel()
	foreign, err := crypt.NewKeys(crypt.AES256GCM, []byte("of another directory"))
	must(t, err)
	x := buildSealed(t, partForm{Options: part.Options{BlockSize: 512, Keys: foreign}}, 1, 50, 5)
	d := x.read(t, x.fsys)
	if d.Damaged() || len(d.Findings) != 1 || !strings.Contains(d.Findings[0].What, "does not have") {
		t.Fatalf("%v", d.Findings)
	}
	all := files(t, x.fsys)
	for name, b := range all {
		if strings.HasSuffix(name, ".part") {
			b[300] ^= 1
		}
	}
	if d := x.read(t, disk(t, all)); !d.Damaged() {
		t.Fatal("a changed byte of a part without key was not found")
	}
}

// productReads opens manifest and parts with the product's readers and verifies them.
func productReads(t *testing.T, fsys vfs.FS, keys *crypt.Keys) error {
	t.Helper()
	m, err := manifest.Open(fsys, dataDir+"/manifest", manifest.Options{Keys: keys})
	if err != nil {
		return err
	}
	defer m.Close()
	missing, err := m.Missing(dataDir)
	if err != nil {
		return err
	}
	for _, err := range missing {
		return err
	}
	s := m.State()
	for _, p := range s.Parts {
		r, err := part.Open(fsys, path.Join(dataDir, p.Path), part.ReadOptions{Verify: true, Keys: keys})
		if err != nil {
			return err
		}
		must(t, r.Close())
	}
	for k, blob := range s.Tombs {
		for _, sec := range s.Parts[k.Part].Sections {
			if sec.Log == k.Log {
				if _, err := part.DecodeTombstones("", blob, sec.Count); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// TestPartFlips changes and cuts every byte of manifest and parts. Nothing that the product refuses passes, and what is
// read of the other files and logs stays right.
func TestPartFlips(t *testing.T) {
	t.Parallel()
	for name, o := range options() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := buildSealed(t, o, 2, 60, 20)
			all := files(t, x.fsys)
			step := 101
			if slow() {
				step = 3
			}
			for file, b := range all {
				if !strings.HasSuffix(file, ".part") && !strings.Contains(file, "manifest-") {
					continue
				}
				for off := 0; off < len(b); off += step {
					changed := append([]byte(nil), b...)
					changed[off] ^= 1 << (off % 8)
					x.outcome(t, with(all, file, changed), file, x.keys, fmt.Sprintf("%s, flip at %d", file, off))
					x.outcome(t, with(all, file, b[:off]), file, x.keys, fmt.Sprintf("%s, cut to %d", file, off))
				}
			}
		})
	}
}

// orphaned tells whether a part is there that the manifest does not name.
func orphaned(d *inspect.Directory) bool {
	return slices.ContainsFunc(d.Files, func(f inspect.FileInfo) bool { return f.Kind == "orphan" })
}

func (x *sealed) outcome(t *testing.T, all map[string][]byte, file string, keys *crypt.Keys, what string) {
	t.Helper()
	d := x.read(t, disk(t, all), secret, oldSecret)
	bad := productReads(t, disk(t, all), keys)
	got := independent(t, d)
	said := false
	for _, f := range d.Findings {
		said = said || path.Join(dataDir, f.File) == file && f.Severity != inspect.Note
	}
	switch {
	case bad != nil && !d.Damaged():
		t.Fatalf("%s: the product says %v, the reader nothing", what, bad)
	case bad == nil && d.Damaged():
		t.Fatalf("%s: the product says nothing, the reader %s", what, d.Findings[0].String())
	case strings.Contains(file, "manifest-") && orphaned(d):
		// it is cut where an edit ends, which cannot be told from one that has no more: the part it does not name shows
	case same(got, x.want) != "" && !said:
		t.Fatalf("%s: the reader says nothing: %s", what, same(got, x.want))
	}
	if strings.Contains(file, "manifest") {
		return // which parts and deletions count is not known then
	}
	for log, recs := range got { // nothing that is read is wrong
		known := map[string]bool{}
		for _, r := range x.want[log] {
			known[r] = true
		}
		for _, r := range recs {
			if !known[r] && !strings.HasPrefix(r, "last ") {
				t.Fatalf("%s: log %d: %s was never written, or is deleted", what, log, r)
			}
		}
	}
}

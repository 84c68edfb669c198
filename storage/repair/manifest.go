package repair

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"path"
	"slices"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/inspect"
)

const manifestHead = 32 // bytes of its header

// encodeManifest is a manifest with nothing but a snapshot (docs/format/manifest.md), encrypted if there are keys.
func encodeManifest(m *inspect.Manifest, keys *crypt.Keys) ([]byte, error) {
	le := binary.LittleEndian
	table := crc32.MakeTable(crc32.Castagnoli)
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	salt := le.Uint32(random[:])
	b := append(make([]byte, 0, manifestHead), "EHDBMANI"...)
	snap, version := encodeItems(m), uint32(1)
	if keys != nil {
		var err error
		version = 2
		snap, err = keys.Seal(nil, inspect.FramePlace(m.Generation, salt, int64(manifestHead), 1, m.Edits), snap)
		if err != nil {
			return nil, err
		}
	}
	b = le.AppendUint32(b, version)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, m.Generation)
	b = le.AppendUint32(b, salt)
	b = le.AppendUint32(b, crc32.Checksum(b, table))
	for _, f := range []struct {
		typ  byte
		body []byte
	}{{1, snap}, {3, nil}} {
		h := make([]byte, 24)
		le.PutUint32(h[4:], uint32(len(f.body)))
		le.PutUint64(h[8:], m.Edits)
		h[16] = f.typ
		le.PutUint32(h[20:], crc32.Update(salt, table, f.body))
		le.PutUint32(h, crc32.Update(salt, table, h[4:]))
		b = append(append(b, h...), f.body...)
	}
	return b, nil
}

func encodeItems(m *inspect.Manifest) (b []byte) {
	numbers := func(vs ...uint64) {
		for _, v := range vs {
			b = binary.AppendUvarint(b, v)
		}
	}
	blob := func(v []byte) {
		numbers(uint64(len(v)))
		b = append(b, v...)
	}
	for _, n := range slices.Sorted(maps.Keys(m.Parts)) {
		p := m.Parts[n]
		numbers(2, p.Number, uint64(p.Shard), uint64(p.Size))
		blob([]byte(p.Path))
		numbers(uint64(len(p.Sections)))
		for _, s := range p.Sections {
			numbers(s.Log, uint64(s.Count), uint64(s.Keys), s.FirstSeq, s.LastSeq-s.FirstSeq, s.Bytes)
			b = binary.LittleEndian.AppendUint64(b, uint64(s.FirstTime))
			b = binary.LittleEndian.AppendUint64(b, uint64(s.LastTime))
		}
	}
	keys := slices.SortedFunc(maps.Keys(m.Tombs), func(x, y inspect.TombKey) int {
		return cmp.Or(cmp.Compare(x.Part, y.Part), cmp.Compare(x.Log, y.Log))
	})
	for _, k := range keys {
		numbers(3, k.Part, k.Log)
		blob(m.Tombs[k])
	}
	for _, id := range slices.Sorted(maps.Keys(m.Logs)) {
		l := m.Logs[id]
		numbers(5, l.ID, l.FirstSeq, l.LastSeq, l.Messages, l.Bytes, l.Deleted)
		b = binary.LittleEndian.AppendUint64(b, uint64(l.LastTime))
		blob(l.Spec)
		numbers(l.CheckpointPosition)
		blob(l.Checkpoint)
	}
	if m.Floor > 0 {
		numbers(6, m.Floor)
	}
	if m.Store != nil {
		numbers(7)
		blob(m.Store)
	}
	numbers(8, m.NextPart)
	return b
}

// manifest writes what m says as a new generation; the one before is put aside.
func (r *repairer) manifest(m *inspect.Manifest) error {
	old := m.File
	m.Generation++
	name := path.Join(inspect.ManifestDir, fmt.Sprintf("manifest-%020d", m.Generation))
	b, err := encodeManifest(m, r.box)
	if err != nil {
		return err
	}
	if err := r.replace(name, b); err != nil {
		return err
	}
	r.did(name, "written, for the parts as they are now")
	if old == "" {
		return nil
	}
	return r.putAside(old)
}

package repair

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/noetl/ehdb-gateway/storage/inspect"
	"github.com/noetl/ehdb-gateway/storage/part"
)

// parts writes the records that are whole of each damaged part to a new one, and a manifest that names it instead.
func (r *repairer) parts(ctx context.Context) error {
	m := r.d.Manifest
	changed := m != nil && m.Damaged
	if m == nil && r.d.DamagedFile(inspect.ManifestDir) {
		m, changed = emptyManifest(), true
	}
	if m == nil {
		return nil
	}
	if changed {
		if err := r.rebuild(ctx, m); err != nil {
			return err
		}
	}
	var old []string
	for _, n := range slices.Sorted(maps.Keys(m.Parts)) { // those that are made on the way are not among them
		p, mp := r.part(n), m.Parts[n]
		switch {
		case r.adopted[n]: // it is whole
			continue
		case p == nil:
			r.did(mp.Path, "left out of the manifest: the file is missing")
			dropPart(m, n)
		case p.Damaged:
			if err := r.salvage(ctx, m, p, &mp); err != nil {
				return fmt.Errorf("%s: %w", p.File, err)
			}
			old = append(old, p.File)
		default:
			continue
		}
		changed = true
	}
	if !changed {
		return nil
	}
	if err := r.manifest(m); err != nil {
		return err
	}
	for _, file := range old {
		if err := r.putAside(file); err != nil {
			return err
		}
	}
	return r.read(ctx)
}

// locked says which damaged part cannot be read for want of its key.
func (r *repairer) locked(context.Context) error {
	for _, p := range r.d.Parts {
		if p.Damaged && p.Locked {
			return fmt.Errorf("%s is damaged, and encrypted with a key that the directory does not have: restore the "+
				"files %s and %s as they were when it was written", p.File, inspect.KeysName, inspect.KeysCopy)
		}
	}
	return nil
}

func (r *repairer) part(number uint64) *inspect.Part {
	for _, p := range r.d.Parts {
		if p.Number == number {
			return p
		}
	}
	return nil
}

func dropPart(m *inspect.Manifest, n uint64) {
	delete(m.Parts, n)
	for k := range m.Tombs {
		if k.Part == n {
			delete(m.Tombs, k)
		}
	}
}

// salvage writes the live records of p that are whole to a new part.
func (r *repairer) salvage(ctx context.Context, m *inspect.Manifest, p *inspect.Part, mp *inspect.ManifestPart) error {
	r.progress(p.File)
	o := part.Options{Shard: mp.Shard, Created: p.Created, Codec: part.S2, Keys: r.box}
	b, err := part.Create(r.fs, path.Join(r.dir, path.Dir(p.File)), o)
	if err != nil {
		return err
	}
	for _, s := range p.Sections {
		if err := r.section(ctx, b, s); err != nil {
			_ = b.Abort() // the error that led here is the one to tell
			return err
		}
	}
	info, err := b.Finish()
	if err != nil {
		return err
	}
	dropPart(m, p.Number)
	if info.Records == 0 {
		r.did(p.File, "left out of the manifest: no record in it is whole and live")
		return b.Abort()
	}
	number := m.NextPart
	m.NextPart++
	name := part.Name(number, info.ID)
	if err := b.Commit(name); err != nil {
		return err
	}
	file := path.Join(path.Dir(p.File), name)
	made := inspect.ManifestPart{Number: number, Shard: info.Shard, Size: info.Size, Path: file}
	for _, s := range info.Sections {
		made.Sections = append(made.Sections, inspect.SectionInfo(s))
	}
	m.Parts[number] = made
	r.did(file, "made of the %d live records of %s that are whole", info.Records, p.File)
	return nil
}

// section copies the live records of a section.
func (r *repairer) section(ctx context.Context, b *part.Builder, s *inspect.Section) error {
	var size uint64
	if err := b.BeginLog(s.Log, func(_, _, _ int) uint64 { return size }); err != nil {
		return err
	}
	exact := true
	blind, err := r.d.EachSized(ctx, s, func(rec *inspect.SizedRecord) error {
		size, exact = rec.Size, exact && rec.Exact
		return b.Add(&part.Record{Seq: rec.Seq, Time: rec.Time, Key: rec.Key, Header: rec.Header, Data: rec.Data})
	})
	if err != nil {
		return err
	}
	if !exact {
		r.did(s.Part.File, "the sizes of log %d are counted anew, as the sum of key, header and data", s.Log)
	}
	if blind > 0 {
		r.did(s.Part.File, "%d deletions of log %d cannot be told which records they are of: those records are there "+
			"again", blind, s.Log)
	}
	return nil
}

package repair

import (
	"cmp"
	"context"
	"path"
	"slices"

	"github.com/noetl/ehdb-gateway/storage/inspect"
)

func emptyManifest() *inspect.Manifest {
	return &inspect.Manifest{
		NextPart: 1, Parts: map[uint64]inspect.ManifestPart{}, Tombs: map[inspect.TombKey][]byte{},
		Logs: map[uint64]inspect.ManifestLog{},
	}
}

// rebuild completes m, which is what can be read of a damaged manifest, by the parts that are there. Deletions and
// checkpoints in what is lost of it are undone.
func (r *repairer) rebuild(ctx context.Context, m *inspect.Manifest) error {
	r.rebuilt, r.adopted = true, map[uint64]bool{}
	r.did(inspect.ManifestDir, "what is lost of the manifest: deletions in parts, of streams too, may be undone, and "+
		"consumers may have forgotten what they confirmed")
	for n, p := range m.Parts { // or what was merged of it would seem to be there twice
		if r.part(n) == nil {
			r.did(p.Path, "left out of the manifest: the file is missing")
			dropPart(m, n)
		}
	}
	found, err := r.loose(ctx)
	if err != nil {
		return err
	}
	for _, p := range found {
		m.NextPart = max(m.NextPart, p.Number+1)
	}
	for _, p := range found {
		switch with, at := overlap(m, p); {
		case with != 0:
			r.did(p.Path, "left as it is: its records from sequence %d on are in part %d too", at, with)
		default:
			r.adopt(m, p)
		}
	}
	for _, p := range m.Parts {
		r.know(m, &p)
	}
	for k := range m.Tombs { // which records are meant is known of the part they were written for
		p, live := m.Parts[k.Part]
		if !live || r.adopted[k.Part] || !slices.ContainsFunc(p.Sections, func(s inspect.SectionInfo) bool {
			return s.Log == k.Log
		}) {
			delete(m.Tombs, k)
		}
	}
	for id, l := range m.Logs { // a description may be lost with the edit it was in
		if len(l.Spec) == 0 {
			l.Spec = r.spec(id, 0)
			m.Logs[id] = l
		}
	}
	if segs := r.d.Segments; len(segs) > 0 {
		m.Floor = max(m.Floor, segs[0].Base)
	}
	if len(m.Store) == 0 {
		m.Store = r.store(m)
	}
	return nil
}

// loose returns the whole parts that no manifest names, those that were made last first: one that was merged of others
// comes before those.
func (r *repairer) loose(ctx context.Context) (out []inspect.ManifestPart, err error) {
	made := map[string]int64{}
	for _, f := range r.d.Files {
		if f.Kind != "orphan" || path.Ext(f.Path) != ".part" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, bad, err := inspect.CheckFile(r.fs, r.dir, f.Path, r.d.Keys())
		if err != nil {
			return nil, err
		}
		if p.Damaged || p.Locked {
			r.did(f.Path, "left as it is: %s", bad[0].What)
			continue
		}
		mp := inspect.ManifestPart{Number: inspect.PartNumber(f.Path), Shard: p.Shard, Size: p.Size, Path: f.Path}
		for _, s := range p.Sections {
			mp.Sections = append(mp.Sections, s.SectionInfo)
		}
		out, made[f.Path] = append(out, mp), p.Created
	}
	slices.SortFunc(out, func(a, b inspect.ManifestPart) int {
		return cmp.Or(cmp.Compare(made[b.Path], made[a.Path]), cmp.Compare(b.Number, a.Number))
	})
	return out, nil
}

// overlap returns a live part that has sequences of p, and the first of them; 0 if there is none.
func overlap(m *inspect.Manifest, p inspect.ManifestPart) (part, seq uint64) {
	for n, live := range m.Parts {
		for _, a := range live.Sections {
			for _, b := range p.Sections {
				if a.Log == b.Log && a.FirstSeq <= b.LastSeq && b.FirstSeq <= a.LastSeq {
					return n, max(a.FirstSeq, b.FirstSeq)
				}
			}
		}
	}
	return 0, 0
}

// adopt makes p live.
func (r *repairer) adopt(m *inspect.Manifest, p inspect.ManifestPart) {
	if _, taken := m.Parts[p.Number]; taken || p.Number == 0 {
		p.Number = m.NextPart
		m.NextPart++
	}
	m.Parts[p.Number], r.adopted[p.Number] = p, true
	r.did(p.Path, "in the manifest again, as part %d", p.Number)
}

// know makes the logs known that have records in a live part. One that was deleted may be among them: what said so may
// be lost.
func (r *repairer) know(m *inspect.Manifest, p *inspect.ManifestPart) {
	for _, s := range p.Sections {
		l, ok := m.Logs[s.Log]
		if !ok {
			l = inspect.ManifestLog{ID: s.Log, Spec: r.spec(s.Log, uint64(p.Shard))}
			r.did(p.Path, "log %d is known again", s.Log)
		}
		l.LastSeq, l.LastTime = max(l.LastSeq, s.LastSeq), max(l.LastTime, s.LastTime)
		m.Logs[s.Log] = l
	}
}

// spec is a log record for a log whose description is lost.
func (r *repairer) spec(id, shard uint64) []byte {
	for _, l := range r.d.Logs {
		if l.ID == id && l.Known() && len(l.Shards) > 0 {
			return logRecord(l, l.Name, l.Shards)
		}
	}
	l := &inspect.Log{ID: id}
	return logRecord(l, nameOf(l), []uint64{shard})
}

// store is what a manifest says of the directory as a whole: which log ids are free and where the shards are.
func (r *repairer) store(m *inspect.Manifest) []byte {
	next := r.d.FreeID()
	for id := range m.Logs {
		next = max(next, id+1)
	}
	n, _ := r.d.ShardsSeen()
	heads := make([]uint64, n)
	for s := range heads {
		heads[s] = at(r.d.Heads(), s)
	}
	return storeRecord(next, heads)[1:]
}

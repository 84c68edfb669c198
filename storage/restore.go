package storage

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/noetl/ehdb-gateway/storage/manifest"
	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/tail"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

const quarantineDir = "quarantine"

var errNoManifest = errors.New("there are parts but no manifest")

// openManifest opens the manifest, or makes one for a directory that has no parts.
func (s *Store) openManifest() error {
	o := &s.opts
	has, err := hasFiles(o.FS, path.Join(o.Dir, manifestDir), "")
	if err != nil {
		return err
	}
	if !has {
		lost, err := hasFiles(o.FS, path.Join(o.Dir, partsDir), part.Extension)
		if err != nil {
			return err
		}
		if lost {
			return &CorruptError{
				Path: path.Join(o.Dir, manifestDir), Err: errNoManifest,
				Hint: "restore the directory " + manifestDir + " from a backup or a replica",
			}
		}
	}
	if !has && !o.Seal {
		return nil
	}
	if err := vfs.MakeDir(o.FS, path.Join(o.Dir, partsDir)); err != nil {
		return err
	}
	man, err := manifest.Open(o.FS, path.Join(o.Dir, manifestDir), manifest.Options{Create: true, Keys: s.keys})
	if err != nil {
		return err
	}
	s.sealer = &sealer{
		s: s, man: man, cache: part.NewCache(o.Memory / 2),
		parts: map[manifest.PartID]*sealedPart{}, known: map[LogID]manifest.Log{}, large: true,
	}
	return s.quarantine()
}

// hasFiles reports whether dir has files with that extension.
func hasFiles(fsys vfs.FS, dir, ext string) (bool, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return slices.ContainsFunc(names, func(n string) bool {
		return strings.HasSuffix(n, ext) && !strings.HasSuffix(n, part.TempExtension)
	}), err
}

// quarantine puts files aside that the manifest does not account for.
func (s *Store) quarantine() error {
	o := &s.opts
	orphans, err := s.sealer.man.Orphans(o.Dir, partsDir, manifestDir)
	if err != nil || len(orphans) == 0 {
		return err
	}
	to := path.Join(o.Dir, quarantineDir)
	if err := vfs.MakeDir(o.FS, to); err != nil {
		return err
	}
	for _, f := range orphans {
		if err := o.FS.Rename(path.Join(o.Dir, f.Path), path.Join(to, path.Base(f.Path))); err != nil {
			return err
		}
	}
	for _, dir := range []string{to, path.Join(o.Dir, partsDir), path.Join(o.Dir, manifestDir)} {
		if err := o.FS.SyncDir(dir); err != nil {
			return err
		}
	}
	s.recover.quarantined = len(orphans)
	return nil
}

// restore makes the logs as the manifest knows them.
func (r *replayer) restore() error {
	sl := r.s.sealer
	st := sl.man.State()
	r.floor = tail.LSN(st.Floor)
	runs := map[uint64][]*sealed{}
	for _, id := range slices.Sorted(maps.Keys(st.Parts)) {
		p, err := sl.restorePart(st.Parts[id], st.Tombs)
		if err != nil {
			return err
		}
		sl.keep(p)
		for _, s := range p.runs {
			runs[s.info.Log] = append(runs[s.info.Log], s)
		}
	}
	sl.countPlain()
	for id, log := range st.Logs {
		if err := r.restoreLog(&log, runs[id]); err != nil {
			return fmt.Errorf("manifest, log %d: %w", id, err)
		}
		log.Checkpoint = nil
		sl.known[LogID(id)] = log
		delete(runs, id)
	}
	for _, gone := range runs { // of logs that were dropped
		for _, s := range gone {
			s.die(0, s.info.Count, s.head.msgs, s.head.bytes)
		}
	}
	if st.Store == nil {
		return nil
	}
	d := decoder{b: st.Store}
	if err := d.next(&r.rec); err != nil || r.rec.kind != kindStore || len(r.rec.heads) != len(r.w.shards) {
		return fmt.Errorf("manifest: what it says of the store does not parse: %w", errors.Join(err, errShort))
	}
	r.s.nextID = max(r.s.nextID, r.rec.log)
	r.known = slices.Clone(r.rec.heads)
	return nil
}

// restorePart opens a part. One that is damaged is there, but cannot be read.
func (sl *sealer) restorePart(m manifest.Part, tombs map[manifest.TombKey][]byte) (*sealedPart, error) {
	p := &sealedPart{id: m.ID, path: m.Path, shard: ShardID(m.Shard), size: m.Size}
	p.refs.Store(1)
	if p.r, p.err = sl.open(m.Path); p.err == nil && p.r.Size() != m.Size {
		p.err = &part.CorruptError{
			Path: p.r.Path(), Err: fmt.Errorf("it has %d bytes, the manifest says %d", p.r.Size(), m.Size),
			Hint: "fetch the file from quarantine, a backup or a replica",
		}
	}
	for _, i := range m.Sections {
		s := newSealed(p, part.SectionInfo{
			Log: i.Log, Count: i.Count, Keys: i.Keys, FirstSeq: i.FirstSeq, LastSeq: i.LastSeq,
			FirstTime: i.FirstTime, LastTime: i.LastTime, Bytes: i.Bytes,
		})
		if blob := tombs[manifest.TombKey{Part: m.ID, Log: i.Log}]; blob != nil {
			where := fmt.Sprintf("%s, tombstones of log %d in part %d", sl.man.Path(), i.Log, m.ID)
			dead, bytes, err := decodeTomb(where, blob, i.Count)
			if err != nil {
				return nil, err
			}
			for _, d := range []*deaths{&s.head, &s.vis} {
				d.dead, d.from = dead, dead.Live(0)
				d.msgs -= dead.Count()
				d.bytes -= bytes
				d.shared.Store(true) // by the two
			}
		}
		p.runs = append(p.runs, s)
	}
	return p, nil
}

func (r *replayer) restoreLog(m *manifest.Log, runs []*sealed) error {
	d := decoder{b: m.Spec}
	if err := d.next(&r.rec); err != nil {
		return err
	}
	meta := r.rec.meta
	if r.rec.kind != kindLog || uint64(meta.ID) != m.ID || len(meta.Shards) == 0 ||
		slices.ContainsFunc(meta.Shards, func(s ShardID) bool { return int(s) >= len(r.w.shards) }) {
		return errors.New("its description is not of a log")
	}
	what := aLog
	if meta.State {
		what = aStateLog
	}
	l, err := r.log(meta.ID, what)
	if err != nil {
		return err
	}
	l.known = true
	r.s.nextID = max(r.s.nextID, meta.ID+1)
	if l.state != nil {
		if meta.ID != catalogID {
			l.state.meta = meta
		}
		l.skip = m.CheckpointPosition
		return l.state.restore(m.Checkpoint)
	}
	l.sealed = m.LastSeq
	l.log.meta, l.log.lastSeq, l.log.lastTime = meta, m.LastSeq, m.LastTime
	return l.log.restore(runs)
}

// restore gives the log its runs in parts.
func (l *Log) restore(runs []*sealed) error {
	slices.SortFunc(runs, func(a, b *sealed) int { return cmp.Compare(a.info.FirstSeq, b.info.FirstSeq) })
	for i, s := range runs {
		if s.p.err != nil {
			l.fault(s.p.err)
		}
		if i > 0 && s.info.FirstSeq <= runs[i-1].info.LastSeq {
			return fmt.Errorf("parts %d and %d overlap at sequence %d", runs[i-1].p.id, s.p.id, s.info.FirstSeq)
		}
		s.num = l.nextNum()
	}
	l.head.sealed = runs
	return nil
}

// restore makes s of what checkpointed gave.
func (s *StateLog) restore(entries []byte) error {
	s.touched = false
	s.clear()
	for b := entries; len(b) > 0; {
		n, used := binary.Uvarint(b)
		if used <= 0 || n>>1 > uint64(len(b)-used) {
			return errShort
		}
		state := b[used:][:n>>1]
		if n&1 != 0 {
			s.checkpoint(state, 0)
		} else {
			s.change(state, 0)
		}
		b = b[used+len(state):]
	}
	return nil
}

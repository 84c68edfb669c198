package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Options say what to read. Zero values mean the defaults given here.
type Options struct {
	FS      vfs.FS   // default: the operating system's
	Dir     string   // the data directory
	Secrets [][]byte // that the directory may be encrypted with
	// Progress is told which file is about to be read, and how many have been; it may be nil.
	Progress func(file string, done int)
}

// FileInfo is a file of a data directory.
type FileInfo struct {
	Path string `json:"path"` // relative to the data directory
	Kind string `json:"kind"`
	Size int64  `json:"size"`
}

// Directory is a data directory as it was read.
type Directory struct {
	Path     string
	Shards   int // 0: META is missing or damaged
	Files    []FileInfo
	Manifest *Manifest // nil: there is none
	Parts    []*Part
	Segments []Segment
	Logs     []*Log // by id
	Holes    []Hole // in the write-ahead log
	Findings []Finding
	Records  uint64 // read in the write-ahead log
	Next     uint64 // position of the next block of the write-ahead log
	NextLog  uint64 // lowest log id not given yet, as far as records say

	fs          vfs.FS
	keys        *Keys
	told        func(file string, done int)
	done        int
	blocks      []Block
	logs        map[uint64]*Log
	heads       []uint64 // by shard
	maxShard    int      // shards that records speak of
	storeShards int      // shards by the last store record
}

// ErrNoDirectory is wrapped by Read's error for what is no data directory.
var ErrNoDirectory = errors.New("this is no data directory")

// attempts bounds how often a directory that changes under the reader is read again.
const attempts = 4

// Read reads a data directory. A gateway may be using it: damage that another reading does not confirm was a moment
// between two of its writes. The error is one of the file system, or wraps ErrNoDirectory or ErrKeys; damage is in
// Findings.
func Read(ctx context.Context, o Options) (*Directory, error) {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	d, err := read(ctx, o)
	for n := 1; n < attempts && err == nil && d.Damaged(); n++ {
		var again *Directory
		if again, err = read(ctx, o); err != nil {
			break
		}
		same := slices.EqualFunc(d.Findings, again.Findings, func(a, b Finding) bool {
			return a.File == b.File && a.Offset == b.Offset && a.What == b.What
		})
		if d = again; same {
			break
		}
	}
	return d, err
}

func read(ctx context.Context, o Options) (*Directory, error) {
	d := &Directory{
		Path: o.Dir, fs: o.FS, told: o.Progress, logs: map[uint64]*Log{},
	}
	if err := d.readMeta(); err != nil {
		return nil, err
	}
	if err := d.readKeys(o.Secrets); err != nil {
		return nil, err
	}
	if err := d.loadManifest(); err != nil {
		return nil, err
	}
	if err := d.readParts(ctx); err != nil {
		return nil, err
	}
	d.log(catalogID, true) // which is always there
	d.manifestLogs()
	r := newReplayer(d)
	if err := d.readTail(ctx, r.apply); err != nil {
		return nil, err
	}
	r.finish()
	d.checkMeta()
	d.nameAffected()
	return d, nil
}

// Damaged tells whether anything durable is missing or wrong.
func (d *Directory) Damaged() bool {
	return slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Severity == Damage })
}

func (d *Directory) add(f Finding) *Finding {
	d.Findings = append(d.Findings, f)
	return &d.Findings[len(d.Findings)-1]
}

// damage adds a finding. What it returns is valid until the next is added.
func (d *Directory) damage(file string, off int64, remedy, format string, args ...any) *Finding {
	return d.add(Finding{
		Severity: Damage, File: file, Offset: off, What: fmt.Sprintf(format, args...), Remedy: remedy,
	})
}

func (d *Directory) progress(file string) {
	if d.told != nil {
		d.told(file, d.done)
	}
	d.done++
}

func (d *Directory) floor() uint64 {
	if d.Manifest == nil {
		return 0
	}
	return d.Manifest.Floor
}

// readMeta reads META. A directory with neither META nor a write-ahead log is none of ours.
func (d *Directory) readMeta() error {
	names, err := d.fs.List(d.Path)
	if err != nil {
		return err
	}
	if !slices.Contains(names, MetaName) {
		if !slices.Contains(names, WALDir) {
			return fmt.Errorf("%s: %w: it has neither %s nor %s (a gateway keeps its data in <store_dir>/ehdb)",
				d.Path, ErrNoDirectory, MetaName, WALDir)
		}
		return nil // checkMeta knows whether it should be there
	}
	b, err := readFile(d.fs, path.Join(d.Path, MetaName))
	if err != nil {
		return err
	}
	d.Files = append(d.Files, FileInfo{Path: MetaName, Kind: "meta", Size: int64(len(b))})
	if d.Shards, err = parseMeta(b); err != nil {
		f := d.damage(MetaName, 0, remedyRestore, "%v", err)
		f.Affected = []Affected{{What: "the number of shards; no record"}}
	}
	return nil
}

// checkMeta reports a META that is missing although there are records: it is written before the first.
func (d *Directory) checkMeta() {
	if len(d.blocks) == 0 || slices.ContainsFunc(d.Files, func(f FileInfo) bool { return f.Path == MetaName }) {
		return
	}
	f := d.damage(MetaName, 0, remedyRestore, "there are records, and the file is missing")
	f.Affected = []Affected{{What: "the number of shards; no record"}}
}

// ShardsSeen returns the number of shards that META gives, else what records say: exact if one of them gives it, else
// at least as many as there are.
func (d *Directory) ShardsSeen() (n int, exact bool) {
	switch {
	case d.Shards > 0:
		return d.Shards, true
	case d.storeShards > 0:
		return d.storeShards, true
	}
	return max(d.maxShard, 1), false
}

// readParts reads every live part, and finds those that no manifest names.
func (d *Directory) readParts(ctx context.Context) error {
	dirs := map[string]bool{PartsDir: true}
	if m := d.Manifest; m != nil {
		for _, n := range slices.Sorted(maps.Keys(m.Parts)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			mp := m.Parts[n]
			dirs[path.Dir(path.Clean(mp.Path))] = true
			if err := d.livePart(&mp); err != nil {
				return err
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if err := d.orphans(dir); err != nil {
			return err
		}
	}
	lost := slices.ContainsFunc(d.Files, func(f FileInfo) bool {
		return f.Kind == "orphan" && path.Ext(f.Path) == ".part"
	})
	if d.Manifest == nil && lost {
		f := d.damage(ManifestDir, 0, remedyRestore, "there are parts, and the manifest, which says which of them "+
			"count, is missing")
		f.Affected = listAffected
	}
	d.overlaps()
	return nil
}

// overlaps reports sections of one log that have sequences in common.
func (d *Directory) overlaps() {
	for _, id := range sortedKeys(d.logs) {
		l := d.logs[id]
		slices.SortFunc(l.parts, func(a, b *Section) int { return cmp.Compare(a.FirstSeq, b.FirstSeq) })
		for i := 1; i < len(l.parts); i++ {
			if a, b := l.parts[i-1], l.parts[i]; b.FirstSeq <= a.LastSeq {
				d.damage(b.Part.File, 0, remedyRepair, "it has records of log %d from sequence %d on, and so has %s",
					l.ID, b.FirstSeq, a.Part.File)
			}
		}
	}
}

// livePart reads a part and holds it against what the manifest says of it.
func (d *Directory) livePart(mp *ManifestPart) error {
	p, err := d.checkPart(mp.Path)
	if errors.Is(err, fs.ErrNotExist) {
		f := d.damage(mp.Path, 0, remedyRestore, "part %d is live, and its file is missing", mp.Number)
		for _, s := range mp.Sections {
			f.Affected = append(f.Affected, Affected{
				Log: s.Log, First: s.FirstSeq, Last: s.LastSeq, Records: uint64(s.Count), Bytes: s.Bytes,
			})
		}
		return nil
	}
	if err != nil {
		return err
	}
	p.Number = mp.Number
	d.Parts = append(d.Parts, p)
	d.Files = append(d.Files, FileInfo{Path: mp.Path, Kind: "part", Size: p.Size})
	d.compare(p, mp)
	for _, s := range p.Sections {
		if _, ok := d.Manifest.Logs[s.Log]; !ok && !d.Manifest.Damaged {
			continue // the log was dropped
		}
		i := slices.IndexFunc(mp.Sections, func(m SectionInfo) bool { return m.Log == s.Log })
		if i >= 0 && s.Keys == 0 { // its own head cannot be read
			s.SectionInfo = mp.Sections[i]
		}
		d.tombstones(s)
		l := d.log(s.Log, false)
		l.parts = append(l.parts, s)
		l.LastSeq, l.LastTime = max(l.LastSeq, s.LastSeq), max(l.LastTime, s.LastTime)
	}
	return nil
}

// compare holds a part against the manifest.
func (d *Directory) compare(p *Part, mp *ManifestPart) {
	if p.Size != mp.Size {
		d.damage(p.File, min(p.Size, mp.Size), remedyRepair, "the file is %d bytes long, the manifest says %d",
			p.Size, mp.Size)
		p.Damaged = true
	}
	if p.Damaged {
		d.missing(p, mp)
	}
	if p.Damaged || p.Locked {
		return
	}
	if n, ok := parsePartName(path.Base(p.File)); ok && PartName(n, p.ID) != path.Base(p.File) {
		d.damage(p.File, 16, remedyRestore, "the file's name is not that of a part with the id %x", p.ID)
	}
	if p.Shard != mp.Shard {
		d.damage(p.File, 32, remedyRepair, "it is of shard %d, the manifest says %d", p.Shard, mp.Shard)
	}
	want := slices.SortedFunc(slices.Values(mp.Sections), func(a, b SectionInfo) int {
		if a.Log < b.Log {
			return -1
		}
		return 1
	})
	if !slices.EqualFunc(p.Sections, want, func(s *Section, w SectionInfo) bool { return s.SectionInfo == w }) {
		d.damage(p.File, p.Size-partFoot, remedyRepair, "its sections are not those of part %d in the manifest",
			mp.Number)
	}
}

// missing reports the records of a damaged part that no whole block has, where the part itself could not tell.
func (d *Directory) missing(p *Part, mp *ManifestPart) {
	var out []Affected
	for _, ms := range mp.Sections {
		told := slices.ContainsFunc(d.Findings, func(f Finding) bool {
			return f.File == p.File && slices.ContainsFunc(f.Affected, func(a Affected) bool {
				return a.Log == ms.Log && a.First != 0
			})
		})
		if !told && !p.Locked {
			out = append(out, p.gaps(&ms)...)
		}
	}
	if len(out) > 0 {
		f := d.damage(p.File, 0, remedyRepair, "records that the manifest counts are in no block that is whole")
		f.Affected = out
	}
}

// gaps returns where the records of a section may be that are in no whole block.
func (p *Part) gaps(ms *SectionInfo) (out []Affected) {
	count, next := uint64(0), ms.FirstSeq
	gap := func(to uint64) { // sequences from next up to it
		if to > next {
			out = append(out, Affected{Log: ms.Log, First: next, Last: to - 1})
		}
	}
	for i := range p.blocks {
		b := &p.blocks[i]
		if b.log != ms.Log || b.kind != blockData || !b.whole {
			continue
		}
		gap(b.firstSeq)
		count += uint64(b.count)
		next = b.lastSeq + 1
	}
	gap(ms.LastSeq + 1)
	if count >= uint64(ms.Count) {
		return nil
	}
	if len(out) == 1 {
		out[0].Records = uint64(ms.Count) - count
	}
	return out
}

// tombstones reads what is deleted of a section.
func (d *Directory) tombstones(s *Section) {
	blob, ok := d.Manifest.Tombs[TombKey{s.Part.Number, s.Log}]
	if !ok {
		return
	}
	dead, err := parseTombs(blob, s.Count)
	if err != nil && s.Part.Damaged {
		dead, err = parseTombs(blob, 1<<32-1) // the count is that of what is left
	}
	if err != nil {
		f := d.damage(d.Manifest.File, 0, remedyRepair, "tombstones of log %d in part %d: %v", s.Log,
			s.Part.Number, err)
		f.Affected = []Affected{{Log: s.Log, First: s.FirstSeq, Last: s.LastSeq, What: "what is deleted of them"}}
		return
	}
	s.Dead = dead
}

// orphans notes the files in dir that are no live part.
func (d *Directory) orphans(dir string) error {
	names, err := d.fs.List(path.Join(d.Path, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		file := path.Join(dir, name)
		live := slices.ContainsFunc(d.Files, func(f FileInfo) bool { return path.Clean(f.Path) == file })
		isPart := strings.HasSuffix(name, ".part")
		if live || !isPart && !strings.HasSuffix(name, ".tmp") {
			continue
		}
		size, err := d.fs.Stat(path.Join(d.Path, file))
		if err != nil {
			continue // gone meanwhile
		}
		d.Files = append(d.Files, FileInfo{Path: file, Kind: "orphan", Size: size})
		d.add(Finding{
			Severity: Note, File: file, Length: size,
			What: "no live part accounts for this file: it was being written, or is not needed any more",
		})
	}
	return nil
}

// manifestLogs begins the logs that the manifest knows.
func (d *Directory) manifestLogs() {
	if d.Manifest == nil {
		return
	}
	if _, ok := d.storeRecord(); !ok && len(d.Manifest.Store) > 0 {
		d.damage(d.Manifest.File, 0, remedyRepair, "what it says of the shards' positions does not read")
	}
	for id, m := range d.Manifest.Logs {
		spec, ok := parseSpec(m.Spec)
		if !ok || spec.Log != id {
			d.damage(d.Manifest.File, 0, remedyRepair, "the description of log %d is not that of a log", id)
		}
		l := d.log(id, ok && spec.State || len(m.Checkpoint) > 0)
		l.known, l.sealed, l.skip = true, m.LastSeq, m.CheckpointPosition
		if ok && id != catalogID {
			l.Name, l.Shards, l.State = spec.Name, spec.Shards, spec.State
		}
		var err error
		if l.base, err = parseCheckpoint(m.Checkpoint); err != nil {
			d.damage(d.Manifest.File, 0, remedyRepair, "the checkpoint of log %d: %v", id, err)
		}
		l.LastSeq, l.LastTime = max(l.LastSeq, m.LastSeq), max(l.LastTime, m.LastTime)
		d.NextLog = max(d.NextLog, id+1)
	}
}

// nameAffected puts names to the logs in findings.
func (d *Directory) nameAffected() {
	for i := range d.Findings {
		for j := range d.Findings[i].Affected {
			a := &d.Findings[i].Affected[j]
			if l := d.logs[a.Log]; l != nil && a.Name == "" {
				a.Name = l.Name
			}
		}
	}
}

func sortedKeys[V any](m map[uint64]V) []uint64 { return slices.Sorted(maps.Keys(m)) }

package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// ManifestDir and PartsDir are where manifest and parts are, below the data directory.
const (
	ManifestDir = "manifest"
	PartsDir    = "parts"
)

const (
	manifestMagic  = "EHDBMANI"
	manifestPrefix = "manifest-"
	manifestHead   = 32
	frameHead      = 24

	// Versions of a manifest.
	manifestPlain = 1
	manifestBoxed = 2 // the bodies of its frames are encrypted

	frameSnapshot = 1
	frameEdit     = 2
	frameMark     = 3
)

// ManifestPart is a live part, as the manifest has it.
type ManifestPart struct {
	Number   uint64
	Shard    uint32
	Size     int64
	Path     string // relative to the data directory
	Sections []SectionInfo
}

// SectionInfo sums up a section.
type SectionInfo struct {
	Log                 uint64
	Count, Keys         uint32
	FirstSeq, LastSeq   uint64
	FirstTime, LastTime int64
	Bytes               uint64
}

// ManifestLog is what the manifest knows of a log besides its records.
type ManifestLog struct {
	ID, FirstSeq, LastSeq, Messages, Bytes, Deleted uint64
	LastTime                                        int64
	Spec                                            []byte
	CheckpointPosition                              uint64
	Checkpoint                                      []byte
}

// TombKey names the tombstones of a section.
type TombKey struct{ Part, Log uint64 }

// Manifest is what the newest manifest says.
type Manifest struct {
	File       string
	Generation uint64
	Size       int64
	Salt       uint32
	Edits      uint64
	Floor      uint64 // position in the write-ahead log: all below it is in parts and checkpoints
	Store      []byte
	NextPart   uint64
	Parts      map[uint64]ManifestPart
	Tombs      map[TombKey][]byte
	Logs       map[uint64]ManifestLog
	Damaged    bool // what it says is not all it said
}

// Frame is a frame of a manifest's file.
type Frame struct {
	Offset int64
	Type   uint8 // 1 snapshot, 2 edit, 3 mark
	Edits  uint64
	Body   []byte
	size   int
}

// plain returns the body of f as it was before it was encrypted, if it is.
func (f *Frame) plain(boxed bool, gen uint64, salt uint32, keys *Keys) ([]byte, error) { //nolint:revive // the file's
	if !boxed || f.Type == frameMark {
		return f.Body, nil
	}
	return keys.open(FramePlace(gen, salt, f.Offset, f.Type, f.Edits), f.Body)
}

// FramePlace is what the encryption of a frame's body also vouches for: the manifest and where in it which frame is.
func FramePlace(gen uint64, salt uint32, off int64, typ uint8, edits uint64) []byte {
	b := le.AppendUint64(nil, gen)
	b = le.AppendUint32(b, salt)
	b = le.AppendUint64(b, uint64(off))
	return le.AppendUint64(append(b, typ), edits)
}

// TypeName is the name of f's type in docs/format/manifest.md.
func (f *Frame) TypeName() string {
	return map[uint8]string{frameSnapshot: "snapshot", frameEdit: "edit", frameMark: "mark"}[f.Type]
}

// parseManifestName returns the generation in the name of a manifest.
func parseManifestName(name string) (gen uint64, ok bool) {
	digits, ok := strings.CutPrefix(name, manifestPrefix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' || gen > (1<<64-10)/10 {
			return 0, false
		}
		gen = gen*10 + uint64(c-'0')
	}
	return gen, true
}

func parseManifestHeader(b []byte) (gen uint64, salt uint32, boxed bool, err error) {
	if len(b) < manifestHead || string(b[:8]) != manifestMagic {
		return 0, 0, false, errors.New("this is not a manifest")
	}
	v := le.Uint32(b[8:])
	if v != manifestPlain && v != manifestBoxed {
		return 0, 0, false, fmt.Errorf("the header is damaged or of version %d, which is not known", v)
	}
	if checksum(0, b[:28]) != le.Uint32(b[28:]) {
		return 0, 0, false, errors.New("the header does not match its checksum")
	}
	return le.Uint64(b[16:]), le.Uint32(b[24:]), v == manifestBoxed, nil
}

var (
	errNoFrame   = errors.New("there is no frame")
	errFrameBody = errors.New("the frame's body does not match its checksum or is cut short")
)

// parseFrame reads the frame at off. With errFrameBody its header is good.
func parseFrame(b []byte, off int, salt uint32) (f Frame, err error) {
	if off < 0 || off > len(b)-frameHead {
		return f, errNoFrame
	}
	b = b[off:]
	if checksum(salt, b[4:frameHead]) != le.Uint32(b) {
		return f, errNoFrame
	}
	n := uint64(le.Uint32(b[4:]))
	f = Frame{Offset: int64(off), Type: b[16], Edits: le.Uint64(b[8:])}
	if n > uint64(len(b)-frameHead) || n > maxBodySize {
		return f, errFrameBody
	}
	f.size = frameHead + int(n)
	f.Body = b[frameHead:f.size]
	if checksum(salt, f.Body) != le.Uint32(b[20:]) {
		return f, errFrameBody
	}
	return f, nil
}

// loadManifest reads the newest manifest of the directory, if it has one.
func (d *Directory) loadManifest() error {
	names, err := d.fs.List(path.Join(d.Path, ManifestDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var newest uint64
	var gens []string
	for _, name := range names {
		gen, ok := parseManifestName(name)
		if ok {
			gens = append(gens, name)
			newest = max(newest, gen)
		}
		if ok || strings.HasPrefix(name, manifestPrefix) {
			file := path.Join(ManifestDir, name)
			if size, err := d.fs.Stat(path.Join(d.Path, file)); err == nil {
				d.Files = append(d.Files, FileInfo{Path: file, Kind: "manifest", Size: size})
			}
		}
	}
	if len(gens) == 0 {
		return nil
	}
	for _, name := range gens[:len(gens)-1] { // names sort as generations do
		d.add(Finding{
			Severity: Note, File: path.Join(ManifestDir, name),
			What: "an older manifest, left by a crash; the gateway removes it at its next start",
		})
	}
	name := path.Join(ManifestDir, gens[len(gens)-1])
	b, err := readFile(d.fs, path.Join(d.Path, name))
	if err != nil {
		return err
	}
	d.progress(name)
	r := manifestReader{d: d, b: b, m: &Manifest{
		File: name, Generation: newest, Size: int64(len(b)), NextPart: 1,
		Parts: map[uint64]ManifestPart{}, Tombs: map[TombKey][]byte{}, Logs: map[uint64]ManifestLog{},
	}}
	r.read()
	d.Manifest = r.m
	if r.boxed && d.keys == nil {
		return fmt.Errorf("%s: %w", name, errKeysGone)
	}
	return nil
}

// manifestReader applies the frames of a manifest.
type manifestReader struct {
	d     *Directory
	b     []byte
	m     *Manifest
	boxed bool // the bodies of frames are encrypted
}

// apply does what the body of a frame says.
func (r *manifestReader) apply(f *Frame) error {
	body, err := f.plain(r.boxed, r.m.Generation, r.m.Salt, r.d.keys)
	if err != nil {
		return err
	}
	return r.m.apply(body, f.Type == frameSnapshot)
}

func (r *manifestReader) damage(off int, format string, args ...any) *Finding {
	r.m.Damaged = true
	return r.d.damage(r.m.File, int64(off), remedyRepair, format, args...)
}

// listAffected is what damage to the list of parts means.
var listAffected = []Affected{{What: "which parts are live, and what in them is deleted"}}

func (r *manifestReader) read() {
	gen, salt, boxed, err := parseManifestHeader(r.b)
	if err == nil && gen != r.m.Generation {
		err = fmt.Errorf("the header is of generation %d", gen)
	}
	if err != nil {
		r.damage(0, "%v", err).Affected = listAffected
		return
	}
	r.m.Salt, r.boxed = salt, boxed
	if boxed && r.d.keys == nil {
		return
	}
	f, err := parseFrame(r.b, manifestHead, salt)
	if err == nil && f.Type != frameSnapshot {
		err = errNoFrame
	}
	at := manifestHead
	if err != nil {
		r.damage(at, "snapshot: %v", err).Affected = listAffected
		at = r.resume(at + 1)
	} else {
		at = r.snapshot(&f)
	}
	for marked := false; at >= 0 && at < len(r.b); {
		at, marked = r.frame(at, marked)
	}
}

func (r *manifestReader) snapshot(f *Frame) int {
	if err := r.apply(f); err != nil {
		r.damage(manifestHead, "snapshot: %v", err)
	}
	r.m.Edits = f.Edits
	return manifestHead + f.size
}

// frame reads the frame at at. It returns where the next one is, -1 if the file ends here, and whether a mark was
// there.
func (r *manifestReader) frame(at int, marked bool) (int, bool) {
	f, err := parseFrame(r.b, at, r.m.Salt)
	switch {
	case err != nil:
		return r.broken(at, marked, err)
	case f.Type == frameMark && len(f.Body) == 0 && f.Edits == r.m.Edits:
		return at + f.size, true
	case f.Type == frameEdit && f.Edits == r.m.Edits+1, f.Type == frameEdit && r.m.Damaged && f.Edits > r.m.Edits:
		if err := r.apply(&f); err != nil {
			r.damage(at, "edit %d: %v", f.Edits, err)
		}
		r.m.Edits = f.Edits
		return at + f.size, false
	case f.Type == frameMark && r.m.Damaged:
		return at + f.size, true
	}
	r.damage(at, "a frame of type %d, edit %d, comes after edit %d", f.Type, f.Edits, r.m.Edits)
	return at + f.size, false
}

// broken decides about a frame that cannot be read.
func (r *manifestReader) broken(at int, marked bool, why error) (next int, _ bool) { //nolint:revive // a state
	behind := at + frameHead
	if !marked {
		f, err := parseFrame(r.b, behind, r.m.Salt)
		if err == nil && f.Type == frameEdit && f.Edits == r.m.Edits+1 {
			r.d.add(Finding{
				Severity: Note, File: r.m.File, Offset: int64(at), Length: frameHead,
				What: "a mark, which is not synced itself, is damaged or was lost; nothing else is",
			})
			return behind, true
		}
	}
	for i := at + 1; i+frameHead <= len(r.b); i++ {
		f, err := parseFrame(r.b, i, r.m.Salt)
		if errors.Is(err, errNoFrame) || f.Edits < r.m.Edits || !marked && i == behind && f.Type == frameEdit {
			continue
		}
		fd := r.damage(at, "%v, though it was durable: at offset %d there is another frame", why, i)
		fd.Length = int64(i - at)
		fd.Affected = []Affected{{
			What: fmt.Sprintf("edit %d and later: which parts are live, and what in them is deleted", r.m.Edits+1),
		}}
		return r.resume(i), true
	}
	r.d.add(Finding{
		Severity: Torn, File: r.m.File, Offset: int64(at), Length: int64(len(r.b) - at), Remedy: remedyTorn,
		What: fmt.Sprintf("the manifest ends with edit %d; behind it is what a crash leaves of one that was never "+
			"synced", r.m.Edits),
	})
	return -1, false
}

// resume returns the offset of the next whole frame at or behind at; -1 if there is none.
func (r *manifestReader) resume(at int) int {
	for ; at+frameHead <= len(r.b); at++ {
		if _, err := parseFrame(r.b, at, r.m.Salt); err == nil {
			return at
		}
	}
	return -1
}

// edit is the items of a frame's body.
type edit struct {
	dropParts []uint64
	parts     []ManifestPart
	tombs     []tomb
	dropLogs  []uint64
	logs      []ManifestLog
	floor     uint64
	store     []byte
	nextPart  uint64
}

type tomb struct {
	TombKey
	blob []byte
}

// parseEdit reads the items of a body.
func parseEdit(b []byte) (e edit, err error) {
	f := fields{b: b}
	for f.left() > 0 {
		switch kind := f.u8(); kind {
		case 1:
			e.dropParts = append(e.dropParts, f.uvarint())
		case 2:
			e.parts = append(e.parts, parsePartItem(&f))
		case 3:
			k := TombKey{f.uvarint(), f.uvarint()}
			e.tombs = append(e.tombs, tomb{k, f.bytes(f.uvarint())})
		case 4:
			e.dropLogs = append(e.dropLogs, f.uvarint())
		case 5:
			e.logs = append(e.logs, parseLogItem(&f))
		case 6:
			e.floor = f.uvarint()
		case 7:
			e.store = f.bytes(f.uvarint())
		case 8:
			e.nextPart = f.uvarint()
		default:
			f.fail(fmt.Errorf("an item of kind %d is not known", kind))
		}
	}
	return e, f.err
}

func parsePartItem(f *fields) ManifestPart {
	p := ManifestPart{Number: f.uvarint(), Shard: uint32(f.upTo(1<<32 - 1)), Size: int64(f.upTo(1<<63 - 1))}
	p.Path = string(f.bytes(f.uvarint()))
	for n := f.uvarint(); n > 0 && f.err == nil; n-- {
		s := SectionInfo{
			Log: f.uvarint(), Count: uint32(f.upTo(1<<32 - 1)), Keys: uint32(f.upTo(1<<32 - 1)), FirstSeq: f.uvarint(),
		}
		s.LastSeq = s.FirstSeq + f.upTo(^s.FirstSeq)
		s.Bytes = f.uvarint()
		s.FirstTime, s.LastTime = f.i64(), f.i64()
		p.Sections = append(p.Sections, s)
	}
	return p
}

func parseLogItem(f *fields) ManifestLog {
	l := ManifestLog{
		ID: f.uvarint(), FirstSeq: f.uvarint(), LastSeq: f.uvarint(), Messages: f.uvarint(), Bytes: f.uvarint(),
		Deleted: f.uvarint(), LastTime: f.i64(),
	}
	l.Spec = f.bytes(f.uvarint())
	l.CheckpointPosition = f.uvarint()
	l.Checkpoint = f.bytes(f.uvarint())
	return l
}

// apply changes m by an edit or snapshot, as a whole.
//
//nolint:revive // what the body is
func (m *Manifest) apply(body []byte, snapshot bool) error {
	e, err := parseEdit(body)
	if err != nil {
		return err
	}
	if err := m.check(&e); err != nil && !m.Damaged {
		return err
	}
	for _, n := range e.dropParts {
		delete(m.Parts, n)
		for k := range m.Tombs {
			if k.Part == n {
				delete(m.Tombs, k)
			}
		}
	}
	for _, p := range e.parts {
		m.Parts[p.Number] = p
		m.NextPart = max(m.NextPart, p.Number+1)
	}
	for _, t := range e.tombs {
		delete(m.Tombs, t.TombKey)
		if len(t.blob) > 0 {
			m.Tombs[t.TombKey] = t.blob
		}
	}
	for _, id := range e.dropLogs {
		delete(m.Logs, id)
	}
	for _, l := range e.logs {
		m.Logs[l.ID] = l
	}
	m.Floor = max(m.Floor, e.floor)
	if e.store != nil {
		m.Store = e.store
	}
	if !snapshot {
		return nil
	}
	if e.nextPart < m.NextPart {
		return fmt.Errorf("the next part is %d, and there are parts up to %d", e.nextPart, m.NextPart-1)
	}
	m.NextPart = e.nextPart
	return nil
}

// check says why an edit does not fit what m says before it.
func (m *Manifest) check(e *edit) error {
	for _, n := range e.dropParts {
		if _, ok := m.Parts[n]; !ok {
			return fmt.Errorf("part %d is dropped and not live", n)
		}
	}
	added := map[uint64]ManifestPart{}
	for _, p := range e.parts {
		_, live := m.Parts[p.Number]
		_, twice := added[p.Number]
		if p.Number == 0 || p.Number == ^uint64(0) || twice || live {
			return fmt.Errorf("part number %d is used twice or out of range", p.Number)
		}
		if err := m.checkPart(&p, e, added); err != nil {
			return fmt.Errorf("part %d: %w", p.Number, err)
		}
		added[p.Number] = p
	}
	for _, t := range e.tombs {
		p, ok := added[t.Part]
		if !ok && !slices.Contains(e.dropParts, t.Part) {
			p = m.Parts[t.Part]
		}
		if !slices.ContainsFunc(p.Sections, func(s SectionInfo) bool { return s.Log == t.Log }) {
			return fmt.Errorf("there are tombstones for log %d of part %d, which is not live", t.Log, t.Part)
		}
	}
	for _, id := range e.dropLogs {
		if _, ok := m.Logs[id]; !ok {
			return fmt.Errorf("log %d is dropped and not there", id)
		}
	}
	if e.floor != 0 && e.floor < m.Floor {
		return fmt.Errorf("the floor goes back from %d to %d", m.Floor, e.floor)
	}
	return nil
}

// checkPart says why a part that an edit adds cannot be.
func (m *Manifest) checkPart(p *ManifestPart, e *edit, added map[uint64]ManifestPart) error {
	if p.Path == "" || strings.HasPrefix(path.Clean(p.Path), "..") || path.IsAbs(p.Path) {
		return fmt.Errorf("its path is %q", p.Path)
	}
	for _, parts := range []map[uint64]ManifestPart{m.Parts, added} {
		for n, o := range parts {
			if o.Path == p.Path && !slices.Contains(e.dropParts, n) {
				return fmt.Errorf("its path is that of part %d", n)
			}
		}
	}
	for i, s := range p.Sections {
		dup := slices.ContainsFunc(p.Sections[:i], func(o SectionInfo) bool { return o.Log == s.Log })
		if dup || s.Count == 0 || s.LastSeq < s.FirstSeq {
			return fmt.Errorf("the section of log %d is empty, backwards or there twice", s.Log)
		}
	}
	return nil
}

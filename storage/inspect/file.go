package inspect

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Item is a piece of a file: a header, a block, a record.
type Item struct {
	Offset int64  `json:"offset"` // in the file; of a record in a compressed block: that of the block
	Kind   string `json:"kind"`
	Text   string `json:"text,omitempty"`
	Bad    bool   `json:"bad,omitempty"` // it does not verify
}

// ErrKind is wrapped by EachItem's error for a file that is none of a data directory.
var ErrKind = errors.New("the name is that of no file of a data directory")

// EachItem calls fn for what is in one file, in its order, until fn returns false. The file's name says what it is.
// What does not verify is an item too.
func EachItem(fsys vfs.FS, name string, secrets [][]byte, fn func(Item) bool) error {
	base := path.Base(name)
	w := itemWriter{fn: fn}
	_, isManifest := parseManifestName(base)
	isKeys := base == KeysName || base == KeysCopy
	isPart := strings.HasSuffix(base, ".part")
	if !isManifest && !isKeys && !isPart && base != MetaName && !strings.HasSuffix(base, segExtension) {
		return fmt.Errorf("%s: %w (%s, %s, *%s, *.part or %s*)", name, ErrKind, MetaName, KeysName, segExtension,
			manifestPrefix)
	}
	if base != MetaName && !isKeys {
		var err error
		if w.keys, err = keysFor(fsys, name, secrets); err != nil {
			return err
		}
	}
	if isPart {
		return w.part(fsys, name)
	}
	b, err := readFile(fsys, name)
	if err != nil {
		return err
	}
	switch {
	case isManifest:
		w.manifest(b)
	case isKeys:
		err := checkKeys(b)
		if err == nil {
			n := (le.Uint32(b[16:]) - tagSize) / keySize
			w.item(0, "keys", nil, "%d, encrypted; scrypt cost %d", n, le.Uint32(b[12:]))
		} else {
			w.item(0, "keys", err, "")
		}
	case base == MetaName:
		n, err := parseMeta(b)
		w.item(0, "meta", err, "%d shards", n)
	default:
		w.segment(b)
	}
	return nil
}

type itemWriter struct {
	fn      func(Item) bool
	keys    *Keys
	stopped bool
}

// item gives one item; with err it is one that does not verify.
func (w *itemWriter) item(off int64, kind string, err error, format string, args ...any) {
	if w.stopped {
		return
	}
	i := Item{Offset: off, Kind: kind, Text: fmt.Sprintf(format, args...)}
	if err != nil {
		i.Text, i.Bad = err.Error(), true
	}
	w.stopped = !w.fn(i)
}

func (w *itemWriter) segment(b []byte) {
	s, err := parseSegmentHeader(b)
	w.item(0, "header", err, "segment %d, first block %d, %d bytes, salt %08x, recycled %v, encrypted %v",
		s.ID, s.Base, s.Size, s.Salt, s.Stale, s.Boxed)
	if err != nil {
		var ok bool
		if s, ok = rebuildHeader(b, 0, w.keys); !ok {
			return
		}
	}
	var blk block
	for off, next := int64(segHead), s.Base; !w.stopped; {
		h, ok := wholeBlock(b, off, &s)
		if !ok {
			rest := scanRemains(b, off, next, &s)
			if rest.end == off {
				w.item(off, "end", nil, "unwritten space: %d bytes", int64(len(b))-off)
				return
			}
			found, more := nextWhole(b, off, next, noLimit, &s)
			if !more {
				w.item(off, "block", errors.New("no whole block, and none follows"), "")
				return
			}
			w.item(off, "block", fmt.Errorf("no whole block; the next one is at offset %d", found.Offset), "")
			h = found
		}
		off, next = h.Offset+h.size(), h.LSN+1
		if h.Mark {
			next--
			w.item(h.Offset, "mark", nil, "before block %d: all before it was durable", h.LSN)
			continue
		}
		w.item(h.Offset, "block", nil, "number %d, %d bytes, those below %d were durable", h.LSN, h.Len, h.Durable)
		body, err := h.plain(b, &s, w.keys)
		if err != nil {
			w.item(h.Offset+blockHead, "block", err, "")
			continue
		}
		if err := parseBody(body, &blk); err != nil {
			w.item(h.Offset+blockHead, "record", err, "")
		}
		for i := range blk.records {
			r := &blk.records[i]
			w.item(h.Offset+blockHead+int64(r.off), r.Kind.String(), nil, "%s", r.text())
		}
	}
}

// text sums a record up.
func (r *WALRecord) text() string {
	head := fmt.Sprintf("log %d, shard %d", r.Log, r.Shard)
	switch r.Kind {
	case KindMessage, KindMoved:
		return fmt.Sprintf("%s, sequence %d, time %d, key %q, header %d bytes, data %d bytes",
			head, r.Seq, r.Time, r.Key, len(r.Header), len(r.Data))
	case KindDelete:
		var runs []string
		for _, run := range r.Runs {
			runs = append(runs, fmt.Sprintf("%d to %d", run.First, run.First+run.N-1))
		}
		return fmt.Sprintf("%s, sequences %s, erase %v", head, strings.Join(runs, ", "), r.Erase)
	case KindTruncate:
		return fmt.Sprintf("%s, all below sequence %d", head, r.Seq)
	case KindLog:
		return fmt.Sprintf("%s, %q, state log %v, last sequence %d, in shards %d",
			head, r.Name, r.State, r.Seq, r.Shards)
	case KindChange, KindCheckpoint:
		return fmt.Sprintf("%s, %d bytes: %.80q", head, len(r.Data), r.Data)
	case KindStore:
		return fmt.Sprintf("next log id %d, positions of the shards %d", r.Log, r.Heads)
	case KindDrop:
	}
	return head
}

func (w *itemWriter) manifest(b []byte) {
	gen, salt, boxed, err := parseManifestHeader(b)
	w.item(0, "header", err, "generation %d, salt %08x, encrypted %v", gen, salt, boxed)
	if err != nil {
		return
	}
	for off := manifestHead; off < len(b) && !w.stopped; {
		f, err := parseFrame(b, off, salt)
		if err != nil {
			w.item(int64(off), "frame", err, "")
			next := off + 1
			for ; next < len(b); next++ {
				if _, err := parseFrame(b, next, salt); err == nil {
					break
				}
			}
			off = next
			continue
		}
		w.item(int64(off), f.TypeName(), nil, "edit %d, %d bytes", f.Edits, len(f.Body))
		body, err := f.plain(boxed, gen, salt, w.keys)
		if err != nil {
			w.item(int64(off), "item", err, "")
			off += f.size
			continue
		}
		e, err := parseEdit(body)
		if err != nil {
			w.item(int64(off), "item", err, "")
		}
		w.edit(int64(off), &e)
		off += f.size
	}
}

func (w *itemWriter) edit(off int64, e *edit) {
	for _, n := range e.dropParts {
		w.item(off, "part dropped", nil, "number %d", n)
	}
	for _, p := range e.parts {
		w.item(off, "part", nil, "number %d, shard %d, %s, %d bytes", p.Number, p.Shard, p.Path, p.Size)
		for _, s := range p.Sections {
			w.item(off, "section", nil, "of part %d: log %d, %d records, sequences %d to %d, %d keys, %d bytes",
				p.Number, s.Log, s.Count, s.FirstSeq, s.LastSeq, s.Keys, s.Bytes)
		}
	}
	for _, t := range e.tombs {
		dead, err := parseTombs(t.blob, 1<<32-1)
		if len(t.blob) == 0 {
			w.item(off, "tombstones", nil, "of log %d in part %d: none", t.Log, t.Part)
			continue
		}
		n := uint64(0)
		if err == nil {
			n = dead.GetCardinality()
		}
		w.item(off, "tombstones", err, "of log %d in part %d: %d", t.Log, t.Part, n)
	}
	for _, id := range e.dropLogs {
		w.item(off, "log dropped", nil, "%d", id)
	}
	for _, l := range e.logs {
		w.item(off, "log", nil, "%d, sequences %d to %d, %d messages, %d bytes, %d deleted, checkpoint of %d bytes "+
			"at %d", l.ID, l.FirstSeq, l.LastSeq, l.Messages, l.Bytes, l.Deleted, len(l.Checkpoint),
			l.CheckpointPosition)
	}
	if e.floor > 0 {
		w.item(off, "floor", nil, "block %d", e.floor)
	}
	if e.store != nil {
		w.item(off, "store", nil, "%d bytes", len(e.store))
	}
	if e.nextPart > 0 {
		w.item(off, "next part", nil, "%d", e.nextPart)
	}
}

func (w *itemWriter) part(fsys vfs.FS, name string) error {
	p, bad, err := CheckFile(fsys, path.Dir(name), path.Base(name), w.keys)
	if err != nil {
		return err
	}
	cipher := []string{"none", "AES-256-GCM", "ChaCha20-Poly1305", "unknown"}[min(p.Cipher, 3)]
	w.item(0, "header", nil, "part %x, shard %d, cipher %s, %d bytes", p.ID, p.Shard, cipher, p.Size)
	f, err := fsys.OpenRead(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for i := range p.blocks {
		b := &p.blocks[i]
		w.item(b.off, "block", nil, "number %d, %s of log %d, %d bytes, %d raw, codec %d", b.number, blockKinds[b.kind],
			b.log, b.len, b.raw, b.codec)
		if b.kind != blockData || !b.whole || p.Locked || w.stopped {
			continue
		}
		raw, err := p.rawBlock(f, b)
		if err != nil {
			w.item(b.off, "block", err, "")
			continue
		}
		err = eachRecord(raw, func(_ uint32, r *Record) error {
			w.item(b.off, "message", nil, "log %d, sequence %d, time %d, key %q, header %d bytes, data %d bytes",
				b.log, r.Seq, r.Time, r.Key, len(r.Header), len(r.Data))
			return nil
		})
		if err != nil {
			w.item(b.off, "block", err, "")
		}
	}
	for i := range bad {
		if bad[i].Severity == Damage {
			w.item(bad[i].Offset, "damage", errors.New(bad[i].What), "")
		}
	}
	return nil
}

package inspect

// What the store keeps in the manifest (docs/format/manifest.md, "What the store keeps").

// parseSpec reads what is kept of a log: a log record of docs/format/records.md, from its kind on.
func parseSpec(b []byte) (r WALRecord, ok bool) {
	f := fields{b: b}
	r.parse(&f)
	return r, f.err == nil && f.left() == 0 && r.Kind == KindLog
}

// parseCheckpoint reads the checkpoint of a state log: the last checkpoint and the changes since.
func parseCheckpoint(b []byte) (out []*Record, err error) {
	f := fields{b: b}
	for f.left() > 0 {
		n := f.uvarint()
		data := f.bytes(n >> 1)
		if f.err != nil {
			return out, f.err
		}
		out = append(out, &Record{Data: data, Checkpoint: n&1 != 0})
	}
	return out, nil
}

// storeRecord returns what the manifest says of the directory as a whole: a store record, from its kind on.
func (d *Directory) storeRecord() (r WALRecord, ok bool) {
	if d.Manifest == nil {
		return r, false
	}
	f := fields{b: d.Manifest.Store}
	r.parse(&f)
	ok = f.err == nil && f.left() == 0 && r.Kind == KindStore && (d.Shards == 0 || len(r.Heads) == d.Shards)
	return r, ok
}

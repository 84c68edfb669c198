package inspect

// parseSpec reads what the store keeps of a log in the manifest: a log record of docs/format/records.md, from its kind
// on.
func parseSpec(b []byte) (r WALRecord, ok bool) {
	f := fields{b: b}
	r.parse(&f)
	return r, f.err == nil && f.left() == 0 && r.Kind == KindLog
}

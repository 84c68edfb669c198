package storage

// LogSpec says what a log is when it is made. It is persisted but for Size and Route, which are given again at OpenLog.
type LogSpec struct {
	// Shards the log lives in: one, or several for a spread log.
	Shards []ShardID
	// Memory keeps the log in RAM only: appends are visible at once and gone after a restart.
	Memory bool
	// FirstSeq is the sequence of the first record; 0 means 1.
	FirstSeq uint64
	// Name is for people (logs, dumps, errors): "ACCOUNT/STREAM".
	Name string
	// Size counts a record for State.Bytes from the lengths of its parts. Nil: their sum.
	Size func(key, header, data int) uint64
	// Route picks the shard of a key in a spread log (an index into Shards). Nil: always 0.
	Route func(key []byte) int
}

// Done is told when what was appended is durable (nil) or can never be (the error). It runs on the ack loop: it must not
// block, nor append to the same log synchronously under a lock it may be waiting for.
type Done func(error)

// Log is one ordered log of records. Methods that change it (Append, Delete, Purge, Truncate, Drop) are called under the
// owner's lock, one at a time; they return at once, do no I/O and take effect at the head immediately. Methods that read
// may be called by anyone at any time and stop at the visible position, except where they say "at the head".
type Log struct{}

// ID returns the log's id.
func (l *Log) ID() LogID { panic("not implemented") }

// Append adds r, copying its bytes once. r.Seq must be above the head's; a lower one is refused with ErrOutOfOrder and
// counted (out_of_order_appends). A gap is permitted: the skipped sequences count as deleted. Errors: ErrFull when the
// shard's queue is at its bound (nothing was appended), ErrStopped (wrapped with the cause) when the directory has
// failed or is out of space. done may be nil.
func (l *Log) Append(r *Record, done Done) error { panic("not implemented") }

// Delete removes the live records among seqs and returns how many there were. With erase their bytes are overwritten on
// disk when their space is next rewritten.
func (l *Log) Delete(seqs []uint64, erase bool, done Done) (int, error) { panic("not implemented") }

// Purge removes the live records with a sequence below upTo (0: all) that match filter (nil: all), but keeps the newest
// keep of them. It is one record in the log however much it removes, and returns the exact number removed. A purge of
// everything moves FirstSeq to LastSeq+1, or to upTo.
func (l *Log) Purge(filter Filter, upTo, keep uint64, done Done) (uint64, error) {
	panic("not implemented")
}

// Sync calls done once everything appended to the log so far is durable and visible (at once if it is).
func (l *Log) Sync(done Done) { panic("not implemented") }

// State returns the log's totals at the head.
func (l *Log) State() State { panic("not implemented") }

// Visible returns the visible position: the highest sequence that reads may show.
func (l *Log) Visible() uint64 { panic("not implemented") }

// Key returns the totals of one key at the head.
func (l *Log) Key(key []byte) KeyState { panic("not implemented") }

// Get returns the record at seq: ErrNotFound if it was deleted or never was, ErrEOF if seq is above the visible position.
func (l *Log) Get(seq uint64) (Record, error) { panic("not implemented") }

// Last returns the newest live record that matches filter (nil: any) with a sequence <= upTo (0: no bound); ErrNotFound
// if there is none.
func (l *Log) Last(filter Filter, upTo uint64) (Record, error) { panic("not implemented") }

// Next returns the first live record at or after seq that matches filter (nil: any); ErrEOF if there is none yet.
func (l *Log) Next(seq uint64, filter Filter) (Record, error) { panic("not implemented") }

// SeqAtTime returns the sequence of the first live record with Time >= unixNano, or the visible position + 1.
func (l *Log) SeqAtTime(unixNano int64) uint64 { panic("not implemented") }

// LastPerKey returns, ascending, the sequence of the newest live record (<= upTo; 0: no bound) of each key that matches
// one of filters (none: all). At most limit (0: no limit); more is true when it was cut.
func (l *Log) LastPerKey(filters []Filter, upTo uint64, limit int) (seqs []uint64, more bool) {
	panic("not implemented")
}

// Count returns how many live visible records at or after from match one of filters (none: all).
func (l *Log) Count(from uint64, filters []Filter) uint64 { panic("not implemented") }

// EachKey calls fn for each key with live records that matches filter (nil: all), in no order, until fn returns false.
// key is only valid during the call.
func (l *Log) EachKey(filter Filter, fn func(key []byte, ks KeyState) bool) { panic("not implemented") }

// EachDeleted calls fn for the sequences between State.FirstSeq and State.LastSeq that are not live, ascending.
func (l *Log) EachDeleted(fn func(seq uint64) bool) { panic("not implemented") }

// OnVisible sets fn to be called on the ack loop, under no lock, whenever the visible position moves, with the new one and
// a nil error: once for a group commit (after the done functions of that commit), not once for each record. When the
// directory stops for good it is called one last time with the error: nothing above visible was or will be acknowledged
// by this Store; open the directory again to learn what is there.
func (l *Log) OnVisible(fn func(visible uint64, err error)) { panic("not implemented") }

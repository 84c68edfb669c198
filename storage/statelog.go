package storage

// StateLog is a small durable value kept as its last checkpoint and the changes since: a consumer's position, the
// catalog. It shares the write-ahead log, its group commit and its ack loop with the message logs, so order between the
// two is order in time. Methods are called under the owner's lock, one at a time.
type StateLog struct{}

// ID returns the log's id.
func (s *StateLog) ID() LogID { panic("not implemented") }

// Append adds a change. Errors as for Log.Append. done may be nil.
func (s *StateLog) Append(change []byte, done Done) error { panic("not implemented") }

// Checkpoint replaces everything before it by state.
func (s *StateLog) Checkpoint(state []byte, done Done) error { panic("not implemented") }

// Load calls fn for the last checkpoint (if there is one; checkpoint is true) and each change after it, in order. The
// bytes are only valid during the call. It is for the time before the first Append.
func (s *StateLog) Load(fn func(entry []byte, checkpoint bool) error) error { panic("not implemented") }

// Changes returns the number of changes since the last checkpoint and their bytes: when to make the next one.
func (s *StateLog) Changes() (n int, bytes int64) { panic("not implemented") }

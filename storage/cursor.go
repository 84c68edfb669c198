package storage

// Cursor walks the live records of a log that match its filters, in order of sequence, and knows at every moment exactly
// how many it has still to give. It is what a consumer reads from. A Cursor is used by one goroutine at a time and costs
// nothing while it is not used; deletes and purges that happen ahead of it are accounted for at its next use.
type Cursor struct{}

// NewCursor returns a cursor that starts at from (0: the first record) and gives records that match one of filters
// (none: all).
func (l *Log) NewCursor(from uint64, filters []Filter) *Cursor { panic("not implemented") }

// Next returns the next matching visible record and moves past it; ErrEOF when there is none yet. The read of its bytes
// is from RAM where the record is recent, else from disk.
func (c *Cursor) Next() (Record, error) { panic("not implemented") }

// Peek is Next without moving.
func (c *Cursor) Peek() (Record, error) { panic("not implemented") }

// Pending returns how many matching records are visible and not yet given: exact, and consistent with Next.
func (c *Cursor) Pending() uint64 { panic("not implemented") }

// Position returns the sequence at which the next search starts.
func (c *Cursor) Position() uint64 { panic("not implemented") }

// Seek moves the cursor to from, in either direction.
func (c *Cursor) Seek(from uint64) { panic("not implemented") }

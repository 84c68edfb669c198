package storage

import (
	"context"
	"errors"
)

// Errors that callers act on. Others name a file, an offset and a remedy (see CorruptError).
var (
	ErrNotFound   = errors.New("record not found")
	ErrEOF        = errors.New("no record there yet")
	ErrOutOfOrder = errors.New("record offered below the head of its log")
	ErrFull       = errors.New("shard queue is full")
	ErrStopped    = errors.New("data directory stopped")
	ErrNoLog      = errors.New("no such log")
	ErrLocked     = errors.New("data directory is in use")
)

// Options configure a Store. Zero values mean the defaults given here.
type Options struct {
	Dir        string // the data directory; made if missing. Empty: a store in memory, nothing is written
	Shards     int    // number of shards for a new directory: default min(4, cores). An existing one keeps its own
	QueueBytes int64  // bound of one shard's queue; default 64 MiB
	StallBytes int64  // where producers are asked to pause; default a quarter of QueueBytes
	WindowSize int64  // bytes of recent records kept in RAM for readers; default 64 MiB
	Events     Events
}

// Events tells what happens inside a Store; any func may be nil. They are called on the store's own goroutines.
type Events struct {
	TailCut   func(path string, offset int64, bytes int64)    // a torn tail was cut at open
	NoSpace   func(err error)                                 // no room for the next segment: appends are refused with ErrStopped until Resumed
	Resumed   func()                                          // room is back
	Stopped   func(err error)                                 // an I/O error: this Store acknowledges nothing more; Close it and Open the directory again
	Synced    func(records int, bytes int64, seconds float64) // one group commit
	Recovered func(logs int, records uint64, seconds float64)
}

// Store is one data directory.
type Store struct{}

// Open opens or makes a data directory, replays what is on disk and starts its loops. Errors: ErrLocked (naming the other
// process), *CorruptError, or an I/O error.
func Open(ctx context.Context, o Options) (*Store, error) { panic("not implemented") }

// Close refuses new appends, commits what is queued, syncs and closes. Idempotent.
func (s *Store) Close() error { panic("not implemented") }

// CreateLog makes a log with a new id.
func (s *Store) CreateLog(spec LogSpec) (*Log, error) { panic("not implemented") }

// OpenLog returns an existing log; spec gives Size and Route. ErrNoLog if it is not there.
func (s *Store) OpenLog(id LogID, spec LogSpec) (*Log, error) { panic("not implemented") }

// DropLog removes a log or state log and all it holds.
func (s *Store) DropLog(id LogID, done Done) error { panic("not implemented") }

// CreateStateLog makes a state log in shard. memory: it is not written to disk.
func (s *Store) CreateStateLog(shard ShardID, name string, memory bool) (*StateLog, error) {
	panic("not implemented")
}

// OpenStateLog returns an existing state log.
func (s *Store) OpenStateLog(id LogID) (*StateLog, error) { panic("not implemented") }

// Catalog returns the store's own state log (id 1), made with the directory: where the owner keeps which logs exist.
func (s *Store) Catalog() *StateLog { panic("not implemented") }

// Shards returns the number of shards.
func (s *Store) Shards() int { panic("not implemented") }

// Stall returns nil, or a channel that is closed when the queues have room again: producers should pause.
func (s *Store) Stall() <-chan struct{} { panic("not implemented") }

// Err returns nil while the store is healthy, else why nothing can be acknowledged.
func (s *Store) Err() error { panic("not implemented") }

// Stats is what a Store counts, all since Open unless said otherwise.
type Stats struct {
	Shards []ShardStats
	Appends, OutOfOrderAppends,
	Commits, Syncs, BytesWritten uint64
	TailCuts       uint64
	DiskBytes      int64 // on disk now
	RecoverSeconds float64
	RecoverRecords uint64
}

// ShardStats is one shard's part of Stats.
type ShardStats struct {
	Head, Committed uint64 // positions: records of the shard since the directory was made, global and monotonic
	QueuedBytes     int64
}

// Stats returns the counters.
func (s *Store) Stats() Stats { panic("not implemented") }

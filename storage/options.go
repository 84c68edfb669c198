package storage

import (
	"runtime"
	"time"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Options configure a Store. Zero values mean the defaults given here.
type Options struct {
	Dir        string // the data directory; made if missing. Empty: a store in memory, nothing is written
	Shards     int    // number of shards for a new directory: default min(4, cores). An existing one keeps its own
	QueueBytes int64  // bound of one shard's queue; default 64 MiB, or a quarter of Memory if that is less
	StallBytes int64  // where producers are asked to pause; default a quarter of QueueBytes
	WindowSize int64  // bytes of recent records kept in RAM for readers; default as of QueueBytes
	Events     Events

	FS          vfs.FS // default: the operating system's
	SegmentSize int64  // bytes of a segment of the write-ahead log; default 64 MiB

	// Seal has records moved from the write-ahead log to parts, when it holds more than SealBytes (default 128 MiB) or
	// SealRecords (default 1 Mi) that are not sealed, or one that is older than SealMaxAge (default 5 s). A
	// directory that has parts is always sealed.
	Seal        bool
	SealBytes   int64
	SealRecords int64
	SealMaxAge  time.Duration
	// MaxUnsealed and MaxUnsealedBytes bound what is not sealed, what is just being written to parts included: where
	// one is reached producers are asked to pause (Stall), and a quarter beyond messages are refused with ErrFull.
	// Default: the records whose index takes half of Memory, and four times SealBytes.
	MaxUnsealed      int64
	MaxUnsealedBytes int64
	// Memory is how many bytes of RAM there are for what is read of parts and for the index of what is not sealed;
	// default 256 MiB.
	Memory int64
	// Encryption says what all that is written is encrypted with, and opens what is there; without a secret nothing is
	// encrypted. A directory that was not encrypted becomes so: what is new at once, parts one after the other.
	Encryption crypt.RingOptions

	bulkLeast uint64 // from how many records on a purge works with bitmaps; tests lower it
}

// Events tells what happens inside a Store; any func may be nil. They are called on the store's own goroutines.
type Events struct {
	// TailCut: the last block was damaged or not whole at open, and was cut off: bytes from offset of the file path.
	// What a crash leaves is never acknowledged; what was can only be in it if the disk damaged it afterwards.
	TailCut func(path string, offset int64, bytes int64)
	// NoSpace: no room for the next segment; appends are refused with ErrStopped until Resumed. Its text names the
	// file that could not be written; that of the refusals does not.
	NoSpace func(err error)
	// Resumed: room is back.
	Resumed func()
	// Stopped: an I/O error. This Store acknowledges nothing more; Close it and Open the directory again.
	Stopped func(err error)
	// Synced: one group commit.
	Synced func(records int, bytes int64, seconds float64)
	// Recovered: Open has replayed what was on disk.
	Recovered func(logs int, records uint64, seconds float64)
	// SweepFailed: the space of what is dead could not be given back; it is tried again later.
	SweepFailed func(err error)
	// Encrypted: the directory's keys are open; it was told whether they are new and whether the secret was changed.
	Encrypted func(ring crypt.Ring)
	// AllEncrypted: no part is left from before the directory was encrypted.
	AllEncrypted func()
	// Damaged: a part of a log is damaged or missing. The log takes nothing any more; others are not concerned.
	Damaged func(err error)
}

const (
	defaultQueueBytes = 64 << 20
	defaultWindow     = 64 << 20
	defaultSegment    = 64 << 20
	maxShards         = 1 << 16

	defaultMemory      = 256 << 20
	defaultSealBytes   = 128 << 20
	defaultSealRecords = 1 << 20
	defaultSealMaxAge  = 5 * time.Second
	// indexCost is about what the index takes for a record that is not sealed.
	indexCost = 100
	maxSeals  = 4
	// defaultBulk is from how many records on a purge works with bitmaps.
	defaultBulk = 1024
	// minQueue is the least that a shard's queue holds.
	minQueue = 8 << 20
)

func (o *Options) setDefaults() {
	if o.Shards <= 0 {
		o.Shards = min(4, runtime.GOMAXPROCS(0))
	}
	o.Shards = min(o.Shards, maxShards)
	if o.Memory <= 0 {
		o.Memory = defaultMemory
	}
	if o.QueueBytes <= 0 { // a small budget has room for small queues only
		o.QueueBytes = max(min(defaultQueueBytes, o.Memory/4), minQueue)
	}
	if o.StallBytes <= 0 {
		o.StallBytes = o.QueueBytes / 4
	}
	if o.WindowSize <= 0 {
		o.WindowSize = max(min(defaultWindow, o.Memory/4), minQueue)
	}
	if o.SegmentSize <= 0 {
		o.SegmentSize = defaultSegment
	}
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.bulkLeast == 0 {
		o.bulkLeast = defaultBulk
	}
	if o.SealBytes <= 0 {
		o.SealBytes = defaultSealBytes
	}
	if o.SealRecords <= 0 {
		o.SealRecords = defaultSealRecords
	}
	if o.MaxUnsealed <= 0 {
		o.MaxUnsealed = o.Memory / 2 / indexCost //nolint:mnd // half
	}
	if o.MaxUnsealedBytes <= 0 {
		o.MaxUnsealedBytes = maxSeals * o.SealBytes
	}
	// two seals' worth: one is written while the other gathers
	o.SealRecords = min(o.SealRecords, o.MaxUnsealed/2)
	o.SealBytes = min(o.SealBytes, o.MaxUnsealedBytes/2)
	if o.SealMaxAge <= 0 {
		o.SealMaxAge = defaultSealMaxAge
	}
	o.Events.setDefaults()
}

// setDefaults makes every event one that can be called.
func (e *Events) setDefaults() {
	if e.TailCut == nil {
		e.TailCut = func(string, int64, int64) {}
	}
	if e.NoSpace == nil {
		e.NoSpace = func(error) {}
	}
	if e.Resumed == nil {
		e.Resumed = func() {}
	}
	if e.Stopped == nil {
		e.Stopped = func(error) {}
	}
	if e.Synced == nil {
		e.Synced = func(int, int64, float64) {}
	}
	if e.SweepFailed == nil {
		e.SweepFailed = func(error) {}
	}
	if e.Encrypted == nil {
		e.Encrypted = func(crypt.Ring) {}
	}
	if e.AllEncrypted == nil {
		e.AllEncrypted = func() {}
	}
	if e.Damaged == nil {
		e.Damaged = func(error) {}
	}
	if e.Recovered == nil {
		e.Recovered = func(int, uint64, float64) {}
	}
}

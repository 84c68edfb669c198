package storage

import "time"

// LogID names one incarnation of a log. It is never used twice: a log deleted and made again has another id, so that
// the two never mix data.
type LogID uint64

// ShardID numbers a shard of a data directory, from 0.
type ShardID uint32

// Record is one entry of a [Log]. What a read returns is immutable and may be kept.
type Record struct {
	Seq    uint64 // position in its log, from 1
	Time   int64  // Unix nanoseconds, given by the writer; never below the previous record's
	Key    []byte // the subject
	Header []byte // opaque to storage, may be empty
	Data   []byte
}

// TimeUTC returns Time as a time.Time.
func (r *Record) TimeUTC() time.Time { return time.Unix(0, r.Time).UTC() }

// Filter selects keys.
type Filter interface {
	// Match reports whether key is selected. It must be a pure function of key.
	Match(key []byte) bool
	// Prefix returns bytes that every selected key starts with; empty if there are none in common.
	Prefix() []byte
	// Literal reports whether Prefix is the only key that can match.
	Literal() bool
}

// State sums up a log at its head.
type State struct {
	Messages  uint64 // live records
	Bytes     uint64 // their size as LogSpec.Size counts it
	FirstSeq  uint64 // of the first live record; LastSeq+1 when there is none
	LastSeq   uint64 // the last sequence given, live or not
	FirstTime int64  // Unix nanoseconds of the first live record; 0 when there is none
	LastTime  int64  // of the last record appended; 0 before the first
	Deleted   uint64 // sequences in [FirstSeq, LastSeq] that are not live
}

// KeyState sums up the live records of one key.
type KeyState struct {
	First, Last uint64 // sequences; 0 when Count is 0
	Count       uint64
}

// Package storage keeps ordered logs of records on disk.
//
// A [Store] is one data directory. It holds any number of logs ([Log]: one per stream) and state logs ([StateLog]: a
// consumer's position, the catalog), all written through one write-ahead log ([tail]) with one group commit, so that a
// thousand small logs cost one fsync and not a thousand. A shard is the unit of write order, placement and (later)
// replication; every log lives in one shard or is spread over several of them by key.
//
// The package does not know NATS. A key is bytes, a filter is a [Filter].
//
// # Positions
//
//   - head: appended here, order and sequence are given.
//   - visible: durable, and nothing below it is missing. All reads stop there, so that nothing is shown that a crash
//     can un-happen.
//
// # Invariants
//
//  1. Frames reach the tail in the order of Append.
//  2. done functions run in that order, on the ack loop, under no lock, and only after the frame is durable.
//  3. A failed write or sync poisons the directory: nothing more is acknowledged until it is reopened from disk.
//
// [tail]: https://pkg.go.dev/github.com/noetl/ehdb-gateway/storage/tail
package storage

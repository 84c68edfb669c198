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
//     can un-happen. A deletion shows when it is durable too: a key that is overwritten is never seen missing.
//
// # Invariants
//
//  1. Frames reach the tail in the order of Append.
//  2. done functions run in that order, on the ack loop, under no lock, and only after the frame is durable.
//  3. What a [Batch] changes is in one group: after a crash all of it is there, or nothing.
//  4. A failed write or sync poisons the directory: nothing more is acknowledged until it is reopened from disk.
//
// # How a record travels
//
// Append encodes it, once, at the end of the pending group, and enters it in the log's index (writer.go, log.go). The
// commit loop takes the whole group, writes it as one block and syncs; the next group fills meanwhile (commit.go). The
// ack loop makes the group visible in each log it touched, runs the done functions and then tells OnVisible. The bytes
// stay in RAM for readers while they are in the window; after that they are read from the tail (section.go, ondisk.go).
//
// # Where records are
//
// A log is a list of runs (sealed.go): the older ones in parts, the last ones in RAM, as an index (index.go, keys.go)
// of what is in the tail. Each run has two views, head and visible. The sealer (seal.go, sealloop.go) writes runs to
// parts, says so in the manifest and drops the tail's segments; it merges parts and removes empty ones (merge.go),
// and keeps room on a full disk for what makes room (room.go). Open reads the manifest (restore.go) and what is not
// sealed (replay.go). Without Options.Seal everything stays in the tail, and a sweeper gives back the space of what
// is dead (sweep.go, move.go). The encoding is in docs/format.
//
// # Locks
//
// Store, then log or state log (several only in a Batch, by rising id), then writer. No I/O happens under any of them.
//
// [tail]: https://pkg.go.dev/github.com/noetl/ehdb-gateway/storage/tail
package storage

// Package jetstreamapi is JetStream as one more party on the bus: it answers the $JS.API subjects, keeps the catalog of
// streams and consumers, and connects both to their logs.
//
// # Who answers what
//
//   - One session for each account takes every API request that is answered whether or not the asset exists
//     (jsapi.APIFilters). Deliver copies the request into a bounded queue; one worker for each account serves what
//     changes things, in order, and a few serve what only reads.
//   - One session for each stream takes its direct gets.
//   - One session for each consumer takes its pull requests, acks, flow control answers and resets, and hands them to
//     its mailbox straight from Deliver, with no lookup at all.
//
// An asset that does not exist therefore has no interest on its subjects, and the sender is told "no responders".
//
// # Order and durability
//
// A change appends to the catalog's log before the asset takes its first message, and is answered once that record is
// durable. All of it shares one write-ahead log, so a message that was acknowledged never outlives its stream's record.
//
// # Snapshots and restores
//
// Each is a goroutine for as long as its client keeps up (transfers.go). A restore writes into logs that the catalog
// does not know: whatever ends it, they are dropped, at the next start at the latest. One entry of the catalog then
// brings the stream and its consumers into being (restore_adopt.go).
package jetstreamapi

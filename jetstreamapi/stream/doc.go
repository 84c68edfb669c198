// Package stream is one JetStream stream: it admits messages, gives them their sequence, appends them to its log and
// acknowledges them once they are durable.
//
// # The way of a message
//
//	Deliver (under the stream's lock, once for a batch)
//	  -> admit (admit.go): a pure function of settings, position, indexes and message
//	  -> sequence, timestamp, Log.Append, dedup window, limits (deliver.go)
//	  -> the answer goes into a queue, with the position it must wait for (answers.go)
//	Log.OnVisible (on the log's ack loop, once for a group commit)
//	  -> consumers are woken, and a goroutine sends the answers that are due (flush.go)
//
// # Batches
//
// The messages of an atomic batch (batch_atomic.go) are staged in memory, within the bounds of [Batches], until one of
// them commits it. Then all are admitted, each as if those before it were stored (batch_check.go), and appended as one
// group of the log, which is durable and visible as a whole or not at all. The messages of a fast batch (batch_fast.go)
// are stored as they come; its answers say how far it is durable. Another part of the server stores messages with
// AddLetters (letters.go), in one group with a change of its own.
//
// # What time brings about
//
// A stream has one timer (upkeep.go), armed for the next thing that is due: messages that grow too old, TTLs, ids that
// leave the dedup window, schedules (schedule_fire.go). After a restart, TTLs and schedules are found by looking
// through the log beside the service (scan.go); until then no schedule fires.
//
// What is kept in memory for that is bounded: one entry for each message with a TTL, one for each id in the window, one
// for each schedule (about 200 bytes and the subject; never more than twice as many as there are schedules). Of
// counters (counter.go), what is on its way to the disk and at most 4 MiB of others are remembered.
//
// # Invariants
//
//  1. Nothing is published inside Deliver.
//  2. A PubAck leaves only when the log's visible position has reached its sequence. So does every answer that speaks
//     of the head: a duplicate's PubAck, a wrong last sequence, a full stream.
//  3. Answers leave in the order of their messages.
//  4. A message with a reply subject gets an answer, whatever happens to it, unless the stream is no_ack.
//  5. A message id is remembered only after its message was appended.
package stream

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
// # Invariants
//
//  1. Nothing is published inside Deliver.
//  2. A PubAck leaves only when the log's visible position has reached its sequence. So does every answer that speaks
//     of the head: a duplicate's PubAck, a wrong last sequence, a full stream.
//  3. Answers leave in the order of their messages.
//  4. A message with a reply subject gets an answer, whatever happens to it, unless the stream is no_ack.
//  5. A message id is remembered only after its message was appended.
package stream

// Package consumer is one JetStream consumer: a pure state machine that decides what to deliver, when, and what an ack
// means, and a thin shell that feeds it from a log and the bus.
//
// # The two halves
//
// The machine (machine.go and the files named after its events) has no goroutine, file or clock. Events and the time go
// in, an outbox comes out: messages to send, state changes to make durable, acks to confirm once they are, messages the
// stream may let go of, advisories. Its script tests (testdata) read like a log of what a client would see.
//
// The shell (consumer.go, run.go) keeps a mailbox for events. A consumer with mail, or with new messages it is hungry
// for, is queued at the Scheduler; one of its workers runs one step: take the mail, run the machine, deliver at most
// deliverBatch messages, append the state changes, publish. Then others have their turn. A consumer has no goroutine of
// its own, and a timer only while something is due.
//
// # What is durable when
//
//   - A delivery may be sent before the record of it is durable: after a crash it comes again, with a count that may be
//     one lower. Not so with keys (hold.go): there it is durable first.
//   - An ack is confirmed when the record of it is durable (AckSync).
//   - The stream is told that a message is done after the record was appended, and both share one write-ahead log: a
//     crash cannot keep the one and lose the other.
//
// # Dead letters
//
// With ehdb.dead_letter (deadletter.go) a message that is terminated is exhausted first, as one is that was delivered
// too often. The shell then stores its copy in the other stream and forgets it, in one group commit with the state
// changes of the step.
//
// # Keys
//
// With ehdb.key_shared (keyshared.go, keydeliver.go) the messages of one key are in the hands of one worker at a time.
// What the consumer reads and cannot deliver yet is parked: an entry of the ledger that is not delivered.
//
// # Where it answers and NATS does not
//
//   - An ack with a reply subject that can mean nothing (never delivered, or an ack policy without acks) gets status
//     503, which clients take for "no responders", where NATS is silent.
//   - A message that reaches max_deliver by a NAK is given up at once, not at the next pull.
//   - A pull consumer looks for inboxes that nobody listens on any more every five seconds, not only when it has
//     messages.
package consumer

// Package relay decides, message by message, what passes between clients and the NATS servers upstream while streams
// are being moved: it is the gateway's Director.
//
// The flip hands it a [Table]: for each stream under watch whether the servers upstream or this gateway has the say, or
// whether what concerns it has to wait. A table is never changed, only replaced, so a message is judged by one of them.
// What goes on at the same time (publishes without an answer, pulls, deliveries without an ack) is kept by [Scope],
// which lives as long as the stream is under watch:
//
//	table    routes of accounts: subjects, API, acks and flow control of each stream
//	guide    one connection
//	flight   publishes that wait for their PubAck; what was acknowledged goes to the ledger
//	pulls    pull requests that the servers upstream still hold
//	tracker  what each consumer has delivered and has no ack for
package relay

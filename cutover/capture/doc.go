// Package capture copies a stream of the NATS servers into its standby here, and keeps it equal.
//
//	capturer   one stream: what it is at, and the loop that starts over after a failure
//	read       reads the authority, in order, no faster than it may
//	queue      between reading and writing: a bound, three rungs, no drop
//	write      into the standby, until it is durable
//	reconcile  what the authority has removed; exactly, on demand
//	status     what operators see of it
//
// There is one way in: everything is read back from the authority, which alone knows the sequence, the time, the
// subject and the header block that a message has in the stream. A failure anywhere means to read again from behind
// what is durable here, so nothing is lost by it, and nothing has to be kept for it (docs/adr/0005).
//
// A standby is only changed while the stream that it copies is the same, and has not gone back: else capture freezes,
// and says why, until the standby is reset or the stream is as it was.
package capture

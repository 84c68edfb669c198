// Package wire is the NATS client protocol as a library: it knows bytes, not sockets.
//
// [Parser] turns what a client sends into [Command] values without copying: every slice of a Command points into the
// parser's read buffer and stays valid until the next call of [Parser.Space]. The Append functions build what a server
// sends. [Info] and [Connect] are the two JSON documents of the handshake.
//
// The outcomes are nats-server's, its oddities included: the first byte after a verb's blanks always belongs to the
// arguments, a PING line may carry anything, a line may end in a bare LF.
package wire

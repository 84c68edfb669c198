// Package feed serves streams as server-sent events (WHATWG HTML, section 9.2): GET /feed/{account}/{stream}.
//
// The id of an event is the message's sequence in its stream. Who comes back with Last-Event-ID goes on behind it, so a
// client loses nothing and gets nothing twice, whatever ended its connection. What cannot be sent any more, because it
// left the stream, is told by an event gap, never passed over in silence.
//
// Each connection is one goroutine that reads the stream where it stands. Nothing is queued for it: a client that reads
// slowly is read from the log later, and one that does not read at all is disconnected.
//
// A feed asks for the login that a client of the NATS port needs (package auth), and gives what that login may
// subscribe to. The streams are behind [Source], which who has them implements.
package feed

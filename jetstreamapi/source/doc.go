// Package source copies messages from one stream into another: what mirrors and sources do.
//
// A [Link] is one mirror or one source. It has a goroutine of its own, so that one that stalls holds up nobody else: it
// opens the origin, reads on from where the target stands, and adds batches to the target until something fails; then
// it waits a little, longer each time, and opens the origin again. The target remembers the position together with the
// messages (stream.AddMirrored, stream.AddSourced), so a link has no state that could be lost.
//
// There are two kinds of origin. A stream of the same account is read from its log directly (local.go). Any other is
// read through a consumer, by the messages nats-server's own sources send and get (remote.go): over the account's bus,
// or over a connection to another server (upstream.go). In both, the target sets the pace: a full target is not offered
// more, and nothing is passed over.
package source

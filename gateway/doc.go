// Package gateway serves NATS clients: it listens, speaks the protocol (package wire), asks who somebody is (package
// auth) and carries messages between connections and the bus.
//
// Each connection has two goroutines. The reader parses what came in one read, publishes all of it on the connection's
// bus session and flushes once; it flushes earlier before everything whose order against messages a client can see. The
// writer sends what the bus delivered to the connection, all that has gathered with one system call. Between the two
// stands the outbound queue, whose bound is max_pending.
//
// # Where it differs from nats-server on purpose
//
// The parity tests run the same bytes against both and compare what comes back and why connections end. Beyond them:
//
//   - After an -ERR that ends a connection the socket is closed for writing first and for reading a moment later, so
//     that the client gets to read the reason even if it was still sending.
//   - A subscription to foo.> that is permitted because of foo.* receives only what foo.* covers.
//   - A pedantic client is told once about a bad subject, also when the message comes in two reads.
//   - A client that sends HMSG gets an error instead of publishing to an empty subject.
//   - A reload that takes a user away tells its clients so before it closes them.
//   - A size on the wire allocates nothing: buffers grow with what has arrived.
//   - Of the subscriptions of a closed connection 256 are remembered, and their number.
package gateway

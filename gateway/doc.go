// Package gateway serves NATS clients: it listens, speaks the protocol (package wire), asks who somebody is (package
// auth) and carries messages between connections and the bus.
//
// Each connection has two goroutines. The reader parses what came in one read, publishes all of it on the connection's
// bus session and flushes once; it flushes earlier before everything whose order against messages a client can see. The
// writer sends what the bus delivered to the connection, all that has gathered with one system call. Between the two
// stands the outbound queue, whose bound is max_pending.
package gateway

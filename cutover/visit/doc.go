// Package visit reads streams for feeds (gateway/feed) where NATS servers upstream decide about logins: it connects
// through the gateway as the client that asks, with that client's credentials, and reads by the JetStream API what that
// client may read. So logins, permissions and the way to whoever has the say about a stream, the servers or this
// gateway, are those of any client, and a feed notices nothing of a flip: sequences stay.
//
// Records are read by sequence, so no consumer is made, and nothing is taken from a work queue.
package visit

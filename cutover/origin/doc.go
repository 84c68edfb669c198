// Package origin is the gateway's own connection to the JetStream of the NATS servers: one for each account.
//
//	conn     the connection: credentials, its state
//	request  one call of the JetStream API, with a deadline and what it was about in every error
//	batch    many calls at a time for records
//	stream   a stream of the servers as cutover.Upstream: read by sequence
//	list     what streams there are
//
// Messages are read one by one with STREAM.MSG.GET, many requests at a time. Of all ways to read a stream it is the
// only one that gives header blocks to the byte, is answered by the stream's leader, works alike for every retention
// and leaves nothing behind: a consumer would show in the stream's info, count against its limits and, on a work queue,
// take what is others' (docs/adr/0005).
package origin

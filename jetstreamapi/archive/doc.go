// Package archive reads and writes NATSARC1, the format of a stream's backup since nats-server 2.15.
//
// # The format
//
//	archive = "NATSARC1" entry... end
//	entry   = uvarint(len(name)) varint(time) uvarint(seq) uvarint(len(header)) uvarint(len(data)) name header data
//	end     = an entry without name, with every number 0
//
// What the entries of a stream's backup are, in this order:
//
//	state.json        the stream's state; its consumer_count says how many consumers follow
//	consumers/<name>  {"config": ..., "state": ...}
//	<subject>         a message: seq from 1, ascending, with gaps; time in Unix nanoseconds
//
// A backup is this, compressed as an S2 stream. The package knows neither compression nor what is in an entry: it reads
// from an io.Reader and writes to an io.Writer, and has no policy of its own but that it never allocates for a length
// it only read about.
package archive

// Package reverse keeps a stream of the NATS servers equal to the one that this gateway serves in its place, so that
// the way back loses nothing.
//
//	chain   publishes each record at the sequence it has here, or not at all
//	ghost   takes and acknowledges upstream what clients have taken and acknowledged here
//	prune   removes upstream what was removed here
//
// There is one writer of a chain at any time: two would interleave (docs/cutover.md).
package reverse

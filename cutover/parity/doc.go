// Package parity compares a stream of the NATS servers with its copy here, and says only what it has looked at.
//
// Three witnesses tell of every sequence: N, the servers' stream read back; E, the log here read back after its fsync;
// L, the ledger of what the servers acknowledged to clients. Each is brought to one form, sequence, time and hash of
// the content (cutover.Hash), and each sequence that any of them knows gets exactly one State. The sum of the states is
// the number examined, or the instrument is broken.
//
// What is younger than the window is pending, not equal: the comparison ends before the first item that is too young,
// on all sides. The window is measured (Window). Differences are looked at again, so that what arrives late heals and
// what was removed on the authority is told apart from what was never there.
//
// An instrument that sees nothing finds nothing. So the same code is run on a small made-up stream with one fault of
// each kind, every time (Controls): when one is not found, every figure of that time is worth nothing, and says so.
package parity

// Package inspect reads a data directory from the pages in docs/format alone. It shares no code with the packages that
// write one (internal/archtest holds it to that), so that a mistake made twice in the same way is still found, and so
// that the pages are known to suffice.
//
// [Read] goes over everything: META, the manifest, every part it names, every segment of the write-ahead log and every
// record in them. It never writes. What is wrong becomes a [Finding], and reading goes on behind it: nothing is given
// up because something else is damaged. A finding is [Damage] (durable bytes are gone or wrong), [Torn] (what a crash
// leaves of bytes that were never acknowledged) or a [Note].
//
// [Directory.Each] gives the live records of a log. Every block is checked again when it is read, so it never gives
// wrong bytes, also if a running gateway changes the directory meanwhile.
package inspect

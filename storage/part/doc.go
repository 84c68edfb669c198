// Package part keeps sealed records: immutable files with an index that answers questions about them.
//
// A part file holds one section for each log that had records when it was sealed. A section has its records in blocks,
// ascending by sequence, a dictionary of their keys, the postings of each key and one page of columns (sequence, size,
// key id) for every few thousand records. The format is docs/format/part.md; the same pictures stand in format.go.
//
// A record is named by its ordinal: its place in its section, from 0. Deletions are not in the file. They are
// [Tombstones], a set of ordinals that the caller keeps and makes durable, and gives to each query.
//
// # Writing
//
// [Create] makes a file of a unique temporary name; BeginLog, Add and Finish fill it and sync it; Commit gives it its
// name and syncs the directory. [Merge] does that from other parts, leaving out what is dead.
//
// # Reading
//
// [Open] reads the header, the footer and the directory of sections, checks them against each other and keeps almost
// nothing: blocks and index pages are read on demand through a [BlockCache], so that RAM does not grow with the number
// of keys or records stored. Every read is checked against its checksum; damage is a [*CorruptError] that names the
// file and the offset. A read that returns bytes returns the right ones.
//
// # Costs
//
// With n records, k keys and r keys that match a filter: Get, LastOf, CountOf and Lower read O(log n) of what is in the
// cache, and one page or block each from disk if it is not. [Section.Match] looks at the k keys once, at those with the
// filter's prefix only if it has one; a filter that selects all keys with its prefix ([PrefixFilter]) takes two
// binary searches. Count and Next take O(r log n) or one walk over the key ids (about a nanosecond a record), whichever
// is less; Count of all the section is O(1). Deletions add the smaller of what is dead and what matches.
package part

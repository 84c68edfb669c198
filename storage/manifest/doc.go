// Package manifest remembers what a data directory consists of: which parts are live, what is deleted in them, where
// the tail begins that is not sealed yet, which logs there are, and the checkpoints of their states.
//
// It is a log of edits. [Manifest.Apply] makes one [Edit] durable, as a whole or not at all, and then shows it in
// [Manifest.State]. When the edits outgrow what they amount to, a new file is begun with a snapshot; so the size on
// disk is linear in what is live, however many seals there were. The format is docs/format/manifest.md.
//
// # What a crash leaves
//
// An edit that was being written is cut at [Open]: it was never acknowledged. After each durable edit a mark is
// written that proves it, so that damage to an acknowledged edit can be told from a torn one, also if it is the last.
// A file gets its name only when it is whole and durable, so damage in a snapshot is damage. Damage is a
// [*CorruptError] and the manifest does not open: an older one would know parts that are gone and miss others.
//
// # What it does not do
//
// It never removes a file but manifests that a newer one replaced. [Orphans] finds the files that no live part accounts
// for; the caller puts them aside.
package manifest

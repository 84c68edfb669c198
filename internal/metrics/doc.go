// Package metrics is what /metrics says, in Prometheus's text form.
//
// Every series that does not depend on what clients create is there from the first scrape on, at 0 if nothing happened:
// a missing series looks like a healthy one. No log is scanned for a scrape; of a consumer with
// messages pending the first of them is read, for its age.
//
// # Feed lag
//
// The ehdb_feed_* gauges are what autoscalers read. The lag of a durable consumer is what it has still to do: messages
// not delivered yet (pending) and delivered but not acknowledged (in flight).
//
//   - ehdb_feed_total_lag: the sum over all durables.
//   - ehdb_feed_shard_lag{shard}: the largest over the durables whose stream lives in the shard.
//   - ehdb_feed_shard_committed{shard}: the shard's durable position, global and monotonic over restarts.
//   - ehdb_feed_subject_lag{subject}: the largest over the durables that have the subject as a filter, one series for
//     each filter of each durable (of its stream, if it has none) and for each configured subject. A durable with
//     several filters shows its whole lag at each of them. A configured subject inside a wider filter shows what is
//     pending on it, plus all that the durable has in flight, which cannot be told apart by subject. The line has one
//     label and never changes its form; a subject once shown stays, at 0, until the process ends, because a scaler
//     takes a missing line for an error.
package metrics

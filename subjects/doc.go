// Package subjects is the grammar of subjects and filters, and the algebra on them.
//
// A subject is tokens joined by dots ("orders.eu.new"). A filter is a subject in which a token may be "*" (any one
// token) and the last may be ">" (one or more tokens). Tokens are compared byte by byte. A subject with an empty token
// matches nothing, as in NATS; a "*" or ">" in a subject that is published to is an ordinary token.
//
// Functions take strings and byte slices alike and allocate nothing. Those on two filters ([Overlap], [SubsetOf])
// expect both to be valid ([ValidFilter]).
//
// [Filter] is one filter, compiled; [Index] finds the filters that match a subject among many; [ShardMap] places
// subjects on shards.
package subjects

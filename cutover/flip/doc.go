// Package flip changes who has the say about a stream: the NATS servers, or this gateway. An [Engine] watches streams
// (their shadow is captured), takes them over, gives them back, and remembers in its journal who has the say, so that a
// crash at any step leaves exactly one authority.
//
//	journal   what was decided, durable before it takes effect
//	engine    streams under watch, and what comes back after a restart
//	routes    what the relay decides by
//	follow    what runs while the gateway has the say
//	steps     the points on the way of a move, for tests
//	takeover  servers → gateway
//	giveback  gateway → servers
//	transfer  what a consumer remembers, from what the servers count and what the relay has seen
//
// Both directions have the same shape: intent, hold, drain, compare, record, release. Until the record nothing has
// happened, and an abort is the release alone; after it there is no way but forward.
package flip

package gateway

import "sync/atomic"

// counters are the server's totals since its start.
type counters struct {
	connections        atomic.Uint64 // ever accepted
	inMsgs, inBytes    atomic.Int64
	outMsgs, outBytes  atomic.Int64
	slowPending        atomic.Int64
	slowDeadline       atomic.Int64
	stale              atomic.Int64
	stalls             atomic.Int64
	authFailures       atomic.Int64
	acceptErrors       atomic.Int64
	connectionsRefused atomic.Int64
}

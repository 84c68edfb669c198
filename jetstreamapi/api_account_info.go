package jetstreamapi

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// serveAccountInfo answers INFO: limits and usage of the account. The body is ignored.
func serveAccountInfo(r *request, out *publisher) {
	var resp jsapi.AccountInfoResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiAccountInfoResponseType)
	if !r.admitted(out) {
		return
	}
	resp.JetStreamAccountStats = r.acc.stats()
	r.done(out)
}

// stats returns usage and limits as INFO shows them.
func (a *account) stats() *server.JetStreamAccountStats {
	st := &server.JetStreamAccountStats{
		JetStreamTier: server.JetStreamTier{
			Memory:         nonNegative(a.used.memory.Load()),
			Store:          nonNegative(a.used.store.Load()),
			ReservedMemory: nonNegative(a.used.reservedMem.Load()),
			ReservedStore:  nonNegative(a.used.reserved.Load()),
			Limits:         *a.limits.Load(),
		},
		Domain: a.svc.opts.Domain,
		API:    server.JetStreamAPIStats{Level: jsapi.APILevel, Total: a.apiTotal.Load(), Errors: a.apiErrors.Load()},
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	st.Streams = len(a.streams)
	for _, e := range a.streams {
		st.Consumers += len(e.consumers)
	}
	a.addTiers(st)
	return st
}

func nonNegative(n int64) uint64 { return uint64(max(n, 0)) }

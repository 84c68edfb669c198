package jetstreamapi

import (
	"errors"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// serveStreamPurge answers STREAM.PURGE.<name>: all messages, or those of a filter, below a sequence, or but the
// newest.
func serveStreamPurge(r *request, out *publisher) {
	var resp jsapi.StreamPurgeResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiStreamPurgeResponseType)
	if !r.admitted(out) {
		return
	}
	var req jsapi.StreamPurgeRequest
	if !r.decodeOptional(out, &req) {
		return
	}
	if req.Sequence > 0 && req.Keep > 0 {
		r.fail(out, server.NewJSBadRequestError())
		return
	}
	e, apiErr := r.acc.stream(r.token(2))
	if apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	switch cfg := e.config(); {
	case cfg.Sealed:
		r.fail(out, server.NewJSStreamSealedError())
		return
	case cfg.DenyPurge:
		r.fail(out, server.NewJSStreamPurgeFailedError(errors.New("stream purge not permitted")))
		return
	}
	e.stream.Purge(req, func(purged uint64, apiErr *server.ApiError) {
		r.later(func(out *publisher) {
			if apiErr != nil {
				r.fail(out, apiErr)
				return
			}
			resp.Success, resp.Purged = true, purged
			r.done(out)
		})
	})
}

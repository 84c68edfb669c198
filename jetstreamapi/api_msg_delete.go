package jetstreamapi

import (
	"errors"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// serveMsgDelete answers STREAM.MSG.DELETE.<name>.
func serveMsgDelete(r *request, out *publisher) {
	var resp jsapi.MsgDeleteResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiMsgDeleteResponseType)
	if !r.admitted(out) {
		return
	}
	if r.bodyEmpty() {
		r.fail(out, server.NewJSBadRequestError())
		return
	}
	var req jsapi.MsgDeleteRequest
	if !r.decode(out, &req) {
		return
	}
	e, apiErr := r.acc.stream(r.token(3))
	if apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	switch cfg := e.config(); {
	case cfg.Sealed:
		r.fail(out, server.NewJSStreamSealedError())
		return
	case cfg.DenyDelete:
		r.fail(out, server.NewJSStreamMsgDeleteFailedError(errors.New("message delete not permitted")))
		return
	}
	e.stream.DeleteMsg(req.Seq, !req.NoErase, func(apiErr *server.ApiError) {
		r.later(func(out *publisher) {
			if apiErr != nil {
				r.failUncounted(out, apiErr)
				return
			}
			resp.Success = true
			r.done(out)
		})
	})
}

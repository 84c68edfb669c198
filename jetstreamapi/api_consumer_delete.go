package jetstreamapi

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// serveConsumerDelete answers CONSUMER.DELETE.<stream>.<name>. A consumer that is offline can be deleted.
func serveConsumerDelete(r *request, out *publisher) {
	var resp jsapi.ConsumerDeleteResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiConsumerDeleteResponseType)
	if !r.admitted(out) {
		return
	}
	if !r.bodyEmpty() {
		r.fail(out, server.NewJSNotEmptyRequestError())
		return
	}
	a := r.acc
	a.mu.RLock()
	e, standby := a.streams[r.token(2)], a.standbys[r.token(2)] != nil
	var c *consumerEntry
	if e != nil {
		c = e.consumers[r.token(3)]
	}
	a.mu.RUnlock()
	switch {
	case standby:
		r.fail(out, errStandby)
		return
	case e == nil:
		r.fail(out, server.NewJSStreamNotFoundError())
		return
	case c == nil:
		r.fail(out, server.NewJSConsumerNotFoundError())
		return
	}
	err := a.deleteConsumer(c, func(err error) {
		r.later(func(out *publisher) {
			if err != nil {
				r.fail(out, server.NewJSStreamGeneralError(err))
				return
			}
			resp.Success = true
			r.done(out)
		})
	})
	if err != nil {
		r.fail(out, server.NewJSStreamGeneralError(err))
	}
}

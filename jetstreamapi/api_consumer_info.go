package jetstreamapi

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// serveConsumerInfo answers CONSUMER.INFO.<stream>.<name>.
func serveConsumerInfo(r *request, out *publisher) {
	var resp jsapi.ConsumerInfoResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiConsumerInfoResponseType)
	if !r.bodyEmpty() {
		r.fail(out, server.NewJSNotEmptyRequestError())
		return
	}
	if !r.admitted(out) {
		return
	}
	c, apiErr := r.acc.consumer(r.token(2), r.token(3))
	if apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	info := c.info()
	info.Config.Metadata = withServer(info.Config.Metadata)
	resp.ConsumerInfo = info
	r.done(out)
}

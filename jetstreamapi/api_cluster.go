package jetstreamapi

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// successResponse is how the answers of most administrative calls look.
type successResponse struct {
	jsapi.Response
	Success bool `json:"success,omitempty"`
}

// clusterOnly serves calls that move leaders and peers: a single server has neither (10010).
func clusterOnly(typ string) func(*request, *publisher) {
	return func(r *request, out *publisher) {
		var resp successResponse
		r.begin(&resp, &resp.Response, typ)
		r.fail(out, server.NewJSClusterRequiredError())
	}
}

// serveUnknown answers an API subject that nobody serves.
func serveUnknown(r *request, out *publisher) {
	var resp jsapi.Response
	r.begin(&resp, &resp, server.JSApiSystemResponseType)
	r.fail(out, server.NewJSBadRequestError())
}

package jetstreamapi

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

var groupName = regexp.MustCompile(`^[a-zA-Z0-9/_=-]{1,16}$`)

// serveConsumerUnpin answers CONSUMER.UNPIN.<stream>.<name>: the client a priority group is pinned to loses it.
func serveConsumerUnpin(r *request, out *publisher) {
	var resp jsapi.ConsumerUnpinResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiConsumerUnpinResponseType)
	if !r.admitted(out) {
		return
	}
	var req jsapi.ConsumerUnpinRequest
	if err := json.Unmarshal(r.body, &req); err != nil {
		r.fail(out, server.NewJSInvalidJSONError(err))
		return
	}
	if req.Group == "" {
		r.fail(out, server.NewJSInvalidJSONError(errors.New("consumer group not specified")))
		return
	}
	if !groupName.MatchString(req.Group) {
		r.fail(out, server.NewJSConsumerInvalidGroupNameError())
		return
	}
	c, apiErr := r.acc.consumer(r.token(2), r.token(3))
	if apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	if !slices.Contains(c.config().PriorityGroups, req.Group) {
		r.fail(out, server.NewJSConsumerInvalidPriorityGroupError())
		return
	}
	c.consumer.Unpin(req.Group)
	r.done(out)
}

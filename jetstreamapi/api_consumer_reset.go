package jetstreamapi

import (
	"encoding/json"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// serveConsumerReset answers CONSUMER.RESET.<stream>.<name>: the consumer starts over after its ack floor, or at a
// sequence. It does not count as an API call.
func serveConsumerReset(r *request, out *publisher) {
	var resp jsapi.ConsumerResetResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiConsumerResetResponseType)
	refuse := func(apiErr *jsapi.Error) {
		resp.Error = apiErr
		r.send(out, nil)
	}
	if jsapi.APILevelTooHigh(r.header) {
		refuse(server.NewJSRequiredApiLevelError())
		return
	}
	var req jsapi.ConsumerResetRequest
	if len(r.body) > 0 {
		if err := json.Unmarshal(r.body, &req); err != nil {
			refuse(server.NewJSInvalidJSONError(err))
			return
		}
	}
	c, apiErr := r.acc.consumer(r.token(2), r.token(3))
	if apiErr != nil {
		refuse(apiErr)
		return
	}
	seq, err := c.consumer.Reset(req.Seq)
	if err != nil {
		refuse(server.NewJSConsumerInvalidResetError(err))
		return
	}
	info := c.info()
	info.Config.Metadata = withServer(info.Config.Metadata)
	resp.ConsumerInfo, resp.ResetSeq = info, seq
	if jsapi.HasHeader(r.header, headerIdentity) {
		r.send(out, c.stream.identityHeader())
		return
	}
	r.send(out, nil)
}

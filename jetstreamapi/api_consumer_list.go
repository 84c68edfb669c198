package jetstreamapi

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// serveConsumerNames answers CONSUMER.NAMES.<stream>: 1024 names from an offset.
func serveConsumerNames(r *request, out *publisher) {
	resp := jsapi.ConsumerNamesResponse{Consumers: []string{}}
	r.begin(&resp, &resp.ApiResponse, server.JSApiConsumerNamesResponseType)
	e, req, ok := r.listed(out)
	if !ok {
		return
	}
	all := r.acc.sortedConsumers(e)
	resp.ApiPaged = paged(len(all), req.Offset, jsapi.NamesLimit)
	for _, c := range page(all, resp.ApiPaged) {
		resp.Consumers = append(resp.Consumers, c.name)
	}
	r.done(out)
}

// serveConsumerList answers CONSUMER.LIST.<stream>: 256 infos from an offset. Consumers that are offline are named as
// missing.
func serveConsumerList(r *request, out *publisher) {
	resp := jsapi.ConsumerListResponse{Consumers: []*server.ConsumerInfo{}}
	r.begin(&resp, &resp.ApiResponse, server.JSApiConsumerListResponseType)
	e, req, ok := r.listed(out)
	if !ok {
		return
	}
	all := r.acc.sortedConsumers(e)
	resp.ApiPaged = paged(len(all), req.Offset, jsapi.ListLimit)
	for _, c := range all[resp.Offset:] {
		if len(resp.Consumers) == jsapi.ListLimit {
			break
		}
		if c.offline != nil {
			if resp.Offline == nil {
				resp.Offline = make(map[string]string)
			}
			resp.Offline[c.name] = c.offline.Error()
			resp.Missing = append(resp.Missing, c.name)
			continue
		}
		resp.Consumers = append(resp.Consumers, c.info())
	}
	r.done(out)
}

// listed reads a request for a list of a stream's consumers; if it is refused, it is answered and ok false.
func (r *request) listed(out *publisher) (e *streamEntry, req jsapi.ConsumersRequest, ok bool) {
	if !r.admitted(out) || !r.decodeOptional(out, &req) {
		return nil, req, false
	}
	e, apiErr := r.acc.stream(r.token(2))
	if apiErr != nil {
		r.fail(out, apiErr)
		return nil, req, false
	}
	return e, req, true
}

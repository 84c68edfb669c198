package jetstreamapi

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// serveStreamNames answers STREAM.NAMES: 1024 names from an offset, of the streams that store a subject.
func serveStreamNames(r *request, out *publisher) {
	var resp jsapi.StreamNamesResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiStreamNamesResponseType)
	if !r.admitted(out) {
		return
	}
	var req jsapi.StreamNamesRequest
	if !r.decodeOptional(out, &req) {
		return
	}
	all := r.acc.sortedStreams(req.Subject)
	resp.ApiPaged = paged(len(all), req.Offset, jsapi.NamesLimit)
	for _, e := range page(all, resp.ApiPaged) {
		resp.Streams = append(resp.Streams, e.name)
	}
	r.done(out)
}

// serveStreamList answers STREAM.LIST: 256 infos from an offset. Streams that are offline are named as missing.
func serveStreamList(r *request, out *publisher) {
	resp := jsapi.StreamListResponse{Streams: []*server.StreamInfo{}}
	r.begin(&resp, &resp.ApiResponse, server.JSApiStreamListResponseType)
	if !r.admitted(out) {
		return
	}
	var req jsapi.StreamListRequest
	if !r.decodeOptional(out, &req) {
		return
	}
	all := r.acc.sortedStreams(req.Subject)
	resp.ApiPaged = paged(len(all), req.Offset, jsapi.ListLimit)
	for _, e := range all[resp.Offset:] {
		if len(resp.Streams) == jsapi.ListLimit {
			break
		}
		if e.offline != nil {
			if resp.Offline == nil {
				resp.Offline = make(map[string]string)
			}
			resp.Offline[e.name] = e.offline.Error()
			resp.Missing = append(resp.Missing, e.name)
			continue
		}
		resp.Streams = append(resp.Streams, e.info(e.state(false, "")))
	}
	r.done(out)
}

// paged describes the page of total entries that starts at offset.
func paged(total, offset, limit int) server.ApiPaged {
	return server.ApiPaged{Total: total, Offset: min(max(offset, 0), total), Limit: limit}
}

// page returns the entries on a page.
func page[T any](all []T, p server.ApiPaged) []T {
	return all[p.Offset:min(p.Offset+p.Limit, len(all))]
}

package jetstreamapi

import (
	"maps"
	"slices"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// serveStreamInfo answers STREAM.INFO.<name>, with deleted sequences and counts per subject where they are asked for.
func serveStreamInfo(r *request, out *publisher) {
	var resp jsapi.StreamInfoResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiStreamInfoResponseType)
	if !r.admitted(out) {
		return
	}
	var req jsapi.StreamInfoRequest
	if !r.decodeOptional(out, &req) {
		return
	}
	e, apiErr := r.acc.stream(r.token(2))
	if apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	// What a publish pushed out becomes durable a moment after its PubAck: an INFO that follows it is to show neither.
	e.log.Sync(func(error) {
		r.later(func(out *publisher) {
			st := e.state(req.DeletedDetails, req.SubjectsFilter)
			if len(st.Subjects) > 0 {
				resp.ApiPaged = paged(len(st.Subjects), req.Offset, jsapi.SubjectsLimit)
				resp.Offset = max(req.Offset, 0)
				st.Subjects = subjectsPage(st.Subjects, resp.Offset)
			}
			info := e.info(st)
			info.Config.Metadata = withServer(info.Config.Metadata)
			info.Cluster = r.svc.clusterInfo()
			resp.StreamInfo = info
			r.done(out)
		})
	})
}

// subjectsPage returns the counts of one page of subjects, in their order.
func subjectsPage(counts map[string]uint64, offset int) map[string]uint64 {
	if offset == 0 && len(counts) <= jsapi.SubjectsLimit {
		return counts
	}
	names := slices.Sorted(maps.Keys(counts))
	names = names[min(offset, len(names)):min(offset+jsapi.SubjectsLimit, len(names))]
	if len(names) == 0 {
		return nil
	}
	out := make(map[string]uint64, len(names))
	for _, n := range names {
		out[n] = counts[n]
	}
	return out
}

// clusterInfo is what a single server says about the cluster of an asset: it leads it.
func (s *Service) clusterInfo() *server.ClusterInfo {
	return &server.ClusterInfo{Leader: s.opts.ServerName}
}

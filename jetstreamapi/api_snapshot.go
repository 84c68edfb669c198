package jetstreamapi

import (
	"errors"

	"github.com/nats-io/nats-server/v2/server"
)

var errNoSnapshots = errors.New("snapshots are not served by this version")

// serveStreamSnapshot answers STREAM.SNAPSHOT.<name>. Requests are checked as nats-server checks them; good ones are
// refused, since snapshots are not served yet.
func serveStreamSnapshot(r *request, out *publisher) {
	var resp server.JSApiStreamSnapshotResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiStreamSnapshotResponseType)
	if !r.admitted(out) {
		return
	}
	if r.bodyEmpty() {
		r.fail(out, server.NewJSBadRequestError())
		return
	}
	if _, apiErr := r.acc.stream(r.token(2)); apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	var req server.JSApiStreamSnapshotRequest
	if !r.decode(out, &req) {
		return
	}
	if !server.IsValidPublishSubject(req.DeliverSubject) {
		r.fail(out, server.NewJSSnapshotDeliverSubjectInvalidError())
		return
	}
	r.fail(out, server.NewJSStreamSnapshotError(errNoSnapshots))
}

// serveStreamRestore answers STREAM.RESTORE.<name>: refused, as snapshots are.
func serveStreamRestore(r *request, out *publisher) {
	var resp server.JSApiStreamRestoreResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiStreamRestoreResponseType)
	if !r.admitted(out) {
		return
	}
	if r.bodyEmpty() {
		r.fail(out, server.NewJSBadRequestError())
		return
	}
	var req server.JSApiStreamRestoreRequest
	if !r.decode(out, &req) {
		return
	}
	name := r.token(2)
	if req.Config.Name != "" && req.Config.Name != name {
		r.fail(out, server.NewJSStreamMismatchError())
		return
	}
	if _, apiErr := r.acc.stream(name); apiErr == nil {
		r.fail(out, server.NewJSStreamNameExistRestoreFailedError())
		return
	}
	r.fail(out, server.NewJSStreamRestoreError(errNoSnapshots))
}

package jetstreamapi

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// serveStreamSnapshot answers STREAM.SNAPSHOT.<name>: with the stream's configuration and state, after which the backup
// is sent in chunks.
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
	e, apiErr := r.acc.stream(r.token(2))
	if apiErr != nil {
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
	s := &snapshot{r: r, e: e, req: &req, start: time.Now().UTC(), client: r.client()}
	err := r.acc.transfers.start(r.svc.stopping, !e.memory, func(ctx context.Context) { s.run(ctx, &resp) })
	if err != nil {
		r.fail(out, server.NewJSStreamSnapshotError(err, server.Unless(err)))
	}
}

// snapshot is one backup on its way to a client.
type snapshot struct {
	r     *request
	e     *streamEntry
	req   *server.JSApiStreamSnapshotRequest
	start time.Time
	state server.StreamState

	client *server.ClientInfo // who asked
}

func (s *snapshot) run(ctx context.Context, resp *server.JSApiStreamSnapshotResponse) {
	a := s.e.acc
	sender, err := newChunkSender(ctx, a, s.e.name, s.req)
	if err != nil {
		s.r.later(func(out *publisher) { s.r.fail(out, server.NewJSStreamSnapshotError(err, server.Unless(err))) })
		return
	}
	defer sender.close()
	s.state = s.e.state(false, "")
	resp.State, resp.Config = &s.state, s.e.config()
	s.r.done(sender.out)
	sender.out.flush()
	a.advise(server.JSAdvisoryStreamSnapshotCreatePre+"."+s.e.name, &server.JSSnapshotCreateAdvisory{
		TypedEvent: typedEvent(server.JSSnapshotCreatedAdvisoryType),
		Stream:     s.e.name, State: s.state, Client: s.client, Domain: a.svc.opts.Domain,
	})
	err = sender.awaitInterest()
	if err == nil {
		err = s.write(sender)
	}
	err = sender.end(err)
	s.complete(err)
}

// complete tells that the snapshot has come to its end.
func (s *snapshot) complete(err error) {
	a, text := s.e.acc, ""
	took := slog.Duration("took", time.Since(s.start))
	if err != nil {
		text = err.Error()
		s.e.logger().Warn("a snapshot failed", slog.Any("error", err), took)
	} else {
		s.e.logger().Info("a snapshot was taken", slog.Uint64("bytes", s.state.Bytes), took)
	}
	a.advise(server.JSAdvisoryStreamSnapshotCompletePre+"."+s.e.name, &server.JSSnapshotCompleteAdvisory{
		TypedEvent: typedEvent(server.JSSnapshotCompleteAdvisoryType),
		Stream:     s.e.name, Start: s.start, End: time.Now().UTC(), Client: s.client,
		Domain: a.svc.opts.Domain, Error: text,
	})
}

package jetstreamapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// serveStreamRestore answers STREAM.RESTORE.<name>: with the subject that the chunks of the backup are sent to.
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
	if req.Config.Name == "" {
		req.Config.Name = name
	}
	if req.Config.Name != name {
		r.fail(out, server.NewJSStreamMismatchError())
		return
	}
	if strings.ContainsAny(name, `\/`) {
		r.fail(out, server.NewJSStreamNameContainsPathSeparatorsError())
		return
	}
	create := &jsapi.StreamCreateRequest{StreamConfig: req.Config}
	if apiErr := r.acc.checkRestore(create); apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	s := &restore{r: r, acc: r.acc, req: create, start: time.Now().UTC(), client: r.client()}
	subject := "$JS.SNAPSHOT.RESTORE." + name + "." + nuid.Next()
	var err error
	if s.chunks, err = newChunkReceiver(r.acc, name, subject); err != nil {
		r.fail(out, server.NewJSRestoreSubscribeFailedError(err, subject))
		return
	}
	if err := r.acc.transfers.start(r.svc.stopping, create.Storage == server.FileStorage, s.run); err != nil {
		s.chunks.close()
		r.fail(out, server.NewJSStreamRestoreError(err, server.Unless(err)))
		return
	}
	r.acc.advise(server.JSAdvisoryStreamRestoreCreatePre+"."+name, &server.JSRestoreCreateAdvisory{
		TypedEvent: typedEvent(server.JSRestoreCreateAdvisoryType),
		Stream:     name, Client: s.client, Domain: r.svc.opts.Domain,
	})
	resp.DeliverSubject = subject
	r.done(out)
}

// checkRestore completes and checks the configuration of a stream that is to be restored.
func (a *account) checkRestore(req *jsapi.StreamCreateRequest) *jsapi.Error {
	cfg := &req.StreamConfig
	a.change.Lock()
	defer a.change.Unlock()
	setStreamLevel(cfg)
	if apiErr := a.completeStream(req); apiErr != nil {
		return apiErr
	}
	if apiErr := a.checkStreamCount(cfg); apiErr != nil {
		return apiErr
	}
	return a.checkRestorable(cfg)
}

// checkRestorable checks what may change while a restore is under way. change is held.
func (a *account) checkRestorable(cfg *server.StreamConfig) *jsapi.Error {
	a.mu.RLock()
	taken := a.streams[cfg.Name] != nil || a.standbys[cfg.Name] != nil
	a.mu.RUnlock()
	if taken {
		return server.NewJSStreamNameExistRestoreFailedError()
	}
	if a.subjectsTaken(cfg) {
		return server.NewJSStreamSubjectOverlapError()
	}
	return nil
}

// restore is one backup on its way in. Until adopt has put it into the catalog, its log and its consumers' states are
// known to nobody: what is left of them after a crash is removed at the next start.
type restore struct {
	r      *request
	acc    *account
	req    *jsapi.StreamCreateRequest
	chunks *chunkReceiver
	start  time.Time
	client *server.ClientInfo // who asked
}

// run receives the backup and makes the stream of it.
func (s *restore) run(ctx context.Context) {
	defer s.chunks.close()
	s.chunks.ctx = ctx
	l := &loader{ctx: ctx, acc: s.acc, req: s.req}
	defer l.abandon() // nothing to do once the stream was adopted
	err := l.load(s.chunks)
	if err == nil {
		err = s.chunks.drain()
	}
	var e *streamEntry
	if err == nil {
		e, err = l.adopt()
	}
	l.abandon()
	s.finish(e, err)
}

// finish tells the client, and who listens, how it went.
func (s *restore) finish(e *streamEntry, err error) {
	name, took := s.req.Name, slog.Duration("took", time.Since(s.start))
	log := s.acc.svc.log.With(slog.String("account", s.acc.name), slog.String("stream", name))
	var resp server.JSApiStreamCreateResponse
	resp.Type = server.JSApiStreamCreateResponseType
	if err != nil {
		log.Warn("a restore failed", slog.Any("error", err), took)
		resp.Error = server.NewJSStreamRestoreError(err, server.Unless(err))
	} else {
		log.Info("a stream was restored", slog.Int64("bytes", s.chunks.total), took)
		resp.StreamInfo = e.info(e.state(false, ""))
		resp.Domain = "" // nats-server leaves it out of this answer
		resp.Config.Metadata = withServer(resp.Config.Metadata)
	}
	s.acc.advise(server.JSAdvisoryStreamRestoreCompletePre+"."+name, &server.JSRestoreCompleteAdvisory{
		TypedEvent: typedEvent(server.JSRestoreCompleteAdvisoryType), Stream: name,
		Start: s.start, End: time.Now().UTC(), Bytes: s.chunks.total, Client: s.client, Domain: s.acc.svc.opts.Domain,
	})
	body, err := json.Marshal(&resp)
	if err != nil {
		log.Error("an answer could not be encoded", slog.Any("error", err))
	}
	s.chunks.conclude(body)
}

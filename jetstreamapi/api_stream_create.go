package jetstreamapi

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// errStreamStore is what clients are told when a stream's log could not be made; the cause is in the logs.
var errStreamStore = errors.New("error creating store for stream")

// serveStreamCreate answers STREAM.CREATE.<name>. A stream that exists with the same configuration counts as created
// (nats-server alone answers did_create there too).
func serveStreamCreate(r *request, out *publisher) {
	var resp jsapi.StreamCreateResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiStreamCreateResponseType)
	if !r.admitted(out) {
		return
	}
	var req jsapi.StreamCreateRequest
	if !r.decode(out, &req) {
		return
	}
	cfg := &req.StreamConfig
	setStreamLevel(cfg)
	if apiErr := checkCreateRequest(r.token(2), cfg); apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	created := func(e *streamEntry, err error) func(*publisher) {
		return func(out *publisher) {
			if err != nil {
				r.logger().Error("a stream could not be made", slog.Any("error", err))
				r.fail(out, server.NewJSStreamCreateError(errStreamStore))
				return
			}
			resp.StreamInfo = e.info(e.state(false, ""))
			resp.Domain = "" // nats-server leaves it out of this answer
			resp.Config.Metadata = withServer(resp.Config.Metadata)
			resp.DidCreate = true
			r.done(out)
		}
	}
	if apiErr := r.acc.createStream(&req, func(e *streamEntry, err error) {
		r.later(created(e, err))
	}); apiErr != nil {
		r.fail(out, apiErr)
	}
}

// checkCreateRequest checks what a create request may not say.
func checkCreateRequest(name string, cfg *server.StreamConfig) *jsapi.Error {
	switch {
	case name != cfg.Name:
		return server.NewJSStreamMismatchError()
	case strings.ContainsAny(name, `\/`):
		return server.NewJSStreamNameContainsPathSeparatorsError()
	case cfg.Sealed:
		return server.NewJSStreamInvalidConfigError(errors.New("stream configuration for create can not be sealed"))
	case cfg.MirrorDirect && cfg.Mirror == nil:
		return server.NewJSStreamInvalidConfigError(errors.New("stream has no mirror but does have mirror direct"))
	}
	return nil
}

// createStream makes a stream. done is called once it is durable, or with the error that kept it from being; the API
// error is for a request that is refused, done is not called then.
func (a *account) createStream(req *jsapi.StreamCreateRequest, done func(*streamEntry, error)) *jsapi.Error {
	cfg := &req.StreamConfig
	a.change.Lock()
	defer a.change.Unlock()
	if apiErr := a.checkStreamCount(cfg); apiErr != nil {
		return apiErr
	}
	if apiErr := a.completeStream(req); apiErr != nil {
		return apiErr
	}
	a.mu.RLock()
	old, standby := a.streams[cfg.Name], a.standbys[cfg.Name] != nil
	a.mu.RUnlock()
	if standby {
		return errStandby
	}
	if old != nil {
		return a.createdBefore(old, cfg, done)
	}
	if apiErr := a.checkBytes(cfg, a.reservedByOthers(cfg), cfg.MaxBytes); apiErr != nil {
		return apiErr
	}
	if err := stream.CheckOrigins(cfg); err != nil {
		return server.NewJSStreamCreateError(err)
	}
	if a.subjectsTaken(cfg) {
		return server.NewJSStreamSubjectOverlapError()
	}
	if err := a.makeStream(cfg, done); err != nil {
		done(nil, err)
	}
	return nil
}

// createdBefore answers a create of a stream that exists.
func (a *account) createdBefore(e *streamEntry, cfg *server.StreamConfig, done func(*streamEntry, error)) *jsapi.Error {
	if e.offline != nil {
		return server.NewJSStreamOfflineReasonError(e.offline)
	}
	old := e.config()
	cfg.Metadata = likeBefore(cfg.Metadata, old.Metadata)
	if !sameJSON(cfg, old) {
		return server.NewJSStreamNameExistError()
	}
	e.log.Sync(func(err error) { done(e, err) })
	return nil
}

// checkStreamCount checks the account's limits before the configuration is looked at closely.
func (a *account) checkStreamCount(cfg *server.StreamConfig) *jsapi.Error {
	if apiErr := a.checkTier(cfg); apiErr != nil {
		return apiErr
	}
	lim := a.limits.Load()
	a.mu.RLock()
	n := len(a.streams)
	if a.streams[cfg.Name] != nil {
		n--
	}
	a.mu.RUnlock()
	if lim.MaxStreams > 0 && n >= lim.MaxStreams {
		return server.NewJSMaximumStreamsLimitError()
	}
	return a.checkLimits(cfg)
}

// checkLimits checks the configuration against the account's and the server's limits.
func (a *account) checkLimits(cfg *server.StreamConfig) *jsapi.Error {
	lim := a.limits.Load()
	if cfg.MaxConsumers > 0 && lim.MaxConsumers > 0 && cfg.MaxConsumers > lim.MaxConsumers {
		return server.NewJSMaximumConsumersLimitError()
	}
	return a.checkBytes(cfg, a.reservedByOthers(cfg), cfg.MaxBytes)
}

// completeStream fills and checks a configuration, alone and beside the account's other streams.
func (a *account) completeStream(req *jsapi.StreamCreateRequest) *jsapi.Error {
	cfg := &req.StreamConfig
	if apiErr := checkStreamMetadata(cfg); apiErr != nil {
		return apiErr
	}
	if apiErr := stream.Complete(cfg, req.Pedantic, a.streamLimits(cfg)); apiErr != nil {
		return apiErr
	}
	if cfg.Replicas > 1 && !a.hasReplicas(cfg) {
		return server.NewJSStreamReplicasNotSupportedError()
	}
	return nil
}

// hasReplicas reports whether the stream is there with as many replicas as cfg asks for: one that was a cluster's
// shows what it had there.
func (a *account) hasReplicas(cfg *server.StreamConfig) bool {
	old := a.configOf(cfg.Name)
	return old != nil && old.Replicas == cfg.Replicas
}

func (a *account) streamLimits(cfg *server.StreamConfig) stream.Limits {
	lim := a.limits.Load()
	l := stream.Limits{
		MaxBytesRequired: lim.MaxBytesRequired,
		MaxStreamBytes:   lim.StoreMaxStreamBytes,
		Duplicates:       a.svc.opts.Limits.Duplicates,
		Stream:           a.configOf,
	}
	if cfg.Storage == server.MemoryStorage {
		l.MaxStreamBytes = lim.MemoryMaxStreamBytes
	}
	return l
}

// subjectsTaken reports whether another stream stores one of the configuration's subjects.
func (a *account) subjectsTaken(cfg *server.StreamConfig) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.served(cfg) != "" || a.standsBy(cfg)
}

// served returns the name of another stream that is served here and stores one of the configuration's subjects; empty
// if there is none. mu is held.
func (a *account) served(cfg *server.StreamConfig) string {
	for _, subject := range cfg.Subjects {
		for name := range a.taken.candidates(subject) {
			e := a.streams[name]
			if e != nil && name != cfg.Name && overlapsAny(e.config().Subjects, cfg.Subjects) {
				return name
			}
		}
	}
	return ""
}

// standsBy reports whether another standby would store one of the configuration's subjects. mu is held.
func (a *account) standsBy(cfg *server.StreamConfig) bool {
	for _, e := range a.standbys {
		if e.name != cfg.Name && overlapsAny(e.config().Subjects, cfg.Subjects) {
			return true
		}
	}
	return false
}

// overlapsAny reports whether a filter of one list overlaps one of the other.
func overlapsAny(a, b []string) bool {
	for _, x := range a {
		for _, y := range b {
			if subjects.Overlap(x, y) {
				return true
			}
		}
	}
	return false
}

// makeStream makes the log, writes the catalog and starts the stream, in this order: no message may be durable before
// the record of its stream. change is held.
func (a *account) makeStream(cfg *server.StreamConfig, done func(*streamEntry, error)) error {
	e := &streamEntry{
		acc: a, name: cfg.Name, created: time.Now().UTC(), memory: cfg.Storage == server.MemoryStorage,
		consumers: make(map[string]*consumerEntry),
	}
	e.cfg.Store(cfg)
	st := e.store()
	if st == nil {
		return storage.ErrStopped
	}
	e.shards = a.svc.place(a.name, cfg.Name, cfg.Subjects, st.Shards())
	log, err := st.CreateLog(e.spec())
	if err != nil {
		return err
	}
	e.logID = log.ID()
	if err := e.needPositions(cfg); err != nil {
		return errors.Join(err, e.dropLog())
	}
	durable, started := whenBoth(func(err error) { done(e, err) })
	if err := a.record(e.record(cfg), durable); err != nil {
		return errors.Join(err, e.dropLog())
	}
	if err := e.start(log); err != nil {
		gone := e.removal()
		started(errors.Join(err, a.record(gone, nil), e.dropLog()))
		return nil
	}
	a.addStream(e)
	e.startLinks()
	a.adviseStream(e.name, server.CreateEvent)
	started(nil)
	return nil
}

// whenBoth returns two functions, each to be called once; done is called when both were with nil, or with the first
// error.
func whenBoth(done func(error)) (first, second func(error)) {
	var calls atomic.Int32
	var failed atomic.Bool
	call := func(err error) {
		if err != nil {
			if !failed.Swap(true) {
				done(err)
			}
			return
		}
		if calls.Add(1) == 2 {
			done(nil)
		}
	}
	return call, call
}

// record writes a record to the catalog, unless the asset lives in memory. done (may be nil) is called once it is
// durable.
func (a *account) record(r catalogRecord, done storage.Done) error {
	if r.memory {
		if done != nil {
			done(nil)
		}
		return nil
	}
	c, err := a.svc.fileCatalog()
	if err != nil {
		return err
	}
	return c.put(r, done)
}

package jetstreamapi

import (
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
)

// serveStreamUpdate answers STREAM.UPDATE.<name>.
func serveStreamUpdate(r *request, out *publisher) {
	var resp jsapi.StreamUpdateResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiStreamUpdateResponseType)
	if !r.admitted(out) {
		return
	}
	var req jsapi.StreamCreateRequest
	if !r.decode(out, &req) {
		return
	}
	a, cfg := r.acc, &req.StreamConfig
	a.change.Lock()
	defer a.change.Unlock()
	e, apiErr := a.checkUpdate(r.token(2), &req)
	if apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	err := a.updateStream(e, cfg, func(err error) {
		r.later(func(out *publisher) {
			if err != nil {
				r.fail(out, server.NewJSStreamUpdateError(err))
				return
			}
			resp.StreamInfo = e.info(e.state(false, ""))
			resp.Config.Metadata = withServer(resp.Config.Metadata)
			r.done(out)
		})
	})
	if err != nil {
		r.fail(out, server.NewJSStreamUpdateError(err, server.Unless(err)))
	}
}

// checkUpdate completes the configuration and checks that the stream may go over to it. change is held.
func (a *account) checkUpdate(name string, req *jsapi.StreamCreateRequest) (*streamEntry, *jsapi.Error) {
	cfg := &req.StreamConfig
	if apiErr := checkStreamMetadata(cfg); apiErr != nil {
		return nil, apiErr
	}
	if apiErr := stream.Complete(cfg, req.Pedantic, a.streamLimits(cfg)); apiErr != nil {
		return nil, apiErr
	}
	if name != cfg.Name {
		return nil, server.NewJSStreamMismatchError()
	}
	e, apiErr := a.stream(name)
	if apiErr != nil {
		return nil, apiErr
	}
	setStreamLevel(cfg)
	old := e.config()
	if cfg.Replicas > 1 && cfg.Replicas != old.Replicas {
		return nil, server.NewJSStreamReplicasNotSupportedError()
	}
	// Once more: what the first check filled in counts as asked for.
	if apiErr := stream.Complete(cfg, req.Pedantic, a.streamLimits(cfg)); apiErr != nil {
		return nil, apiErr
	}
	if apiErr := stream.CheckUpdate(old, cfg, req.Pedantic); apiErr != nil {
		return nil, apiErr
	}
	added := max(max(cfg.MaxBytes, 0)-max(old.MaxBytes, 0), 0)
	if apiErr := a.checkBytes(cfg, a.reservedByOthers(cfg)+max(cfg.MaxBytes, 0)-added, added); apiErr != nil {
		return nil, apiErr
	}
	if err := e.checkConsumerLimits(old, cfg); err != nil {
		return nil, server.NewJSStreamUpdateError(err)
	}
	if a.subjectsTaken(cfg) {
		return nil, server.NewJSStreamSubjectOverlapError()
	}
	return e, nil
}

// checkConsumerLimits checks new limits on consumers against the consumers there are.
func (e *streamEntry) checkConsumerLimits(old, cfg *server.StreamConfig) error {
	was, lim := old.ConsumerLimits, cfg.ConsumerLimits
	threshold := lim.InactiveThreshold > 0 && lim.InactiveThreshold != was.InactiveThreshold
	pending := lim.MaxAckPending > 0 && lim.MaxAckPending != was.MaxAckPending
	if !threshold && !pending {
		return nil
	}
	var bad []string
	e.acc.mu.RLock()
	for name, c := range e.consumers {
		o := c.config()
		if (lim.InactiveThreshold > 0 && o.InactiveThreshold > lim.InactiveThreshold) ||
			(lim.MaxAckPending > 0 && o.MaxAckPending > lim.MaxAckPending) {
			bad = append(bad, name)
		}
	}
	e.acc.mu.RUnlock()
	if len(bad) == 0 {
		return nil
	}
	slices.Sort(bad)
	return errors.New("change to limits violates consumers: " + strings.Join(bad, ", "))
}

// updateStream writes the new configuration to the catalog and to the running stream; done is called once it is
// durable. change is held.
func (a *account) updateStream(e *streamEntry, cfg *server.StreamConfig, done storage.Done) error {
	if err := e.needPositions(cfg); err != nil {
		return err
	}
	durable, applied := whenBoth(done)
	if err := a.record(e.record(cfg), durable); err != nil {
		return err
	}
	old := e.config()
	e.stream.TrackSources(e.positions)
	err := e.stream.Update(*cloneConfig(cfg))
	if err != nil {
		// What the catalog says is what runs: put the old configuration back.
		applied(errors.Join(err, a.record(e.record(old), nil)))
		return nil
	}
	a.addReserved(old, -1)
	a.addReserved(cfg, 1)
	a.mu.Lock()
	a.taken.remove(e.name, old.Subjects)
	a.taken.add(e.name, cfg.Subjects)
	e.cfg.Store(cfg)
	a.mu.Unlock()
	if err := errors.Join(e.updateDirect(old), e.relink(cfg)); err != nil {
		applied(err)
		return nil
	}
	a.adviseStream(e.name, server.ModifyEvent)
	e.log.Sync(applied) // what lower limits removed is to be seen
	return nil
}

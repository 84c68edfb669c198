package jetstreamapi

import (
	"log/slog"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// serveStreamDelete answers STREAM.DELETE.<name>. A stream that is offline can be deleted.
func serveStreamDelete(r *request, out *publisher) {
	var resp jsapi.StreamDeleteResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiStreamDeleteResponseType)
	if !r.admitted(out) {
		return
	}
	if !r.bodyEmpty() {
		r.fail(out, server.NewJSNotEmptyRequestError())
		return
	}
	a := r.acc
	a.change.Lock()
	defer a.change.Unlock()
	a.mu.RLock()
	e, standby := a.streams[r.token(2)], a.standbys[r.token(2)] != nil
	a.mu.RUnlock()
	if standby {
		r.fail(out, errStandby)
		return
	}
	if e == nil {
		r.fail(out, server.NewJSStreamNotFoundError())
		return
	}
	err := a.deleteStream(e, func(err error) {
		r.later(func(out *publisher) {
			if err != nil {
				r.fail(out, server.NewJSStreamDeleteError(err))
				return
			}
			resp.Success = true
			r.done(out)
		})
	})
	if err != nil {
		r.fail(out, server.NewJSStreamDeleteError(err))
	}
}

// deleteStream removes a stream, its consumers and what they store; done is called once that is durable. change is
// held.
func (a *account) deleteStream(e *streamEntry, done storage.Done) error {
	gone := e.removal()
	durable, stopped := whenBoth(done)
	if err := a.record(gone, durable); err != nil {
		return err
	}
	a.mu.RLock()
	consumers := make([]*consumerEntry, 0, len(e.consumers))
	for _, c := range e.consumers {
		consumers = append(consumers, c)
	}
	a.mu.RUnlock()
	for _, c := range consumers {
		c.gone.Store(true)
		c.stop(jsapi.StatusConsumerDeleted)
		a.removeConsumer(c)
		if err := c.dropState(); err != nil {
			c.logger().Warn("the state of a deleted consumer stays for now", slog.Any("error", err))
		}
		a.adviseConsumer(e.name, c.name, server.DeleteEvent)
	}
	e.forgetLinks()
	e.stop()
	a.removeStream(e)
	if err := e.dropLog(); err != nil {
		e.logger().Warn("the log of a deleted stream stays for now", slog.Any("error", err))
	}
	a.adviseStream(e.name, server.DeleteEvent)
	stopped(nil)
	return nil
}

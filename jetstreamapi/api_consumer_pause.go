package jetstreamapi

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// serveConsumerPause answers CONSUMER.PAUSE.<stream>.<name>: deliveries stop until a time, or go on with none.
func serveConsumerPause(r *request, out *publisher) {
	var resp jsapi.ConsumerPauseResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiConsumerPauseResponseType)
	var req jsapi.ConsumerPauseRequest
	if !r.decodeOptional(out, &req) || !r.admitted(out) {
		return
	}
	a := r.acc
	a.change.Lock()
	defer a.change.Unlock()
	c, apiErr := a.consumer(r.token(2), r.token(3))
	if apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	until := req.PauseUntil.UTC()
	err := a.pauseConsumer(c, until, func(err error) {
		r.later(func(out *publisher) {
			if err != nil {
				r.fail(out, server.NewJSConsumerStoreFailedError(err))
				return
			}
			resp.PauseUntil = until
			if left := time.Until(until); left > 0 {
				resp.Paused, resp.PauseRemaining = true, left
			}
			r.done(out)
		})
	})
	if err != nil {
		r.fail(out, server.NewJSConsumerStoreFailedError(err))
	}
}

// pauseConsumer pauses a consumer until a time (zero: resumes it); done is called once that is durable. change is held.
func (a *account) pauseConsumer(c *consumerEntry, until time.Time, done func(error)) error {
	cfg := *c.config()
	cfg.PauseUntil = nil
	if !until.IsZero() {
		cfg.PauseUntil = &until
	}
	setConsumerLevel(&cfg)
	old := c.config()
	c.consumer.Pause(until)
	c.cfg.Store(&cfg)
	if err := a.record(c.record(&cfg), c.whenDurable(&cfg, done)); err != nil {
		before := time.Time{}
		if old.PauseUntil != nil {
			before = *old.PauseUntil
		}
		c.consumer.Pause(before)
		c.cfg.Store(old)
		return err
	}
	return nil
}

package jetstreamapi

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// errConsumerStore is what clients are told when a consumer's state could not be made; the cause is in the logs.
var errConsumerStore = errors.New("error creating store for consumer")

// serveConsumerCreate answers CONSUMER.CREATE.<stream>, CONSUMER.CREATE.<stream>.<name>[.<filter>] and
// CONSUMER.DURABLE.CREATE.<stream>.<name>. It creates or updates, as the request's action allows.
func serveConsumerCreate(r *request, out *publisher) {
	var resp jsapi.ConsumerCreateResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiConsumerCreateResponseType)
	var req jsapi.ConsumerCreateRequest
	if !r.decode(out, &req) || !r.admitted(out) {
		return
	}
	if apiErr := nameConsumer(r.tokens, &req); apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	a := r.acc
	a.change.Lock()
	defer a.change.Unlock()
	e, apiErr := a.stream(req.Stream)
	if n := req.Config.Replicas; n > 1 && (e == nil || n > e.config().Replicas) {
		r.fail(out, server.NewJSStreamReplicasNotSupportedError())
		return
	}
	if apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	if apiErr := r.admitSourcing(e, &req.Config); apiErr != nil {
		r.fail(out, apiErr)
		return
	}
	apiErr = a.createConsumer(e, &req, func(c *consumerEntry, err error) {
		r.later(func(out *publisher) { r.consumerMade(out, &resp, c, err) })
	})
	if apiErr != nil {
		r.fail(out, apiErr)
	}
}

// consumerMade answers once the consumer is durable, and then lets it deliver: the answer comes before any message.
func (r *request) consumerMade(out *publisher, resp *jsapi.ConsumerCreateResponse, c *consumerEntry, err error) {
	if err != nil {
		r.logger().Error("a consumer could not be made", slog.Any("error", err))
		r.fail(out, server.NewJSConsumerCreateError(errConsumerStore))
		return
	}
	info := c.initialInfo()
	info.Config.Metadata = withServer(info.Config.Metadata)
	resp.ConsumerInfo = info
	if info.Config.Direct || info.Config.Sourcing {
		r.answer(out, c.stream.identityHeader())
	} else {
		r.done(out)
	}
	out.flush()
	if until := info.Config.PauseUntil; until != nil && time.Now().Before(*until) {
		r.acc.advisePaused(c.stream.name, c.name, *until)
	}
	c.consumer.Release()
}

// nameConsumer checks the subject of a create request against its body, and sets the name the subject gives.
func nameConsumer(tokens []string, req *jsapi.ConsumerCreateRequest) *jsapi.Error {
	cfg := &req.Config
	legacyDurable := tokens[1] == "DURABLE"
	stream, name, filter := tokens[2], cfg.Name, ""
	switch {
	case legacyDurable:
		stream, name = tokens[3], tokens[4]
	case len(tokens) > 3:
		name, filter = tokens[3], strings.Join(tokens[4:], ".")
	}
	switch {
	case stream != req.Stream:
		return server.NewJSStreamMismatchError()
	case strings.ContainsAny(name, `\/`):
		return server.NewJSConsumerNameContainsPathSeparatorsError()
	case legacyDurable && cfg.Durable == "":
		return server.NewJSConsumerDurableNameNotSetError()
	case len(tokens) == 3 && cfg.Durable != "":
		return server.NewJSConsumerEphemeralWithDurableNameError()
	case len(tokens) > 3 && cfg.Durable != "" && cfg.Durable != name:
		return server.NewJSConsumerDurableNameNotMatchSubjectError()
	case filter != "" && len(cfg.FilterSubjects) > 0:
		return server.NewJSConsumerMultipleFiltersNotAllowedError()
	case filter != "" && cfg.FilterSubject != filter:
		return server.NewJSConsumerCreateFilterSubjectMismatchError()
	}
	cfg.Name = name
	return nil
}

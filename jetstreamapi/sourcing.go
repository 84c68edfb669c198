package jetstreamapi

import (
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
)

// A stream that is mirrored or sourced from elsewhere is read through consumers that say so: sourcing, direct. It tells
// its identity in its answers to them, so that whoever copies from it notices when it is another stream than before.

// headerIdentity carries the identity of a stream.
const headerIdentity = "Nats-Stream-Identity"

// admitSourcing completes a request for a consumer that copies the stream: on a stream that deletes what was done, it
// becomes a durable one, which acknowledges by its answers to flow control.
func (r *request) admitSourcing(e *streamEntry, cfg *server.ConsumerConfig) *jsapi.Error {
	if cfg.Direct && cfg.Sourcing && cfg.Name != "" {
		if e.config().Retention == server.LimitsPolicy {
			cfg.Name += "-" + stream.ShortHash(nuid.Next())
		} else {
			cfg.Direct, cfg.Durable, cfg.AckPolicy = false, cfg.Name, server.AckFlowControl
			cfg.AckWait, cfg.MaxDeliver, cfg.InactiveThreshold = 0, 0, 0
		}
	}
	if !cfg.Direct && !cfg.Sourcing {
		return nil
	}
	identity := stream.Identity(e.created)
	if want := jsapi.HeaderValue(r.header, headerIdentity); len(want) > 0 && string(want) != identity {
		return server.NewJSConsumerStreamIdentityMismatchError(identity)
	}
	if old := e.findConsumer(cfg.Name); old != nil && cfg.Sourcing && cfg.Durable != "" {
		was := old.config() // it goes on where it is
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = was.DeliverPolicy, was.OptStartSeq, was.OptStartTime
	}
	return nil
}

// findConsumer returns the consumer of that name, nil if there is none.
func (e *streamEntry) findConsumer(name string) *consumerEntry {
	e.acc.mu.RLock()
	defer e.acc.mu.RUnlock()
	return e.consumers[name]
}

// identityHeader is the header block that tells the stream's identity.
func (e *streamEntry) identityHeader() []byte {
	return jsapi.AddHeader(nil, headerIdentity, stream.Identity(e.created))
}

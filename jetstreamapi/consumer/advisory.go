package consumer

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"
)

// publish turns an event into the advisory or metric that NATS sends for it.
func (c *Consumer) publish(e *event) {
	if c.o.Advisory == nil {
		return
	}
	prefix, body := c.advisory(e)
	c.o.Advisory(prefix+"."+c.o.Stream.Name()+"."+c.o.Name, body)
}

func typed(kind string) server.TypedEvent {
	return server.TypedEvent{Type: kind, ID: nuid.Next(), Time: time.Now().UTC()}
}

func (c *Consumer) advisory(e *event) (prefix string, body any) {
	stream, name := c.o.Stream.Name(), c.o.Name
	switch e.kind {
	case eventMaxDeliver:
		return server.JSAdvisoryConsumerMaxDeliveryExceedPre, &server.JSConsumerDeliveryExceededAdvisory{
			TypedEvent: typed(server.JSConsumerDeliveryExceededAdvisoryType),
			Stream:     stream, Consumer: name, StreamSeq: e.sseq, Deliveries: e.count,
		}
	case eventNak:
		return server.JSAdvisoryConsumerMsgNakPre, &server.JSConsumerDeliveryNakAdvisory{
			TypedEvent: typed(server.JSConsumerDeliveryNakAdvisoryType),
			Stream:     stream, Consumer: name, ConsumerSeq: e.dseq, StreamSeq: e.sseq, Deliveries: e.count,
		}
	case eventTerm:
		return server.JSAdvisoryConsumerMsgTerminatedPre, &server.JSConsumerDeliveryTerminatedAdvisory{
			TypedEvent: typed(server.JSConsumerDeliveryTerminatedAdvisoryType),
			Stream:     stream, Consumer: name, ConsumerSeq: e.dseq, StreamSeq: e.sseq, Deliveries: e.count,
			Reason: e.reason,
		}
	case eventAckSample:
		return server.JSMetricConsumerAckPre, &server.JSConsumerAckMetric{
			TypedEvent: typed(server.JSConsumerAckMetricType),
			Stream:     stream, Consumer: name, ConsumerSeq: e.dseq, StreamSeq: e.sseq, Delay: e.delay,
			Deliveries: e.count,
		}
	case eventPause:
		a := &server.JSConsumerPauseAdvisory{
			TypedEvent: typed(server.JSConsumerPauseAdvisoryType), Stream: stream, Consumer: name, Paused: e.paused,
			PauseUntil: e.until,
		}
		return server.JSAdvisoryConsumerPausePre, a
	case eventPinned:
		return server.JSAdvisoryConsumerPinnedPre, &server.JSConsumerGroupPinnedAdvisory{
			TypedEvent: typed(server.JSConsumerGroupPinnedAdvisoryType),
			Account:    c.o.Account, Stream: stream, Consumer: name, Group: e.group, PinnedClientId: e.reason,
		}
	case eventUnpinned:
		return server.JSAdvisoryConsumerUnpinnedPre, &server.JSConsumerGroupUnpinnedAdvisory{
			TypedEvent: typed(server.JSConsumerGroupUnpinnedAdvisoryType),
			Account:    c.o.Account, Stream: stream, Consumer: name, Group: e.group, Reason: e.reason,
		}
	}
	panic("consumer: unknown kind of event")
}

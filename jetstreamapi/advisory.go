package jetstreamapi

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"
)

// advise publishes an event of the account. It does not block: with too many waiting the event is dropped and counted,
// and without anyone who listens it is not even encoded.
func (a *account) advise(subject string, event any) {
	if !a.svc.opts.Bus.HasInterest(a.name, subject) {
		return
	}
	sent := a.advisories.push(func(out *publisher) {
		b, err := json.Marshal(event)
		if err != nil {
			a.svc.log.Error("an advisory could not be encoded", slog.String("subject", subject), slog.Any("error", err))
			return
		}
		out.send(subject, nil, b)
	})
	if !sent {
		a.dropped.Add(1)
	}
}

func typedEvent(typ string) server.TypedEvent {
	return server.TypedEvent{Type: typ, ID: nuid.Next(), Time: time.Now().UTC()}
}

// adviseStream tells that a stream was made, changed or removed.
func (a *account) adviseStream(stream string, action server.ActionAdvisoryType) {
	prefix := server.JSAdvisoryStreamUpdatedPre
	switch action {
	case server.CreateEvent:
		prefix = server.JSAdvisoryStreamCreatedPre
	case server.DeleteEvent:
		prefix = server.JSAdvisoryStreamDeletedPre
	case server.ModifyEvent:
	}
	a.advise(prefix+"."+stream, &server.JSStreamActionAdvisory{
		TypedEvent: typedEvent(server.JSStreamActionAdvisoryType),
		Stream:     stream, Action: action, Domain: a.svc.opts.Domain,
	})
}

// adviseConsumer tells that a consumer was made or removed.
func (a *account) adviseConsumer(stream, consumer string, action server.ActionAdvisoryType) {
	prefix := server.JSAdvisoryConsumerCreatedPre
	if action == server.DeleteEvent {
		prefix = server.JSAdvisoryConsumerDeletedPre
	}
	a.advise(prefix+"."+stream+"."+consumer, &server.JSConsumerActionAdvisory{
		TypedEvent: typedEvent(server.JSConsumerActionAdvisoryType),
		Stream:     stream, Consumer: consumer, Action: action, Domain: a.svc.opts.Domain,
	})
}

// advisePaused tells that a consumer which was made or changed is paused.
func (a *account) advisePaused(stream, consumer string, until time.Time) {
	a.advise(server.JSAdvisoryConsumerPausePre+"."+stream+"."+consumer, &server.JSConsumerPauseAdvisory{
		TypedEvent: typedEvent(server.JSConsumerPauseAdvisoryType),
		Stream:     stream, Consumer: consumer, Paused: true, PauseUntil: until, Domain: a.svc.opts.Domain,
	})
}

// adviseInDomain is advise for the events of a consumer or stream, which do not know the domain.
func (a *account) adviseInDomain(subject string, event any) {
	if domain := a.svc.opts.Domain; domain != "" {
		if d := domainOf(event); d != nil {
			*d = domain
		}
	}
	a.advise(subject, event)
}

// domainOf returns where an event names its domain, nil if it has no place for it.
func domainOf(event any) *string {
	switch e := event.(type) {
	case *server.JSConsumerDeliveryExceededAdvisory:
		return &e.Domain
	case *server.JSConsumerDeliveryNakAdvisory:
		return &e.Domain
	case *server.JSConsumerDeliveryTerminatedAdvisory:
		return &e.Domain
	case *server.JSConsumerAckMetric:
		return &e.Domain
	case *server.JSConsumerPauseAdvisory:
		return &e.Domain
	case *server.JSConsumerGroupPinnedAdvisory:
		return &e.Domain
	case *server.JSConsumerGroupUnpinnedAdvisory:
		return &e.Domain
	case *server.JSStreamBatchAbandonedAdvisory:
		return &e.Domain
	}
	return nil
}

// audit tells what was asked of the API and what was answered. The bytes are kept until the event is sent.
func (a *account) audit(subject string, request, response []byte) {
	a.advise(server.JSAuditAdvisory, &server.JSAPIAudit{
		TypedEvent: typedEvent(server.JSAPIAuditType),
		Server:     a.svc.opts.ServerName,
		Subject:    subject,
		Request:    string(request),
		Response:   string(response),
		Domain:     a.svc.opts.Domain,
	})
}

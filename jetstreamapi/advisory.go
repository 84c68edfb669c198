package jetstreamapi

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
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

// audit tells what was asked of the API, by whom, and what was answered. The bytes are kept until the event is sent.
func (r *request) audit(response []byte) {
	if !r.svc.opts.Bus.HasInterest(r.acc.name, server.JSAuditAdvisory) {
		return
	}
	r.acc.advise(server.JSAuditAdvisory, &server.JSAPIAudit{
		TypedEvent: typedEvent(server.JSAPIAuditType),
		Server:     r.svc.opts.ServerName,
		Client:     r.client(),
		Subject:    r.subject,
		Request:    string(r.body),
		Response:   string(response),
		Domain:     r.svc.opts.Domain,
	})
}

// client is what advisories say of who made the request, without credentials.
func (r *request) client() *server.ClientInfo {
	info := &server.ClientInfo{Account: r.from.Account}
	switch {
	case r.from.Account != r.acc.name: // it came by an import, which says who asks as far as the account shares it
		told := &server.ClientInfo{}
		if json.Unmarshal(jsapi.HeaderValue(r.header, jsapi.HeaderRequestInfo), told) == nil {
			info = told
		}
		info.Service, info.Server = r.acc.name, r.svc.opts.ServerName
	case r.svc.opts.Client != nil:
		info = r.svc.opts.Client(r.from)
	}
	info.Jwt, info.Nonce, info.Alternates = "", "", nil
	return info
}

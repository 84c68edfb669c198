package jetstreamapi

import (
	"encoding/json"
	"log/slog"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// Tools of operators watch the requests of all accounts in the system account. What comes there is a copy: it says who
// asks, and has no reply, since the request is answered where it was made.

// newWatched makes the queue of such copies.
func (s *Service) newWatched() *queue {
	newOut := func() (*publisher, error) { return newPublisher(s.opts.Bus, s.opts.System) }
	return &queue{workers: 1, bound: advisoryLimit, newOut: newOut}
}

// show copies r to the system account, if a client listens there. With too many waiting the copy is dropped and
// counted.
func (r *request) show() {
	system := r.svc.opts.System
	if system == "" || r.acc.name == system || !r.svc.opts.Bus.ClientHears(system, r.subject) {
		return
	}
	sent := r.svc.watched.push(func(out *publisher) {
		who, err := json.Marshal(r.client())
		if err != nil {
			r.svc.log.Error("who made a request could not be encoded", slog.Any("error", err))
			return
		}
		header := "NATS/1.0\r\n" + jsapi.HeaderRequestInfo + ": " + string(who) + "\r\n\r\n"
		out.send(r.subject, []byte(header), r.body)
	})
	if !sent {
		r.acc.dropped.Add(1)
	}
}

// copied reports whether a request in the system account, which from published, is such a copy: no service asks there.
func (a *account) copied(from bus.Identity) bool {
	return a.outsider && a.name == a.svc.opts.System && from.Account == a.name && from.ID == 0
}

package jetstreamapi

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// directSink takes the direct gets of one stream.
type directSink struct{ entry *streamEntry }

// The sids of direct gets, by where the request says what is wanted.
const (
	sidDirectBody    = "b"
	sidDirectSubject = "s"
)

// Deliver implements bus.Sink.
func (d directSink) Deliver(batch []bus.Delivery) <-chan struct{} {
	e := d.entry
	a := e.acc
	for i := range batch {
		if len(batch[i].Msg.Reply) == 0 {
			continue // nobody to answer
		}
		r := a.newRequest(bus.Identity{}, &batch[i].Msg)
		a.enqueue(a.reads, r, func(r *request, out *publisher) { serveDirectGet(e, r, out) })
	}
	return nil
}

// openDirect subscribes to direct gets, where the configuration allows them.
func (e *streamEntry) openDirect() error {
	cfg := e.config()
	if !cfg.AllowDirect {
		return nil
	}
	s, err := e.acc.svc.opts.Bus.Open(bus.KindService, bus.Identity{Account: e.acc.name}, directSink{e})
	if err != nil {
		return err
	}
	e.direct = s
	return e.subscribeDirect(s, e.name)
}

func (e *streamEntry) subscribeDirect(s bus.Session, name string) error {
	domain := e.acc.svc.opts.Domain
	if err := subscribeBoth(s, sidDirectBody, jsapi.DirectGetSubject(name), jsapi.DirectQueue, domain); err != nil {
		return err
	}
	return subscribeBoth(s, sidDirectSubject, jsapi.DirectLastFilter(name), jsapi.DirectQueue, domain)
}

// updateDirect follows a change of the configuration.
func (e *streamEntry) updateDirect(old *server.StreamConfig) error {
	cfg := e.config()
	if cfg.AllowDirect == old.AllowDirect {
		return nil
	}
	was := e.direct
	e.direct = nil
	err := e.openDirect()
	if was != nil {
		was.Close()
	}
	return err
}

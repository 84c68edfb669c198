package flip

import (
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover/reverse"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// straddle takes acks of messages that were delivered here and passes them to the servers under the consumer sequences
// that these know.
type straddle struct {
	conn    *nats.Conn
	session bus.Session
	of      map[string]*reverse.Straddle
	log     *slog.Logger
}

// newStraddle hears acks for a stream. They come once the relay is told (relay.Scope.Straddle).
func (e *Engine) newStraddle(s *stream, list []reverse.Straddle) (*straddle, error) {
	a := &straddle{conn: s.site.Conn(), of: make(map[string]*reverse.Straddle, len(list)), log: e.o.Logger}
	session, err := e.o.Bus.Open(bus.KindService, bus.Identity{Account: s.name.Account}, a)
	if err != nil {
		return nil, err
	}
	a.session = session
	for i := range list {
		a.of[list[i].Consumer] = &list[i]
		subject := jsapi.AckPrefix + s.name.Stream + "." + list[i].Consumer + ".>"
		if _, err := session.Subscribe(fmt.Sprint(i+1), subject, ""); err != nil {
			session.Close()
			return nil, err
		}
	}
	return a, nil
}

// Deliver implements bus.Sink.
func (a *straddle) Deliver(batch []bus.Delivery) <-chan struct{} {
	for i := range batch {
		m := &batch[i].Msg
		ack, ok := jsapi.ParseAckSubject(m.Subject)
		of := a.of[string(ack.Consumer)]
		if !ok || of == nil {
			continue
		}
		err := a.conn.PublishMsg(&nats.Msg{
			Subject: fmt.Sprintf("%s%s.%s.%d.%d.%d.%d.%d", jsapi.AckPrefix, ack.Stream, ack.Consumer, ack.Delivered,
				ack.StreamSeq, of.Sequence(ack.StreamSeq), ack.Time, ack.Pending),
			Reply: string(m.Reply), Data: m.Data,
		})
		if err != nil { // the client sends it again, or gets the message again
			a.log.Warn("An ack did not get to the servers: {error}", slog.Any("error", err))
		}
	}
	return nil
}

// straddling makes the relay show acks of what clients hold of a stream, until the stream comes here again.
func (e *Engine) straddling(s *stream, list []reverse.Straddle) {
	if len(list) == 0 {
		return
	}
	a, err := e.newStraddle(s, list)
	if err != nil {
		e.o.Logger.Error("Acks of what clients hold of {stream} pass as they are: {error}",
			slog.String("stream", s.name.String()), slog.Any("error", err))
		return
	}
	e.mu.Lock()
	s.straddle = a
	e.mu.Unlock()
	for i := range list {
		s.notes.Straddle(list[i].Consumer, list[i].Delivered, list[i].All)
	}
}

// unstraddle ends that.
func (e *Engine) unstraddle(s *stream) {
	e.mu.Lock()
	a := s.straddle
	s.straddle = nil
	e.mu.Unlock()
	if a != nil {
		a.session.Close()
	}
}

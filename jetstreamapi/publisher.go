package jetstreamapi

import "github.com/noetl/ehdb-gateway/internal/bus"

// publisher is a session that only publishes. It is used by one goroutine at a time.
type publisher struct {
	session bus.Session // nil once the bus is closed
	dirty   bool        // something waits for a flush
}

func newPublisher(b bus.Bus, account string) (*publisher, error) {
	s, err := b.Open(bus.KindService, bus.Identity{Account: account}, nil)
	if err != nil {
		return nil, err
	}
	return &publisher{session: s}, nil
}

// send queues a message; its bytes must not change before flush.
func (p *publisher) send(subject string, header, data []byte) {
	if subject != "" {
		p.publish(&bus.Msg{Subject: []byte(subject), Header: header, Data: data})
	}
}

// publish queues m, whose bytes must not change before flush, and reports whether anybody takes it.
func (p *publisher) publish(m *bus.Msg) (interest bool) {
	if p.session == nil {
		return false
	}
	p.dirty = true
	return p.session.Publish(m)
}

// flush delivers what was sent.
func (p *publisher) flush() {
	if !p.dirty {
		return
	}
	p.dirty = false
	// A full stream among the receivers asks its producers to pause. Answers are not worth holding up the API for: the
	// stream has taken them or refused them itself.
	_ = p.session.Flush()
}

func (p *publisher) close() {
	if p.session != nil {
		p.session.Close()
	}
}

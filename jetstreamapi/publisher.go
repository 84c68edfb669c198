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
	if p.session == nil || subject == "" {
		return
	}
	p.dirty = true
	p.session.Publish(&bus.Msg{Subject: []byte(subject), Header: header, Data: data})
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

// Package probe asks the servers and the gateway's own JetStream the same, and compares: what they answer (twin.go) and
// how long it takes them (latency.go). It does so on streams of its own, which it deletes: a standby answers nobody,
// and what clients have is not to be touched.
package probe

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Message is what a side sends.
type Message struct {
	Reply        string
	Header, Data []byte
}

// Side is one of the two: a party that asks and listens.
type Side interface {
	// Request publishes and returns the first answer. header is a raw header block; empty: none.
	Request(ctx context.Context, subject string, header, data []byte) (*Message, error)
	// Listen calls fn, which must not block, with what comes on a subject, until stop is called.
	Listen(subject string, fn func(*Message)) (stop func(), err error)
}

// Servers is the servers' side, through the gateway's own connection.
func Servers(nc *nats.Conn) Side { return servers{nc} }

type servers struct{ nc *nats.Conn }

func (s servers) Request(ctx context.Context, subject string, header, data []byte) (*Message, error) {
	m := nats.NewMsg(subject)
	m.Data = data
	for name, value := range fields(header) {
		m.Header[name] = []string{value}
	}
	r, err := s.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return nil, err
	}
	return &Message{Reply: r.Reply, Data: r.Data}, nil
}

func (s servers) Listen(subject string, fn func(*Message)) (func(), error) {
	sub, err := s.nc.Subscribe(subject, func(m *nats.Msg) { fn(&Message{Reply: m.Reply, Data: m.Data}) })
	if err != nil {
		return nil, err
	}
	return func() { _ = sub.Unsubscribe() }, s.nc.Flush()
}

// fields are the fields of a header block.
func fields(header []byte) map[string]string {
	out := make(map[string]string)
	for line := range strings.SplitSeq(string(header), "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			out[name] = strings.TrimSpace(value)
		}
	}
	return out
}

// Own is the gateway's side: a party on its bus, in an account. Close ends it.
type Own struct {
	prefix string

	publishing sync.Mutex // a session is one goroutine's at a time
	session    bus.Session

	mu sync.Mutex
	// The following are guarded by mu.
	next    uint64
	waiting map[string]chan *Message
	heard   map[string]func(*Message) // by sid
}

// NewOwn opens the gateway's side of an account.
func NewOwn(b bus.Bus, account string) (*Own, error) {
	o := &Own{
		prefix: "_EHDB.probe." + nuid.Next() + ".", waiting: make(map[string]chan *Message),
		heard: make(map[string]func(*Message)),
	}
	var err error
	if o.session, err = b.Open(bus.KindService, bus.Identity{Account: account}, o); err != nil {
		return nil, err
	}
	if _, err := o.session.Subscribe("r", o.prefix+"*", ""); err != nil {
		o.session.Close()
		return nil, err
	}
	return o, nil
}

// Close ends it.
func (o *Own) Close() { o.session.Close() }

// ErrNobody says that nobody serves a subject.
var ErrNobody = errors.New("nobody serves this")

// Request implements Side.
func (o *Own) Request(ctx context.Context, subject string, header, data []byte) (*Message, error) {
	answer := make(chan *Message, 1)
	o.mu.Lock()
	o.next++
	reply := o.prefix + strconv.FormatUint(o.next, 10)
	o.waiting[reply] = answer
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.waiting, reply)
	}()
	o.publishing.Lock()
	reached := o.session.Publish(&bus.Msg{
		Subject: []byte(subject), Reply: []byte(reply), Header: header, Data: data,
	})
	o.session.Flush()
	o.publishing.Unlock()
	if !reached {
		return nil, fmt.Errorf("%w: %s", ErrNobody, subject)
	}
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", subject, context.Cause(ctx))
	}
}

// Listen implements Side.
func (o *Own) Listen(subject string, fn func(*Message)) (func(), error) {
	o.mu.Lock()
	o.next++
	sid := "l" + strconv.FormatUint(o.next, 10)
	o.heard[sid] = fn
	o.mu.Unlock()
	o.publishing.Lock()
	defer o.publishing.Unlock()
	_, err := o.session.Subscribe(sid, subject, "")
	return func() {
		o.publishing.Lock()
		defer o.publishing.Unlock()
		o.session.Unsubscribe(sid, 0)
	}, err
}

// Deliver implements bus.Sink.
func (o *Own) Deliver(batch []bus.Delivery) <-chan struct{} {
	for i := range batch {
		d := &batch[i]
		m := &Message{Reply: string(d.Msg.Reply), Header: clone(d.Msg.Header), Data: clone(d.Msg.Data)}
		o.mu.Lock()
		fn, answer := o.heard[string(d.Sub.SID)], o.waiting[string(d.Msg.Target())]
		o.mu.Unlock()
		switch {
		case fn != nil:
			fn(m)
		case answer != nil:
			select {
			case answer <- m:
			default: // it has one
			}
		}
	}
	return nil
}

func clone(b []byte) []byte { return append([]byte(nil), b...) }

// askTime bounds one question.
const askTime = 2 * time.Second

package source

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Wire carries messages to a JetStream API and back: over the bus of an account, or a connection to another server.
type Wire interface {
	// Send publishes a message. It does not wait for anybody; the error says that it cannot reach anybody now.
	Send(subject, reply string, header, data []byte) error
	// Listen hands take what comes for subject, until stop is called. take does not block.
	Listen(subject string, take func(*Message)) (stop func(), err error)
	// NewInbox returns a subject that only this link uses.
	NewInbox() string
	// Breaks counts how often messages may have been lost on the way.
	Breaks() uint64
}

// Message is what came over a wire. It belongs to whoever gets it.
type Message struct {
	Subject string
	Reply   string
	Status  int // of a message that is a status; else 0
	Header  []byte
	Data    []byte
}

// errNobody says that nobody serves the API.
var errNobody = errors.New("nobody answers there: no JetStream API, import or ehdb.upstreams entry serves this prefix")

// busWire is the bus of an account. Its methods are used by one goroutine at a time.
type busWire struct {
	account string
	session bus.Session

	mu    sync.Mutex
	takes map[string]func(*Message) // by sid
	last  int
}

func newBusWire(b bus.Bus, account string) (*busWire, error) {
	w := &busWire{account: account, takes: make(map[string]func(*Message))}
	s, err := b.Open(bus.KindService, bus.Identity{Account: account}, w)
	if err != nil {
		return nil, err
	}
	w.session = s
	return w, nil
}

func (w *busWire) Send(subject, reply string, header, data []byte) error {
	m := bus.Msg{Subject: []byte(subject), Reply: []byte(reply), Header: header, Data: data}
	interest := w.session.Publish(&m)
	_ = w.session.Flush() // requests are few
	if !interest {
		return errNobody
	}
	return nil
}

func (w *busWire) Listen(subject string, take func(*Message)) (stop func(), err error) {
	w.mu.Lock()
	w.last++
	sid := fmt.Sprint(w.last)
	w.takes[sid] = take
	w.mu.Unlock()
	if _, err := w.session.Subscribe(sid, subject, ""); err != nil {
		return nil, err
	}
	return func() {
		w.session.Unsubscribe(sid, 0)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.takes, sid)
	}, nil
}

// Deliver implements bus.Sink.
func (w *busWire) Deliver(batch []bus.Delivery) <-chan struct{} {
	for i := range batch {
		d := &batch[i]
		w.mu.Lock()
		take := w.takes[string(d.Sub.SID)]
		w.mu.Unlock()
		if take == nil {
			continue
		}
		header := append([]byte(nil), d.Msg.Header...)
		take(&Message{
			Subject: string(d.Msg.Subject), Reply: string(d.Msg.Reply), Status: statusOf(header),
			Header: header, Data: append([]byte(nil), d.Msg.Data...),
		})
	}
	return nil
}

// statusOf returns the code in the first line of a header block, 0 if there is none.
func statusOf(header []byte) (code int) {
	const line = len("NATS/1.0 ")
	if len(header) < line+3 || header[line-1] != ' ' {
		return 0
	}
	for _, c := range header[line : line+3] {
		if c < '0' || c > '9' {
			return 0
		}
		code = code*10 + int(c-'0')
	}
	return code
}

func (w *busWire) NewInbox() string { return "_INBOX." + nuid.Next() }

func (w *busWire) Breaks() uint64 { return 0 }

func (w *busWire) close() { w.session.Close() }

// answerPatience is how long an API is waited for.
const answerPatience = 5 * time.Second

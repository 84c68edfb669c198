package jetstreamapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// views sends messages on that clients of a domain publish into its key-value and object buckets: they go to
// $JS.<domain>.API.$KV.> and $JS.<domain>.API.$OBJ.>, the streams behind them store $KV.> and $OBJ.>. It is the
// bus.Sink of those subjects.
type views struct {
	acc     *account
	prefix  []byte // $JS.<domain>.API.
	session bus.Session
	queue   *queue       // one worker: the order of messages stays
	waiting atomic.Int64 // bytes in the queue
}

// noResponders is what the sender of a request gets that nobody takes.
const noResponders = "NATS/1.0 503\r\nNats-Subject: %s\r\n\r\n"

// maxViewBytes bounds what waits to be sent on, for each account.
const maxViewBytes = 64 << 20

// openViews subscribes to the views of the account's domain.
func (a *account) openViews() (*views, error) {
	v := &views{
		acc: a, prefix: []byte("$JS." + a.svc.opts.Domain + ".API."), queue: a.newQueue(1, a.svc.opts.QueueLimit),
	}
	s, err := a.svc.opts.Bus.Open(bus.KindService, bus.Identity{Account: a.name}, v)
	if err != nil {
		return nil, err
	}
	v.session = s
	for i, space := range []string{"$KV.>", "$OBJ.>"} {
		if _, err := s.Subscribe(fmt.Sprint("v", i), string(v.prefix)+space, ""); err != nil {
			s.Close()
			return nil, err
		}
	}
	return v, nil
}

// Deliver implements bus.Sink.
func (v *views) Deliver(batch []bus.Delivery) <-chan struct{} {
	for i := range batch {
		v.accept(&batch[i].Msg)
	}
	return nil
}

func (v *views) accept(m *bus.Msg) {
	size := int64(len(m.Subject) + len(m.Reply) + len(m.Header) + len(m.Data))
	copied := &bus.Msg{
		Subject: bytes.Clone(bytes.TrimPrefix(m.Subject, v.prefix)),
		Reply:   bytes.Clone(m.Reply),
		Header:  bytes.Clone(m.Header),
		Data:    bytes.Clone(m.Data),
	}
	if v.waiting.Add(size) <= maxViewBytes {
		sent := func(out *publisher) {
			v.waiting.Add(-size)
			if !out.publish(copied) {
				out.send(string(copied.Reply), fmt.Appendf(nil, noResponders, copied.Subject), nil)
			}
		}
		if v.queue.push(sent) {
			return
		}
	}
	v.waiting.Add(-size)
	v.refuse(string(copied.Reply))
}

// refuse answers a message that found the queue full, as a stream answers one that finds its own full.
func (v *views) refuse(reply string) {
	a := v.acc
	refused := func(out *publisher) {
		b, err := json.Marshal(&server.JSPubAckResponse{Error: server.NewJSStreamTooManyRequestsError()})
		if err == nil {
			out.send(reply, nil, b)
		}
	}
	if !a.rejects.push(refused) {
		a.dropped.Add(1)
	}
}

// close ends the views and sends on what waits.
func (v *views) close() {
	v.session.Close()
	v.queue.close()
}

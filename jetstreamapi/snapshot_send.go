package jetstreamapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Bounds of what a client may ask of a snapshot's transport, and what it gets if it does not ask; in bytes.
const (
	defaultChunk  = 128 << 10
	defaultWindow = 8 << 20
	leastChunk    = 1 << 10
	mostChunk     = 1 << 20
	mostWindow    = 32 << 20
)

var (
	errNoInterest = errors.New("no interest")
	errNoFlow     = errors.New("no flow response")
)

// chunkSender sends what is written to it in chunks, each of which the receiver acknowledges. No more than a window is
// on its way at a time. It is the bus.Sink of the acks.
type chunkSender struct {
	ctx   context.Context //nolint:containedctx // io.Writer has no place for it
	acc   *account
	to    string // the receiver's subject
	acks  string // subject of the acks, without size and number
	out   *publisher
	in    bus.Session
	exact bool // the receiver has a subscription of its own

	slots chan struct{} // one for each chunk that may be sent
	chunk []byte        // what was written and not sent yet; its capacity is the size of a chunk
	sent  int           // chunks that want an ack
}

func newChunkSender(
	ctx context.Context, a *account, stream string, req *server.JSApiStreamSnapshotRequest,
) (*chunkSender, error) {
	chunk, slots := chunking(req)
	s := &chunkSender{
		ctx: ctx, acc: a, to: req.DeliverSubject, acks: "$JS.SNAPSHOT.ACK." + stream + "." + nuid.Next(),
		slots: make(chan struct{}, slots), chunk: make([]byte, 0, chunk),
	}
	for range slots {
		s.slots <- struct{}{}
	}
	var err error
	if s.out, err = newPublisher(a.svc.opts.Bus, a.name); err != nil {
		return nil, err
	}
	if s.in, err = a.svc.opts.Bus.Open(bus.KindService, bus.Identity{Account: a.name}, s); err == nil {
		_, err = s.in.Subscribe("ack", s.acks+".>", "")
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// chunking returns the size of a chunk and how many may be unacknowledged.
func chunking(req *server.JSApiStreamSnapshotRequest) (chunk, slots int) {
	chunk, window := req.ChunkSize, req.WindowSize
	if chunk == 0 {
		chunk = defaultChunk
	}
	if window == 0 {
		window = defaultWindow
	}
	chunk = min(max(chunk, leastChunk), mostChunk)
	window = max(min(max(window, leastChunk), mostWindow), chunk)
	return chunk, window / chunk
}

func (s *chunkSender) close() {
	if s.in != nil {
		s.in.Close()
	}
	s.out.close()
}

// Deliver implements bus.Sink: each ack makes room for a chunk.
func (s *chunkSender) Deliver(batch []bus.Delivery) <-chan struct{} {
	for range batch {
		select {
		case s.slots <- struct{}{}:
		default: // more acks than chunks
		}
	}
	return nil
}

// exactBus tells of subscriptions to a subject itself. A client whose inbox is one of many under a wildcard subscribes
// to it once it has the answer to its request: what is sent before that is lost on it.
type exactBus interface {
	HasExactInterest(account, subject string) bool
}

// hasReceiver reports whether the receiver has subscribed.
func (s *chunkSender) hasReceiver() bool {
	b, ok := s.acc.svc.opts.Bus.(exactBus)
	return ok && b.HasExactInterest(s.acc.name, s.to)
}

func (s *chunkSender) hasInterest() bool {
	return s.hasReceiver() || !s.exact && s.acc.svc.opts.Bus.HasInterest(s.acc.name, s.to)
}

// lookEvery is how often a wait looks for the receiver.
const lookEvery = 5 * time.Millisecond

// awaitInterest gives the receiver a moment to subscribe. One that only listens with a wildcard is served after it.
func (s *chunkSender) awaitInterest() error {
	limit := time.NewTimer(s.acc.svc.opts.patience.interest)
	defer limit.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for !s.hasReceiver() {
		select {
		case <-look.C:
		case <-limit.C:
			if s.hasInterest() {
				return nil
			}
			return errNoInterest
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
	s.exact = true
	return nil
}

// awaitSlot waits until a chunk may be sent.
func (s *chunkSender) awaitSlot() error {
	if !s.hasInterest() {
		return errNoInterest
	}
	select {
	case <-s.slots:
		return nil
	default:
	}
	limit := time.NewTimer(s.acc.svc.opts.patience.ack)
	defer limit.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-s.slots:
			return nil
		case <-look.C:
			if !s.hasInterest() {
				return errNoInterest
			}
		case <-limit.C:
			return errNoFlow
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// Write implements io.Writer. It blocks while the receiver has a window of chunks to acknowledge.
func (s *chunkSender) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		fits := min(len(p), cap(s.chunk)-len(s.chunk))
		s.chunk = append(s.chunk, p[:fits]...)
		n, p = n+fits, p[fits:]
		if len(s.chunk) < cap(s.chunk) {
			return n, nil
		}
		if err := s.awaitSlot(); err != nil {
			return n, err
		}
		s.sent++
		s.publish(fmt.Sprintf("%s.%d.%d", s.acks, len(s.chunk), s.sent), nil)
	}
	return n, nil
}

// publish sends the chunk.
func (s *chunkSender) publish(reply string, header []byte) {
	s.out.publish(&bus.Msg{Subject: []byte(s.to), Reply: []byte(reply), Header: header, Data: s.chunk})
	s.out.flush() // the window is what slows this down
	s.chunk = s.chunk[:0]
}

// end sends what is left, which wants no ack, and the message that ends the backup: its status says whether all of it
// was sent. A backup of less than a chunk ends without a status, as nats-server's does. It returns what kept the backup
// from being sent, if anything did.
func (s *chunkSender) end(failed error) error {
	if failed == nil {
		failed = s.awaitSlot()
	}
	var header []byte
	switch {
	case failed != nil:
		header = []byte("NATS/1.0 " + statusOf(failed) + "\r\n\r\n")
	case s.sent > 0:
		header = []byte("NATS/1.0 204\r\n\r\n")
	}
	if failed == nil && len(s.chunk) > 0 {
		s.publish("", nil)
	}
	s.chunk = s.chunk[:0]
	s.publish("", header)
	return failed
}

// statusOf is the status that tells of a failure.
func statusOf(err error) string {
	switch {
	case errors.Is(err, errNoInterest):
		return "408 No Interest"
	case errors.Is(err, errNoFlow):
		return "408 No Flow Response"
	}
	return "500 " + strings.NewReplacer("\r", " ", "\n", " ").Replace(err.Error())
}

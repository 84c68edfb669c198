package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
)

// remote reads an origin through a push consumer with flow control.
type remote struct {
	link     *Link
	wire     Wire
	deliver  string // subject the consumer delivers to
	consumer string // its name
	breaks   uint64
	wakes    chan struct{} // of one: something came
	stops    []func()
	acks     bool // answers to flow control acknowledge messages

	mu      sync.Mutex
	queue   []*Message
	bytes   int
	full    bool // a message was dropped: the origin did not keep to flow control
	heard   time.Time
	batch   []stream.Copy
	pending uint64 // messages that come after the last of batch
	seq     uint64 // of the last message taken from queue: in the origin
	dseq    uint64 // and of the consumer
}

const (
	// maxQueued bounds what waits for the target. Flow control keeps an origin below it.
	maxQueued = 64 << 20
	// silence is how long an origin may give no sign of life; it sends a heartbeat each second.
	silence = 5 * time.Second
)

var (
	errGap    = errors.New("a message was lost on the way")
	errBroken = errors.New("the connection was interrupted")
	errSilent = errors.New("the origin gives no sign of life")
	errFlood  = errors.New("the origin does not keep to flow control")
)

func (r *remote) take(m *Message) {
	r.link.heard.Store(time.Now().UnixNano())
	r.mu.Lock()
	r.heard = time.Now()
	if r.bytes > maxQueued {
		r.full = true
	} else {
		r.queue = append(r.queue, m)
		r.bytes += len(m.Subject) + len(m.Reply) + len(m.Header) + len(m.Data)
	}
	r.mu.Unlock()
	select {
	case r.wakes <- struct{}{}:
	default:
	}
}

func (r *remote) next(ctx context.Context) ([]stream.Copy, error) {
	if batch, err := r.gather(); len(batch) > 0 || err != nil {
		return batch, err
	}
	t := time.NewTimer(heartbeat)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.wakes:
	case <-t.C:
	}
	return r.gather()
}

// gather returns the messages that came, up to the next flow-control request: that is answered once they are stored.
func (r *remote) gather() ([]stream.Copy, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batch = r.batch[:0]
	switch {
	case r.wire.Breaks() != r.breaks:
		return nil, errBroken
	case r.full:
		return nil, errFlood
	case time.Since(r.heard) > silence:
		return nil, errSilent
	}
	for size := 0; len(r.queue) > 0 && len(r.batch) < stream.MaxCopies && size < maxBatchBytes; {
		m := r.queue[0]
		a, isMessage := jsapi.ParseAckSubject([]byte(m.Reply))
		if !isMessage && len(r.batch) > 0 {
			break
		}
		r.queue[0] = nil
		r.queue = r.queue[1:]
		r.bytes -= len(m.Subject) + len(m.Reply) + len(m.Header) + len(m.Data)
		var err error
		if isMessage {
			err = r.message(m, &a)
		} else {
			err = r.control(m)
		}
		if err != nil {
			return nil, err
		}
		size += len(m.Subject) + len(m.Header) + len(m.Data)
	}
	return r.batch, nil
}

// message puts a message into the batch.
func (r *remote) message(m *Message, a *jsapi.AckSubject) error {
	switch {
	case string(a.Consumer) != r.consumer || a.Delivered > 1 || a.ConsumerSeq <= r.dseq:
		return nil // of an earlier consumer, or a second time
	case a.ConsumerSeq != r.dseq+1:
		return errGap
	}
	r.dseq, r.seq, r.pending = a.ConsumerSeq, a.StreamSeq, a.Pending
	r.batch = append(r.batch, stream.Copy{
		Seq: a.StreamSeq, Time: a.Time, Subject: []byte(m.Subject), Header: m.Header, Data: m.Data,
	})
	return nil
}

// control serves what is no message of the origin: heartbeats, flow control, the end of the consumer. All messages that
// came before it are stored.
func (r *remote) control(m *Message) error {
	const control = 100
	if m.Status != control {
		return fmt.Errorf("the origin's consumer ended with status %d", m.Status)
	}
	if m.Reply != "" {
		header := fmt.Appendf(nil, "NATS/1.0\r\n%s: %d\r\n%s: %d\r\n\r\n",
			server.JSLastConsumerSeq, r.dseq, server.JSLastStreamSeq, r.seq)
		return r.wire.Send(m.Reply, "", header, nil)
	}
	last := string(jsapi.HeaderValue(m.Header, server.JSLastConsumerSeq))
	if n, err := strconv.ParseUint(last, 10, 64); err == nil && n > 0 && n != r.dseq {
		return errGap
	}
	if stalled := jsapi.HeaderValue(m.Header, server.JSConsumerStalled); len(stalled) > 0 {
		return r.wire.Send(string(stalled), "", nil, nil)
	}
	return nil
}

func (r *remote) lag(seq uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.pending
	for i := range r.batch {
		if r.batch[i].Seq > seq {
			n++
		}
	}
	return n
}

func (r *remote) wantsStored() bool { return r.acks }

func (r *remote) stored([]stream.Copy) {} // the next answer to flow control tells the origin

func (r *remote) close() {
	for _, stop := range r.stops {
		stop()
	}
}

// API levels that a request may need at the origin.
const (
	levelIdentity = 5 // it tells its identity
	levelSourcing = 4 // it knows consumers for sources
	levelNone     = 0
)

// openRemote makes a consumer at the origin, or resets the one that the configuration names, and listens to it. prefix
// is that of the origin's API.
func (l *Link) openRemote(ctx context.Context, w Wire, prefix string) (*opened, error) {
	src := l.o.Source
	r := &remote{link: l, wire: w, breaks: w.Breaks(), wakes: make(chan struct{}, 1), heard: time.Now()}
	switch {
	case src.Consumer != nil:
		r.deliver = src.Consumer.DeliverSubject
	case src.External != nil && src.External.DeliverPrefix != "":
		r.deliver = strings.ReplaceAll(src.External.DeliverPrefix+"."+w.NewInbox(), "..", ".")
	default:
		r.deliver = w.NewInbox()
	}
	stop, err := w.Listen(r.deliver, r.take)
	if err != nil {
		return nil, err
	}
	r.stops = append(r.stops, stop)
	o, err := l.consume(ctx, r, prefix)
	if err != nil {
		r.close()
		return nil, err
	}
	return o, nil
}

// consume makes the consumer, asking for less of an origin that does not know what is asked for.
func (l *Link) consume(ctx context.Context, r *remote, prefix string) (*opened, error) {
	at, known := l.o.Target.StoredPosition(l.o.Source)
	if l.o.Mirror || !known {
		at.Identity = ""
	}
	identity := at.Identity
	level := levelIdentity
	for {
		q, err := l.consumerRequest(ctx, r, prefix, level, identity)
		if err != nil {
			return nil, err
		}
		a, err := r.ask(ctx, q)
		if err != nil {
			return nil, err
		}
		switch code := a.errCode(); {
		case code == 0:
			return l.accept(r, a)
		case code == uint16(server.JSConsumerStreamIdentityMismatchF) && identity == at.Identity && identity != "":
			identity = anotherIdentity
		case code == uint16(server.JSRequiredApiLevelErr) || code == uint16(server.JSInvalidJSONErr):
			switch {
			case level == levelIdentity:
				level = levelSourcing
			case level == levelSourcing && l.o.Source.Consumer == nil:
				level = levelNone
			default:
				return nil, a.Error
			}
		default:
			return nil, a.Error
		}
	}
}

// anotherIdentity is one that no stream has: the origin is another stream than the one that was copied so far.
const anotherIdentity = "-"

// accept takes over what the origin answered.
func (l *Link) accept(r *remote, a *answer) (*opened, error) {
	if a.ConsumerInfo == nil || a.Config == nil {
		return nil, errors.New("invalid consumer create response")
	}
	info := a.ConsumerInfo
	r.acks = info.Config.AckPolicy == server.AckFlowControl
	if l.o.Source.Consumer != nil && !r.acks {
		if l.o.Mirror {
			return nil, server.NewJSMirrorConsumerRequiresAckFCError()
		}
		return nil, server.NewJSSourceConsumerRequiresAckFCError()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.consumer, r.pending = info.Name, info.NumPending
	r.seq = info.Delivered.Stream
	return &opened{reader: r, first: info.Delivered.Stream + 1, identity: a.identity}, nil
}

// question is a request to the origin's API.
type question struct {
	subject      string
	header, data []byte
}

// answer is what it said.
type answer struct {
	server.JSApiConsumerCreateResponse
	identity string
}

func (a *answer) errCode() uint16 {
	if a.Error == nil {
		return 0
	}
	return a.Error.ErrCode
}

// ask sends a request and waits for the answer.
func (r *remote) ask(ctx context.Context, q *question) (*answer, error) {
	came := make(chan *Message, 1)
	inbox := r.wire.NewInbox()
	stop, err := r.wire.Listen(inbox, func(m *Message) {
		select {
		case came <- m:
		default:
		}
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := r.wire.Send(q.subject, inbox, q.header, q.data); err != nil {
		return nil, err
	}
	t := time.NewTimer(answerPatience)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.C:
		return nil, fmt.Errorf("no answer on %s within %v", q.subject, answerPatience)
	case m := <-came:
		const noResponders = 503
		if m.Status == noResponders {
			return nil, errNobody
		}
		return parseAnswer(m)
	}
}

func parseAnswer(m *Message) (*answer, error) {
	a := new(answer)
	if err := json.Unmarshal(m.Data, &a.JSApiConsumerCreateResponse); err != nil {
		return nil, fmt.Errorf("the origin's answer cannot be read: %w", err)
	}
	a.identity = string(jsapi.HeaderValue(m.Header, headerIdentity))
	return a, nil
}

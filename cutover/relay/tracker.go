package relay

import (
	"bytes"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// maxTracked bounds the messages that are tracked for one consumer.
const maxTracked = 1 << 20

// tracker is what the consumers of a stream have delivered by way of the gateway and what has no ack yet: the state
// that nats-server's API counts but does not tell.
type tracker struct {
	since     time.Time
	mu        sync.Mutex
	consumers map[string]*tracked
}

func (t *tracker) init() { t.since, t.consumers = time.Now(), make(map[string]*tracked) }

// tracked is one consumer.
type tracked struct {
	pending map[uint64]Delivery // by stream sequence
	acked   map[uint64]struct{} // done and above the floor that is known
	floor   uint64              // everything up to here is done
	policy  server.AckPolicy
	known   bool // policy and floor are known
	created time.Time
	joined  uint64 // what was delivered up to here was not seen
	flooded bool   // more was outstanding than is tracked

	here  uint64            // what was delivered up to here was delivered by this gateway; 0: nothing
	all   bool              // acks of that are shown, whoever delivered it last
	again map[uint64]uint64 // and came again from the servers, with the consumer sequence
}

// Delivery is one message that was delivered and is not acknowledged.
type Delivery struct {
	Consumer   uint64 // sequence of the last delivery
	Deliveries uint64
	At         int64 // the last one, in Unix nanoseconds; a NAK makes it due
	Naked      bool
	Delay      time.Duration // of Naked
}

func (t *tracker) of(name []byte) *tracked {
	c := t.consumers[string(name)]
	if c == nil {
		c = &tracked{pending: make(map[uint64]Delivery), acked: make(map[uint64]struct{})}
		t.consumers[string(name)] = c
	}
	return c
}

// delivered notes a delivery.
func (t *tracker) delivered(a *jsapi.AckSubject) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.of(a.Consumer)
	if a.StreamSeq <= c.here {
		c.again[a.StreamSeq] = a.ConsumerSeq
	}
	switch {
	case c.known && c.policy == server.AckNone:
	case c.done(a.StreamSeq): // it was sent before the ack got there, and is not outstanding
	case len(c.pending) >= maxTracked:
		c.flooded = true
	default:
		first := a.ConsumerSeq
		if before, again := c.pending[a.StreamSeq]; again {
			first = before.Consumer
		}
		c.pending[a.StreamSeq] = Delivery{Consumer: first, Deliveries: a.Delivered, At: time.Now().UnixNano()}
	}
}

var (
	ackAck      = []byte("+ACK")
	ackNext     = []byte("+NXT")
	ackNak      = []byte("-NAK")
	ackProgress = []byte("+WPI")
	ackTerm     = []byte("+TERM")
)

// ack notes what a client says about a delivery.
func (t *tracker) ack(a *jsapi.AckSubject, data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.of(a.Consumer)
	switch {
	case len(data) == 0 || bytes.HasPrefix(data, ackAck) || bytes.HasPrefix(data, ackNext) ||
		bytes.HasPrefix(data, ackTerm):
		c.finish(a.StreamSeq, len(data) == 0 || !bytes.HasPrefix(data, ackTerm))
	case bytes.HasPrefix(data, ackNak):
		if d, ok := c.pending[a.StreamSeq]; ok {
			d.Naked, d.Delay = true, nakDelay(data)
			d.At = time.Now().UnixNano()
			c.pending[a.StreamSeq] = d
		}
	case bytes.HasPrefix(data, ackProgress):
		if d, ok := c.pending[a.StreamSeq]; ok {
			d.At = time.Now().UnixNano()
			c.pending[a.StreamSeq] = d
		}
	}
}

// done reports whether a message is known to be acknowledged.
func (c *tracked) done(seq uint64) bool {
	_, acked := c.acked[seq]
	return acked || c.known && seq <= c.floor
}

// finish takes a message off the list, and by ack policy all before it.
//
//nolint:revive // all is what was said about it
func (c *tracked) finish(seq uint64, all bool) {
	delete(c.pending, seq)
	c.acked[seq] = struct{}{}
	if all && c.known && c.policy == server.AckAll {
		for s := range c.pending {
			if s < seq {
				delete(c.pending, s)
				c.acked[s] = struct{}{}
			}
		}
	}
	if len(c.acked) > maxTracked {
		c.flooded = true
		clear(c.acked)
	}
}

// settle takes what the server says about the consumer: nothing up to its floor is outstanding.
func (t *tracker) settle(info *server.ConsumerInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.of([]byte(info.Name))
	if !c.created.IsZero() && !c.created.Equal(info.Created) { // another one of that name
		delete(t.consumers, info.Name)
		c = t.of([]byte(info.Name))
	}
	if !c.known && info.Created.Before(t.since) {
		c.joined = info.Delivered.Stream
	}
	c.created = info.Created
	c.known, c.policy, c.floor = true, info.Config.AckPolicy, info.AckFloor.Stream
	if c.floor >= c.here {
		c.here, c.again = 0, nil
	}
	below := func(seq uint64) bool { return seq <= c.floor }
	maps.DeleteFunc(c.pending, func(seq uint64, _ Delivery) bool { return below(seq) })
	maps.DeleteFunc(c.acked, func(seq uint64, _ struct{}) bool { return below(seq) })
	if info.NumAckPending == 0 && len(c.pending) == 0 {
		c.flooded = false
	}
}

// Settle tells the scope what the servers say about the stream's consumers. It is to be called now and then, so that
// what is tracked stays small, and before Outstanding.
func (s *Scope) Settle(infos []*server.ConsumerInfo) {
	names := make(map[string]bool, len(infos))
	for _, info := range infos {
		names[info.Name] = true
		s.tracker.settle(info)
	}
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	maps.DeleteFunc(s.tracker.consumers, func(name string, _ *tracked) bool { return !names[name] })
}

// forget drops what is tracked of a consumer that a client deletes, or lets begin anew.
func (t *tracker) forget(consumer []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.consumers, string(consumer))
}

// Seed replaces what is tracked of a consumer by what is known: its state when it came back to the servers.
func (s *Scope) Seed(consumer string, policy server.AckPolicy, state *server.ConsumerState) {
	c := &tracked{
		pending: make(map[uint64]Delivery, len(state.Pending)), acked: make(map[uint64]struct{}),
		floor: state.AckFloor.Stream, policy: policy, known: true,
	}
	for seq, p := range state.Pending {
		c.pending[seq] = Delivery{Consumer: p.Sequence, Deliveries: state.Redelivered[seq] + 1, At: p.Timestamp}
	}
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	s.tracker.consumers[consumer] = c
}

// Straddle says that what a consumer has delivered up to a stream sequence, and is not acknowledged, was delivered by
// this gateway, under consumer sequences that the servers do not know: acks of it are published on this gateway's own
// bus. With all, so are those of what the servers have delivered again since.
func (s *Scope) Straddle(consumer string, delivered uint64, all bool) {
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	c := s.tracker.of([]byte(consumer))
	c.here, c.all, c.again = delivered, all, make(map[uint64]uint64)
}

// straddles reports whether an ack is of what this gateway has delivered.
func (t *tracker) straddles(a *jsapi.AckSubject) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.consumers[string(a.Consumer)]
	return c != nil && a.StreamSeq <= c.here && (c.all || c.again[a.StreamSeq] != a.ConsumerSeq)
}

// Exact reports whether all that a consumer of the servers has outstanding was seen: a transfer repeats nothing.
func (s *Scope) Exact(info *server.ConsumerInfo) bool {
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	c := s.tracker.consumers[info.Name]
	return c != nil && c.known && !c.flooded && info.AckFloor.Stream >= c.joined
}

// Outstanding returns what a consumer has delivered through the gateway without an ack, by stream sequence, and the
// messages above its floor that are known to be done. complete: nothing was forgotten for want of room.
func (s *Scope) Outstanding(consumer string) (pending map[uint64]Delivery, done map[uint64]struct{}, complete bool) {
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	c := s.tracker.consumers[consumer]
	if c == nil {
		return nil, nil, true
	}
	return maps.Clone(c.pending), maps.Clone(c.acked), !c.flooded
}

// nakDelay reads the delay of a NAK: "-NAK {"delay": ns}" or "-NAK ns".
func nakDelay(data []byte) time.Duration {
	arg := bytes.TrimSpace(data[len(ackNak):])
	var body struct {
		Delay time.Duration `json:"delay"`
	}
	if json.Unmarshal(arg, &body) == nil && body.Delay > 0 {
		return body.Delay
	}
	d, err := time.ParseDuration(string(arg))
	if err != nil {
		return 0
	}
	return d
}

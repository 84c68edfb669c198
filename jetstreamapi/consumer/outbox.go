package consumer

import (
	"time"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// outbox is what a step of the machine asks the shell to do, in this order: make delta durable, tell the stream what is
// done, send, confirm (once delta is durable), publish events.
type outbox struct {
	sends    []send
	delta    []byte   // changes of the state, see persist.go
	confirms []string // reply subjects of acks that wait for delta to be durable
	acked    []uint64 // stream sequences the consumer is done with
	took     []int64  // from a message's last delivery to its ack, nanoseconds
	dead     []dead   // exhausted messages that go to another stream
	events   []event
	inactive bool // the consumer was unused for its inactive threshold

	then []*heldSends // wait for delta to be durable

	arena []byte // backs the ack subjects and headers of sends
}

// send is one message to a client: a delivery, or a status (seq is 0).
type send struct {
	to      []byte // where it goes
	subject []byte // what it shows; empty: to
	reply   []byte
	header  []byte
	data    []byte
	seq     uint64
}

// event is an advisory or a metric.
type event struct {
	kind   eventKind
	sseq   uint64
	dseq   uint64
	count  uint64
	delay  int64  // of an ack, nanoseconds
	reason string // of a term; the pin of a pinned group
	group  string
	paused bool
	until  time.Time
}

type eventKind uint8

const (
	eventMaxDeliver eventKind = iota + 1
	eventNak
	eventTerm
	eventAckSample
	eventPause
	eventPinned
	eventUnpinned
)

func (o *outbox) empty() bool {
	return len(o.sends) == 0 && len(o.delta) == 0 && len(o.confirms) == 0 && len(o.acked) == 0 && len(o.dead) == 0 &&
		len(o.events) == 0 && !o.inactive
}

// reset empties o for its next use and lets go of what it held.
func (o *outbox) reset() {
	clear(o.sends)
	clear(o.confirms)
	clear(o.events)
	clear(o.dead)
	*o = outbox{
		sends: o.sends[:0], delta: o.delta[:0], confirms: o.confirms[:0], acked: o.acked[:0], took: o.took[:0],
		events: o.events[:0], dead: o.dead[:0], arena: o.arena[:0],
	}
}

// take appends all of from to o and empties it. What points into from's arena stays valid: the arena is given away.
func (o *outbox) take(from *outbox) {
	o.sends = append(o.sends, from.sends...)
	o.delta = append(o.delta, from.delta...)
	o.confirms = append(o.confirms, from.confirms...)
	o.acked = append(o.acked, from.acked...)
	o.took = append(o.took, from.took...)
	o.dead = append(o.dead, from.dead...)
	o.events = append(o.events, from.events...)
	o.inactive = o.inactive || from.inactive
	*from = outbox{}
}

// status sends a status without fields.
func (o *outbox) status(to []byte, code int, text string) {
	mark := len(o.arena)
	o.arena = jsapi.AppendStatus(o.arena, code, text)
	o.sends = append(o.sends, send{to: to, header: o.cut(mark)})
}

// pullStatus sends a status to the inbox of a pull request.
func (o *outbox) pullStatus(w *waiting, code int, text string) {
	mark := len(o.arena)
	o.arena = jsapi.AppendPullStatus(o.arena, code, text, w.left, w.bytes)
	o.sends = append(o.sends, send{to: w.to, header: o.cut(mark)})
}

// cut returns what was appended to the arena since mark, closed for appends.
func (o *outbox) cut(mark int) []byte { return o.arena[mark:len(o.arena):len(o.arena)] }

// Package bus is the seam between the parts of the gateway: every client connection, stream, consumer and service is
// a party on a [Bus], and parties know each other only through subjects.
//
// # The contract
//
//  1. A [Msg] is borrowed. Its slices are valid until the Flush that delivers it returns; whoever keeps one, clones it.
//  2. [Session.Publish] matches and queues; [Session.Flush] hands everything queued since the last Flush to the sinks,
//     one batch for each sink. A read loop publishes all messages of one read and flushes once, and it flushes before
//     anything whose order against its messages a client can see (SUB, UNSUB, PING, PONG, a no-responders answer).
//  3. [Sink.Deliver] runs on the publisher's goroutine. It never blocks, never keeps the bytes and never publishes.
//     It may be called by many publishers at once. Messages of one session reach a sink in the order of Publish.
//  4. No lock of the bus is held while a sink is called.
//  5. A Session is used by one goroutine at a time, except for Close, which may come from anywhere.
package bus

// Msg is one message on its way. All slices are borrowed (see the package contract).
type Msg struct {
	Subject []byte // what the receiver sees
	Reply   []byte // empty: no reply wanted
	Header  []byte // the raw header block, "NATS/1.0...\r\n\r\n"; empty: none
	Data    []byte
	// Route is the subject whose subscribers receive the message, where that is not Subject: a JetStream delivery
	// shows the stored subject but goes to the consumer's inbox. Empty means Subject.
	Route []byte
}

// Target returns the subject whose subscribers receive m.
func (m *Msg) Target() []byte {
	if len(m.Route) != 0 {
		return m.Route
	}
	return m.Subject
}

// Delivery is one message for one subscription of a sink.
type Delivery struct {
	Sub *Subscription
	Msg Msg
}

// Sink receives what its session's subscriptions match.
type Sink interface {
	// Deliver takes a batch, in order. A nil result means go on. A non-nil result asks the publisher to pause,
	// where it can pause (a client's read loop), until the channel is closed: this is how a full queue slows its
	// producers down instead of dropping. The messages of the batch are taken (or answered with an error) either
	// way.
	Deliver(batch []Delivery) (stall <-chan struct{})
}

// PromptSink is a Sink that can also pass a batch on at once, where that takes no waiting. It costs the publisher more
// time than Deliver, and all together less. The bus asks for it for what services publish, answers above all, when a
// Flush has few receivers.
type PromptSink interface {
	Sink
	// DeliverNow is Deliver.
	DeliverNow(batch []Delivery) (stall <-chan struct{})
}

// OriginSink is a Sink of a service that is also told who published a batch.
type OriginSink interface {
	Sink
	// DeliverFrom is Deliver. All of the batch was published by from, on its own account or through imports.
	DeliverFrom(from Identity, batch []Delivery) (stall <-chan struct{})
}

// Kind says what a party is.
type Kind uint8

// The kinds of parties.
const (
	// KindClient is a client connection.
	KindClient Kind = iota + 1
	// KindService is a part of the gateway: a stream, a consumer, an API handler.
	KindService
	// KindMirror is a copy of another party's traffic: what it publishes reaches services and never clients.
	KindMirror
)

// Identity names a party to the bus.
type Identity struct {
	Account string // the account whose subjects it sees, "$G" by default
	User    string // for logs and for the credentials an upstream needs; may be empty
	ID      uint64 // the client id (cid), 0 for services
	Stream  string // the stream that a service is; empty for all else
	NoEcho  bool   // do not deliver a party's own messages to itself
}

// Bus connects parties.
type Bus interface {
	// Open makes a party. out receives what its subscriptions match and may be nil for a party that only publishes.
	Open(kind Kind, id Identity, out Sink) (Session, error)
	// HasInterest reports whether a message sent to subject (a literal) in account would reach any subscription.
	HasInterest(account, subject string) bool
	// ClientHears reports whether a message sent to subject (a literal) in account would reach a client of it.
	ClientHears(account, subject string) bool
	// Listens reports whether somebody subscribed to subject itself (a filter with wildcards does not count) as a
	// member of the queue group; with an empty queue, as a member of none. It is what makes a push consumer deliver: a
	// tool that looks at everything must not take its messages from those they are for.
	Listens(account, subject, queue string) bool
	// WatchListeners calls changed whenever what Listens reports changes, starting after the call returns. changed runs
	// on the goroutine that (un)subscribed, under no lock of the bus, and must neither block nor publish; calls for
	// quick changes may come out of order, so treat one as a hint and ask Listens. cancel ends the watch.
	WatchListeners(account, subject, queue string, changed func(listens bool)) (cancel func())
}

// Renamer is a Session of an account that may rename what its clients publish.
type Renamer interface {
	// Renamed returns the subject that a client's message to subject goes to, empty if it is to be lost; false: it
	// stays as it is.
	Renamed(subject []byte) (to []byte, changed bool)
}

// Tracer is a Session that can tell whom a message would reach.
type Tracer interface {
	// Trace calls step for each station of m's way, in no order, and delivers nothing: in the session's account, and in
	// others where an import lets traces pass. Of a queue group it is any member that might get the message.
	Trace(m *Msg, step func(*Step))
	// TraceTo returns where the account wants to hear of its share of messages that are part of a distributed trace, in
	// per cent; empty: nowhere.
	TraceTo() (dest string, percent int)
}

// Step is a station on a message's way: a receiver, or an import by which it leaves the account.
type Step struct {
	Kind     StepKind
	Account  string   // where the step leads to
	From, To string   // of a service import: the subject before and after; of all others To alone, as it is there
	Filter   string   // of a receiver: what it is subscribed to
	Queue    string   // and as a member of which group
	Party    Kind     // and what it is
	Identity Identity // and who
}

// StepKind says what a Step is.
type StepKind uint8

// The kinds of steps.
const (
	StepReceiver StepKind = iota + 1
	StepServiceImport
	StepStreamImport
)

// Session is one party's hold on the bus.
type Session interface {
	// Publish queues m for every matching subscription (one member of each queue group) and reports whether there was
	// any. m's bytes must stay unchanged until Flush returns.
	Publish(m *Msg) (interest bool)
	// Flush delivers what was published since the last Flush. The result is nil, or a channel to wait on before
	// publishing more (see Sink.Deliver). A request queued for a service that has closed since is answered 503 here.
	Flush() (stall <-chan struct{})
	// Subscribe adds a subscription. sid is the party's own name for it (a NATS sid), handed back in each Delivery;
	// queue is empty or the queue group. filter must be valid (subjects.ValidFilter). A sid in use is replaced by NATS
	// rules: the earlier subscription stays and the call is ignored, with the earlier one returned.
	Subscribe(sid, filter, queue string) (*Subscription, error)
	// Unsubscribe ends sid, at once (limit <= 0) or once limit messages in all were delivered to it since Subscribe.
	// An unknown sid is no error.
	Unsubscribe(sid string, limit int64)
	// Barrier calls done once everything this session published or subscribed before has taken effect. On a local bus
	// that is at once; an upstream answers after its PONG. It does not block.
	Barrier(done func())
	// Subscriptions returns the current subscriptions, in no order.
	Subscriptions() []*Subscription
	// NumSubscriptions is len(Subscriptions()) without the copy.
	NumSubscriptions() int
	// Close ends all subscriptions. Safe to call more than once and from any goroutine.
	Close()
}

package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// Relay is the gateway's Director. Safe for concurrent use.
type Relay struct {
	table  atomic.Pointer[Table]
	domain []byte // begins the subjects of the API in the JetStream domain; empty: there is none
	// guard is what clients wait for; nil: nothing.
	guard atomic.Pointer[func() <-chan struct{}]

	unknown  unknown
	observed atomic.Int64 // how many scopes are observed

	mu     sync.Mutex
	guides map[*guide]struct{}
}

// New returns a Relay that lets everything pass, for servers of that JetStream domain; empty: none.
func New(domain string) *Relay {
	r := &Relay{guides: make(map[*guide]struct{})}
	if domain != "" {
		r.domain = []byte(jsapi.InDomain(domain, jsapi.APIPrefix))
	}
	t, err := NewTable(0, nil, false)
	if err != nil {
		panic("relay: " + err.Error())
	}
	r.table.Store(t)
	return r
}

// Guard sets what is asked whenever something has come from a client: a channel that it has to wait for, nil if it may
// go on.
func (r *Relay) Guard(wait func() <-chan struct{}) { r.guard.Store(&wait) }

// Use makes t the table that counts. What was held goes on by it.
func (r *Relay) Use(t *Table) {
	close(r.table.Swap(t).next)
}

// Epoch is that of the table in use.
func (r *Relay) Epoch() uint64 { return r.table.Load().Epoch }

// Attend implements gateway.Director.
func (r *Relay) Attend(t gateway.Traveler) gateway.Guide {
	g := &guide{relay: r, traveler: t}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.guides[g] = struct{}{}
	return g
}

// Client is a connection and what is known about who it is.
type Client struct {
	ID       uint64
	Identity gateway.UpstreamIdentity
}

// Strangers returns the clients of an account whose permissions are not known, and those whose account is not: with
// them a stream cannot be served from here.
func (r *Relay) Strangers(account string) (list []Client) {
	for _, g := range r.all() {
		id, _ := g.traveler.Identity()
		if id.Permitted || id.Account != "" && id.Account != account {
			continue
		}
		list = append(list, Client{g.traveler.ID(), id})
	}
	return list
}

// Expire gives up the publishes that have waited for their PubAck for too long. It is to be called now and then.
func (r *Relay) Expire(now time.Time) {
	for _, g := range r.all() {
		g.mu.Lock()
		g.flight.expire(now)
		g.mu.Unlock()
	}
}

func (r *Relay) all() []*guide {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*guide, 0, len(r.guides))
	for g := range r.guides {
		list = append(list, g)
	}
	return list
}

// Scope is a stream under watch: what goes on about it.
type Scope struct {
	Name cutover.Scope
	hooks

	flight atomic.Int64 // publishes that wait for their PubAck
	aloft  aloft        // the same, by when they were sent
	latest atomic.Int64 // when the latest publish was sent that has one, in Unix nanoseconds
	// observed: what clients get of the stream from here is looked at (Relay.Observe).
	observed  atomic.Bool
	delivered atomic.Int64 // messages that consumers of the servers have sent to clients
	notes     counters
	tracker   tracker
}

// hooks are called by connections. They must not block.
type hooks struct {
	// Acknowledged is told of each message that the servers have acknowledged.
	Acknowledged func(*Noted)
	// Offered is told of each message that a consumer of the servers delivers.
	Offered func(consumer []byte, seq uint64)
	// Served is told of each message that a consumer here delivers to a client, while the stream is observed.
	Served func(consumer []byte, seq uint64)
	// Barrier returns a channel to wait on before an ack of a message passes, nil if it may pass.
	Barrier func(seq uint64) <-chan struct{}
	// Stray is told of what the servers have sent to a client though the stream, or the consumer, is Here: the reply
	// subject of a delivery, or of a request of flow control.
	Stray func(consumer, reply []byte)
	// Mirror is shown an ack for a consumer that is served from here while the servers have the say about the stream.
	// It may change where it is to be confirmed (the Reply of its Msg, which is borrowed).
	Mirror func(*Mirrored)
	// Configured is told how the servers have configured the stream at a client's request, before the client is.
	Configured func(*server.StreamConfig)
	// Changed is told that an API request which may change the stream has passed.
	Changed func()
}

// Options of a Scope.
type Options = hooks

// NewScope returns a Scope. Hooks that are nil are not called.
func NewScope(name cutover.Scope, o Options) *Scope {
	s := &Scope{Name: name, hooks: o}
	s.tracker.init()
	return s
}

// Noted is a message that was published through the gateway and acknowledged by the servers.
type Noted struct {
	Seq     uint64
	Subject string
	MsgID   string
	Hash    uint64        // cutover.Hash of what was published
	Time    int64         // when the PubAck passed, in Unix nanoseconds
	Took    time.Duration // until then, from when the message passed
}

// Mirrored is an ack for a consumer that is served from here alone.
type Mirrored struct {
	Msg      *bus.Msg
	Consumer string
	Seq      uint64
	Done     bool // the message is done: not a NAK, not progress
	Next     bool // it asks for the next message, with Reply as the inbox
}

// counters are the denominators of what was noted.
type counters struct {
	published, acknowledged, duplicates, refused, unanswered, unasked, removals atomic.Uint64
}

// Counts are what has passed about a stream.
type Counts struct {
	Published    uint64 // messages that asked for a PubAck
	Acknowledged uint64
	Duplicates   uint64 // of Acknowledged
	Refused      uint64 // answered with an error
	Unanswered   uint64 // the connection ended, or too much was under way
	Unasked      uint64 // messages that asked for no PubAck
	Removals     uint64 // requests to delete or purge messages
	InFlight     int64
}

// Counts returns what has passed so far.
func (s *Scope) Counts() Counts {
	n := &s.notes
	return Counts{
		Published: n.published.Load(), Acknowledged: n.acknowledged.Load(), Duplicates: n.duplicates.Load(),
		Refused: n.refused.Load(), Unanswered: n.unanswered.Load(), Unasked: n.unasked.Load(),
		Removals: n.removals.Load(), InFlight: s.flight.Load(),
	}
}

// Answered is when the latest publish was sent that has its PubAck.
func (s *Scope) Answered() time.Time { return time.Unix(0, s.latest.Load()) }

// Delivered counts what consumers of the servers have sent to clients. Behind a table in which the stream is Here or
// HeldHere it stands still.
func (s *Scope) Delivered() int64 { return s.delivered.Load() }

// InFlight is how many publishes wait for their PubAck.
func (s *Scope) InFlight() int64 { return s.flight.Load() }

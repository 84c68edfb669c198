package face

import (
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// Phase is where a stream is on its way.
type Phase string

// Phases, in order.
const (
	PhaseNATS     Phase = "nats"     // the servers have the say, nothing is copied
	PhaseShadow   Phase = "shadow"   // the servers have the say, a copy is kept and compared
	PhaseCanary   Phase = "canary"   // as shadow, and some consumers are served from here
	PhaseEHDB     Phase = "ehdb"     // the gateway has the say, the servers are kept equal
	PhaseComplete Phase = "complete" // the gateway has the say, for good
)

// Status is everything, as one answer. Each part has the time at which it was so.
type Status struct {
	At      time.Time     `json:"at"`
	Server  string        `json:"server"`
	Version string        `json:"version"`
	Mode    string        `json:"mode"` // of the bus
	Profile gate.Profile  `json:"profile"`
	Epoch   uint64        `json:"epoch"`
	Verdict string        `json:"verdict"` // one sentence, the worst stream first
	Streams []StreamState `json:"streams"`
	// Controls is the last self-test of the comparison.
	Controls parity.SelfTest `json:"controls"`
	Throttle string          `json:"throttle,omitempty"` // why what is behind is held back, of all streams
	Load     *LoadState      `json:"load,omitempty"`     // what copying gives way to, of all streams; nil: nothing
	Paused   string          `json:"paused,omitempty"`   // why nothing is copied, of all streams that can be paused
	Hooks    Hooks           `json:"hooks"`
	Drills   []Drill         `json:"drills"`
	Servers  []ServerState   `json:"servers"`
	Outage   *Outage         `json:"outage,omitempty"` // nil: servers can be reached, as far as it is known
	// Apart says of which accounts the gateway itself is not connected to the servers, and why.
	Apart   []string      `json:"apart,omitempty"`
	Bypass  []BypassState `json:"bypass"`
	Scrapes []Scrape      `json:"scrapes"` // who reads the figures that autoscalers read, the latest first
}

// Hooks are the operator's programs that are asked and told.
type Hooks struct {
	Dir      string   `json:"dir,omitempty"` // empty: bus.hooks is not set
	Timeout  float64  `json:"timeout_seconds,omitempty"`
	Found    []string `json:"found,omitempty"`    // their names
	Problems []string `json:"problems,omitempty"` // why some of them cannot be run
}

// Postponed is a flip that is ready and waits.
type Postponed struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"` // then it is given up
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	File   string    `json:"file,omitempty"` // on the gateway's machine: it waits while this is there
	Waits  string    `json:"waits"`          // what for
}

// ServerState is a NATS server upstream, as the clients' connections to it were met.
type ServerState struct {
	URL       string `json:"url"`
	Reachable bool   `json:"reachable"` // the last attempt succeeded
	Dials     uint64 `json:"dials"`
	Failures  uint64 `json:"failures"`
	LastError string `json:"last_error,omitempty"`
}

// Outage is a time in which no server can be reached, and clients are served from here alone.
type Outage struct {
	Since   time.Time `json:"since"`
	Clients int       `json:"clients"`
}

// BypassState is who is connected to the servers around the gateway, in one account.
type BypassState struct {
	Account string       `json:"account"`
	At      time.Time    `json:"at"`
	Unknown string       `json:"unknown,omitempty"` // why it is not known; empty: it is
	Total   int          `json:"connections"`
	Around  []Connection `json:"around"`
}

// Connection is one of a client with a server.
type Connection struct {
	Addr    string    `json:"addr"`
	Name    string    `json:"name,omitempty"`
	User    string    `json:"user,omitempty"`
	Lang    string    `json:"lang,omitempty"`
	Version string    `json:"version,omitempty"`
	Kind    string    `json:"kind"`   // client, leafnode
	Server  string    `json:"server"` // whose monitoring page shows it
	Since   time.Time `json:"since"`
}

// Scrape is a program that reads a page with the lag of consumers.
type Scrape struct {
	Agent string    `json:"agent"`
	Addr  string    `json:"addr"`
	Page  string    `json:"page"`
	At    time.Time `json:"at"`
	Count uint64    `json:"count"`
}

// StreamState is how a stream stands.
type StreamState struct {
	Scope     cutover.Scope `json:"scope"`
	Phase     Phase         `json:"phase"`
	Busy      string        `json:"busy,omitempty"` // a move that is under way, and its step
	Epoch     uint64        `json:"epoch"`
	Authority string        `json:"authority"` // "nats" or "ehdb"
	Since     time.Time     `json:"since"`
	By        string        `json:"by,omitempty"`
	// ReversibleUntil says until what the way back is open: "complete", or "" when it is closed.
	ReversibleUntil string `json:"reversible_until,omitempty"`

	NATS    Position       `json:"nats"`
	EHDB    Position       `json:"ehdb"`
	Ledger  LedgerState    `json:"ledger"`
	Copy    CopyState      `json:"copy"`
	Parity  *parity.Status `json:"parity,omitempty"`
	Latency []Latency      `json:"latency"`
	Gates   *gate.Report   `json:"gates,omitempty"`
	Back    RollbackCard   `json:"rollback"`
	Reverse *ReverseState  `json:"reverse,omitempty"`
	Fences  []Fence        `json:"fences"` // the latest last
	// Canaries are the consumers that are served from here while the servers have the say about the stream.
	Canaries []Canary `json:"canaries,omitempty"`
	// Leftover says that the copy has what an emergency rollback has lost, and what to do; empty: it has not.
	Leftover string `json:"leftover,omitempty"`
	// Observed is the observation behind a flip; nil: there is none.
	Observed *Observation `json:"observed,omitempty"`
	// Postponed is a flip that waits; nil: none does.
	Postponed *Postponed `json:"postponed,omitempty"`
	LastErr   string     `json:"last_error,omitempty"`

	// Legal are the verbs that may be used now, Next is the one that is due, Undo takes the last one back.
	Legal []string `json:"legal"`
	Next  string   `json:"next,omitempty"`
	Undo  string   `json:"undo,omitempty"`
}

// Observation is the time behind a flip in which it is taken back by itself when something fails twice in a row.
type Observation struct {
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
	Gates   []string  `json:"gates,omitempty"`   // that take it back, besides what is always looked at
	Failing string    `json:"failing,omitempty"` // what was wrong when it was looked the last time
	Kept    string    `json:"kept,omitempty"`    // why it was not taken back when it should have been
}

// Canary is a consumer that is served from here while the servers have the say about its stream.
type Canary struct {
	Consumer  string    `json:"consumer"`
	Since     time.Time `json:"since"`
	By        string    `json:"by,omitempty"`
	Abort     []string  `json:"abort_on,omitempty"` // gates that end it when they fail
	Delivered uint64    `json:"delivered_seq"`      // here
	AckFloor  uint64    `json:"ack_floor_seq"`      // here
	Pending   int       `json:"pending"`            // delivered here without an ack
	Mirrored  time.Time `json:"mirrored"`           // when the servers' consumer was last where this one was
	Error     string    `json:"error,omitempty"`    // why it is not
	Failing   string    `json:"failing,omitempty"`  // gates of Abort that failed when they were looked at last
}

// Position is what a side holds.
type Position struct {
	First    uint64    `json:"first_seq"`
	Last     uint64    `json:"last_seq"`
	Messages uint64    `json:"messages"`
	Bytes    uint64    `json:"bytes"`
	Deleted  uint64    `json:"deleted"`
	At       time.Time `json:"at"`
	Error    string    `json:"error,omitempty"`
}

// LedgerState is what is known of acknowledgements.
type LedgerState struct {
	Last         uint64 `json:"last_seq"`
	Published    uint64 `json:"published"` // that asked for a PubAck
	Acknowledged uint64 `json:"acknowledged"`
	Duplicates   uint64 `json:"duplicates"`
	Refused      uint64 `json:"refused"`
	Unanswered   uint64 `json:"unanswered"`
	Unasked      uint64 `json:"unasked"` // that asked for none
	InFlight     int64  `json:"in_flight"`
}

// CopyState is the queue between reading the authority and writing the copy, with its three rungs. Enqueued +
// EnqueuedAfterWait == Drained + Pending, or records were lost.
type CopyState struct {
	Enqueued          uint64  `json:"enqueued"`
	EnqueuedAfterWait uint64  `json:"enqueued_after_wait"`
	Inline            uint64  `json:"inline"`
	Drained           uint64  `json:"drained"`
	Pending           uint64  `json:"pending"`
	Abandoned         uint64  `json:"shutdown_abandoned"`
	Conserved         bool    `json:"conserved"`
	Rung              string  `json:"rung"` // the last that was taken: try, wait or inline
	LagMessages       uint64  `json:"lag_messages"`
	LagSeconds        float64 `json:"lag_seconds"`
	Backfill          float64 `json:"backfill"`         // how much of the history is there, 0 to 1
	Paused            string  `json:"paused,omitempty"` // why somebody has stopped it
	// Throttled is why what is behind is held back, and Load what the stream's own copying gives way to.
	Throttled string     `json:"throttled,omitempty"`
	Load      *LoadState `json:"load,omitempty"`
	Error     string     `json:"error,omitempty"`
}

// Latency is one kind of latency, side by side. Times are seconds.
type Latency struct {
	Kind string  `json:"kind"` // publish_ack, deliver, gateway
	Side string  `json:"side"` // nats, ehdb; of gateway: overhead, by how much the way through it is longer
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	N    uint64  `json:"n"`
	// Utilisation is how busy the side was when it was measured last, 0 to 1: the busiest server's CPU, and here the
	// CPU or the syncs of the log, whichever is more.
	Utilisation float64 `json:"utilisation"`
}

// RollbackCard is what a rollback now would cost.
type RollbackCard struct {
	Possible   bool      `json:"possible"`
	Lossless   bool      `json:"lossless"`
	Lost       uint64    `json:"lost"`
	Duplicates int       `json:"duplicates"` // at most
	Seconds    float64   `json:"seconds"`    // about
	Why        string    `json:"why,omitempty"`
	Rehearsed  time.Time `json:"rehearsed,omitzero"`
}

// ReverseState is the chain that keeps the servers equal after a flip.
type ReverseState struct {
	Last   uint64  `json:"last_seq"` // that the servers have
	Lag    uint64  `json:"lag_messages"`
	Age    float64 `json:"lag_seconds"`
	Paused string  `json:"paused,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// Fence is one time that a stream was held.
type Fence struct {
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"` // flip, rollback
	Seconds float64   `json:"seconds"`
	Held    uint64    `json:"held"` // messages
	Outcome string    `json:"outcome"`
}

// Inventory is what there is, and what speaks against moving it: `ehdbctl plan`.
type Inventory struct {
	At      time.Time       `json:"at"`
	Digest  string          `json:"digest"`
	Streams []PlannedStream `json:"streams"`
	Total   Amount          `json:"total"`
	Clients []ClientKind    `json:"clients"`
	// Queues are the queue groups of clients that come by the gateway, without those of inboxes.
	Queues []QueueGroup `json:"queues"`
	// Scalers are the autoscalers that ask this gateway for figures of consumers, Controllers the connections of
	// programs that keep streams as their own configuration says (NACK).
	Scalers     []Scrape     `json:"scalers"`
	Controllers []Connection `json:"controllers"`
	Notes       []string     `json:"notes"`
}

// Amount is how much there is to copy.
type Amount struct {
	Streams  int     `json:"streams"`
	Messages uint64  `json:"messages"`
	Bytes    uint64  `json:"bytes"`
	Seconds  float64 `json:"estimated_copy_seconds"` // of the longest: each stream is copied at a rate of its own
}

// QueueGroup is a queue of subscribers.
type QueueGroup struct {
	Account string `json:"account"`
	Subject string `json:"subject"`
	Queue   string `json:"queue"`
	Members int    `json:"members"`
}

// PlannedStream is a stream of the servers.
type PlannedStream struct {
	Scope     cutover.Scope `json:"scope"`
	Messages  uint64        `json:"messages"`
	Bytes     uint64        `json:"bytes"`
	Consumers int           `json:"consumers"`
	Kind      string        `json:"kind"` // stream, kv, object
	Features  []string      `json:"features"`
	Refusals  []string      `json:"refusals"` // why it cannot be moved; none: it can
	Seconds   float64       `json:"estimated_copy_seconds"`
	Shards    []uint32      `json:"shards"`         // of this gateway's log where it is, or would be, its home first
	Groups    []string      `json:"deliver_groups"` // queue groups of push consumers, as consumer/group
	Managed   []string      `json:"managed"`        // metadata that says who keeps its configuration
}

// ClientKind is a kind of client by library.
type ClientKind struct {
	Lang    string `json:"lang"`
	Version string `json:"version"`
	Count   int    `json:"count"`
}

// Plan is what a move would do.
type Plan struct {
	Scope    cutover.Scope `json:"scope"`
	To       string        `json:"to"`
	Epoch    uint64        `json:"epoch"`
	Steps    []string      `json:"steps"`
	Refusals []string      `json:"refusals,omitempty"`
	Gates    string        `json:"gates"`
	// NotEnough: nothing but too little evidence is in the way.
	NotEnough bool `json:"not_enough,omitempty"`
	// Cost is what an emergency rollback would cost at most; nil: it is about none.
	Cost   *RollbackCard `json:"cost,omitempty"`
	Undo   string        `json:"undo"`
	Digest string        `json:"digest"`
}

// Move is what moving a stream came to.
type Move struct {
	Scope      cutover.Scope `json:"scope"`
	To         string        `json:"to"`
	State      string        `json:"state"` // done, postponed, aborted
	Epoch      uint64        `json:"epoch"`
	Last       uint64        `json:"last_seq"`
	Fence      float64       `json:"fence_seconds"`
	Attempts   int           `json:"attempts"`
	Consumers  int           `json:"consumers"`
	Inexact    []string      `json:"inexact,omitempty"`
	Lost       uint64        `json:"lost"`
	Duplicates int           `json:"duplicates"`
	At         time.Time     `json:"at"`
	Undo       string        `json:"undo,omitempty"`
	Next       string        `json:"next,omitempty"`
}

// Drill is an exercise and its evidence.
type Drill = drill.Drill

// Event is something that happened, numbered without gaps across restarts.
type Event struct {
	ID     uint64        `json:"id"`
	Time   time.Time     `json:"time"`
	Kind   string        `json:"kind"`
	Scope  cutover.Scope `json:"scope"`
	Epoch  uint64        `json:"epoch,omitempty"`
	By     string        `json:"by,omitempty"`
	Reason string        `json:"reason,omitempty"`
	Text   string        `json:"text"`
}

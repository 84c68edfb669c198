package jetstreamapi

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/source"
	"github.com/noetl/ehdb-gateway/storage"
)

// Options make a Service. Zero values mean the defaults given here.
type Options struct {
	Bus bus.Bus
	// Storage is the data directory. Its Events are called besides the service's own use of them.
	Storage storage.Options

	ServerName string // as clients see it; also the leader of every asset
	ServerID   string
	Domain     string // the JetStream domain; empty: none
	System     string // the system account, which is told of an overload; empty: none

	// Accounts are those with JetStream, by name, with their limits (-1: none). Nil: account "$G" without limits.
	Accounts map[string]server.JetStreamAccountLimits
	// Outsiders are accounts without JetStream, whose requests are answered with that (10039).
	Outsiders []string
	// MaxMemory and MaxStore bound what all accounts store, in bytes; 0 or less: no limit.
	MaxMemory, MaxStore int64
	// Limits are the server's limits on single assets. DefaultMaxConsumers 0 means 1000, -1 none.
	Limits server.JSLimitOpts
	// Lax accepts unknown fields in requests, as jetstream { strict: false } does.
	Lax bool

	// Upstreams are the other servers whose streams may be mirrored and sourced.
	Upstreams []source.Upstream

	// Placement picks the shards of a new stream. Nil: one shard by hash of account and name.
	Placement Placement

	QueueLimit   int           // requests that may wait, for each account; default 10000
	ReadWorkers  int           // for each account; default the number of cores, at least 2
	ReopenDelay  time.Duration // first pause before a failed data directory is opened again; default 100 ms
	MaxPending   int64         // bytes a batched direct get may answer with; default 64 MiB
	MaxPayload   int64         // bytes of a message, header included, that a restore accepts; default 1 MiB
	Logger       *slog.Logger  // default: none
	SyncInterval time.Duration // shown in jsz
	StallAfter   time.Duration // a consumer that owes deliveries this long counts as stalled; default 10 s

	// Published is told how long a sample of the publishes waited for their ack; it must be quick. May be nil.
	Published func(took time.Duration)
	// Acknowledged is told how long each message was out, from its last delivery to its ack. As Published.
	Acknowledged func(took time.Duration)

	// Client describes who makes a request, for advisories. Nil: its account is all that is known.
	Client func(id bus.Identity) *server.ClientInfo

	patience patience // with clients of snapshots and restores
}

// Placement decides where the records of a stream live.
type Placement interface {
	// Shards returns the shards (each below n) of a new stream, the first being its home.
	Shards(account, stream string, subjects []string, n int) []uint32
	// Route returns the shard of a subject stored in one of those streams.
	Route(account, stream string, subject []byte, n int) uint32
}

const (
	defaultQueueLimit   = 10_000
	defaultMaxConsumers = server.JSDefaultMaxConsumersPerStream
	defaultReopenDelay  = 100 * time.Millisecond
	maxReopenDelay      = 15 * time.Second
	defaultStallAfter   = 10 * time.Second
	rejectLimit         = 1_000
	advisoryLimit       = 4_096
)

func (o *Options) setDefaults() {
	if o.Accounts == nil {
		o.Accounts = map[string]server.JetStreamAccountLimits{"$G": NoLimits()}
	}
	if o.MaxMemory <= 0 {
		o.MaxMemory = -1
	}
	if o.MaxStore <= 0 {
		o.MaxStore = -1
	}
	if o.QueueLimit <= 0 {
		o.QueueLimit = defaultQueueLimit
	}
	if o.ReadWorkers <= 0 {
		o.ReadWorkers = max(2, runtime.GOMAXPROCS(0))
	}
	if o.ReopenDelay <= 0 {
		o.ReopenDelay = defaultReopenDelay
	}
	if o.StallAfter <= 0 {
		o.StallAfter = defaultStallAfter
	}
	if o.MaxPending <= 0 {
		o.MaxPending = 64 << 20
	}
	if o.MaxPayload <= 0 {
		o.MaxPayload = server.MAX_PAYLOAD_SIZE
	}
	if o.patience == (patience{}) {
		o.patience = defaultPatience
	}
	if o.Limits.DefaultMaxConsumers == 0 {
		o.Limits.DefaultMaxConsumers = defaultMaxConsumers
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Placement == nil {
		o.Placement = hashPlacement{}
	}
}

// NoLimits are account limits that allow everything.
func NoLimits() server.JetStreamAccountLimits {
	return server.JetStreamAccountLimits{
		MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
		MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}
}

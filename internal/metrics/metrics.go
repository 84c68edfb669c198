package metrics

import (
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/noetl/ehdb-gateway/storage"
)

// Gateway is what the client side counts, since the start but for the first two, which are current.
type Gateway struct {
	Connections, Subscriptions                uint64
	TotalConnections                          uint64
	InMsgs, OutMsgs, InBytes, OutBytes        uint64
	SlowPending, SlowDeadline, Stale, Stalled uint64
	Disconnects                               map[string]uint64 // by reason, also those at 0
	Talkers                                   Talkers
}

// Talker is an account, a user or a filter of subjects, with how much it sent and received, or what was published
// there.
type Talker struct {
	Account, Name string
	Total         uint64
}

// Talkers are those with most, as few as have series.
type Talkers struct {
	AccountMsgs, AccountBytes, UserMsgs, UserBytes, SubjectMsgs, SubjectBytes []Talker
}

// JetStream is what the streams count.
type JetStream struct {
	Streams, Consumers     uint64
	Messages, Bytes        uint64
	FileBytes, MemoryBytes uint64
	APIRequests, APIErrors uint64
	Stalled                uint64         // consumers that owe deliveries and deliver nothing
	Miscounted             uint64         // times a consumer had lost count
	Audits                 uint64         // times one was looked at for that
	KeyBlocked             uint64         // consumers that passed over as many messages of blocked keys as they may
	Refusals               map[int]uint64 // publishes refused, by JetStream's err_code
	FileLimit, MemoryLimit int64          // of what streams may store, in bytes; 0 or less: none
	DiskFree, DiskSize     uint64         // the file system of the data directory, in bytes
	Storage                storage.Stats
	StorageErr             error // why nothing can be acknowledged; nil: all is well
	QueueLimit             int64 // bound of one shard's queue in bytes
}

// SSE is what the feeds of server-sent events count, since the start but for Connections.
type SSE struct {
	Connections           uint64
	Opened, Resumed, Slow uint64
	Events, Bytes, Gaps   uint64
	Refused               map[string]uint64 // by reason, also those at 0
}

// Durable is one durable consumer.
type Durable struct {
	Shards              []int // where its stream lives
	Filters             []string
	Pending, AckPending uint64
	// Count returns how much of the lag is on one subject, for configured subjects that are not a filter of the
	// consumer but inside one. Nil when it cannot be told.
	Count func(subject string) uint64

	Account, Stream, Consumer string
	Waiting                   uint64    // pull requests
	Delivered, Acked          time.Time // last; zero: never
	Created                   time.Time
	// Detail returns what costs more. Nil: nothing is known.
	Detail func() Detail
	// Elsewhere: it is on a server upstream, which tells no details, so there are no series of them.
	Elsewhere bool
}

// Detail is what is asked only of durables that have series of their own.
type Detail struct {
	OldestPending    time.Duration // age of the first message not delivered; 0: there is none
	OldestAckPending time.Duration // since the first delivery of the oldest message not acknowledged; 0: there is none
	Redeliveries     uint64        // since the start
}

// Sources are asked at each scrape. They must be quick and may be called by several scrapes at a time.
type Sources struct {
	Gateway   func() Gateway
	JetStream func() JetStream // nil: off
	SSE       func() SSE       // nil: off
	// Durables calls fn for each durable consumer, and returns whether these are all: of servers upstream it may not
	// be known. Nil: off.
	Durables func(fn func(Durable)) bool
	// Upstream is given by a server that passes its clients on. Then only what is given of JetStream and Durables has
	// series: what is elsewhere must not read like 0.
	Upstream func() Upstream
	// Extra are collectors of parts with series of their own.
	Extra    []prometheus.Collector
	Shards   int      // shards that have series from the start, whatever Stats says
	Subjects []string // configured subjects
	Version  string
	Mode     string
}

// Metrics is the registry.
type Metrics struct {
	reg      *prometheus.Registry
	sync     prometheus.Histogram
	records  prometheus.Histogram
	publish  prometheus.Histogram
	ack      prometheus.Histogram
	upstream upstreamTimes

	mu   sync.Mutex   // guards page
	page http.Handler // nil until Ready
}

// maxScrapes bounds the scrapes that are served at a time; more are told 503.
const maxScrapes = 4

// refusals are the err_codes a publish can be refused with; their series are there from the start.
var refusals = []int{10023, 10024, 10047, 10054, 10060, 10070, 10071, 10077, 10097, 10122, 10164, 10167}

// New makes the registry. /metrics answers 503 until Ready is called: series that depend on recovered durables must not
// be missing from the first answer.
func New() *Metrics {
	m := &Metrics{reg: prometheus.NewRegistry()}
	m.sync = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "ehdb_storage_sync_seconds", Help: "Time of one group commit: write and sync.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
	})
	m.records = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "ehdb_storage_commit_records", Help: "Records made durable by one group commit.",
		Buckets: prometheus.ExponentialBuckets(1, 4, 9),
	})
	m.publish = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "ehdb_stream_publish_ack_seconds",
		Help:    "Time from a publish's arrival at its stream until its ack may leave: samples.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
	})
	m.ack = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "ehdb_consumer_ack_seconds",
		Help:    "Time from a message's last delivery until it was acknowledged.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 4, 12), //nolint:mnd // 0.5 ms to 35 min
	})
	m.upstream = newUpstreamTimes()
	return m
}

// Synced takes one group commit; it is a storage event.
func (m *Metrics) Synced(records int, _ int64, seconds float64) {
	m.sync.Observe(seconds)
	m.records.Observe(float64(records))
}

// Published takes the time from a publish to its ack, of a sample of them.
func (m *Metrics) Published(took time.Duration) { m.publish.Observe(took.Seconds()) }

// Acknowledged takes the time from a message's last delivery to its ack.
func (m *Metrics) Acknowledged(took time.Duration) { m.ack.Observe(took.Seconds()) }

// Ready gives the sources and opens the page. It is called once.
func (m *Metrics) Ready(s Sources) {
	if s.Upstream != nil {
		m.reg.MustRegister(m.upstream.dial, m.upstream.rtt)
	}
	if s.Upstream == nil || s.JetStream != nil {
		m.reg.MustRegister(m.sync, m.records, m.publish, m.ack)
	}
	m.reg.MustRegister(newCollector(s),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ehdb_build_info", Help: "Always 1; the labels say which build and mode this is.",
		ConstLabels: prometheus.Labels{"version": s.Version, "goversion": runtime.Version(), "mode": s.Mode},
	})
	build.Set(1)
	m.reg.MustRegister(build)
	m.reg.MustRegister(s.Extra...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.page = promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// ServeHTTP answers a scrape.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	page := m.page
	m.mu.Unlock()
	if page == nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "starting: streams are being recovered", http.StatusServiceUnavailable)
		return
	}
	page.ServeHTTP(w, r)
}

// Registry is for tests.
func (m *Metrics) Registry() *prometheus.Registry { return m.reg }

func shardLabel(i int) string { return strconv.Itoa(i) }

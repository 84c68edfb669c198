package jetstreamapi

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/consumer"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// Lag is how far one durable consumer is behind its stream.
type Lag struct {
	Account, Stream, Consumer string
	Filters                   []string // empty: all subjects of the stream
	Subjects                  []string // the stream's
	Pending                   uint64   // messages not delivered yet
	AckPending                int      // delivered and not acknowledged
	Shard                     uint32   // where the stream is at home
	Shards                    []uint32 // all shards of the stream, home first
	// Count returns how many of the messages not delivered yet match a filter. It may search the index.
	Count func(filter string) uint64

	LastSeq uint64 // the stream's newest visible message

	Waiting          int       // pull requests
	Delivered, Acked time.Time // of the last delivery and the last ack; zero: there was none
	Created          time.Time
	// Stats returns what costs more: with messages pending it reads the first of them.
	Stats func() consumer.Stats
}

// ErrUnknown is an account without JetStream, or a stream or consumer that is not there.
var ErrUnknown = errors.New("not found")

// Lag returns the lag of one consumer, durable or not. The error is ErrUnknown, or says why it does not serve now.
func (s *Service) Lag(accountName, streamName, consumerName string) (Lag, error) {
	a := s.account(accountName)
	if a == nil {
		return Lag{}, fmt.Errorf("account %q with JetStream: %w", accountName, ErrUnknown)
	}
	c, apiErr := a.consumer(streamName, consumerName)
	switch {
	case apiErr == nil:
		return c.lag(), nil
	case apiErr.ErrCode == server.NewJSStreamNotFoundError().ErrCode:
		return Lag{}, fmt.Errorf("stream %q of account %q: %w", streamName, accountName, ErrUnknown)
	case apiErr.ErrCode == server.NewJSConsumerNotFoundError().ErrCode:
		return Lag{}, fmt.Errorf("consumer %q of stream %q of account %q: %w",
			consumerName, streamName, accountName, ErrUnknown)
	}
	return Lag{}, errors.New(apiErr.Description)
}

// LagsOf returns the lags of the durable consumers of an account and a stream; both may be empty: of all. With the name
// of a consumer it is Lag. The errors are Lag's.
func (s *Service) LagsOf(accountName, streamName, consumerName string) ([]Lag, error) {
	if consumerName != "" {
		l, err := s.Lag(accountName, streamName, consumerName)
		return []Lag{l}, err
	}
	if accountName == "" {
		return s.Lags(), nil
	}
	a := s.account(accountName)
	if a == nil {
		return nil, fmt.Errorf("account %q with JetStream: %w", accountName, ErrUnknown)
	}
	if streamName == "" {
		return a.lags(), nil
	}
	e, err := s.readable(accountName, streamName)
	if err != nil {
		return nil, err
	}
	return e.lags(), nil
}

// Lags returns the lag of every durable consumer, by account, stream and name.
func (s *Service) Lags() []Lag {
	var out []Lag
	for _, a := range s.sortedAccounts() {
		out = append(out, a.lags()...)
	}
	return out
}

func (a *account) lags() []Lag {
	var out []Lag
	for _, e := range a.sortedStreams("") {
		if e.offline == nil {
			out = append(out, e.lags()...)
		}
	}
	return out
}

func (e *streamEntry) lags() []Lag {
	var out []Lag
	for _, c := range e.acc.sortedConsumers(e) {
		if c.config().Durable != "" && c.offline == nil {
			out = append(out, c.lag())
		}
	}
	return out
}

func (c *consumerEntry) lag() Lag {
	info := c.consumer.Info()
	l := Lag{
		Account: c.stream.acc.name, Stream: c.stream.name, Consumer: c.name,
		Filters: slices.Clone(filtersOf(c.config())), Subjects: slices.Clone(c.stream.config().Subjects),
		Pending: info.NumPending, AckPending: info.NumAckPending,
		LastSeq: c.stream.log.Visible(), Waiting: info.NumWaiting, Created: info.Created, Stats: c.consumer.Stats,
	}
	if at := info.Delivered.Last; at != nil {
		l.Delivered = *at
	}
	if at := info.AckFloor.Last; at != nil {
		l.Acked = *at
	}
	for _, id := range c.stream.shards {
		l.Shards = append(l.Shards, uint32(id))
	}
	if len(l.Shards) > 0 {
		l.Shard = l.Shards[0]
	}
	log, from := c.stream.log, info.Delivered.Stream+1
	l.Count = func(filter string) uint64 {
		f, err := subjects.Compile(filter)
		if err != nil {
			return 0
		}
		return log.Count(from, []storage.Filter{f})
	}
	return l
}

// Counters are counts of the service since it was started.
type Counters struct {
	APIRequests, APIErrors uint64
	Reopens                uint64 // times the data directory was opened again after a failure
	Dropped                uint64 // advisories and refusals that found their queue full
	QueuedRequests         int
	Stalled                int             // consumers that have messages and somebody who waits, and deliver nothing
	Miscounted             uint64          // times a consumer had lost count of its messages
	Audits                 uint64          // times one was looked at for that
	KeyBlocked             int             // consumers with ehdb.key_shared that passed over as much as they may
	Published              stream.Counters // of all streams, also those that are gone
}

// Counters returns the counters.
func (s *Service) Counters() Counters {
	c := Counters{APIRequests: s.apiTotal.Load(), APIErrors: s.apiErrors.Load(), Stalled: int(s.stalled.Load())}
	c.KeyBlocked, c.Miscounted, c.Audits = int(s.keyBlocked.Load()), s.miscounted.Load(), s.audits.Load()
	c.Reopens = s.fileReopens()
	for _, a := range s.sortedAccounts() {
		c.Dropped += a.dropped.Load()
		c.QueuedRequests += a.writes.len() + a.reads.len()
	}
	c.Published = s.published()
	return c
}

// retired are the counters of streams that stopped.
type retired struct {
	mu  sync.Mutex
	sum stream.Counters
}

func (r *retired) add(c stream.Counters) {
	r.mu.Lock()
	defer r.mu.Unlock()
	addCounters(&r.sum, c)
}

func addCounters(sum *stream.Counters, c stream.Counters) {
	sum.Stored += c.Stored
	sum.Skipped += c.Skipped
	sum.Duplicates += c.Duplicates
	sum.Unanswered += c.Unanswered
	if sum.Refused == nil {
		sum.Refused = make(map[uint16]uint64)
	}
	for code, n := range c.Refused {
		sum.Refused[code] += n
	}
}

// published sums the counters of all streams. While one of them stops, it may miss it for a moment, but never count it
// twice.
func (s *Service) published() stream.Counters {
	var sum stream.Counters
	s.retired.mu.Lock()
	addCounters(&sum, s.retired.sum)
	s.retired.mu.Unlock()
	for _, a := range s.sortedAccounts() {
		for _, e := range a.sortedStreams("") {
			if e.stream != nil && !e.retired.Load() {
				addCounters(&sum, e.stream.Counters())
			}
		}
	}
	return sum
}

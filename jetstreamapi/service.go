package jetstreamapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/jetstreamapi/consumer"
	"github.com/noetl/ehdb-gateway/jetstreamapi/source"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
)

// Service is JetStream for all accounts.
type Service struct {
	opts Options
	log  *slog.Logger

	mem   *storage.Store // streams and consumers kept in memory
	sched *consumer.Scheduler

	upstreams *source.Upstreams
	files     files

	reload    sync.Mutex // held while the set of accounts changes, and while a failed data directory is reopened
	mu        sync.RWMutex
	accounts  map[string]*account
	outsiders map[string]*account // guarded by reload

	batches   stream.Batches                   // what those of all streams share
	tiers     atomic.Pointer[map[string]Tiers] // nil: no account has any
	elsewhere atomic.Pointer[cutover.Elsewhere]
	used      usage
	apiTotal  atomic.Uint64
	apiErrors atomic.Uint64
	retired   retired
	stalled   atomic.Int64 // consumers, see watchStalls

	keyBlocked atomic.Int64  // consumers, see watchStalls
	miscounted atomic.Uint64 // audits that found something, see watchBooks
	audits     atomic.Uint64
	refused    atomic.Int64 // requests, since tellOverload told of them

	maxPayload          atomic.Int64 // see Options
	maxMemory, maxStore atomic.Int64 // see Options
	started             time.Time

	watched *queue // of copies of requests for the system account

	stopping context.Context // ends when Stop is called
	stop     context.CancelFunc
	loops    sync.WaitGroup
}

// New makes a service; nothing happens before Start.
func New(o Options) *Service {
	o.setDefaults()
	s := &Service{opts: o, log: o.Logger, accounts: make(map[string]*account, len(o.Accounts))}
	s.batches.Limits = o.Limits
	s.watched = s.newWatched()
	s.files.failed = make(chan error, 1)
	s.upstreams = source.NewUpstreams(o.Upstreams, o.Logger)
	s.maxPayload.Store(o.MaxPayload)
	s.maxMemory.Store(o.MaxMemory)
	s.maxStore.Store(o.MaxStore)
	for name, limits := range o.Accounts {
		s.accounts[name] = newAccount(s, name, limits)
	}
	s.outsiders = make(map[string]*account, len(o.Outsiders))
	return s
}

// Start opens the data directory, brings back every stream and consumer, and serves the API. An asset that cannot be
// brought back does not keep the others from serving: Health tells about it. The error is one of the directory itself.
func (s *Service) Start(ctx context.Context) error {
	s.stopping, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.started = time.Now().UTC()
	mem, err := storage.Open(ctx, storage.Options{})
	if err != nil {
		s.stop()
		return fmt.Errorf("memory store: %w", err)
	}
	s.mem = mem
	s.sched = consumer.NewScheduler(s.opts.Bus, 0)
	if err := s.openFiles(ctx, func(*catalog, context.Context) error { return nil }); err != nil {
		s.stop()
		s.sched.Close()
		return errors.Join(err, mem.Close())
	}
	for _, a := range s.sortedAccounts() {
		if err := a.open(); err != nil {
			return errors.Join(err, s.Stop(ctx))
		}
	}
	if err := s.setOutsiders(s.opts.Outsiders); err != nil {
		return errors.Join(err, s.Stop(ctx))
	}
	s.loops.Go(s.superviseFiles)
	s.loops.Go(s.watchStalls)
	s.loops.Go(s.watchBooks)
	s.loops.Go(s.tellOverload)
	return nil
}

// Stop ends the API, then the consumers (waiting pull requests are answered), then the streams, then the store: what
// was asked for and is durable by then is still answered.
func (s *Service) Stop(context.Context) error {
	s.stop()
	s.loops.Wait()
	closed := s.setOutsiders(nil)
	accounts := s.sortedAccounts()
	for _, a := range accounts {
		a.stopServing()
	}
	for _, a := range accounts {
		a.stopAssets(a.sortedStreams(""))
		a.endServed()
	}
	s.upstreams.Close()
	s.sched.Close()
	err := errors.Join(closed, s.closeFiles(), s.mem.Close())
	for _, a := range accounts {
		a.stopAnswering()
	}
	s.watched.close()
	return err
}

// account returns an account with JetStream, nil if there is none of that name.
func (s *Service) account(name string) *account {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.accounts[name]
}

// sortedAccounts returns the accounts with JetStream, by name.
func (s *Service) sortedAccounts() []*account {
	s.mu.RLock()
	out := make([]*account, 0, len(s.accounts))
	for _, a := range s.accounts {
		out = append(out, a)
	}
	s.mu.RUnlock()
	slices.SortFunc(out, func(x, y *account) int { return strings.Compare(x.name, y.name) })
	return out
}

// Accounts returns the names of the accounts with JetStream, sorted.
func (s *Service) Accounts() []string {
	accounts := s.sortedAccounts()
	names := make([]string, len(accounts))
	for i, a := range accounts {
		names[i] = a.name
	}
	return names
}

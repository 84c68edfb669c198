package jetstreamapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
)

// files is the data directory and what the service knows of its health.
type files struct {
	failed chan error // one entry: the open store acknowledges nothing more

	mu      sync.RWMutex
	store   *storage.Store // nil while it is closed
	catalog *catalog
	err     error // why the directory is not open, or takes no messages
	reopens uint64
}

// fileStore returns the open data directory, nil while there is none.
func (s *Service) fileStore() *storage.Store {
	s.files.mu.RLock()
	defer s.files.mu.RUnlock()
	return s.files.store
}

// Store returns the open data directory for its counters, nil while it is being reopened after a failure.
func (s *Service) Store() *storage.Store { return s.fileStore() }

// fileCatalog returns the catalog, or why there is none now.
func (s *Service) fileCatalog() (*catalog, error) {
	s.files.mu.RLock()
	defer s.files.mu.RUnlock()
	if s.files.catalog == nil {
		if s.files.err != nil {
			return nil, s.files.err
		}
		return nil, storage.ErrStopped
	}
	return s.files.catalog, nil
}

func (s *Service) setFilesError(err error) {
	s.files.mu.Lock()
	s.files.err = err
	s.files.mu.Unlock()
}

// openFiles opens the data directory and starts everything in it. With probe it writes first: a disk that failed may
// still be readable, and is not served from before it takes writes again.
func (s *Service) openFiles(ctx context.Context, probe bool) error {
	o := s.opts.Storage
	given := o.Events
	o.Events.Stopped = func(err error) {
		if given.Stopped != nil {
			given.Stopped(err)
		}
		select {
		case s.files.failed <- err:
		default: // known already
		}
	}
	o.Events.NoSpace = func(err error) {
		s.setFilesError(fmt.Errorf("no space: %w", err))
		if given.NoSpace != nil {
			given.NoSpace(err)
		}
	}
	o.Events.Resumed = func() {
		s.setFilesError(nil)
		if given.Resumed != nil {
			given.Resumed()
		}
	}
	st, err := storage.Open(ctx, o)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	c, err := openCatalog(st.Catalog())
	if err == nil && probe {
		err = c.probe(ctx)
	}
	if err != nil {
		return errors.Join(err, st.Close())
	}
	s.files.mu.Lock()
	s.files.store, s.files.catalog, s.files.err = st, c, nil
	s.files.mu.Unlock()
	if err := s.recoverAssets(c, st, func(string) bool { return true }); err != nil {
		return errors.Join(err, s.closeFiles())
	}
	s.dropOrphans(c, st)
	return nil
}

// dropOrphans removes the logs that the catalog does not know: their asset was deleted, or was never answered for,
// before a crash.
func (s *Service) dropOrphans(c *catalog, st *storage.Store) {
	known, err := c.logIDs()
	if err != nil {
		s.log.Error("the catalog cannot be read; nothing is removed", "error", err)
		return
	}
	known[st.Catalog().ID()] = true
	st.EachLog(func(id storage.LogID, name string, _ bool) {
		if known[id] {
			return
		}
		s.log.Info("a log without an entry in the catalog is removed", "log", uint64(id), "name", name)
		if err := st.DropLog(id, nil); err != nil {
			s.log.Warn("it stays for now", "log", uint64(id), "error", err)
		}
	})
}

// closeFiles closes the data directory; its streams must be stopped before.
func (s *Service) closeFiles() error {
	s.files.mu.Lock()
	st := s.files.store
	s.files.store, s.files.catalog = nil, nil
	s.files.mu.Unlock()
	if st == nil {
		return nil
	}
	return st.Close()
}

// superviseFiles reopens the data directory after an I/O error: what is on disk is then no longer known, so nothing
// more may be acknowledged before it was read again.
func (s *Service) superviseFiles() {
	for {
		select {
		case <-s.stopping.Done():
			return
		case err := <-s.files.failed:
			s.reopenFiles(err)
		}
	}
}

func (s *Service) reopenFiles(cause error) {
	s.reload.Lock()
	defer s.reload.Unlock()
	s.log.Error("the data directory failed; it is closed and opened again", "error", cause)
	s.setFilesError(fmt.Errorf("data directory failed: %w", cause))
	for _, a := range s.sortedAccounts() {
		a.change.Lock() // no asset is made or changed while they all go
		a.takeOffline(cause)
		a.change.Unlock()
	}
	if err := s.closeFiles(); err != nil {
		s.log.Warn("closing the failed data directory", "error", err)
	}
	s.forgetFailure()
	for delay := s.opts.ReopenDelay; ; delay = min(2*delay, maxReopenDelay) {
		err := s.openFiles(s.stopping, true)
		if err == nil {
			s.files.mu.Lock()
			s.files.reopens++
			s.files.mu.Unlock()
			s.log.Info("the data directory serves again")
			return
		}
		s.setFilesError(err)
		s.forgetFailure()
		s.log.Error("the data directory could not be opened; trying again", "error", err, "after", delay)
		select {
		case <-s.stopping.Done():
			return
		case <-time.After(delay):
		}
	}
}

// forgetFailure takes back a report of a store that is closed since: closing it may report its failure once more.
func (s *Service) forgetFailure() {
	select {
	case <-s.files.failed:
	default:
	}
}

// takeOffline stops the account's streams on disk and leaves entries in their place that say why. change is held.
func (a *account) takeOffline(cause error) {
	a.stopAssets(func(e *streamEntry) bool { return !e.memory })
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, e := range a.streams {
		if !e.memory {
			a.streams[name] = e.offlineCopy(cause)
		}
	}
}

// offlineCopy returns an entry for the same stream that does not serve.
func (e *streamEntry) offlineCopy(cause error) *streamEntry {
	out := &streamEntry{
		acc: e.acc, name: e.name, created: e.created, logID: e.logID, shards: e.shards, offline: cause,
		consumers: make(map[string]*consumerEntry),
	}
	out.cfg.Store(e.config())
	return out
}

// stopAssets stops the consumers and streams that which selects.
func (a *account) stopAssets(which func(*streamEntry) bool) {
	a.mu.RLock()
	var streams []*streamEntry
	var consumers []*consumerEntry
	for _, e := range a.streams {
		if !which(e) {
			continue
		}
		streams = append(streams, e)
		for _, c := range e.consumers {
			consumers = append(consumers, c)
		}
	}
	a.mu.RUnlock()
	for _, c := range consumers {
		c.stop(statusShutdown, jsapi.StatusShutdown)
	}
	for _, e := range streams {
		e.stop()
	}
}

var errUnknownAccount = errors.New("the account has no JetStream any more")

// recoverAssets brings back the streams of the catalog, then the consumers, of the accounts that which selects.
func (s *Service) recoverAssets(c *catalog, st *storage.Store, which func(account string) bool) error {
	streams, consumers, err := c.records()
	if err != nil {
		return err
	}
	for i := range streams {
		if which(streams[i].Account) {
			s.recoverStream(&streams[i], st)
		}
	}
	for i := range consumers {
		if which(consumers[i].Account) {
			s.recoverConsumer(&consumers[i], st)
		}
	}
	for _, a := range s.sortedAccounts() {
		if which(a.name) {
			a.reconcile()
		}
	}
	return nil
}

// reconcile tells the streams that their consumers are back. One that misses a consumer keeps everything until it has
// that, too.
func (a *account) reconcile() {
	a.mu.RLock()
	var whole []*stream.Stream
	for _, e := range a.streams {
		missing := !e.recovering || e.stream == nil
		for _, c := range e.consumers {
			missing = missing || c.offline != nil
		}
		if !missing {
			whole = append(whole, e.stream)
		}
	}
	a.mu.RUnlock()
	for _, s := range whole {
		s.Reconcile()
	}
}

// recoverStream brings one stream back; a failure is kept in its entry.
func (s *Service) recoverStream(r *catalogRecord, st *storage.Store) {
	a := s.account(r.Account)
	if a == nil || r.Config == nil {
		s.log.Warn("a stream is kept but not served", "account", r.Account, "stream", r.Stream, "error", errUnknownAccount)
		return
	}
	e := &streamEntry{
		acc: a, name: r.Stream, created: r.Created, logID: r.LogID, shards: r.Shards,
		consumers: make(map[string]*consumerEntry),
	}
	e.recovering = true
	e.cfg.Store(r.Config)
	log, err := st.OpenLog(e.logID, e.spec())
	if err == nil {
		err = e.start(log)
	}
	if err != nil {
		s.log.Error("a stream could not be brought back", "account", r.Account, "stream", r.Stream, "error", err)
		e = e.offlineCopy(err)
	}
	a.addStream(e)
}

// recoverConsumer brings one consumer back; a failure is kept in its entry.
func (s *Service) recoverConsumer(r *catalogRecord, st *storage.Store) {
	a := s.account(r.Account)
	if a == nil || r.Settings == nil {
		return
	}
	a.mu.RLock()
	e := a.streams[r.Stream]
	a.mu.RUnlock()
	if e == nil {
		return // its stream was removed, or is of an account that is not served
	}
	c := &consumerEntry{stream: e, name: r.Consumer, created: r.Created, logID: r.LogID}
	c.cfg.Store(r.Settings)
	if e.offline != nil {
		c.offline = e.offline
		a.addConsumer(c)
		return
	}
	state, err := st.OpenStateLog(c.logID)
	if err == nil {
		err = c.start(state)
	}
	if err != nil {
		s.log.Error("a consumer could not be brought back",
			"account", r.Account, "stream", r.Stream, "consumer", r.Consumer, "error", err)
		bad := &consumerEntry{stream: e, name: c.name, created: c.created, logID: c.logID, offline: err}
		bad.cfg.Store(r.Settings)
		c = bad
	}
	a.addConsumer(c)
}

func (a *account) addStream(e *streamEntry) {
	a.addReserved(e.config(), 1)
	a.mu.Lock()
	old := a.streams[e.name]
	a.streams[e.name] = e
	a.mu.Unlock()
	if old != nil {
		a.addReserved(old.config(), -1)
	}
}

func (a *account) removeStream(e *streamEntry) {
	a.mu.Lock()
	delete(a.streams, e.name)
	a.mu.Unlock()
	a.addReserved(e.config(), -1)
}

func (a *account) addConsumer(c *consumerEntry) {
	a.mu.Lock()
	c.stream.consumers[c.name] = c
	a.mu.Unlock()
}

func (a *account) removeConsumer(c *consumerEntry) {
	a.mu.Lock()
	if c.stream.consumers[c.name] == c {
		delete(c.stream.consumers, c.name)
	}
	a.mu.Unlock()
}

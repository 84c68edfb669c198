package jetstreamapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
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

// openFiles opens the data directory, checks its catalog and starts everything in it.
func (s *Service) openFiles(ctx context.Context, check func(*catalog, context.Context) error) error {
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
	if err == nil {
		err = check(c, ctx)
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
	c.started()
	return nil
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

// restartPoll is how often it is looked whether the data directory serves again.
const restartPoll = 5 * time.Millisecond

// RestartFiles stops the data directory as a failed sync would, and returns when it was opened again from disk: what
// was acknowledged is there, what was not may or may not be. It is for exercises. An error is that it was not open, or
// that ctx ended first.
func (s *Service) RestartFiles(ctx context.Context, cause error) error {
	st := s.fileStore()
	if st == nil {
		return errors.New("the data directory is not open")
	}
	was := s.fileReopens()
	st.Fail(cause)
	t := time.NewTicker(restartPoll)
	defer t.Stop()
	for s.fileReopens() == was {
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("the data directory is not open again: %w", context.Cause(ctx))
		}
	}
	return nil
}

// fileReopens is how often the data directory was opened again.
func (s *Service) fileReopens() uint64 {
	s.files.mu.RLock()
	defer s.files.mu.RUnlock()
	return s.files.reopens
}

func (s *Service) reopenFiles(cause error) {
	s.reload.Lock()
	defer s.reload.Unlock()
	s.log.Error("the data directory failed; it is closed and opened again", slog.Any("error", cause))
	s.setFilesError(fmt.Errorf("data directory failed: %w", cause))
	for _, a := range s.sortedAccounts() {
		a.change.Lock() // no asset is made or changed while they all go
		a.takeOffline(cause)
		a.change.Unlock()
		a.transfers.interrupt(cause)
	}
	if err := s.closeFiles(); err != nil {
		s.log.Warn("closing the failed data directory", slog.Any("error", err))
	}
	s.forgetFailure()
	for delay := s.opts.ReopenDelay; ; delay = min(2*delay, maxReopenDelay) {
		err := s.openFiles(s.stopping, (*catalog).writable)
		if err == nil {
			s.files.mu.Lock()
			s.files.reopens++
			s.files.mu.Unlock()
			s.log.Info("the data directory serves again")
			return
		}
		s.setFilesError(err)
		s.forgetFailure()
		s.log.Error("the data directory could not be opened; trying again",
			slog.Any("error", err), slog.Duration("after", delay))
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
	case err := <-s.files.failed:
		s.log.Debug("a failure of a closed data directory is forgotten", slog.Any("error", err))
	default:
	}
}

// takeOffline puts entries that say why in the place of the account's streams on disk, and stops these. change is held.
func (a *account) takeOffline(cause error) {
	var gone []*streamEntry
	a.mu.Lock()
	for name, e := range a.streams {
		if !e.memory {
			gone = append(gone, e)
			a.streams[name] = e.offlineCopy(cause)
		}
	}
	standbys := a.replaceStandbys(cause)
	a.mu.Unlock()
	for _, e := range standbys {
		e.standby.close()
		e.endServed(jsapi.StatusShutdown)
	}
	a.stopAssets(gone)
	for _, e := range gone {
		e.standby.wake()
	}
}

// offlineCopy returns an entry for the same stream that does not serve.
func (e *streamEntry) offlineCopy(cause error) *streamEntry {
	out := &streamEntry{
		acc: e.acc, name: e.name, created: e.created, logID: e.logID, shards: e.shards, offline: cause,
		consumers: make(map[string]*consumerEntry), positionsID: e.positionsID, role: e.role,
	}
	out.cfg.Store(e.config())
	return out
}

// stopAssets stops streams, their consumers first; nothing is taken any more by then.
func (a *account) stopAssets(streams []*streamEntry) {
	a.mu.RLock()
	var consumers []*consumerEntry
	for _, e := range streams {
		for _, c := range e.consumers {
			consumers = append(consumers, c)
		}
	}
	a.mu.RUnlock()
	for _, e := range streams {
		e.unlink()
	}
	for _, e := range streams {
		if e.stream != nil {
			e.stream.Quiesce()
		}
	}
	for _, c := range consumers {
		c.stop(jsapi.StatusShutdown)
	}
	for _, e := range streams {
		e.stop()
	}
}

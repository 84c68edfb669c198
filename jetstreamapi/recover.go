package jetstreamapi

import (
	"log/slog"

	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
)

// dropOrphans removes the logs that the catalog does not know: their asset was deleted, or was never answered for,
// before a crash.
func (s *Service) dropOrphans(c *catalog, st *storage.Store) {
	known, err := c.logIDs()
	if err != nil {
		s.log.Error("the catalog cannot be read; nothing is removed", slog.Any("error", err))
		return
	}
	known[st.Catalog().ID()] = true
	st.EachLog(func(id storage.LogID, name string, _ bool) {
		if known[id] {
			return
		}
		s.log.Info("a log without an entry in the catalog is removed",
			slog.Uint64("log", uint64(id)), slog.String("name", name))
		if err := st.DropLog(id, nil); err != nil {
			s.log.Warn("it stays for now", slog.Uint64("log", uint64(id)), slog.Any("error", err))
		}
	})
}

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
			a.joinLinks()
			a.reconcile()
			a.startLinks()
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
		s.log.Warn("a stream is kept but not served: its account has no JetStream",
			slog.String("account", r.Account), slog.String("stream", r.Stream))
		return
	}
	e := &streamEntry{
		acc: a, name: r.Stream, created: r.Created, logID: r.LogID, shards: r.Shards,
		consumers: make(map[string]*consumerEntry), role: r.Role,
	}
	e.recovering = r.Role != roleStandby
	e.cfg.Store(r.Config)
	log, err := st.OpenLog(e.logID, e.spec())
	if e.positionsID = r.Positions; err == nil && e.positionsID != 0 {
		e.positions, err = st.OpenStateLog(e.positionsID)
	}
	switch {
	case err != nil:
	case r.Role == roleStandby:
		e.keep(log)
	default:
		err = e.start(log)
	}
	if err != nil {
		e.logger().Error("a stream could not be brought back", slog.Any("error", err))
		e = e.offlineCopy(err)
	}
	if r.Role == roleStandby {
		a.addStandby(e)
		return
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
	if e == nil {
		e = a.standbys[r.Stream]
	}
	a.mu.RUnlock()
	if e == nil {
		return // its stream was removed, or is of an account that is not served
	}
	c := &consumerEntry{stream: e, name: r.Consumer, created: r.Created, logID: r.LogID}
	c.cfg.Store(r.Settings)
	c.durable.Store(r.Settings)
	if e.offline != nil {
		c.offline = e.offline
		a.addConsumer(c)
		return
	}
	state, err := st.OpenStateLog(c.logID)
	switch {
	case err != nil:
	case e.role == roleStandby:
		c.state = state
	default:
		err = c.start(state, false)
	}
	if err != nil {
		c.logger().Error("a consumer could not be brought back", slog.Any("error", err))
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
	if old != nil {
		a.taken.remove(e.name, old.config().Subjects)
	}
	a.streams[e.name] = e
	a.taken.add(e.name, e.config().Subjects)
	a.mu.Unlock()
	if old != nil {
		a.addReserved(old.config(), -1)
		old.standby.wake() // who waits for the log has to wait for this one
	}
}

func (a *account) removeStream(e *streamEntry) {
	a.mu.Lock()
	delete(a.streams, e.name)
	a.taken.remove(e.name, e.config().Subjects)
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

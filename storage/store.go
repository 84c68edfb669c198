package storage

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/noetl/ehdb-gateway/storage/crypt"
)

// catalogID is the id of the store's own state log.
const catalogID LogID = 1

// Store is one data directory.
type Store struct {
	opts Options
	w    *writer
	seed maphash.Seed
	keys *crypt.Keys // nil: nothing is encrypted; set by Open

	mu      sync.Mutex // taken before a log's
	logs    map[LogID]*Log
	states  map[LogID]*StateLog
	nextID  LogID
	catalog *StateLog
	recover recovery
	quit    chan struct{} // closed by Close; ends the sweeper
	sweeper sync.WaitGroup
	sealer  *sealer // nil: nothing is sealed
	closing sync.Once
	closed  error
	release func() error // gives up what Open took: the lock and the tail
}

// Open opens or makes a data directory, replays what is on disk and starts its loops. Errors: ErrLocked (naming the
// other process), *CorruptError, or an I/O error.
func Open(ctx context.Context, o Options) (*Store, error) {
	o.setDefaults()
	s := newStore(o)
	if o.Dir == "" {
		s.begin(newWriter(o, nil))
		s.start()
		return s, nil
	}
	if err := s.openDir(ctx); err != nil {
		return nil, err
	}
	s.start()
	s.w.space.kick()
	return s, nil
}

func (s *Store) start() {
	s.w.start()
	if s.sealer != nil {
		s.sweeper.Go(s.sealer.loop)
		return
	}
	s.sweeper.Go(s.sweepLoop)
}

func newStore(o Options) *Store {
	return &Store{
		opts: o, seed: maphash.MakeSeed(), logs: map[LogID]*Log{}, states: map[LogID]*StateLog{},
		quit: make(chan struct{}), nextID: catalogID + 1, release: func() error { return nil },
	}
}

// begin sets the writer and makes the catalog, which is always there.
func (s *Store) begin(w *writer) {
	s.w = w
	w.stop = s.stopped
	s.catalog = newStateLog(w, logMeta{ID: catalogID, State: true, Name: "catalog", Shards: []ShardID{0}})
	s.states[catalogID] = s.catalog
}

// stopped tells every log that nothing more will be acknowledged.
func (s *Store) stopped(err error) {
	s.opts.Events.Stopped(err)
	s.mu.Lock()
	logs := make([]*Log, 0, len(s.logs))
	for _, l := range s.logs {
		logs = append(logs, l)
	}
	s.mu.Unlock()
	for _, l := range logs {
		l.tell(err)
	}
}

// Close refuses new appends, commits what is queued, syncs and closes. Idempotent.
func (s *Store) Close() error {
	s.closing.Do(func() {
		if s.sealer != nil {
			s.sealer.last()
		}
		close(s.quit)
		s.sweeper.Wait()
		s.w.close()
		s.closed = s.release()
	})
	return s.closed
}

// CreateLog makes a log with a new id.
func (s *Store) CreateLog(spec LogSpec) (*Log, error) {
	if len(spec.Shards) == 0 {
		return nil, fmt.Errorf("log %q names no shard", spec.Name)
	}
	if spec.Memory && s.opts.Dir != "" {
		return nil, fmt.Errorf("log %q: %w", spec.Name, errMemory)
	}
	meta := logMeta{Name: spec.Name, Shards: append([]ShardID(nil), spec.Shards...), LastSeq: max(spec.FirstSeq, 1) - 1}
	s.mu.Lock()
	defer s.mu.Unlock()
	sec, err := s.create(&meta)
	if err != nil {
		return nil, err
	}
	l := newLog(s.w, meta, newIndex(s.seed))
	l.floor, l.ready = sec, true
	l.configure(spec)
	s.logs[meta.ID] = l
	return l, nil
}

// create gives m an id and queues the record that says it exists; it returns the record's section. Nobody waits for
// that record: it is committed together with what the owner writes next, such as what the log is for.
func (s *Store) create(m *logMeta) (uint64, error) {
	for _, sh := range m.Shards {
		if int(sh) >= len(s.w.shards) {
			return 0, fmt.Errorf("log %q: shard %d does not exist, there are %d", m.Name, sh, len(s.w.shards))
		}
	}
	m.ID = s.nextID
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	sh := &w.shards[m.Shards[0]]
	if err := w.admit(sh, maxLog(m), w.slack()); err != nil {
		return 0, err
	}
	w.putIn(w.pending(), sh, maxLog(m), nil, func(b []byte) []byte { return appendLog(b, m) })
	s.nextID++
	return sh.secID, nil
}

// OpenLog returns an existing log; spec gives Size and Route. ErrNoLog if it is not there.
func (s *Store) OpenLog(id LogID, spec LogSpec) (*Log, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.logs[id]
	if !ok {
		return nil, fmt.Errorf("log %d: %w", id, ErrNoLog)
	}
	l.reconfigure(spec)
	return l, nil
}

// DropLog removes a log or state log and all it holds.
func (s *Store) DropLog(id LogID, done Done) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.logs[id]; ok {
		if err := l.drop(done); err != nil {
			return err
		}
		delete(s.logs, id)
		return nil
	}
	if l, ok := s.states[id]; ok && id != catalogID {
		if err := l.drop(done); err != nil {
			return err
		}
		delete(s.states, id)
		return nil
	}
	return fmt.Errorf("log %d: %w", id, ErrNoLog)
}

// CreateStateLog makes a state log in shard. One that is to be kept in memory lives in a store without a directory;
// elsewhere it is refused.
//
//nolint:revive // memory is checked, it controls nothing
func (s *Store) CreateStateLog(shard ShardID, name string, memory bool) (*StateLog, error) {
	if memory && s.opts.Dir != "" {
		return nil, fmt.Errorf("state log %q: %w", name, errMemory)
	}
	meta := logMeta{State: true, Name: name, Shards: []ShardID{shard}}
	s.mu.Lock()
	defer s.mu.Unlock()
	sec, err := s.create(&meta)
	if err != nil {
		return nil, err
	}
	l := newStateLog(s.w, meta)
	l.made = sec
	s.states[meta.ID] = l
	return l, nil
}

// OpenStateLog returns an existing state log.
func (s *Store) OpenStateLog(id LogID) (*StateLog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.states[id]
	if !ok {
		return nil, fmt.Errorf("state log %d: %w", id, ErrNoLog)
	}
	return l, nil
}

// EachLog calls fn for every log and state log there is, in no order: to find those the catalog does not know.
func (s *Store) EachLog(fn func(id LogID, name string, state bool)) {
	s.mu.Lock()
	metas := make([]logMeta, 0, len(s.logs)+len(s.states))
	for _, l := range s.logs {
		metas = append(metas, l.meta)
	}
	for _, l := range s.states {
		metas = append(metas, l.meta)
	}
	s.mu.Unlock()
	for _, m := range metas {
		fn(m.ID, m.Name, m.State)
	}
}

// Catalog returns the store's own state log (id 1), made with the directory: where the owner keeps which logs exist.
func (s *Store) Catalog() *StateLog { return s.catalog }

// Shards returns the number of shards.
func (s *Store) Shards() int { return len(s.w.shards) }

// Stall returns nil, or a channel that is closed when the queues have room again: producers should pause.
func (s *Store) Stall() <-chan struct{} { return s.w.stalled() }

// Fail stops the store as a failed sync does: nothing more is acknowledged, and what is queued fails. It is for
// exercises.
func (s *Store) Fail(cause error) { s.w.poison(cause) }

// Err returns nil while the store is healthy, else why nothing can be acknowledged.
func (s *Store) Err() error { return s.w.health() }

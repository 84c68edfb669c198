package jetstreamapi

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/storage"
)

// catalog is the durable list of streams and consumers of all accounts: a state log whose entries are JSON, the changes
// since the last checkpoint and the checkpoint itself.
type catalog struct {
	mu   sync.Mutex
	log  *storage.StateLog
	live map[catalogKey]*catalogStream
	size int // assets in live
}

type catalogKey struct{ account, stream string }

// catalogStream is a stream's record and those of its consumers, as they are written.
type catalogStream struct {
	record    catalogEntry // empty: only consumers are known, which means the log is damaged
	consumers map[string]catalogEntry
}

// catalogEntry is a record as it is written, and as it was read.
type catalogEntry struct {
	encoded json.RawMessage
	read    *catalogRecord // until the assets are there, so that a start decodes each record once; nil: decode it again
}

// decode returns the record.
func (e *catalogEntry) decode() (r catalogRecord, err error) {
	if e.read != nil {
		return *e.read, nil
	}
	if err := json.Unmarshal(e.encoded, &r); err != nil {
		return r, fmt.Errorf("catalog: %w", err)
	}
	return r, nil
}

// catalogRecord is one entry: an asset as it is from now on, or its removal.
type catalogRecord struct {
	Version  int                    `json:"v"`
	Account  string                 `json:"account"`
	Stream   string                 `json:"stream"`
	Consumer string                 `json:"consumer,omitempty"`
	Removed  bool                   `json:"removed,omitempty"`
	LogID    storage.LogID          `json:"log,omitempty"`
	Shards   []storage.ShardID      `json:"shards,omitempty"`
	Created  time.Time              `json:"created,omitzero"`
	Config   *server.StreamConfig   `json:"config,omitempty"`
	Settings *server.ConsumerConfig `json:"consumer_config,omitempty"`
	// Positions is the state log of a stream's sources.
	Positions storage.LogID `json:"positions,omitempty"`
	// Role is that of a stream that the cutover made: roleStandby or roleAuthority.
	Role  string            `json:"role,omitempty"`
	Batch []json.RawMessage `json:"batch,omitempty"` // entries that come into being together; no other field

	memory bool // the asset lives in memory: the record is not written
}

// catalogCheckpoint is the whole catalog: streams before their consumers.
type catalogCheckpoint struct {
	Version   int               `json:"v"`
	Streams   []json.RawMessage `json:"streams"`
	Consumers []json.RawMessage `json:"consumers"`
}

// Versions of entries. A build that does not know of standbys must not serve one as if it were a stream: their entries
// are of a version that it refuses.
const (
	catalogVersion = 1
	standbyVersion = 2
	newestVersion  = standbyVersion
)

// version is that of the entry.
func (r *catalogRecord) version() int {
	if r.Role == roleStandby {
		return standbyVersion
	}
	return catalogVersion
}

// minCheckpointChanges keeps a small catalog from being rewritten all the time.
const minCheckpointChanges = 256

// openCatalog reads the catalog of a store.
func openCatalog(log *storage.StateLog) (*catalog, error) {
	c := &catalog{log: log, live: make(map[catalogKey]*catalogStream)}
	err := log.Load(func(entry []byte, checkpoint bool) error {
		if checkpoint {
			return c.restore(entry)
		}
		return c.apply(entry)
	})
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	return c, nil
}

// restore starts over from a checkpoint.
func (c *catalog) restore(entry []byte) error {
	var cp catalogCheckpoint
	if err := json.Unmarshal(entry, &cp); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if cp.Version > newestVersion {
		return fmt.Errorf("checkpoint has version %d, this build reads up to %d", cp.Version, newestVersion)
	}
	clear(c.live)
	c.size = 0
	for _, list := range [][]json.RawMessage{cp.Streams, cp.Consumers} {
		for _, entry := range list {
			if err := c.apply(entry); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *catalog) apply(entry []byte) error {
	var r catalogRecord
	if err := json.Unmarshal(entry, &r); err != nil {
		return fmt.Errorf("entry: %w", err)
	}
	if r.Version > newestVersion {
		return fmt.Errorf("entry has version %d, this build reads up to %d", r.Version, newestVersion)
	}
	if len(r.Batch) > 0 {
		for _, one := range r.Batch {
			if err := c.apply(one); err != nil {
				return err
			}
		}
		return nil
	}
	c.set(&r, catalogEntry{encoded: append([]byte(nil), entry...), read: &r})
	return nil
}

// started lets go of what only a start needs.
func (c *catalog) started() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.live {
		s.record.read = nil
		for name, e := range s.consumers {
			e.read = nil
			s.consumers[name] = e
		}
	}
}

// set puts the record in the live set. Removing a stream removes its consumers.
func (c *catalog) set(r *catalogRecord, e catalogEntry) {
	key := catalogKey{r.Account, r.Stream}
	s := c.live[key]
	if s != nil {
		c.size -= s.size()
	}
	switch {
	case r.Removed && r.Consumer == "":
		delete(c.live, key)
		return
	case s == nil:
		s = &catalogStream{consumers: make(map[string]catalogEntry)}
		c.live[key] = s
	}
	switch {
	case r.Consumer == "":
		s.record = e
	case r.Removed:
		delete(s.consumers, r.Consumer)
	default:
		s.consumers[r.Consumer] = e
	}
	c.size += s.size()
}

func (s *catalogStream) size() int { return 1 + len(s.consumers) }

// put appends a record; done is called once it is durable. The record takes effect in the log's order: whatever is
// appended later to any log of the store is durable later.
func (c *catalog) put(r catalogRecord, done storage.Done) error {
	r.Version = r.version()
	encoded, err := json.Marshal(&r)
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.log.Append(encoded, done); err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	c.set(&r, catalogEntry{encoded: encoded})
	c.checkpointIfDue()
	return nil
}

// putAll is put for several records, of which a crash leaves all or none.
func (c *catalog) putAll(records []catalogRecord, done storage.Done) error {
	batch := catalogRecord{Version: catalogVersion}
	for i := range records {
		records[i].Version = records[i].version()
		encoded, err := json.Marshal(&records[i])
		if err != nil {
			return fmt.Errorf("catalog: %w", err)
		}
		batch.Batch = append(batch.Batch, encoded)
	}
	entry, err := json.Marshal(&batch)
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.log.Append(entry, done); err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	for i := range records {
		c.set(&records[i], catalogEntry{encoded: batch.Batch[i]})
	}
	c.checkpointIfDue()
	return nil
}

// checkpointIfDue rewrites the catalog once most of its log is history. If that fails now, it is due again at the next
// change. mu is held.
func (c *catalog) checkpointIfDue() {
	if n, _ := c.log.Changes(); n >= minCheckpointChanges && n >= 2*c.size {
		_ = c.checkpoint(nil)
	}
}

// checkpoint rewrites the catalog; done may be nil. mu is held.
func (c *catalog) checkpoint(done storage.Done) error {
	cp := catalogCheckpoint{Version: catalogVersion}
	for _, s := range c.live {
		if s.record.encoded != nil {
			cp.Streams = append(cp.Streams, s.record.encoded)
		}
		for _, e := range s.consumers {
			cp.Consumers = append(cp.Consumers, e.encoded)
		}
	}
	b, err := json.Marshal(&cp)
	if err != nil {
		return err
	}
	return c.log.Checkpoint(b, done)
}

// writable writes the catalog anew and returns once that is durable, or cannot be: a disk that failed may still be
// readable, and is not served from before it takes writes again.
func (c *catalog) writable(ctx context.Context) error {
	durable := make(chan error, 1)
	c.mu.Lock()
	err := c.checkpoint(func(err error) { durable <- err })
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	select {
	case err := <-durable:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// records returns every asset.
func (c *catalog) records() (streams, consumers []catalogRecord, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add := func(to *[]catalogRecord, e catalogEntry) {
		r, failed := e.decode()
		if failed != nil {
			err = failed
			return
		}
		*to = append(*to, r)
	}
	for _, s := range c.live {
		if s.record.encoded != nil {
			add(&streams, s.record)
		}
		for _, e := range s.consumers {
			add(&consumers, e)
		}
	}
	return streams, consumers, err
}

// logIDs returns the ids of the logs of every asset.
func (c *catalog) logIDs() (map[storage.LogID]bool, error) {
	streams, consumers, err := c.records()
	if err != nil {
		return nil, err
	}
	ids := make(map[storage.LogID]bool, len(streams)+len(consumers)+1)
	for _, list := range [][]catalogRecord{streams, consumers} {
		for i := range list {
			ids[list[i].LogID] = true
			ids[list[i].Positions] = true
		}
	}
	return ids, nil
}

// record is the stream's entry in the catalog, with cfg.
func (e *streamEntry) record(cfg *server.StreamConfig) catalogRecord {
	return catalogRecord{
		Account: e.acc.name, Stream: e.name, LogID: e.logID, Shards: e.shards, Created: e.created, Config: cfg,
		Positions: e.positionsID, Role: e.role, memory: e.memory,
	}
}

// record is the consumer's entry in the catalog, with cfg.
func (c *consumerEntry) record(cfg *server.ConsumerConfig) catalogRecord {
	e := c.stream
	return catalogRecord{
		Account: e.acc.name, Stream: e.name, Consumer: c.name, LogID: c.logID, Created: c.created, Settings: cfg,
		memory: c.memory,
	}
}

// removal is the entry that ends the stream and its consumers.
func (e *streamEntry) removal() catalogRecord {
	return catalogRecord{Account: e.acc.name, Stream: e.name, Removed: true, memory: e.memory}
}

// removal is the entry that ends the consumer.
func (c *consumerEntry) removal() catalogRecord {
	e := c.stream
	return catalogRecord{Account: e.acc.name, Stream: e.name, Consumer: c.name, Removed: true, memory: c.memory}
}

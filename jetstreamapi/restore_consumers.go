package jetstreamapi

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/archive"
	"github.com/noetl/ehdb-gateway/jetstreamapi/consumer"
	"github.com/noetl/ehdb-gateway/storage"
)

// loadedConsumer is a consumer from a backup, and its state, which is in its log already.
type loadedConsumer struct {
	entry *consumerEntry
	state *storage.StateLog
}

// loadConsumer reads the next consumer.
func (l *loader) loadConsumer() error {
	e, err := l.next("consumer")
	if err != nil {
		return err
	}
	name, ok := strings.CutPrefix(string(e.Name), archive.ConsumerPrefix)
	if !ok {
		return fmt.Errorf("expected consumer, found %q", e.Name)
	}
	var both server.SnapshotConsumerState
	switch err := l.decode(&both, mostConsumer); {
	case err != nil:
		return fmt.Errorf("failed to decode consumer %q state: %w", name, err)
	case both.ConsumerConfig == nil:
		return fmt.Errorf("consumer %q is missing config", name)
	case both.ConsumerState == nil:
		return fmt.Errorf("consumer %q is missing state", name)
	}
	log, err := l.makeConsumer(name, both.ConsumerConfig)
	if err != nil {
		return fmt.Errorf("failed to add consumer %q: %w", name, err)
	}
	exact := consumer.FromNATS(both.ConsumerConfig, both.ConsumerState, time.Now().UnixNano())
	if err := consumer.Import(log, &exact, nil); err != nil {
		return fmt.Errorf("failed to set consumer %q state: %w", name, err)
	}
	return nil
}

// makeConsumer checks a consumer and makes the log of its state.
func (l *loader) makeConsumer(name string, cfg *server.ConsumerConfig) (*storage.StateLog, error) {
	if cfg.Name == "" {
		cfg.Name = name
	}
	if cfg.Name != name || cfg.Durable != "" && cfg.Durable != name {
		return nil, fmt.Errorf("its configuration is that of %q", cfg.Name)
	}
	if l.e.consumers[name] != nil { // nobody else knows this entry
		return nil, server.NewJSConsumerNameExistError()
	}
	setConsumerLevel(cfg)
	if apiErr := consumer.Complete(cfg, l.e.config(), l.acc.consumerLimits(), false); apiErr != nil {
		return nil, apiErr
	}
	if apiErr := l.acc.checkNewConsumer(l.e, cfg); apiErr != nil {
		return nil, apiErr
	}
	setInactiveThreshold(cfg)
	c := &consumerEntry{
		stream: l.e, name: name, created: time.Now().UTC(), memory: l.e.memory || cfg.MemoryStorage || cfg.Direct,
	}
	c.cfg.Store(cfg)
	st := c.store()
	if st == nil {
		return nil, storage.ErrStopped
	}
	log, err := st.CreateStateLog(c.home(st), l.acc.name+"/"+l.e.name+"/"+name, c.memory)
	if err != nil {
		return nil, err
	}
	c.logID = log.ID()
	l.consumers = append(l.consumers, &loadedConsumer{entry: c, state: log})
	l.acc.addConsumer(c)
	return log, nil
}

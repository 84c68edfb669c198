package jetstreamapi

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/consumer"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
)

// observer is the consumer as its stream sees it.
func (c *consumerEntry) observer() stream.Observer {
	if consumer.Peeks(c.config()) {
		return onlooker{}
	}
	return c.consumer
}

// onlooker is a consumer that takes nothing from its stream.
type onlooker struct{}

func (onlooker) Wants([]byte) bool        { return false }
func (onlooker) Done(uint64, []byte) bool { return true }
func (onlooker) Delivered() uint64        { return 0 }

// buryLogEvery bounds how often it is logged that dead letters cannot be stored.
const buryLogEvery = time.Minute

// bury stores dead letters of the consumer, see consumer.Options.Bury.
func (c *consumerEntry) bury(list []consumer.DeadLetterMsg, commit func(*storage.Batch) error) error {
	name := consumer.DeadLetter(c.config())
	err := fmt.Errorf("there is no stream %q", name)
	if to := c.stream.acc.serving(name); to != nil {
		letters := make([]stream.Letter, len(list))
		for i, l := range list {
			letters[i] = stream.Letter(l)
		}
		err = to.AddLetters(letters, commit)
	}
	if err != nil && time.Since(time.Unix(0, c.buryLogged.Load())) > buryLogEvery {
		c.buryLogged.Store(time.Now().UnixNano())
		c.logger().Warn("dead letters wait, the messages stay where they are",
			slog.String("dead_letter", name), slog.Any("error", err))
	}
	return err
}

// checkDeadLetter checks that the stream for dead letters can take them.
func (a *account) checkDeadLetter(e *streamEntry, cfg *server.ConsumerConfig) *jsapi.Error {
	name := consumer.DeadLetter(cfg)
	if name == "" {
		return nil
	}
	refuse := func(format string, args ...any) *jsapi.Error {
		return server.NewJSConsumerCreateError(fmt.Errorf(consumer.KeyDeadLetter+": "+format, args...))
	}
	a.mu.RLock()
	to := a.streams[name]
	a.mu.RUnlock()
	if to == nil {
		return refuse("there is no stream %q: create it first", name)
	}
	switch t := to.config(); {
	case t.Mirror != nil:
		return refuse("stream %q is a mirror", name)
	case t.Sealed:
		return refuse("stream %q is sealed", name)
	case t.AllowMsgCounter:
		return refuse("stream %q has counters", name)
	case t.Retention == server.InterestPolicy:
		return refuse("stream %q has interest retention: it would not keep what nobody listens to", name)
	case to.memory != (e.memory || cfg.MemoryStorage):
		return refuse("stream %q and the consumer's state have to be stored in the same place, both in files or both "+
			"in memory, to be written in one commit", name)
	}
	return nil
}

// checkStreamMetadata refuses keys of the server's own on a stream.
func checkStreamMetadata(cfg *server.StreamConfig) *jsapi.Error {
	if err := consumer.CheckMetadata(cfg.Metadata); err != nil {
		return server.NewJSStreamInvalidConfigError(err)
	}
	return nil
}

// numWorking returns how many consumers take messages from the stream.
func (e *streamEntry) numWorking() (n int) {
	e.acc.mu.RLock()
	defer e.acc.mu.RUnlock()
	for _, c := range e.consumers {
		if cfg := c.config(); !cfg.Direct && !cfg.Sourcing && !consumer.Peeks(cfg) {
			n++
		}
	}
	return n
}

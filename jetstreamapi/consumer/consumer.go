// Package consumer is one JetStream consumer: a pure state machine that decides what to deliver, when, and what an ack
// means, and a thin shell that feeds it from a log and the bus.
package consumer

import (
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/storage"
)

var errTODO = errors.New("not implemented")

// Stream is what a consumer needs of its stream.
type Stream interface {
	Name() string
	Config() server.StreamConfig
	Log() *storage.Log
}

// Options make a Consumer.
type Options struct {
	Account string
	Name    string
	Config  server.ConsumerConfig // complete (see Complete)
	Created time.Time
	Stream  Stream
	State   *storage.StateLog // its own log, recovered by New
	Bus     bus.Bus
	Sched   *Scheduler
	// Acked tells the stream that the consumer is done with seq (acked or terminated, or max_deliver on a stream whose
	// retention then lets go). It is called under no lock of the consumer.
	Acked func(seq uint64)
	// Inactive is called once when the consumer was unused for its inactive threshold; the owner then deletes it.
	Inactive func()
	// Advisory publishes a JetStream advisory or metric; it does not block. May be nil.
	Advisory func(subject string, event any)
}

// Consumer is one consumer. Its methods may be called by anyone; they hand an event to its mailbox and do not block.
type Consumer struct{}

// New makes the consumer over its (new or recovered) state and starts it.
func New(o Options) (*Consumer, error) { return nil, errTODO }

// Wants and Done implement stream.Observer.
func (c *Consumer) Wants(key []byte) bool            { panic(errTODO) }
func (c *Consumer) Done(seq uint64, key []byte) bool { panic(errTODO) }

// Wake tells that the stream's visible position moved.
func (c *Consumer) Wake(visible uint64) { panic(errTODO) }

// Pull is a request on $JS.API.CONSUMER.MSG.NEXT. The slices are borrowed. stall is nil or a channel to wait on.
func (c *Consumer) Pull(reply, header, body []byte) (stall <-chan struct{}) { panic(errTODO) }

// Ack is a message on $JS.ACK for this consumer: the parsed subject, the body, and where to confirm (may be empty).
// The slices are borrowed.
func (c *Consumer) Ack(a AckID, body, reply []byte) (stall <-chan struct{}) { panic(errTODO) }

// FlowControlReply is an answer on $JS.FC; token is the last part of its subject.
func (c *Consumer) FlowControlReply(token []byte) { panic(errTODO) }

// AckID is what an ack subject says.
type AckID struct {
	Delivered   uint64 // delivery count
	StreamSeq   uint64
	ConsumerSeq uint64
	Time        int64 // Unix nanoseconds of the message
	Pending     uint64
}

// Info returns the consumer as the API shows it.
func (c *Consumer) Info() *server.ConsumerInfo { panic(errTODO) }

// Update changes the configuration (checked by CheckUpdate, completed); done is called once it has taken effect.
func (c *Consumer) Update(cfg server.ConsumerConfig) { panic(errTODO) }

// Pause sets pause_until (zero: resume).
func (c *Consumer) Pause(until time.Time) { panic(errTODO) }

// Stop ends the consumer. Waiting pulls are answered with status (e.g. 409 "Consumer Deleted", 409 "Server Shutdown").
func (c *Consumer) Stop(code int, status string) { panic(errTODO) }

// Scheduler runs consumers on a fixed set of workers: a consumer has no goroutine while it is idle.
type Scheduler struct{}

// NewScheduler starts n workers (0: as many as cores).
func NewScheduler(b bus.Bus, n int) *Scheduler { panic(errTODO) }

// Close stops the workers after what they are doing.
func (s *Scheduler) Close() { panic(errTODO) }

// Complete fills the defaults of a configuration and checks it by nats-server's rules, order and texts.
func Complete(cfg *server.ConsumerConfig, stream *server.StreamConfig, limits Limits, pedantic bool) *server.ApiError {
	panic(errTODO)
}

// CheckUpdate checks that a running consumer may go from old to cfg (both completed).
func CheckUpdate(old, cfg *server.ConsumerConfig) *server.ApiError { panic(errTODO) }

// Limits are what the account and the server allow a consumer; 0 or -1: no limit.
type Limits struct {
	MaxAckPending     int
	MaxRequestBatch   int
	InactiveThreshold time.Duration
}

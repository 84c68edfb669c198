package stream

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/storage"
)

// Options make a Stream.
type Options struct {
	Account string
	Config  server.StreamConfig // complete: defaults filled and checked (see Complete)
	Created time.Time
	Log     *storage.Log // recovered (see LogSpec); the stream owns it from here on
	Bus     bus.Bus
	Domain  string // of PubAcks; empty: none
	// Recovering says that consumers are still to be attached: until Reconcile is called, an interest stream keeps all
	// it gets.
	Recovering bool
	// Reserve asks for room in the account and server limits before a message of size bytes is stored; nil error:
	// taken. A *server.ApiError is passed to the publisher, any other becomes 10002. Release gives room back. Both
	// are called under the stream's lock and must be quick; both may be nil. The owner counts what the log holds
	// before New and after Stop itself; these two tell of the changes in between.
	Reserve func(size int64) error
	Release func(size int64)
	// Stall is the store's wish that producers pause (storage.Store.Stall). May be nil.
	Stall func() <-chan struct{}
	// Positions keeps how far the sources were copied; nil for a stream without.
	Positions *storage.StateLog
	// Batches bounds the batches under way; nil: with nats-server's defaults, for this stream alone.
	Batches *Batches
	// Advisory publishes a JetStream advisory or metric; it does not block. May be nil.
	Advisory func(subject string, event any)
	// Published is told how long a sample of the publishes waited until their ack may leave. It is called on the log's
	// ack loop and must be quick. May be nil.
	Published func(took time.Duration)
	// Visible is called on the log's ack loop whenever the log's visible position moved or will move no more. It must
	// be quick. May be nil.
	Visible func()
	// Dedupe is what the dedup window remembers besides what the log tells: ids of messages that are gone.
	Dedupe []Remembered
}

// Stream is one stream. It is a bus.Sink for the subjects it stores.
type Stream struct {
	o       Options
	log     *storage.Log
	input   bus.Session
	metrics metrics
	sample  sample

	settings atomic.Pointer[settings]
	audience audience
	watchers atomic.Pointer[[]*watcher] // replaced, never changed; nil: nobody

	admin sync.Mutex // serialises Update and Stop; before mu

	mu       sync.Mutex // guards all below
	head     head
	inflight inflight
	dedupe   dedupe
	answers  answerQueue
	upkeep   upkeep
	counters counters
	batches  batches

	positions positions

	flusher flusher
}

// audience is the attached consumers.
type audience struct {
	list    atomic.Pointer[[]*attachment] // replaced, never changed
	trimmed atomic.Bool                   // messages were removed that they may have outstanding
	told    atomic.Int64                  // when they were last told so, Unix nanoseconds
}

// head is what the publish path works on. The stream's lock guards it.
type head struct {
	position
	lastTime int64 // Unix nanoseconds of the newest record
	reserved uint64
	trimDue  bool     // the limits are to be applied to what was stored
	owed     []uint64 // sequences whose deletion the log could not take yet
	closed   bool     // nothing is taken any more
	stopped  bool     // Stop was called
	purged   bool     // everything, at least once

	ahead *storage.KeyAhead // of the message in hand; nil: nothing

	recovering  bool // consumers are still to be attached
	recoveredTo uint64

	refusal error // of the last copy that could not be stored

	// Scratch of one Deliver.
	in     incoming
	parsed bool // in.named is not zero
	record storage.Record
	one    [1]uint64
}

var errStopped = errors.New("stream is stopped")

// New makes the stream over its (new or recovered) log, rebuilds its dedup window from it, and subscribes to its
// subjects.
func New(o Options) (*Stream, error) {
	set, err := newSettings(&o.Config, o.Domain)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", o.Config.Name, err)
	}
	s := &Stream{o: o, log: o.Log, upkeep: upkeep{quit: make(chan struct{})}}
	if s.o.Batches == nil {
		s.o.Batches = new(Batches)
	}
	s.settings.Store(set)
	s.audience.list.Store(&[]*attachment{})
	if err := s.recover(set); err != nil {
		return nil, fmt.Errorf("stream %s: %w", o.Config.Name, err)
	}
	if err := s.open(set); err != nil {
		s.Stop()
		return nil, fmt.Errorf("stream %s: %w", o.Config.Name, err)
	}
	return s, nil
}

// open connects the stream to its log and to the bus.
func (s *Stream) open(set *settings) error {
	id := bus.Identity{Account: s.o.Account}
	output, err := s.o.Bus.Open(bus.KindService, id, nil)
	if err != nil {
		return err
	}
	s.flusher.use(output)
	id.Stream = s.o.Config.Name
	if s.input, err = s.o.Bus.Open(bus.KindService, id, s); err != nil {
		return err
	}
	s.log.OnVisible(s.visible)
	for _, subject := range set.cfg.Subjects {
		if _, err := s.input.Subscribe(subject, subject, ""); err != nil {
			return fmt.Errorf("subscribe to %s: %w", subject, err)
		}
	}
	return nil
}

// recover takes over what the log holds.
func (s *Stream) recover(set *settings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.log.State()
	s.head.lastSeq, s.head.lastTime = st.LastSeq, st.LastTime
	s.dedupe.window = set.cfg.Duplicates
	if set.replacesBySize() {
		s.inflight.start(s.head.lastSeq)
	}
	if err := s.recoverDedupe(); err != nil {
		return err
	}
	s.positions.log = s.o.Positions
	if err := s.positions.load(); err != nil {
		return err
	}
	s.head.reserved = st.Bytes
	s.head.recovering, s.head.recoveredTo = s.o.Recovering, st.LastSeq
	s.trimRecovered(set)
	s.startExpiry(set)
	s.startScan(set.cfg.AllowMsgTTL, set.cfg.AllowMsgSchedules)
	return nil
}

// visible is called by the log when its visible position moved, or with the error that ends it.
func (s *Stream) visible(visible uint64, err error) {
	if s.o.Visible != nil {
		defer s.o.Visible()
	}
	if err != nil {
		s.fail(fmt.Errorf("%w: %w", storage.ErrStopped, err))
		return
	}
	s.sample.end(visible, s.o.Published)
	for _, v := range *s.audience.list.Load() {
		if v.wake != nil {
			v.wake(visible)
		}
	}
	s.tellWatchers(nil)
	if s.audience.trimmed.Load() && time.Now().UnixNano()-s.audience.told.Load() >= int64(tellEvery) {
		s.tellTrimmed()
	}
	s.kick()
}

// tellEvery is how often consumers are told of what limits remove: each time, they look at all they have outstanding.
const tellEvery = time.Second

// Trimmer may be implemented by an [Observer]: it is told that messages which it may have outstanding left the stream
// otherwise than by its acks. It must not block.
type Trimmer interface{ Trimmed() }

func (s *Stream) tellTrimmed() {
	s.audience.trimmed.Store(false)
	s.audience.told.Store(time.Now().UnixNano())
	for _, v := range *s.audience.list.Load() {
		if t, ok := v.observer.(Trimmer); ok {
			t.Trimmed()
		}
	}
}

// fail answers all who wait for what will not become durable.
func (s *Stream) fail(err error) {
	s.mu.Lock()
	first := s.answers.failed == nil
	if first {
		s.answers.failed = err
	}
	s.mu.Unlock()
	if first {
		s.tellWatchers(err)
	}
	s.kick()
}

// Name returns the stream's name.
func (s *Stream) Name() string { return s.settings.Load().cfg.Name }

// Config returns a copy of the configuration.
func (s *Stream) Config() server.StreamConfig { return cloneConfig(&s.settings.Load().cfg) }

// Created returns when the stream was made.
func (s *Stream) Created() time.Time { return s.o.Created }

// Log returns the stream's log, for reading.
func (s *Stream) Log() *storage.Log { return s.log }

// Quiesce has the stream refuse what is published from now on, and remove nothing for having been acknowledged. It
// comes before consumers are detached to be stopped: without them a stream would take messages for ones nobody wants.
func (s *Stream) Quiesce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head.closed = true
}

// Stop ends the stream: it waits for what was published to become durable, answers it, then closes. Publishers that
// cannot be told of success are told of the stop. The log stays. It must not be called from a Done of the log.
func (s *Stream) Stop() {
	s.admin.Lock()
	defer s.admin.Unlock()
	s.mu.Lock()
	if s.head.stopped {
		s.mu.Unlock()
		return
	}
	s.head.closed, s.head.stopped = true, true
	s.dropBatches(true, true)
	s.stopUpkeep()
	s.mu.Unlock()

	if s.input != nil {
		s.input.Close()
	}
	s.upkeep.running.Wait()
	s.settle()
	s.fail(errStopped)
	s.flusher.close(s)
}

// stopPatience bounds how long Stop waits for the log.
const stopPatience = 5 * time.Second

// settle waits until what was appended is durable, or will never be.
func (s *Stream) settle() {
	s.mu.Lock()
	if s.answers.failed != nil || s.log.Visible() >= s.head.lastSeq {
		s.mu.Unlock()
		return
	}
	settled := make(chan struct{})
	s.log.Sync(func(error) { close(settled) })
	s.mu.Unlock()
	t := time.NewTimer(stopPatience)
	defer t.Stop()
	select {
	case <-settled:
	case <-t.C:
	}
}

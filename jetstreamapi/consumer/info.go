package consumer

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/storage"
)

// cheapPrune is the number of outstanding messages that Info looks at every time; more only once a second.
const cheapPrune = 256

// Info returns the consumer as the API shows it, but for Cluster, which is the owner's.
func (c *Consumer) Info() *server.ConsumerInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.m.begin(now.UnixNano())
	if c.m.wait.n > 0 {
		c.m.processWaiting(now.UnixNano(), false) // whoever is gone does not wait
	}
	if c.m.led.len() <= cheapPrune || now.UnixNano() >= c.m.life.pruned+pruneEvery {
		c.m.prune(now.UnixNano())
	}
	if !c.idle.empty() {
		c.run.schedule()
	}
	return c.info(now)
}

// InitialInfo returns the consumer as it was before its first delivery, when it is asked for the first time, and what
// Info returns later. It is the answer to a create request: clients take its number of pending messages for what they
// will get, so it must not have shrunk because deliveries were quicker than the answer.
func (c *Consumer) InitialInfo() *server.ConsumerInfo {
	c.mu.Lock()
	i := c.initial
	c.initial = nil
	c.mu.Unlock()
	if i == nil {
		return c.Info()
	}
	return i
}

// info is Info without the housekeeping. c.mu is held.
func (c *Consumer) info(now time.Time) *server.ConsumerInfo {
	i := c.m.info(now)
	i.Stream, i.Name, i.Created = c.o.Stream.Name(), c.o.Name, c.o.Created
	return i
}

func (m *machine) info(now time.Time) *server.ConsumerInfo {
	cfg := m.set.cfg
	i := &server.ConsumerInfo{
		Config:         &cfg,
		Delivered:      m.led.last.info(m.life.delivered),
		AckFloor:       m.led.floor.info(m.life.acked),
		NumAckPending:  m.led.outstanding(),
		NumRedelivered: m.numRedelivered(),
		NumWaiting:     m.wait.n,
		NumPending:     m.numPending(),
		PushBound:      m.push.active,
		TimeStamp:      now.UTC(),
	}
	if cfg.MaxDeliver == 1 {
		i.NumRedelivered = 0 // nothing can be: it would only confuse
	}
	if at := now.UnixNano(); at < m.set.pause {
		i.Paused, i.PauseRemaining = true, time.Duration(m.set.pause-at)
	}
	if len(cfg.PriorityGroups) > 0 {
		i.PriorityGroups = []server.PriorityGroupState{{
			Group: cfg.PriorityGroups[0], PinnedClientID: m.pin.id, PinnedTS: m.pin.pinnedSince(),
		}}
	}
	return i
}

func (m *machine) numRedelivered() int { return m.led.redelivered + len(m.led.exhausted) }

func (p seqPair) info(at int64) server.SequenceInfo {
	i := server.SequenceInfo{Consumer: p.consumer, Stream: p.stream}
	if at != 0 {
		t := time.Unix(0, at).UTC()
		i.Last = &t
	}
	return i
}

// Stats is what monitoring asks of a consumer, without the cost of Info.
type Stats struct {
	Pending          uint64        // matching messages not delivered yet
	AckPending       int           // delivered, not acknowledged
	Redelivered      int           // of those and of the exhausted ones, delivered more than once
	Exhausted        int           // max_deliver reached, still in the stream
	Waiting          int           // pull requests
	Delivered        uint64        // deliveries, redeliveries included
	Redeliveries     uint64        // of those, the ones that were not a message's first; since the start of the process
	AckFloor         uint64        // stream sequence
	OldestPending    time.Duration // age of the first message not delivered; 0: there is none, or it cannot be read
	OldestAckPending time.Duration // since the first delivery of the oldest message not acknowledged; 0: there is none
	Paused           bool
	Bound            bool   // push: somebody listens
	Chokes           uint64 // times the state had to wait because its shard was full
	Clamped          bool   // the recovered state was ahead of the log and was cut back
	Fault            error  // why the log could not be read, if the last try failed
	StoreFault       error  // why the state could not be written, if the last try failed
}

// Stats returns the consumer's numbers.
func (c *Consumer) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, now := c.m, time.Now().UnixNano()
	s := Stats{
		Pending: m.numPending(), AckPending: m.led.outstanding(), Redelivered: m.numRedelivered(),
		Exhausted: len(m.led.exhausted),
		Waiting:   m.wait.n, Delivered: m.led.last.consumer, AckFloor: m.led.floor.stream,
		Paused: now < m.set.pause, Bound: m.push.active, Clamped: c.clamped, Fault: m.fault,
		Chokes: c.store.chokes.Load(), Redeliveries: m.life.again,
	}
	if err := c.store.fault.Load(); err != nil {
		s.StoreFault = *err
	}
	for e := m.led.head; e != nil && m.led.outstanding() > 0; e = e.next {
		if !e.parked {
			s.OldestAckPending = time.Duration(max(now-e.first, 0))
			break
		}
	}
	if s.Pending > 0 {
		if rec, err := m.firstPending(); err == nil {
			s.OldestPending = time.Duration(max(now-rec.Time, 0))
		}
	}
	return s
}

// firstPending reads the first message not delivered yet.
func (m *machine) firstPending() (storage.Record, error) {
	if m.numParked() > 0 {
		seq, _ := m.parked.First()
		return m.w.Get(seq)
	}
	if seq, ok := m.skip.first(); ok {
		return m.w.Get(seq)
	}
	return m.w.Peek()
}

package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/storage"
)

// State is all that a consumer remembers, exactly: what is needed to go on somewhere else as if nothing had happened.
// Times are Unix nanoseconds; 0 means never.
type State struct {
	Delivered Position // the newest delivery
	AckFloor  Position // everything up to here is done

	LastDelivered int64
	LastAcked     int64

	Next      uint64          // stream sequence it reads on at; 0: after Delivered
	First     []uint64        // stream sequences it gives before it reads on (last_per_subject), ascending
	Pending   []PendingState  // delivered, or passed over, and not done, ascending in both sequences
	Requeued  []uint64        // stream sequences of those that are to be delivered again at once, in this order
	Exhausted []ExhaustedData // max_deliver was reached and the message is still in the stream, ascending
}

// Position is a place as a consumer counts it and as its stream does.
type Position struct{ Consumer, Stream uint64 }

// PendingState is one message that was delivered and is not done.
type PendingState struct {
	Stream   uint64 // sequence
	Consumer uint64 // sequence of the first delivery; if it was passed over (ehdb.key_shared), of the next one then
	// Deliveries so far; 0: the only one reached nobody and it is requeued, or it was passed over and is due never.
	Deliveries uint64
	FirstSent  int64
	LastSent   int64 // or last reported in progress
	Due        int64 // when it is to be delivered again; math.MaxInt64: never
	Postponed  bool  // Due was asked for by a NAK: a change of ack_wait does not move it
}

// ExhaustedData is a message that may not be delivered any more, and how often it was.
type ExhaustedData struct{ Stream, Deliveries uint64 }

// State returns what the consumer remembers, between two steps. It does not wait for the disk.
func (c *Consumer) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m.state()
}

func (m *machine) state() State { return m.stateAt(m.w.Position()) }

// stateAt is state with the sequence the cursor is at.
func (m *machine) stateAt(next uint64) State {
	l := m.led
	s := State{
		Delivered: Position{l.last.consumer, l.last.stream}, AckFloor: Position{l.floor.consumer, l.floor.stream},
		LastDelivered: m.life.delivered, LastAcked: m.life.acked,
		Next: next, First: m.skip.seqs(),
	}
	for e := l.head; e != nil; e = e.next {
		s.Pending = append(s.Pending, PendingState{
			Stream: e.sseq, Consumer: e.dseq, Deliveries: e.count,
			FirstSent: e.first, LastSent: e.sent, Due: e.due, Postponed: e.delayed,
		})
	}
	for e := l.rhead; e != nil; e = e.rnext {
		s.Requeued = append(s.Requeued, e.sseq)
	}
	for _, seq := range slices.Sorted(maps.Keys(l.exhausted)) {
		s.Exhausted = append(s.Exhausted, ExhaustedData{seq, l.exhausted[seq]})
	}
	return s
}

// requeued returns the sequences in Requeued.
func (s *State) requeued() map[uint64]bool {
	set := make(map[uint64]bool, len(s.Requeued))
	for _, seq := range s.Requeued {
		set[seq] = true
	}
	return set
}

// ErrState refuses a state that no consumer can be in.
var ErrState = errors.New("not the state of a consumer")

var errNotNew = errors.New("the consumer has a state already")

// Import makes s the state that New will find in log, which must be empty: the consumer goes on from it, whatever
// deliver policy its configuration names. The stream's log must be visible up to s.Delivered when New is called, or New
// takes what is above for lost and cuts it off. done (may be nil) is called once the state is durable. An error
// (ErrState with what is wrong, or one of the log) means that log is as it was.
func Import(log *storage.StateLog, s *State, done storage.Done) error {
	if err := log.Load(func([]byte, bool) error { return errNotNew }); err != nil {
		return err
	}
	return Replace(log, s, done)
}

// Replace is Import over the state that log has. No consumer may run on it.
func Replace(log *storage.StateLog, s *State, done storage.Done) error {
	m, err := machineOf(s)
	if err != nil {
		return err
	}
	return log.Checkpoint(m.checkpointAt(nil, s.Next), done)
}

// Read returns the state in a log on which no consumer runs: what New would go on from. ok is false if there is none.
func Read(log *storage.StateLog, stream, name string, cfg *server.ConsumerConfig) (s State, ok bool, err error) {
	m := newMachine(newSettings(stream, name, *cfg, maxPayload, 0), 0)
	err = log.Load(func(entry []byte, checkpoint bool) error {
		ok = true
		if checkpoint {
			return m.restore(entry)
		}
		return m.replay(entry)
	})
	if err != nil || !ok {
		return State{}, ok, err
	}
	return m.stateAt(m.resume), true, nil
}

// Settle waits until all that came in is done and appended to the state log. A consumer that delivers nothing (Hold)
// and to which nobody sends anything any more changes no more after that.
func (c *Consumer) Settle(ctx context.Context) error {
	settled := make(chan struct{})
	c.mu.Lock()
	c.settled = settled
	c.mu.Unlock()
	tick := time.NewTicker(chokeRetry) // one that has ended has no timer to come back to a full shard
	defer tick.Stop()
	for {
		c.run.schedule()
		select {
		case <-settled:
			return nil
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("consumer %s has not written its state: %w", c.o.Name, context.Cause(ctx))
		}
	}
}

// noteSettled tells Settle that nothing is left to do. It is for the worker that runs the consumer.
func (c *Consumer) noteSettled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled != nil && !c.store.choked && len(c.outgoing) == 0 && c.mail.empty() {
		close(c.settled)
		c.settled = nil
	}
}

// machineOf returns a machine with that state and no world.
func machineOf(s *State) (*machine, error) {
	m := newMachine(settings{}, 0)
	if s.AckFloor.Stream > s.Delivered.Stream || s.AckFloor.Consumer > s.Delivered.Consumer {
		return nil, fmt.Errorf("%w: the ack floor %v is above the last delivery %v", ErrState, s.AckFloor, s.Delivered)
	}
	if !slices.IsSorted(s.First) {
		return nil, fmt.Errorf("%w: the messages it gives first are out of order", ErrState)
	}
	if s.LastDelivered < 0 || s.LastAcked < 0 {
		return nil, fmt.Errorf("%w: a time before 1970", ErrState)
	}
	m.life.delivered, m.life.acked, m.skip.loaded = s.LastDelivered, s.LastAcked, s.First
	m.led.last = seqPair{s.Delivered.Consumer, s.Delivered.Stream}
	m.led.floor = seqPair{s.AckFloor.Consumer, s.AckFloor.Stream}
	if err := m.led.take(s); err != nil {
		return nil, err
	}
	return m, nil
}

// take fills an empty ledger, whose bounds are set.
func (l *ledger) take(s *State) error {
	prev := l.floor
	requeued := s.requeued()
	for i := range s.Pending {
		p := &s.Pending[i]
		parked, last := p.Deliveries == 0 && !requeued[p.Stream], l.last.consumer
		if parked {
			last++
		}
		if parked && p.Due != never {
			return fmt.Errorf("%w: message %d has no delivery and is not requeued", ErrState, p.Stream)
		}
		ordered := p.Stream > prev.stream && p.Consumer >= prev.consumer && p.Consumer > l.floor.consumer
		if !ordered || p.Stream > l.last.stream || p.Consumer > last {
			return fmt.Errorf("%w: message %d is outstanding out of order or out of bounds", ErrState, p.Stream)
		}
		if p.FirstSent < 0 || p.LastSent < 0 || p.Due <= 0 {
			return fmt.Errorf("%w: message %d has a time that is none", ErrState, p.Stream)
		}
		e := l.insert(p.Stream, p.Consumer)
		e.count, e.first, e.sent, e.due, e.delayed = p.Deliveries, p.FirstSent, p.LastSent, p.Due, p.Postponed
		l.heap.push(e)
		if parked {
			l.setParked(e)
		}
		prev = seqPair{p.Consumer, p.Stream}
	}
	return l.takeRest(s)
}

// takeRest is the second part of take: what becomes of what is outstanding, and what is exhausted.
func (l *ledger) takeRest(s *State) error {
	for _, seq := range s.Requeued {
		e := l.bySeq[seq]
		if e == nil || e.queued {
			return fmt.Errorf("%w: message %d is requeued but not outstanding, or twice", ErrState, seq)
		}
		l.queue(e)
	}
	for _, x := range s.Exhausted {
		if l.bySeq[x.Stream] != nil || x.Stream > l.last.stream || x.Stream == 0 {
			return fmt.Errorf("%w: message %d is exhausted but outstanding or never delivered", ErrState, x.Stream)
		}
		l.exhausted[x.Stream] = x.Deliveries
	}
	return nil
}

package consumer

import (
	"maps"
	"math"
	"slices"

	"github.com/nats-io/nats-server/v2/server"
)

// NATS returns the state in the form of nats-server, as far as that goes. It has one time for an outstanding message,
// from which its ack wait runs: it is chosen such that the message comes again when it would have come here. upTo is
// the last sequence of the stream it goes with: nothing above counts. now is in Unix nanoseconds.
func (s *State) NATS(cfg *server.ConsumerConfig, upTo uint64, now int64) server.ConsumerState {
	out := server.ConsumerState{
		Delivered: server.SequencePair{Consumer: s.Delivered.Consumer, Stream: min(s.Delivered.Stream, upTo)},
		AckFloor:  server.SequencePair{Consumer: s.AckFloor.Consumer, Stream: min(s.AckFloor.Stream, upTo)},
	}
	redelivered := make(map[uint64]uint64)
	pending := make(map[uint64]*server.Pending, len(s.Pending))
	requeued := s.requeued()
	set := settings{cfg: *cfg}
	for i := range s.Pending {
		p := &s.Pending[i]
		if p.Stream > upTo {
			continue
		}
		since := p.Due
		if requeued[p.Stream] {
			since = min(since, now)
		}
		if wait := set.ackWait(p.Deliveries); since == never || wait == never {
			since = p.LastSent
		} else {
			since -= wait
		}
		if p.Deliveries == 0 && !requeued[p.Stream] {
			since = 0 // passed over: it goes for delivered, and is due
			out.Delivered.Consumer = max(out.Delivered.Consumer, p.Consumer)
		}
		pending[p.Stream] = &server.Pending{Sequence: p.Consumer, Timestamp: since}
		if p.Deliveries > 1 {
			redelivered[p.Stream] = p.Deliveries - 1
		}
	}
	for _, x := range s.Exhausted {
		if x.Stream <= upTo && x.Deliveries > 0 {
			redelivered[x.Stream] = x.Deliveries - 1
		}
	}
	if len(pending) > 0 {
		out.Pending = pending
	}
	if len(redelivered) > 0 {
		out.Redelivered = redelivered
	}
	return out
}

// FromNATS returns the state that nats-server's form stands for. What that form does not carry is filled in: the times
// of a message's deliveries are those of the last. It does not check: Import does.
func FromNATS(cfg *server.ConsumerConfig, in *server.ConsumerState, now int64) State {
	s := State{
		Delivered: Position{in.Delivered.Consumer, in.Delivered.Stream},
		AckFloor:  Position{in.AckFloor.Consumer, in.AckFloor.Stream},
	}
	if in.Delivered.Consumer == 0 && cfg.DeliverPolicy == server.DeliverByStartSequence && cfg.OptStartSeq > 0 {
		// nats-server cuts a start that is still to come off at the end of the stream: it would begin too early.
		s.Delivered.Stream = max(s.Delivered.Stream, cfg.OptStartSeq-1)
		s.AckFloor.Stream = s.Delivered.Stream
	}
	if cfg.AckPolicy == server.AckNone && in.AckFloor.Consumer <= in.Delivered.Consumer {
		s.AckFloor = s.Delivered
		return s
	}
	if len(in.Pending) > 0 && s.AckFloor.Consumer >= s.Delivered.Consumer {
		// Behind a purge of a subject nats-server has done with all sequences of deliveries, whatever is outstanding.
		s.Delivered.Consumer = max(s.Delivered.Consumer, 1)
		s.AckFloor.Consumer = s.Delivered.Consumer - 1
	}
	set := settings{cfg: *cfg}
	dseq := s.AckFloor.Consumer + 1
	for _, seq := range slices.Sorted(maps.Keys(in.Pending)) {
		p := in.Pending[seq]
		if p == nil {
			p = &server.Pending{Sequence: dseq}
		}
		at := max(p.Timestamp, 0)
		e := PendingState{
			Stream: seq, Consumer: max(p.Sequence, dseq), Deliveries: in.Redelivered[seq] + 1,
			FirstSent: min(at, now), LastSent: min(at, now), Postponed: at > now,
		}
		e.Due = dueFrom(p.Timestamp, set.ackWait(e.Deliveries))
		if p.Timestamp == 0 && e.Deliveries == 1 && keyRuleOf(cfg) != nil {
			e.Deliveries, e.Due = 0, never // it was passed over
		}
		s.Pending = append(s.Pending, e)
		dseq = e.Consumer
	}
	for _, seq := range slices.Sorted(maps.Keys(in.Redelivered)) {
		if _, outstanding := in.Pending[seq]; !outstanding && cfg.MaxDeliver > 0 {
			s.Exhausted = append(s.Exhausted, ExhaustedData{seq, in.Redelivered[seq] + 1})
		}
	}
	return s
}

// dueFrom returns at+wait, within what a deadline can be.
func dueFrom(at, wait int64) int64 {
	switch {
	case wait == never || at > math.MaxInt64-wait:
		return never
	case at < 0 && wait < 1-at:
		return 1
	}
	return max(at+wait, 1)
}

package flip

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/subjects"
)

// transfer brings consumers and message ids of a stream that is held over to its standby.
func (e *Engine) transfer(ctx context.Context, s *stream) ([]cutover.ConsumerCopy, error) {
	infos, err := s.up.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	s.notes.Settle(infos)
	list := make([]cutover.ConsumerCopy, 0, len(infos))
	names := make(map[string]bool, len(infos))
	for _, info := range infos {
		c, err := s.consumer(ctx, info)
		if err != nil {
			return nil, err
		}
		if err := s.copy.ImportConsumer(ctx, c); err != nil {
			return nil, err
		}
		list = append(list, *c)
		names[c.Name] = true
	}
	have, err := s.copy.Consumers()
	if err != nil {
		return nil, err
	}
	for i := range have {
		if !names[have[i].Name] {
			if err := s.copy.DeleteConsumer(ctx, have[i].Name); err != nil {
				return nil, err
			}
		}
	}
	ids := merged(s.copy.Dedup(), s.ids.entries(s.copy.Config().Duplicates, time.Now()))
	return list, s.copy.ImportDedup(ids)
}

// merged adds to the ids that the copy knows, of its messages and of when it was the authority, those that passed. The
// later of two times counts: that of a message is by the servers' clock.
func merged(known, passed []cutover.DedupEntry) []cutover.DedupEntry {
	have := make(map[string]int, len(known))
	for i := range known {
		have[known[i].ID] = i
	}
	for i := range passed {
		if at, both := have[passed[i].ID]; both {
			known[at].Time = max(known[at].Time, passed[i].Time)
		} else {
			known = append(known, passed[i])
		}
	}
	slices.SortFunc(known, func(a, b cutover.DedupEntry) int { return cmp.Compare(a.Seq, b.Seq) })
	return known
}

// consumer is what a consumer of the servers remembers: their counts, and what the relay has seen of the messages that
// they count.
func (s *stream) consumer(ctx context.Context, info *server.ConsumerInfo) (*cutover.ConsumerCopy, error) {
	c := &cutover.ConsumerCopy{Name: info.Name, Config: *info.Config, Created: info.Created, Exact: true}
	c.State.Delivered = server.SequencePair{Consumer: info.Delivered.Consumer, Stream: info.Delivered.Stream}
	c.State.AckFloor = server.SequencePair{Consumer: info.AckFloor.Consumer, Stream: info.AckFloor.Stream}
	for _, g := range info.PriorityGroups {
		c.Pin = cutover.Pin{Group: g.Group, ID: g.PinnedClientID, Since: g.PinnedTS}
	}
	if info.Config.AckPolicy == server.AckNone || info.NumAckPending == 0 {
		return c, nil
	}
	pending, done, complete := s.notes.Outstanding(info.Name)
	maps.DeleteFunc(pending, func(seq uint64, _ relay.Delivery) bool {
		return seq <= info.AckFloor.Stream || seq > info.Delivered.Stream
	})
	if len(pending) > info.NumAckPending { // some were removed meanwhile
		if err := s.dropRemoved(ctx, pending); err != nil {
			return nil, err
		}
	}
	if c.Exact = complete && len(pending) == info.NumAckPending; !c.Exact {
		if err := s.superset(ctx, info, pending, done); err != nil {
			return nil, err
		}
	}
	fill(c, pending)
	return c, nil
}

// dropRemoved drops from pending what the stream has no more, as far as the copy has come.
func (s *stream) dropRemoved(ctx context.Context, pending map[uint64]relay.Delivery) error {
	st, err := s.copy.State(ctx, true)
	if err != nil {
		return err
	}
	maps.DeleteFunc(pending, func(seq uint64, _ relay.Delivery) bool { return seq < st.FirstSeq })
	for _, seq := range st.Deleted {
		delete(pending, seq)
	}
	return nil
}

// fill puts what is outstanding into the state, in nats-server's form: the time of a delivery is that from which its
// ack wait runs.
func fill(c *cutover.ConsumerCopy, pending map[uint64]relay.Delivery) {
	c.State.Pending = make(map[uint64]*server.Pending, len(pending))
	wait := c.Config.AckWait
	for seq, d := range pending {
		// What was delivered here before may have a sequence that the servers have not reached.
		p := &server.Pending{Sequence: min(d.Consumer, c.State.Delivered.Consumer), Timestamp: d.At}
		if d.Naked { // due after its delay, whatever the ack wait is
			p.Timestamp = d.At + int64(d.Delay) - int64(wait)
		}
		c.State.Pending[seq] = p
		if d.Deliveries > 1 {
			if c.State.Redelivered == nil {
				c.State.Redelivered = make(map[uint64]uint64)
			}
			c.State.Redelivered[seq] = d.Deliveries - 1
		}
	}
}

// superset adds to pending all messages that may be outstanding.
func (s *stream) superset(
	ctx context.Context, info *server.ConsumerInfo, pending map[uint64]relay.Delivery, done map[uint64]struct{},
) error {
	filters := cutover.Filters(info.Config)
	var failure error
	err := s.copy.Read(ctx, info.AckFloor.Stream+1, func(r *cutover.Record, err error) bool {
		if err != nil {
			failure = err
			return false
		}
		if r.Seq > info.Delivered.Stream {
			return false
		}
		_, known := pending[r.Seq]
		if _, acked := done[r.Seq]; !known && !acked && selects(filters, string(r.Subject)) {
			pending[r.Seq] = relay.Delivery{Deliveries: 1, At: time.Now().UnixNano()}
		}
		return true
	})
	return errors.Join(failure, err)
}

func selects(filters []string, subject string) bool {
	return len(filters) == 0 || slices.ContainsFunc(filters, func(f string) bool { return subjects.Match(f, subject) })
}

// unmoved reports whether the servers' consumers were where list says: what they count as delivered has left them by
// now.
func unmoved(infos []*server.ConsumerInfo, list []cutover.ConsumerCopy) bool {
	if len(infos) != len(list) {
		return false
	}
	at := make(map[string]*cutover.ConsumerCopy, len(list))
	for i := range list {
		at[list[i].Name] = &list[i]
	}
	for _, info := range infos {
		c := at[info.Name]
		if c == nil || c.State.Delivered.Consumer != info.Delivered.Consumer ||
			c.State.AckFloor.Stream != info.AckFloor.Stream {
			return false
		}
	}
	return true
}

// maxIDs bounds the message ids that are remembered for one stream.
const maxIDs = 1 << 20

// window is the message ids that passed lately, in the order of their sequences.
type window struct {
	mu   sync.Mutex
	list []cutover.DedupEntry
}

func (w *window) note(n *relay.Noted) {
	if n.MsgID == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.list) >= maxIDs {
		w.list = append(w.list[:0], w.list[maxIDs/2:]...)
	}
	w.list = append(w.list, cutover.DedupEntry{ID: n.MsgID, Seq: n.Seq, Time: n.Time})
}

// entries returns those that are not older than a window, and forgets the others.
func (w *window) entries(size time.Duration, now time.Time) []cutover.DedupEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest := now.Add(-size).UnixNano()
	w.list = slices.DeleteFunc(w.list, func(e cutover.DedupEntry) bool { return e.Time < oldest })
	out := slices.Clone(w.list)
	slices.SortFunc(out, func(a, b cutover.DedupEntry) int { return cmp.Compare(a.Seq, b.Seq) })
	return out
}

package origin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

const (
	maxWindow   = 1024                   // records asked for at a time
	minWindow   = 8                      // likewise, while nothing is known of their size
	firstWindow = 128                    // likewise, by who may not want more
	atOnce      = 4 << 20                // bytes that are on their way at a time, roughly
	pollEvery   = 250 * time.Millisecond // the servers are asked for what nobody told of
)

// Stream is a stream of the servers. It implements cutover.Upstream.
type Stream struct {
	c    *Conn
	name string

	mu    sync.Mutex
	last  uint64        // the servers have stored up to here, as far as anybody told
	nudge chan struct{} // closed at the next nudge
	width uint64        // of the next window
}

// Stream returns the stream of that name, whether it is there or not.
func (c *Conn) Stream(name string) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[name]
	if s == nil {
		s = &Stream{c: c, name: name, nudge: make(chan struct{}), width: minWindow}
		c.streams[name] = s
	}
	return s
}

// Name returns the stream's name.
func (s *Stream) Name() string { return s.name }

// Nudge tells Follow that the servers have stored something: up to last, or unknown how far if that is 0. It does not
// block.
func (s *Stream) Nudge(last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last != 0 && last <= s.last {
		return
	}
	s.last = max(s.last, last)
	close(s.nudge)
	s.nudge = make(chan struct{})
}

// told returns how far the servers are as far as anybody told, and a channel that is closed at the next nudge.
func (s *Stream) told() (uint64, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.nudge
}

// forget takes back what was told of a stream that is another one since.
func (s *Stream) forget(last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = last
}

// Info implements cutover.Upstream.
func (s *Stream) Info(ctx context.Context) (*server.StreamInfo, error) {
	info, err := s.info(ctx, server.JSApiStreamInfoRequest{})
	return info, s.c.fail(s.name, "asking for its info", err)
}

func (s *Stream) info(ctx context.Context, req server.JSApiStreamInfoRequest) (*server.StreamInfo, error) {
	var resp server.JSApiStreamInfoResponse
	if err := s.c.ask(ctx, "STREAM.INFO."+s.name, &req, &resp, &resp.ApiResponse); err != nil {
		return nil, err
	}
	if resp.StreamInfo == nil {
		return nil, errors.New("an info without content")
	}
	if resp.State.LastSeq == 0 { // nats-server shows sequence 0 of an empty stream as deleted
		resp.State.NumDeleted, resp.State.Deleted = 0, nil
	}
	return resp.StreamInfo, nil
}

// State implements cutover.Reader.
func (s *Stream) State(ctx context.Context, deleted bool) (server.StreamState, error) {
	info, err := s.info(ctx, server.JSApiStreamInfoRequest{DeletedDetails: deleted})
	if err != nil {
		return server.StreamState{}, s.c.fail(s.name, "asking for its state", err)
	}
	return info.State, nil
}

// Get implements cutover.Reader.
func (s *Stream) Get(ctx context.Context, seq uint64) (*cutover.Record, error) {
	if seq == 0 {
		return nil, cutover.ErrNoRecord
	}
	r, err := s.get(ctx, server.JSApiMsgGetRequest{Seq: seq})
	if err != nil && !errors.Is(err, cutover.ErrNoRecord) {
		return nil, s.c.fail(s.name, fmt.Sprintf("reading record %d", seq), err)
	}
	return r, err
}

func (s *Stream) get(ctx context.Context, req server.JSApiMsgGetRequest) (*cutover.Record, error) {
	var resp server.JSApiMsgGetResponse
	if err := s.c.ask(ctx, "STREAM.MSG.GET."+s.name, &req, &resp, &resp.ApiResponse); err != nil {
		return nil, err
	}
	seq := req.Seq
	if req.NextFor != "" {
		seq = 0
	}
	return recordOf(&resp, seq)
}

// next returns the first record at or after seq.
func (s *Stream) next(ctx context.Context, seq uint64) (*cutover.Record, error) {
	return s.get(ctx, server.JSApiMsgGetRequest{Seq: seq, NextFor: ">"})
}

// horizon is where a stream ended at some time, by word of its leader. What that leader does not find below it later
// was removed; what anybody does not find above it may just not be there yet.
type horizon struct {
	last   uint64
	leader string // empty on a server alone
}

// look asks for the horizon, and the first sequence.
func (s *Stream) look(ctx context.Context) (h horizon, first uint64, err error) {
	info, err := s.info(ctx, server.JSApiStreamInfoRequest{})
	if err != nil {
		return h, 0, err
	}
	h.last = info.State.LastSeq
	if info.Cluster != nil {
		h.leader = info.Cluster.Leader
	}
	return h, info.State.FirstSeq, nil
}

// errLeader says that holes may be none: who did not find records is not who told of the stream's end.
var errLeader = errors.New("the stream has got another leader")

// window returns the records from seq on that are not above last, width of them at most, and where to go on: at seq if
// there is nothing yet. h is where the stream ended before; nil: that is not known.
func (s *Stream) window(ctx context.Context, seq, width, last uint64, h *horizon) ([]cutover.Record, uint64, error) {
	end := min(last, seq+min(width, s.nextWidth())-1)
	found := make([]*cutover.Record, end-seq+1)
	holes, err := s.gets(ctx, seq, found)
	if err != nil {
		s.narrow()
		return nil, seq, err
	}
	if holes > 0 && h == nil {
		seen, _, err := s.look(ctx)
		if err != nil {
			return nil, seq, err
		}
		if end = min(end, seen.last); end < seq {
			return nil, seq, nil
		}
		h, found = &seen, found[:end-seq+1]
		if holes, err = s.gets(ctx, seq, found); err != nil {
			return nil, seq, err
		}
	}
	on := end + 1
	if holes == len(found) && end < last { // a hole wider than a window: where does it end?
		r, err := s.next(ctx, on)
		switch {
		case err == nil:
			on = min(r.Seq, last+1)
		case errors.Is(err, cutover.ErrNoRecord):
			on = last + 1
		default:
			return nil, seq, err
		}
	}
	if holes > 0 && h.leader != "" {
		again, _, err := s.look(ctx)
		if err == nil && again.leader != h.leader {
			err = errLeader
		}
		if err != nil {
			return nil, seq, err
		}
	}
	return s.compact(found), on, nil
}

// compact returns the records that are there, and takes note of their size.
func (s *Stream) compact(found []*cutover.Record) []cutover.Record {
	var batch []cutover.Record
	size := 0
	for _, r := range found {
		if r != nil {
			batch = append(batch, *r)
			size += len(r.Subject) + len(r.Header) + len(r.Data)
		}
	}
	s.adapt(len(batch), size)
	return batch
}

func (s *Stream) nextWidth() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.width
}

// narrow begins with small windows again, after one that failed: what was asked for may have been too much at a time.
func (s *Stream) narrow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.width = minWindow
}

// adapt makes the next window as wide as records of the size of these allow.
func (s *Stream) adapt(records, size int) {
	fits := maxWindow
	if records > 0 && size > 0 {
		fits = min(fits, max(atOnce*records/size, 1))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.width = min(uint64(fits), 2*s.width) //nolint:gosec // not negative
}

// Read implements cutover.Reader: up to what the stream has when it is called.
func (s *Stream) Read(ctx context.Context, from uint64, fn func(*cutover.Record, error) bool) error {
	return s.ReadTo(ctx, from, math.MaxUint64, fn)
}

// ReadTo implements cutover.Bounded.
func (s *Stream) ReadTo(ctx context.Context, from, last uint64, fn func(*cutover.Record, error) bool) error {
	h, first, err := s.look(ctx)
	if err != nil {
		return s.c.fail(s.name, "reading it", err)
	}
	last = min(last, h.last)
	width := uint64(firstWindow) // and doubles: who ends early has not asked for much
	for seq := max(from, first, 1); seq <= last; width = min(2*width, maxWindow) {
		var batch []cutover.Record
		if batch, seq, err = s.window(ctx, seq, width, last, &h); err != nil {
			return s.c.fail(s.name, "reading it", err)
		}
		for i := range batch {
			if !fn(&batch[i], nil) {
				return nil
			}
		}
	}
	return nil
}

// Follow implements cutover.Upstream. It reads what Nudge tells of at once, and looks a few times a second for what
// nobody told of.
func (s *Stream) Follow(ctx context.Context, from uint64, fn func(batch []cutover.Record, live bool) error) error {
	seq := max(from, 1)
	for {
		last, nudged := s.told()
		var h *horizon
		if last < seq {
			seen, first, err := s.look(ctx)
			if err != nil {
				return s.c.fail(s.name, "following it", err)
			}
			h, last, seq = &seen, seen.last, max(seq, first)
			s.forget(last)
		}
		var err error
		if seq, err = s.followTo(ctx, seq, last, h, fn); err != nil {
			return err
		}
		if err := fn(nil, true); err != nil {
			return err
		}
		if err := s.rest(ctx, nudged); err != nil {
			return err
		}
	}
}

// followTo gives fn the records from seq to last, as far as they are there, and returns the sequence behind them.
func (s *Stream) followTo(
	ctx context.Context, seq, last uint64, h *horizon, fn func(batch []cutover.Record, live bool) error,
) (uint64, error) {
	for seq <= last {
		batch, on, err := s.window(ctx, seq, maxWindow, last, h)
		if err != nil {
			return seq, s.c.fail(s.name, "following it", err)
		}
		if on == seq { // who told of last knew of another stream, or more than the leader does yet
			s.forget(seq - 1)
			break
		}
		if seq = on; len(batch) > 0 {
			if err := fn(batch, seq > last); err != nil {
				return seq, err
			}
		}
	}
	return seq, nil
}

// rest waits for a nudge, or until it is time to look.
func (s *Stream) rest(ctx context.Context, nudged <-chan struct{}) error {
	t := time.NewTimer(s.c.o.Poll)
	defer t.Stop()
	select {
	case <-nudged:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Consumers implements cutover.Upstream. Consumers that the servers know of but cannot show now are an error.
func (s *Stream) Consumers(ctx context.Context) ([]*server.ConsumerInfo, error) {
	var out []*server.ConsumerInfo
	for {
		var resp server.JSApiConsumerListResponse
		req := server.JSApiConsumersRequest{ApiPagedRequest: server.ApiPagedRequest{Offset: len(out)}}
		if err := s.c.ask(ctx, "CONSUMER.LIST."+s.name, &req, &resp, &resp.ApiResponse); err != nil {
			return nil, s.c.fail(s.name, "listing its consumers", err)
		}
		if len(resp.Missing) > 0 {
			return nil, s.c.fail(s.name, "listing its consumers",
				fmt.Errorf("no answer from the leader of consumer %s", resp.Missing[0]))
		}
		out = append(out, resp.Consumers...)
		if len(resp.Consumers) == 0 || len(out) >= resp.Total {
			return out, nil
		}
	}
}

var _ cutover.Upstream = (*Stream)(nil)

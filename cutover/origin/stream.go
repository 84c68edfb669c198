package origin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
)

const (
	maxWindow = 128                    // records asked for at a time
	minWindow = 8                      // likewise, while nothing is known of their size
	atOnce    = 4 << 20                // bytes that are on their way at a time, roughly
	pollEvery = 250 * time.Millisecond // the servers are asked for what nobody told of
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
func (s *Stream) State(ctx context.Context, deleted bool) (server.StreamState, error) { //nolint:revive // as in the API
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
	m := resp.Message
	if m == nil || req.NextFor == "" && m.Sequence != req.Seq {
		return nil, errors.New("an answer that is not about this record")
	}
	return &cutover.Record{
		Seq: m.Sequence, Time: m.Time.UnixNano(), Subject: []byte(m.Subject), Header: m.Header, Data: m.Data,
	}, nil
}

// next returns the first record at or after seq.
func (s *Stream) next(ctx context.Context, seq uint64) (*cutover.Record, error) {
	return s.get(ctx, server.JSApiMsgGetRequest{Seq: seq, NextFor: ">"})
}

// window returns the records from seq on that are not above last, a window of them at most, and where to go on.
func (s *Stream) window(ctx context.Context, seq, last uint64) (batch []cutover.Record, on uint64, err error) {
	end := min(last, seq+s.nextWidth()-1)
	found := make([]*cutover.Record, end-seq+1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() {
			r, err := s.get(ctx, server.JSApiMsgGetRequest{Seq: seq + uint64(i)}) //nolint:gosec // an index
			switch {
			case err == nil:
				found[i] = r
			case !errors.Is(err, cutover.ErrNoRecord):
				cancel(fmt.Errorf("record %d: %w", seq+uint64(i), err)) //nolint:gosec // an index
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, seq, context.Cause(ctx)
	}
	size := 0
	for _, r := range found {
		if r != nil {
			batch = append(batch, *r)
			size += len(r.Subject) + len(r.Header) + len(r.Data)
		}
	}
	s.adapt(len(batch), size)
	if len(batch) > 0 || end == last {
		return batch, end + 1, nil
	}
	// A hole wider than a window: where does it end?
	r, err := s.next(ctx, end+1)
	if errors.Is(err, cutover.ErrNoRecord) {
		return nil, last + 1, nil
	}
	if err != nil {
		return nil, seq, err
	}
	return nil, min(r.Seq, last+1), nil
}

func (s *Stream) nextWidth() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.width
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
	st, err := s.State(ctx, false)
	if err != nil {
		return err
	}
	for seq := max(from, st.FirstSeq, 1); seq <= st.LastSeq; {
		var batch []cutover.Record
		if batch, seq, err = s.window(ctx, seq, st.LastSeq); err != nil {
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

// Follow implements cutover.Upstream. It reads what Nudge tells of at once, and looks a few times a second for what nobody
// told of.
func (s *Stream) Follow(ctx context.Context, from uint64, fn func(batch []cutover.Record, live bool) error) error {
	seq := max(from, 1)
	for {
		told, nudged := s.told()
		if told < seq {
			st, err := s.State(ctx, false)
			if err != nil {
				return err
			}
			told, seq = st.LastSeq, max(seq, st.FirstSeq)
			s.forget(told)
		}
		for seq <= told {
			batch, on, err := s.window(ctx, seq, told)
			if err != nil {
				return s.c.fail(s.name, "following it", err)
			}
			if seq = on; len(batch) > 0 {
				if err := fn(batch, seq > told); err != nil {
					return err
				}
			}
		}
		if err := fn(nil, true); err != nil {
			return err
		}
		if err := s.rest(ctx, nudged); err != nil {
			return err
		}
	}
}

// rest waits for a nudge, or until it is time to look.
func (s *Stream) rest(ctx context.Context, nudged <-chan struct{}) error {
	t := time.NewTimer(pollEvery)
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

package origin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
)

// inbox takes the answers to many requests at a time by one subscription: neither a goroutine nor a timer for each.
type inbox struct {
	mu     sync.Mutex
	sub    *nats.Subscription // nil: not yet
	prefix string
	next   uint64
	takers map[string]chan<- *nats.Msg // by the token of their batch
}

// open returns where the answers to n requests come, the i-th to the returned prefix with i behind it.
func (b *inbox) open(nc *nats.Conn, n int) (prefix string, answers <-chan *nats.Msg, done func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sub == nil {
		b.prefix, b.takers = nc.NewInbox()+".", map[string]chan<- *nats.Msg{}
		sub, err := nc.Subscribe(b.prefix+"*", b.take)
		if err == nil {
			err = sub.SetPendingLimits(-1, -1) // bounded by what is asked for
		}
		if err != nil {
			return "", nil, nil, err
		}
		b.sub = sub
	}
	b.next++
	token, to := strconv.FormatUint(b.next, 36), make(chan *nats.Msg, n)
	b.takers[token] = to
	return b.prefix + token + "-", to, func() {
		b.mu.Lock()
		delete(b.takers, token)
		b.mu.Unlock()
	}, nil
}

// take hands an answer to who waits for it.
func (b *inbox) take(m *nats.Msg) {
	token, _, _ := strings.Cut(m.Subject[len(b.prefix):], "-")
	b.mu.Lock()
	to := b.takers[token]
	b.mu.Unlock()
	select {
	case to <- m:
	default: // nobody waits any more, or it is more than was asked for
	}
}

// gets fills what is nil of found, whose first is the record at seq, and returns how many are not there.
func (s *Stream) gets(ctx context.Context, seq uint64, found []*cutover.Record) (holes int, err error) {
	nc, link := s.c.nc, s.c.linked()
	if !nc.IsConnected() {
		return 0, nats.ErrDisconnected
	}
	prefix, answers, done, err := s.c.inbox.open(nc, len(found))
	if err != nil {
		return 0, err
	}
	defer done()
	waiting := 0
	subject := api + "STREAM.MSG.GET." + s.name
	var body []byte
	for i := range found {
		if found[i] != nil {
			continue
		}
		body = append(strconv.AppendUint(append(body[:0], `{"seq":`...), seq+uint64(i), 10), '}')
		if err := nc.PublishRequest(subject, prefix+strconv.Itoa(i), body); err != nil {
			return 0, err
		}
		waiting++
	}
	silence := time.NewTimer(s.c.o.Timeout)
	defer silence.Stop()
	for ; waiting > 0; waiting-- {
		select {
		case m := <-answers:
			i, err := strconv.Atoi(m.Subject[len(prefix):])
			if err != nil || i < 0 || i >= len(found) || found[i] != nil {
				return 0, errors.New("an answer to nothing that was asked")
			}
			if found[i], err = recordIn(m, seq+uint64(i)); errors.Is(err, cutover.ErrNoRecord) {
				holes++
			} else if err != nil {
				return 0, fmt.Errorf("record %d: %w", seq+uint64(i), err)
			}
			silence.Reset(s.c.o.Timeout)
		case <-silence.C:
			return 0, fmt.Errorf("%w within %v", errTimeout, s.c.o.Timeout)
		case <-link.Done():
			return 0, context.Cause(link)
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return holes, nil
}

// recordIn is the record of an answer to STREAM.MSG.GET for that sequence.
func recordIn(m *nats.Msg, seq uint64) (*cutover.Record, error) {
	const noResponders = "503"
	if len(m.Data) == 0 && m.Header.Get("Status") == noResponders {
		return nil, nats.ErrNoResponders
	}
	var resp server.JSApiMsgGetResponse
	if err := json.Unmarshal(m.Data, &resp); err != nil {
		return nil, fmt.Errorf("an answer that is none: %w", err)
	}
	if err := apiError(resp.Error); err != nil {
		return nil, err
	}
	return recordOf(&resp, seq)
}

// recordOf is what an answer without an error shows; seq 0: whichever record it is.
func recordOf(resp *server.JSApiMsgGetResponse, seq uint64) (*cutover.Record, error) {
	m := resp.Message
	if m == nil || seq != 0 && m.Sequence != seq {
		return nil, errors.New("an answer that is not about this record")
	}
	return &cutover.Record{
		Seq: m.Sequence, Time: m.Time.UnixNano(), Subject: []byte(m.Subject), Header: m.Header, Data: m.Data,
	}, nil
}

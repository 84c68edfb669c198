package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Latency measures, on a stream of its own on each side, how long a publish takes until its PubAck and until it is
// delivered: one after the other and side by side, so that what disturbs one disturbs the other.
type Latency struct {
	name, subject string

	mu      sync.Mutex
	sides   [2]Times // of the servers, of the gateway
	skipped uint64   // not measured, since something was saturated
}

// Times are the last measurements of a side.
type Times struct {
	Ack, Deliver Ring
	At           time.Time
}

// NewLatency returns a measurement on a stream of that name, which stores subject.
func NewLatency(name, subject string) *Latency { return &Latency{name: name, subject: subject} }

// ringSize is how many measurements are kept.
const ringSize = 4096

// Ring is the last measurements of something.
type Ring struct {
	list []time.Duration
	ends []time.Time // when each was made
	n    uint64
}

// Add takes a measurement that ended at a time.
func (r *Ring) Add(d time.Duration, end time.Time) {
	if len(r.list) < ringSize {
		r.list, r.ends = append(r.list, d), append(r.ends, end)
	} else {
		r.list[r.n%ringSize], r.ends[r.n%ringSize] = d, end
	}
	r.n++
}

// Behind returns the measurements that ended behind a time.
func (r *Ring) Behind(t time.Time) (out Ring) {
	for i, end := range r.ends {
		if end.After(t) {
			out.Add(r.list[i], end)
		}
	}
	return out
}

// N is how many the quantiles are of.
func (r *Ring) N() uint64 { return uint64(len(r.list)) }

// Quantiles returns some, 0 where there is nothing.
func (r *Ring) Quantiles(qs ...float64) []time.Duration {
	sorted := slices.Sorted(slices.Values(r.list))
	out := make([]time.Duration, len(qs))
	for i, q := range qs {
		if n := len(sorted); n > 0 {
			out[i] = sorted[min(int(q*float64(n)), n-1)]
		}
	}
	return out
}

// Snapshot returns what was measured: of the servers and of the gateway.
func (l *Latency) Snapshot() (there, here Times) { return l.Since(time.Time{}) }

// Since is Snapshot of what was measured behind a time.
func (l *Latency) Since(t time.Time) (there, here Times) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sides[0].since(t), l.sides[1].since(t)
}

func (s *Times) since(t time.Time) Times {
	return Times{Ack: s.Ack.Behind(t), Deliver: s.Deliver.Behind(t), At: s.At}
}

// Skip says that something is saturated: a measurement would be one of a queue.
func (l *Latency) Skip() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.skipped++
}

// Measure measures both sides n times, with a pause between.
func (l *Latency) Measure(ctx context.Context, there, here Side, n int, pause time.Duration) error {
	for i, side := range []Side{there, here} {
		stop, err := l.prepare(ctx, side, i)
		if err != nil {
			return fmt.Errorf("%s: %w", []string{"the servers", "the gateway"}[i], err)
		}
		defer stop()
	}
	for range n {
		for i, side := range []Side{there, here} {
			if err := l.one(ctx, side, i); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
	return nil
}

// prepare makes the stream of a side and listens to what it delivers.
func (l *Latency) prepare(ctx context.Context, side Side, i int) (stop func(), err error) {
	cfg := server.StreamConfig{
		Name: l.name, Subjects: []string{l.subject}, Storage: server.FileStorage, Replicas: 1, MaxMsgs: 16,
		Description: "made by ehdb-gateway to measure latency; it can be deleted",
	}
	if err := create(ctx, side, "STREAM.CREATE."+l.name, cfg); err != nil {
		return nil, err
	}
	inbox := fmt.Sprintf("%s.delivered.%d.%d", strings.TrimSuffix(l.subject, ".probe"), i, time.Now().UnixNano())
	unsubscribe, err := side.Listen(inbox, func(m *Message) {
		now := time.Now()
		at, err := time.Parse(time.RFC3339Nano, string(m.Data))
		if err != nil {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sides[i].Deliver.Add(now.Sub(at), now)
	})
	if err != nil {
		return nil, err
	}
	stop = func() {
		unsubscribe()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		_, _ = side.Request(end, "$JS.API.STREAM.DELETE."+l.name, nil, nil) // the next measurement uses it else
	}
	consumer := server.ConsumerConfig{
		DeliverSubject: inbox, DeliverPolicy: server.DeliverNew, AckPolicy: server.AckNone,
		InactiveThreshold: time.Minute,
	}
	err = create(ctx, side, "CONSUMER.CREATE."+l.name, server.CreateConsumerRequest{Stream: l.name, Config: consumer})
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func create(ctx context.Context, side Side, subject string, body any) error {
	doc, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	m, err := side.Request(ctx, "$JS.API."+subject, nil, doc)
	if err != nil {
		return err
	}
	return refusal(m)
}

// refusal is the error that an answer says, nil if none.
func refusal(m *Message) error {
	var answer struct {
		Error *server.ApiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return answer.Error
	}
	return nil
}

// one measures one publish. It says when it was published, so that its delivery can be timed.
func (l *Latency) one(ctx context.Context, side Side, i int) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	since := time.Now()
	m, err := side.Request(ctx, l.subject, nil, []byte(since.Format(time.RFC3339Nano)))
	if err != nil {
		return err
	}
	end := time.Now()
	if err := refusal(m); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sides[i].Ack.Add(end.Sub(since), end)
	l.sides[i].At = end
	return nil
}

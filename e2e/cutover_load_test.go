package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// traffic is programs that publish to ORDERS and JOBS and consume them through the gateway, and their account.
type traffic struct {
	t      *testing.T
	url    string
	ctx    context.Context //nolint:containedctx // of the programs
	cancel context.CancelFunc
	quit   atomic.Bool
	wg     sync.WaitGroup

	mu        sync.Mutex
	sequences map[string]map[uint64]string // what was acknowledged, by stream
	delivered map[string]int               // by id
	confirmed map[string]bool              // acks that were confirmed, by id
	again     []string                     // delivered behind a confirmed ack
	slowest   time.Duration
}

// startTraffic makes the streams and begins. Each stream has a consumer W.
func startTraffic(t *testing.T, url string, replicas, publishers int) *traffic {
	t.Helper()
	l := &traffic{
		t: t, url: url, sequences: map[string]map[uint64]string{"ORDERS": {}, "JOBS": {}}, delivered: map[string]int{},
		confirmed: map[string]bool{},
	}
	l.ctx, l.cancel = context.WithCancel(t.Context())
	js := l.connect()
	for name, retention := range map[string]jetstream.RetentionPolicy{
		"ORDERS": jetstream.LimitsPolicy, "JOBS": jetstream.WorkQueuePolicy,
	} {
		until(t, "stream "+name, time.Minute, func() error {
			ctx, cancel := context.WithTimeout(l.ctx, 5*time.Second)
			defer cancel()
			s, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
				Name: name, Subjects: []string{name + ".>"}, Retention: retention, Replicas: replicas,
				Duplicates: 2 * time.Minute,
			})
			if err != nil {
				return err
			}
			_, err = s.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: "W", AckWait: 20 * time.Second})
			return err
		})
		l.wg.Go(func() { l.consume(l.connect(), name) })
	}
	for w := range publishers {
		js := l.connect()
		l.wg.Go(func() { l.publish(js, w) })
	}
	t.Cleanup(func() { l.cancel(); l.wg.Wait() })
	return l
}

func (l *traffic) connect() jetstream.JetStream {
	l.t.Helper()
	js, err := jetstream.New(connect(l.t, l.url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)))
	noErr(l.t, err)
	return js
}

// publish publishes; what it is not sure of again under the same id.
func (l *traffic) publish(js jetstream.JetStream, w int) {
	for i := 0; !l.quit.Load() && l.ctx.Err() == nil; i++ {
		stream := "ORDERS"
		if i%4 == 3 {
			stream = "JOBS"
		}
		id := fmt.Sprintf("%s-%d-%d", stream, w, i)
		since := time.Now()
		var ack *jetstream.PubAck
		for ack == nil && l.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(l.ctx, 3*time.Second)
			ack, _ = js.Publish(ctx, fmt.Sprintf("%s.%d", stream, w), []byte(id), jetstream.WithMsgID(id))
			cancel()
		}
		if ack == nil {
			return
		}
		l.mu.Lock()
		if before, taken := l.sequences[stream][ack.Sequence]; taken && before != id {
			l.t.Errorf("sequence %d of %s was given to %s and to %s", ack.Sequence, stream, before, id)
		}
		l.sequences[stream][ack.Sequence] = id
		l.slowest = max(l.slowest, time.Since(since))
		l.mu.Unlock()
		time.Sleep(4 * time.Millisecond)
	}
}

// consume works on a stream until the programs end.
func (l *traffic) consume(js jetstream.JetStream, stream string) {
	for l.ctx.Err() == nil {
		c, err := js.Consumer(l.ctx, stream, "W")
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		it, err := c.Messages(jetstream.PullMaxMessages(100), jetstream.PullExpiry(2*time.Second))
		if err != nil {
			continue
		}
		stop := context.AfterFunc(l.ctx, it.Stop)
		for l.ctx.Err() == nil {
			m, err := it.Next()
			if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
				break
			}
			if err == nil {
				l.take(m)
			}
		}
		stop()
	}
}

func (l *traffic) take(m jetstream.Msg) {
	id := string(m.Data())
	l.mu.Lock()
	if l.confirmed[id] {
		l.again = append(l.again, id)
	}
	l.delivered[id]++
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(l.ctx, 3*time.Second)
	defer cancel()
	if m.DoubleAck(ctx) == nil { // else it comes again
		l.mu.Lock()
		l.confirmed[id] = true
		l.mu.Unlock()
	}
}

// rest lets the programs work for a while: until they have published so many messages more.
func (l *traffic) rest(messages int) {
	l.t.Helper()
	goal := l.published() + messages
	until(l.t, "traffic", time.Minute, func() error {
		if n := l.published(); n < goal {
			return fmt.Errorf("%d of %d published", n, goal)
		}
		return nil
	})
}

func (l *traffic) published() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sequences {
		n += len(s)
	}
	return n
}

// undelivered is what was acknowledged and not delivered so far.
func (l *traffic) undelivered() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sequences {
		for _, id := range s {
			if l.delivered[id] == 0 {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// finish ends the publishers, waits until everything was consumed, and checks the account: nothing is lost, no sequence is
// missing or was given twice.
func (l *traffic) finish() {
	l.t.Helper()
	l.quit.Store(true)
	until(l.t, "everything is delivered", time.Minute, func() error {
		if lost := l.undelivered(); len(lost) > 0 {
			return fmt.Errorf("%d of %d are not: %q", len(lost), l.published(), lost[:min(len(lost), 10)])
		}
		return nil
	})
	l.cancel()
	l.wg.Wait()
	for name, s := range l.sequences {
		list := slices.Sorted(maps.Keys(s))
		if last := list[len(list)-1]; last != uint64(len(list)) {
			l.t.Errorf("%s: %d messages were acknowledged, the last sequence is %d", name, len(list), last)
		}
	}
	l.t.Logf("%d messages, %d came again behind a confirmed ack, slowest publish %v",
		l.published(), len(l.again), l.slowest.Round(time.Millisecond))
}

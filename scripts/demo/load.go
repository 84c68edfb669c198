package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// load is the programs that use the streams, and what they have seen.
type load struct {
	s      *site
	o      *options
	ctx    context.Context // of the programs
	cancel context.CancelFunc
	quit   chan struct{} // publishers end
	wg     sync.WaitGroup
	conns  []*nats.Conn

	mu        sync.Mutex
	acked     map[string]uint64 // sequences, by id
	confirmed map[string]int    // acks that were confirmed, by id
	ordered   uint64            // last sequence that the ordered consumer has seen
	disorder  int
	latency   []time.Duration
	where     string                     // in which step the load is; empty: between two
	steps     map[string][]time.Duration // of publishes, by step
	errs      []string

	counting   sync.WaitGroup    // the programs that count
	publishing sync.WaitGroup    // those that publish
	jobs       map[string]uint64 // sequences, by id
	jobsDone   map[string]int
	seen       map[string][]*sight // deliveries, by id
	counted    atomic.Int64
	unsure     atomic.Int64 // updates without an answer
	counter    int64        // the counter's value in the end
	objects    atomic.Int64
	retries    atomic.Int64
}

func (l *load) connect(more ...nats.Option) (jetstream.JetStream, error) {
	more = append(more, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			// After a reconnect the library asks for a whole batch again, though some of the last may wait in its
			// channel still; what has no room there comes again. And who writes while the gateway is killed is told
			// so, and connects again.
			if !errors.Is(err, nats.ErrSlowConsumer) && !errors.Is(err, syscall.EPIPE) &&
				!errors.Is(err, syscall.ECONNRESET) {
				l.fail("connection", err)
			}
		}))
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", l.s.port), more...)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.conns = append(l.conns, nc)
	l.mu.Unlock()
	return jetstream.New(nc)
}

// startLoad makes the streams, by way of the gateway, and starts the programs.
func startLoad(ctx context.Context, s *site, o *options) (*load, error) {
	l := &load{
		s: s, o: o, quit: make(chan struct{}), acked: map[string]uint64{}, confirmed: map[string]int{},
		jobs: map[string]uint64{}, jobsDone: map[string]int{}, seen: map[string][]*sight{},
		steps: map[string][]time.Duration{},
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	js, err := l.connect()
	if err != nil {
		return nil, err
	}
	orders, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	if err != nil {
		return nil, err
	}
	jobs, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "JOBS", Subjects: []string{"jobs.>"}, Retention: jetstream.WorkQueuePolicy,
	})
	if err != nil {
		return nil, err
	}
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "COUNTERS"})
	if err != nil {
		return nil, err
	}
	if _, err := kv.PutString(ctx, "n", "0"); err != nil {
		return nil, err
	}
	if _, err := js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "FILES"}); err != nil {
		return nil, err
	}
	for _, s := range []jetstream.Stream{orders, jobs} {
		worker := jetstream.ConsumerConfig{Durable: "W", AckWait: ackWait}
		if _, err := s.CreateConsumer(ctx, worker); err != nil {
			return nil, err
		}
	}
	return l, l.begin()
}

// begin starts the programs.
func (l *load) begin() error {
	workers := max(l.o.clients-6, 4) //nolint:mnd // the others are 6
	every := time.Duration(workers) * time.Second / time.Duration(max(l.o.rate, 1))
	for w := range workers {
		js, err := l.connect()
		if err != nil {
			return err
		}
		l.publishing.Go(func() { l.publish(js, w, every) })
	}
	for _, p := range []struct {
		wg  *sync.WaitGroup
		run func(jetstream.JetStream)
	}{{&l.wg, l.order}, {&l.counting, l.count}, {&l.counting, l.count}, {&l.wg, l.object}} {
		js, err := l.connect()
		if err != nil {
			return err
		}
		p.wg.Go(func() { p.run(js) })
	}
	if err := l.employ("ORDERS", l.confirmed, func() func(string) bool {
		return func(string) bool { return false }
	}); err != nil {
		return err
	}
	return l.employ("JOBS", l.jobsDone, func() func(string) bool {
		refused := map[string]bool{}
		return func(id string) bool { // some jobs, once
			if len(id)%10 != 5 || refused[id] { //nolint:mnd // some of them
				return false
			}
			refused[id] = true
			return true
		}
	})
}

// workers is how many a consumer has. Each confirms one ack at a time, on a machine that is busy.
func (o *options) workers() int { return 2 + o.rate/200 } //nolint:mnd // two hundred a second for each

// employ starts the workers of a consumer. They share a connection: so what arrives there is in order.
func (l *load) employ(stream string, done map[string]int, refuse func() func(id string) bool) error {
	t := newTap()
	js, err := l.connect(nats.SetCustomDialer(t))
	if err != nil {
		return err
	}
	for range l.o.workers() {
		w := &worker{load: l, tap: t, stream: stream, done: done, refuse: refuse()}
		l.wg.Go(func() { w.run(js) })
	}
	return nil
}

func (l *load) fail(what string, err error) {
	if l.ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, what+": "+err.Error())
}

func (l *load) quitting() bool {
	select {
	case <-l.quit:
		return true
	case <-l.ctx.Done():
		return true
	default:
		return false
	}
}

// ackWait is that of the workers' consumers.
const ackWait = 10 * time.Second

// publishTime is how long a publisher waits for an answer before it asks again.
const publishTime = 5 * time.Second

// patience is how long a program tries again what failed because the gateway was killed or restarted.
const patience = 20 * time.Second

// insist tries until something succeeds, as programs that reconnect do.
func (l *load) insist(what string, try func() error) bool {
	for end := time.Now().Add(patience); ; {
		err := try()
		if err == nil {
			return true
		}
		if l.ctx.Err() != nil {
			return false
		}
		if time.Now().After(end) {
			l.fail(what, err)
			return false
		}
		l.retries.Add(1)
		time.Sleep(20 * time.Millisecond) //nolint:mnd // not at once
	}
}

// publish is one publisher. What it is not sure of it publishes again under the same id.
func (l *load) publish(js jetstream.JetStream, w int, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for i := 0; !l.quitting(); i++ {
		<-t.C
		subject := "orders."
		if i%4 == 3 { //nolint:mnd // every fourth message is a job
			subject = "jobs."
		}
		id := fmt.Sprintf("%d-%d", w, i)
		since := time.Now()
		var seq uint64
		ok := l.insist("publish", func() error {
			ctx, cancel := context.WithTimeout(l.ctx, publishTime)
			defer cancel()
			ack, err := js.Publish(ctx, subject+strconv.Itoa(w), []byte(id), jetstream.WithMsgID(id))
			if err == nil {
				seq = ack.Sequence
			}
			return err
		})
		if !ok {
			continue
		}
		l.mu.Lock()
		if subject == "jobs." {
			l.jobs[id] = seq
		} else {
			l.acked[id] = seq
		}
		took := time.Since(since)
		if l.latency = append(l.latency, took); l.where != "" {
			l.steps[l.where] = append(l.steps[l.where], took)
		}
		l.mu.Unlock()
	}
}

// order reads ORDERS with an ordered consumer: everything, in order.
func (l *load) order(js jetstream.JetStream) {
	s, err := js.Stream(l.ctx, "ORDERS")
	if err != nil {
		l.fail("ordered consumer", err)
		return
	}
	c, err := s.OrderedConsumer(l.ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		l.fail("ordered consumer", err)
		return
	}
	cc, err := c.Consume(func(m jetstream.Msg) {
		md, err := m.Metadata()
		if err != nil {
			l.fail("ordered consumer", err)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if md.Sequence.Stream != l.ordered+1 {
			l.disorder++
		}
		l.ordered = md.Sequence.Stream
	})
	if err != nil {
		l.fail("ordered consumer", err)
		return
	}
	<-l.ctx.Done()
	cc.Stop()
}

// count counts by compare-and-swap.
func (l *load) count(js jetstream.JetStream) {
	var kv jetstream.KeyValue
	if !l.insist("bucket", func() (err error) { kv, err = js.KeyValue(l.ctx, "COUNTERS"); return err }) {
		return
	}
	for !l.quitting() {
		ctx, cancel := context.WithTimeout(l.ctx, 5*time.Second)
		e, err := kv.Get(ctx, "n")
		if err == nil {
			n, _ := strconv.Atoi(string(e.Value()))
			_, err = kv.Update(ctx, "n", []byte(strconv.Itoa(n+1)), e.Revision())
			switch refused := (*jetstream.APIError)(nil); {
			case err == nil:
				l.counted.Add(1)
			case !errors.As(err, &refused):
				l.unsure.Add(1)
			}
		}
		cancel()
		time.Sleep(5 * time.Millisecond) //nolint:mnd // some others use the machine
	}
}

// object puts and gets a file of a megabyte, over and over.
func (l *load) object(js jetstream.JetStream) {
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data) // never fails
	for !l.quitting() {
		ok := l.insist("object", func() error {
			ctx, cancel := context.WithTimeout(l.ctx, 15*time.Second)
			defer cancel()
			o, err := js.ObjectStore(ctx, "FILES")
			if err != nil {
				return err
			}
			if _, err := o.PutBytes(ctx, "file", data); err != nil {
				return err
			}
			got, err := o.GetBytes(ctx, "file")
			if err == nil && !bytes.Equal(got, data) {
				return errors.New("another file came back")
			}
			return err
		})
		if ok {
			l.objects.Add(1)
		}
		time.Sleep(300 * time.Millisecond) //nolint:mnd // some others use the machine
	}
}

// rest lets the load run for a while, and notes how long publishes take meanwhile.
func (l *load) rest(ctx context.Context, where string) {
	l.at(where)
	defer l.at("")
	select {
	case <-ctx.Done():
	case <-time.After(l.o.pause):
	}
}

func (l *load) at(where string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.where = where
}

// stop ends the publishers and waits until everything was consumed, or nothing has come for a while.
func (l *load) stop(ctx context.Context) {
	close(l.quit)
	l.publishing.Wait() // what is on its way counts
	before, end := 0, time.Now().Add(time.Minute)
	for ; time.Now().Before(end) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		l.mu.Lock()
		done := l.settled(l.acked, l.confirmed) && l.settled(l.jobs, l.jobsDone) && l.ordered >= uint64(len(l.acked))
		n := len(l.confirmed) + len(l.jobsDone)
		l.mu.Unlock()
		if done {
			break
		}
		if n > before {
			before, end = n, time.Now().Add(time.Minute)
		}
	}
	l.read(ctx)
	l.halt()
}

// read reads the counter when nobody counts any more.
func (l *load) read(ctx context.Context) {
	l.counting.Wait()
	l.insist("counter", func() error {
		js, err := l.connect()
		if err != nil {
			return err
		}
		kv, err := js.KeyValue(ctx, "COUNTERS")
		if err != nil {
			return err
		}
		e, err := kv.Get(ctx, "n")
		if err != nil {
			return err
		}
		l.counter, err = strconv.ParseInt(string(e.Value()), 10, 64)
		return err
	})
}

// settled reports whether nothing more is to come of what was published: it was acknowledged, or so long ago that it
// would have come again if the ack had not counted.
func (l *load) settled(published map[string]uint64, done map[string]int) bool {
	long := time.Now().Add(-3 * ackWait / 2)
	for id := range published {
		if list := l.seen[id]; done[id] == 0 && (len(list) == 0 || list[len(list)-1].answered.After(long)) {
			return false
		}
	}
	return true
}

// halt ends the programs.
func (l *load) halt() {
	l.cancel()
	l.wg.Wait()
	l.counting.Wait()
	l.publishing.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, nc := range l.conns {
		nc.Close()
	}
}

// quantile is the q-th of sorted durations.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

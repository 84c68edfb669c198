package flip_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// ride is a stream of a case that moves to the gateway, back and again, while clients of the gateway are at work, and
// the account of it.
type ride struct {
	*testing.T
	r      *rig
	name   cutover.Scope
	nc     *nats.Conn
	js     jetstream.JetStream
	old    nats.JetStreamContext // the older client
	stream jetstream.Stream

	mu    sync.Mutex
	sent  map[uint64]string   // what was acknowledged to a publisher, by sequence
	came  map[uint64][]string // deliveries, by stream sequence: where the stream was, and how often it was delivered
	done  map[uint64]bool     // acks of it are confirmed, or nothing more is to come of it
	late  []uint64            // what came behind that
	order []uint64            // sequences as they came
	where string              // where the stream is
}

// newRide makes the stream of a case, named after it, and a client that must not hear of anything.
func (r *rig) newRide(t *testing.T, cfg jetstream.StreamConfig) *ride {
	t.Helper()
	name := strings.NewReplacer(" ", "-", "/", "-", ">", "", ".", "").Replace(t.Name())
	k := &ride{
		T: t, r: r, sent: map[uint64]string{}, came: map[uint64][]string{}, done: map[uint64]bool{}, where: "nats",
		name: cutover.Scope{Account: "$G", Stream: name},
	}
	k.nc = k.connect()
	var err error
	k.js, err = jetstream.New(k.nc)
	check(t, err)
	k.old, err = k.nc.JetStream()
	check(t, err)
	cfg.Name = name
	if cfg.Subjects == nil {
		cfg.Subjects = []string{k.subject(">")}
	}
	k.stream, err = k.js.CreateStream(t.Context(), cfg)
	check(t, err)
	return k
}

// beside is the same stream with an account of its own of what came.
func (k *ride) beside() *ride {
	return &ride{
		T: k.T, r: k.r, name: k.name, nc: k.nc, js: k.js, old: k.old, stream: k.stream, sent: k.sent, where: k.where,
		came: map[uint64][]string{}, done: map[uint64]bool{},
	}
}

// connect returns a client of the gateway that must not hear of any error.
func (k *ride) connect() *nats.Conn {
	k.Helper()
	nc, err := nats.Connect(k.r.gw.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
		at := ""
		if s != nil {
			at = s.Subject
		}
		k.Errorf("a client was told: %s %v", at, err)
	}), nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
		if err != nil {
			k.Errorf("a client lost its connection: %v", err)
		}
	}))
	check(k, err)
	k.Cleanup(nc.Close)
	return nc
}

// subject is one that the stream stores.
func (k *ride) subject(tail string) string { return k.name.Stream + "." + tail }

// watch begins to copy the stream.
func (k *ride) watch() { check(k, k.r.engine.Watch(k.Context(), k.name, "test")) }

// publish publishes one message and notes its sequence.
func (k *ride) publish(tail, data string, opts ...jetstream.PublishOpt) uint64 {
	ack, err := k.js.Publish(k.Context(), k.subject(tail), []byte(data), opts...)
	if err != nil {
		if k.Context().Err() == nil {
			k.Errorf("publish: %v", err)
		}
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if before, twice := k.sent[ack.Sequence]; twice {
		k.Errorf("sequence %d was given to %q and %q", ack.Sequence, before, data)
	}
	k.sent[ack.Sequence] = data
	return ack.Sequence
}

// load publishes until the returned function is called; a pause between two messages.
func (k *ride) load(pause time.Duration, tails ...string) (stop func()) {
	ctx, cancel := context.WithCancel(k.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if k.publish(tails[i%len(tails)], fmt.Sprint(i)) == 0 {
				return
			}
			time.Sleep(pause)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// got notes a delivery.
func (k *ride) got(seq, delivered uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.done[seq] {
		k.late = append(k.late, seq)
	}
	k.came[seq] = append(k.came[seq], fmt.Sprintf("%s x%d", k.where, delivered))
	k.order = append(k.order, seq)
}

// took is got for a message of the newer client.
func (k *ride) took(m jetstream.Msg) (seq uint64) {
	md, err := m.Metadata()
	if err != nil {
		k.Errorf("metadata of %s: %v", m.Reply(), err)
		return 0
	}
	k.got(md.Sequence.Stream, md.NumDelivered)
	return md.Sequence.Stream
}

// over says that a message must not come again.
func (k *ride) over(seqs ...uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, seq := range seqs {
		k.done[seq] = true
	}
}

// ack acknowledges a message and waits for the confirmation.
func (k *ride) ack(m jetstream.Msg, seq uint64) {
	ctx, cancel := context.WithTimeout(k.Context(), 20*time.Second)
	defer cancel()
	if err := m.DoubleAck(ctx); err != nil {
		if k.Context().Err() == nil {
			k.Errorf("ack of %d: %v", seq, err)
		}
		return
	}
	k.over(seq)
}

// move moves the stream to the other side.
func (k *ride) move() {
	k.Helper()
	k.mu.Lock()
	here := k.where == "ehdb"
	k.mu.Unlock()
	to, move := "ehdb", k.r.engine.Flip
	if here {
		to, move = "nats", k.r.engine.Rollback
	}
	since := time.Now()
	m, err := move(k.Context(), k.name, flip.MoveOptions{By: "test", Fence: flip.MaxFence, Retries: 8})
	for errors.Is(err, flip.ErrRefused) && time.Since(since) < 5*time.Second { // another case's client has just connected
		time.Sleep(50 * time.Millisecond)
		m, err = move(k.Context(), k.name, flip.MoveOptions{By: "test", Fence: flip.MaxFence, Retries: 8})
	}
	if err != nil {
		k.Fatalf("to %s: %v", to, err)
	}
	k.Logf("to %s: behind %d, held %v, %d attempts, %v", to, m.Last, m.Fence.Round(time.Millisecond), m.Attempts,
		time.Since(since).Round(time.Millisecond))
	if m.Duplicates > 0 {
		k.Errorf("to %s: may deliver %d messages once more: %v", to, m.Duplicates, m.Inexact)
	}
	k.mu.Lock()
	k.where = to
	k.mu.Unlock()
}

// thereAndBack moves the stream to the gateway, back, and to the gateway again, with pauses in which clients work.
func (k *ride) thereAndBack(pause time.Duration) {
	for range 3 {
		time.Sleep(pause)
		k.move()
	}
	time.Sleep(pause)
}

// finish waits until all that was sent is done with; want is which messages are to come, nil: all.
func (k *ride) finish(want func(seq uint64, data string) bool) {
	k.Helper()
	missing := func() (list []uint64) {
		k.mu.Lock()
		defer k.mu.Unlock()
		for seq, data := range k.sent {
			if !k.done[seq] && (want == nil || want(seq, data)) {
				list = append(list, seq)
			}
		}
		return list
	}
	before := -1
	for since := time.Now(); time.Since(since) < 15*time.Second; time.Sleep(20 * time.Millisecond) {
		n := len(missing())
		if n == 0 {
			break
		}
		if n != before {
			before, since = n, time.Now()
		}
	}
	if left := missing(); len(left) > 0 {
		slices.Sort(left)
		k.Errorf("%d of %d messages are not done with: %v", len(left), len(k.sent), left[:min(len(left), 20)])
		k.mu.Lock()
		for _, seq := range left[:min(len(left), 5)] {
			k.Logf("%d came %v", seq, k.came[seq])
		}
		k.mu.Unlock()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, seq := range k.late {
		k.Errorf("%d came again behind its ack: %v", seq, k.came[seq])
	}
}

// once requires that nothing came twice, inOrder that it came in the order of the stream.
func (k *ride) once() {
	k.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for seq, list := range k.came {
		if len(list) > 1 {
			if n++; n < 10 {
				k.Errorf("%d came %d times: %v", seq, len(list), list)
			}
		}
	}
}

func (k *ride) inOrder() {
	k.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := 1; i < len(k.order); i++ {
		if k.order[i] < k.order[i-1] {
			k.Errorf("%d came behind %d: %v", k.order[i], k.order[i-1], k.came[k.order[i]])
			return
		}
	}
}

// consuming is the newer client's Consume with errors that fail the test.
func (k *ride) consuming(c jetstream.Consumer, f func(jetstream.Msg), opts ...jetstream.PullConsumeOpt) {
	k.Helper()
	cc, err := c.Consume(f, append(opts, jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if k.Context().Err() == nil {
			k.Errorf("a consumer was told: %v", err)
		}
	}))...)
	check(k, err)
	k.Cleanup(func() { cc.Stop(); <-cc.Closed() })
}

package flip_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestKilledAtEachStep kills the gateway, or the server, with SIGKILL at the steps of flips and rollbacks while clients
// publish and consume, and moves the stream again. There is one authority at any time; nothing is lost, nothing is sent
// again behind a confirmed ack, and order is kept. EHDB_SLOW=1 takes all steps.
func TestKilledAtEachStep(t *testing.T) {
	t.Run("limits", func(t *testing.T) { killedAtEachStep(t, jetstream.LimitsPolicy) })
	if os.Getenv("EHDB_SLOW") != "" {
		t.Run("workqueue", func(t *testing.T) { killedAtEachStep(t, jetstream.WorkQueuePolicy) })
	}
}

func killedAtEachStep(t *testing.T, retention jetstream.RetentionPolicy) {
	t.Helper()
	x := newCrossing(t, retention)
	for _, step := range flip.Steps() {
		for _, victim := range []string{"gateway", "nats"} {
			if os.Getenv("EHDB_SLOW") == "" && !few[victim+" "+string(step)] {
				continue
			}
			x.cross(step, victim)
			if t.Failed() {
				return
			}
		}
	}
	x.account()
}

// few are the kills that are always tried: before and behind each record, and with the most half done.
var few = map[string]bool{
	"gateway flip-transferred": true, "gateway flip-recorded": true, "nats flip-verified": true,
	"gateway rollback-stopped": true, "gateway rollback-recorded": true, "nats rollback-settled": true,
}

// recorded are the steps at which the other side has the say already.
var recorded = map[flip.Step]bool{
	flip.FlipRecorded: true, flip.FlipPromoted: true, flip.FlipReleased: true,
	flip.RollbackRecorded: true, flip.RollbackReleased: true,
}

// crossing is a server, a gateway in front of it, and clients.
type crossing struct {
	t        *testing.T
	nats, gw *child
	natsURL  string
	js       jetstream.JetStream
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu        sync.Mutex
	acked     []uint64 // sequences, by number of the message
	confirmed map[int]time.Time
	taken     map[int]bool
}

func newCrossing(t *testing.T, retention jetstream.RetentionPolicy) *crossing {
	t.Helper()
	x := &crossing{t: t, confirmed: map[int]time.Time{}, taken: map[int]bool{}}
	natsPort, port := freePort(t), freePort(t)
	x.natsURL = fmt.Sprintf("nats://127.0.0.1:%d", natsPort)
	x.nats = newChild(t, "nats", t.TempDir(), natsPort)
	x.gw = newChild(t, "gateway", t.TempDir(), port, natsEnv+"="+x.natsURL)
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", port), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	check(t, err)
	t.Cleanup(nc.Close)
	x.js, err = jetstream.New(nc)
	check(t, err)
	s, err := x.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Retention: retention})
	check(t, err)
	_, err = s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "W", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait})
	check(t, err)
	x.gw.tell("watch")
	if said := x.gw.await("done"); said != "<nil>" {
		t.Fatal(said)
	}
	var ctx context.Context
	ctx, x.stop = context.WithCancel(t.Context())
	t.Cleanup(func() { x.stop(); x.running.Wait() })
	x.running.Go(func() { x.publish(ctx) })
	x.running.Go(func() { x.work(ctx) })
	return x
}

const ackWait = 3 * time.Second

// publish publishes number after number, each until it is acknowledged.
func (x *crossing) publish(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		for ctx.Err() == nil {
			try, cancel := context.WithTimeout(ctx, 2*time.Second)
			ack, err := x.js.Publish(try, "orders.x", []byte(strconv.Itoa(i)), jetstream.WithMsgID(strconv.Itoa(i)))
			cancel()
			if err == nil {
				x.mu.Lock()
				x.acked = append(x.acked, ack.Sequence)
				x.mu.Unlock()
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// work takes batches. What comes of a batch that was asked for behind a confirmed ack was sent behind it.
func (x *crossing) work(ctx context.Context) {
	for ctx.Err() == nil {
		c, err := x.js.Consumer(ctx, "ORDERS", "W")
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		asked := time.Now()
		b, err := c.Fetch(20, jetstream.FetchMaxWait(300*time.Millisecond))
		if err != nil {
			continue
		}
		for m := range b.Messages() {
			x.take(ctx, m, asked)
		}
	}
}

func (x *crossing) take(ctx context.Context, m jetstream.Msg, asked time.Time) {
	n, err := strconv.Atoi(string(m.Data()))
	check(x.t, err)
	x.mu.Lock()
	x.taken[n] = true
	if at, before := x.confirmed[n]; before && at.Before(asked) {
		x.t.Errorf("%d came again at %s behind its ack at %s: %s", n, time.Now().Format("05.000"), at.Format("05.000"), m.Reply())
	}
	x.mu.Unlock()
	try, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if m.DoubleAck(try) == nil {
		x.mu.Lock()
		x.confirmed[n] = time.Now()
		x.mu.Unlock()
	}
}

// phase is where the stream is, by word of the gateway.
func (x *crossing) phase() flip.Phase {
	x.gw.tell("phase")
	return flip.Phase(x.gw.await("phase"))
}

// bring moves the stream until it is in a phase.
func (x *crossing) bring(to flip.Phase) {
	x.t.Helper()
	for end := time.Now().Add(time.Minute); x.phase() != to; {
		if time.Now().After(end) {
			x.t.Fatalf("the stream did not come to phase %s", to)
		}
		if to == flip.PhaseEHDB {
			x.gw.tell("flip")
		} else {
			x.gw.tell("rollback")
		}
		if said := x.gw.await("done"); said != "<nil>" {
			x.t.Logf("again: %s", said)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// cross kills a process at a step.
func (x *crossing) cross(step flip.Step, victim string) {
	x.t.Helper()
	since := time.Now()
	from, to, move := flip.PhaseShadow, flip.PhaseEHDB, "flip"
	if strings.HasPrefix(string(step), "rollback") {
		from, to, move = to, from, "rollback"
	}
	x.bring(from)
	time.Sleep(100 * time.Millisecond)
	x.gw.tell("stop " + string(step))
	x.gw.tell(move)
	x.gw.await("at " + string(step))
	want := from
	if recorded[step] {
		want = to
	}
	if victim == "gateway" {
		x.gw.kill()
		x.gw.start()
		if got := x.phase(); got != want {
			x.t.Errorf("%s killed at %s: the stream is in phase %s, not %s", victim, step, got, want)
		}
		x.onward()
	} else {
		x.nats.kill()
		x.forgive()
		x.gw.tell("go")
		time.Sleep(200 * time.Millisecond)
		x.nats.start()
		x.gw.await("done")
		if got := x.phase(); got != want && want == to {
			x.t.Errorf("%s killed at %s: the stream is in phase %s, not %s", victim, step, got, want)
		}
	}
	x.bring(to)
	x.t.Logf("%s killed at %s: %v", victim, step, time.Since(since).Round(time.Millisecond))
}

// onward waits until the publisher knows what became of its last message: message ids that passed before a restart are
// not known behind it, which is why a gate waits for their window.
func (x *crossing) onward() {
	x.t.Helper()
	published := func() int {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.acked)
	}
	n := published()
	until(x.t, "a publish", func() bool { return published() > n })
}

// forgive forgets the acks of the last seconds: a nats-server that is killed may have confirmed some that it has not
// written yet.
func (x *crossing) forgive() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n, at := range x.confirmed {
		if time.Since(at) < 5*time.Second {
			delete(x.confirmed, n)
		}
	}
}

// account lets the clients come to an end, gives the stream back, and looks at what the servers have.
func (x *crossing) account() {
	t := x.t
	x.bring(flip.PhaseShadow)
	time.Sleep(2 * ackWait)
	until(t, "everything was taken", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.taken) >= len(x.acked)
	})
	x.stop()
	x.running.Wait()
	nc, err := nats.Connect(x.natsURL)
	check(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	check(t, err)
	s, err := js.Stream(t.Context(), "ORDERS")
	check(t, err)
	for i, seq := range x.acked {
		if !x.taken[i] {
			t.Errorf("message %d was never delivered", i)
		}
		if i > 0 && seq <= x.acked[i-1] {
			t.Fatalf("message %d was acknowledged as %d, behind one at %d", i, seq, x.acked[i-1])
		}
		if s.CachedInfo().Config.Retention == jetstream.WorkQueuePolicy {
			continue // it is removed
		}
		m, err := s.GetMsg(t.Context(), seq)
		check(t, err)
		if string(m.Data) != strconv.Itoa(i) {
			t.Fatalf("message %d was acknowledged as %d, where %s is", i, seq, m.Data)
		}
	}
	if st := s.CachedInfo().State; st.Msgs > uint64(len(x.acked))+1 { // the last may have no PubAck
		t.Errorf("%d messages for %d that were published: %+v", st.Msgs, len(x.acked), st)
	}
	t.Logf("%d messages", len(x.acked))
}

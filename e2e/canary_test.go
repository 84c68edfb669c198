package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/face"
)

// TestCanaryKill: a consumer of a stream of a real nats-server is served from here, by ehdbctl's word, and the gateway is
// killed with kill -9 again and again while clients publish and take. Nothing is lost, and nothing comes again behind a
// confirmed ack: not from the gateway that starts again, not from the servers without it, not after it was given back.
func TestCanaryKill(t *testing.T) {
	t.Parallel() // it waits most of the time
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("the cutover is ours")
	}
	ctl := buildCtl(t)
	ns := startOracle(t, nil)
	dir, client, monitor := t.TempDir(), freePort(t), freePort(t)
	conf := writeFile(t, "canary.conf", fmt.Sprintf(`ehdb { allow_tmp_store: true }
bus { upstream: [%q], profile: drill }`, ns.ClientURL()))
	start := func() *process {
		return startGateway(t, dir, "-c", conf, "--bus", "shadow", "-p", strconv.Itoa(client), "-m", strconv.Itoa(monitor))
	}
	p := start()
	run := func(args ...string) (string, error) {
		token := filepath.Join(dir, "ehdb-cutover", "operator.token")
		cmd := exec.Command(ctl, append(args, "--server", fmt.Sprintf("http://127.0.0.1:%d", monitor), "--token-file", token)...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	ctx := t.Context()
	direct, err := jetstream.New(connect(t, ns.ClientURL()))
	noErr(t, err)
	s, err := direct.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	noErr(t, err)
	_, err = s.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 3 * time.Second, MaxAckPending: 20,
	})
	noErr(t, err)

	js, err := jetstream.New(connect(t, p.URL, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond)))
	noErr(t, err)
	c := &canaryClients{t: t, acked: map[string]bool{}, how: map[string]string{}}
	working, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() { c.publish(working, js) })
	for range 4 {
		all.Go(func() { c.take(working, js) })
	}
	when(t, "messages pass", func() bool { return c.count() > 20 })
	when(t, "it is under watch", func() bool { out, err := run("status"); return err == nil && strings.Contains(out, "ORDERS") })
	when(t, "it is served from here", func() bool {
		out, err := run("canary", "add", "--scope", "consumer=ORDERS/worker")
		if err != nil {
			t.Log(out)
		}
		return err == nil && strings.Contains(out, "UNDO") && strings.Contains(out, "canary rm")
	})
	here := func() (face.StreamState, bool) {
		var st face.Status
		out, err := run("status", "--json")
		if err != nil || json.Unmarshal([]byte(out), &st) != nil || len(st.Streams) != 1 {
			return face.StreamState{}, false
		}
		return st.Streams[0], true
	}
	for range 3 {
		before := c.count()
		when(t, "messages are served from here", func() bool { return c.count() > before+20 })
		when(t, "status says so", func() bool {
			st, ok := here()
			return ok && st.Phase == face.PhaseCanary && len(st.Canaries) == 1 && st.Canaries[0].Delivered > 0 && st.Authority == "nats"
		})
		p.Kill()
		p = start()
	}
	before := c.count()
	when(t, "messages are served from here", func() bool { return c.count() > before+20 })

	// Killed once more: now the servers serve, without the gateway.
	p.Kill()
	around, enough := context.WithCancel(ctx)
	taken := c.count()
	for n := range 40 { // there may be next to nothing left of what was published through the gateway
		_, err := direct.Publish(ctx, "orders.new", fmt.Append(nil, "around ", n))
		noErr(t, err)
	}
	c.besides = 40
	var direct2 sync.WaitGroup
	direct2.Go(func() { c.take(around, direct) })
	time.Sleep(4 * time.Second) // longer than the ack wait
	enough()
	direct2.Wait()
	t.Logf("%d confirmed, %d of them around the gateway", c.count(), c.count()-taken)

	// The gateway that comes back finds that the servers' consumer has moved without it: they serve it, as they know best.
	start()
	before = c.count()
	when(t, "messages pass again", func() bool { return c.count() > before+20 })
	if st, ok := here(); !ok || st.Phase != face.PhaseShadow || len(st.Canaries) > 0 {
		t.Errorf("%+v", st.Canaries)
	}
	when(t, "it is served from here again", func() bool {
		_, err := run("canary", "add", "--scope", "consumer=ORDERS/worker")
		return err == nil
	})
	before = c.count()
	when(t, "messages are served from here", func() bool { return c.count() > before+20 })
	when(t, "it is given back", func() bool {
		out, err := run("canary", "rm", "--scope", "consumer=ORDERS/worker")
		if err != nil {
			t.Log(out)
		}
		return err == nil && strings.Contains(out, "UNDO") && strings.Contains(out, "canary add")
	})
	before = c.count()
	when(t, "the servers serve it", func() bool { return c.count() > before+20 })
	if st, ok := here(); !ok || st.Phase != face.PhaseShadow || len(st.Canaries) > 0 {
		t.Errorf("%+v", st.Canaries)
	}
	out, err := run("events")
	noErr(t, err)
	for _, want := range []string{
		"consumer worker is served from here", "consumer worker is served by the servers", "others have taken messages",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the events:\n%s", want, out)
		}
	}
	c.end()
	when(t, "all is taken", func() bool {
		info, err := s.Consumer(ctx, "worker")
		return err == nil && info.CachedInfo().NumPending == 0 && info.CachedInfo().NumAckPending == 0
	})
	stop()
	all.Wait()
	c.check()
}

// when waits for something to become true.
func when(t *testing.T, what string, ok func() bool) {
	t.Helper()
	until(t, what, time.Minute, met(ok))
}

// canaryClients publish numbered messages and take them, and note which acks were confirmed.
type canaryClients struct {
	t *testing.T

	mu        sync.Mutex
	published int // that were acknowledged
	besides   int // likewise, around the gateway
	ended     bool
	acked     map[string]bool
	how       map[string]string // it was delivered
	again     []string          // delivered behind a confirmed ack
}

// settle takes what is left of ORDERS, and looks whether everything was delivered, nothing behind a confirmed ack.
func (c *canaryClients) settle(ctx context.Context, js jetstream.JetStream) {
	c.t.Helper()
	working, leave := context.WithCancel(ctx)
	var worker sync.WaitGroup
	worker.Go(func() { c.take(working, js) })
	when(c.t, "all is taken", func() bool {
		info, err := js.Consumer(ctx, "ORDERS", "worker")
		return err == nil && info.CachedInfo().NumPending == 0 && info.CachedInfo().NumAckPending == 0
	})
	leave()
	worker.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.published {
		if !c.acked[fmt.Sprint(n)] {
			c.t.Errorf("%d is lost", n)
		}
	}
	if len(c.again) > 0 {
		c.t.Errorf("delivered again behind a confirmed ack: %v", c.again)
	}
	c.t.Logf("%d published, %d confirmed", c.published, len(c.acked))
}

func (c *canaryClients) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acked)
}

func (c *canaryClients) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

func (c *canaryClients) publish(ctx context.Context, js jetstream.JetStream) {
	for n := 0; ctx.Err() == nil; {
		c.mu.Lock()
		ended := c.ended
		c.mu.Unlock()
		if ended {
			return
		}
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := js.Publish(try, "orders.new", []byte(strconv.Itoa(n)), jetstream.WithMsgID(strconv.Itoa(n)))
		cancel()
		if err == nil {
			n++
			c.mu.Lock()
			c.published = n
			c.mu.Unlock()
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (c *canaryClients) take(ctx context.Context, js jetstream.JetStream) {
	for ctx.Err() == nil {
		worker, err := js.Consumer(ctx, "ORDERS", "worker")
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		batch, err := worker.Fetch(1, jetstream.FetchMaxWait(500*time.Millisecond)) // what waits in a client was delivered before
		if err != nil {
			continue
		}
		for m := range batch.Messages() {
			data := string(m.Data())
			how := fmt.Sprintf("%s by %s %s", time.Now().Format("05.000"), js.Conn().ConnectedUrl(), m.Reply())
			c.mu.Lock()
			if c.acked[data] {
				c.again = append(c.again, fmt.Sprintf("%s: first %s, again %s", data, c.how[data], how))
			}
			c.how[data] = how
			c.mu.Unlock()
			try, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			if m.DoubleAck(try) == nil {
				c.mu.Lock()
				c.acked[data] = true
				c.mu.Unlock()
			}
			cancel()
		}
	}
}

func (c *canaryClients) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t.Logf("%d published, %d confirmed", c.published, len(c.acked))
	if len(c.again) > 0 {
		c.t.Errorf("delivered again behind a confirmed ack: %s", strings.Join(c.again, "\n"))
	}
	// What is not confirmed was acknowledged without the client hearing of it: the gateway was killed in between.
	if missing := c.published + c.besides - len(c.acked); missing > 5*20 {
		c.t.Errorf("%d messages are not confirmed", missing)
	}
}

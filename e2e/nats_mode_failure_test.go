package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// closedReasons returns why connections of p ended, as connz says.
func closedReasons(t *testing.T, p *process) (out []string) {
	t.Helper()
	_, body := page(t, p.Monitor+"/connz?state=closed")
	var z server.Connz
	noErr(t, json.Unmarshal([]byte(body), &z))
	for _, c := range z.Conns {
		out = append(out, c.Reason)
	}
	return out
}

// await waits until ok says true.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	until(t, what, 20*time.Second, met(ok))
}

// A server that goes away takes its clients' connections with it; when it is back they are, by themselves.
func TestNATSModeUpstreamRestarts(t *testing.T) {
	h := startHub(t)
	p := startBefore(t, "", h.s.ClientURL())
	nc := connect(t, p.URL, nats.ReconnectWait(50*time.Millisecond), nats.MaxReconnects(-1))
	var got atomic.Int64
	_, err := nc.Subscribe("x", func(*nats.Msg) { got.Add(1) })
	noErr(t, err)
	noErr(t, nc.Flush())
	h.s.Shutdown()
	h.s.WaitForShutdown()
	await(t, "the client notices", func() bool { return nc.Status() != nats.CONNECTED })
	if reasons := closedReasons(t, p); !slices.Contains(reasons, "Upstream Connection Lost") {
		t.Errorf("connz: %q", reasons)
	}
	if status, body := page(t, p.Monitor+"/healthz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "no server can be reached") {
		t.Errorf("healthz: %d %s", status, body)
	}
	if status, body := page(t, p.Monitor+"/healthz?js-enabled-only=true"); status != http.StatusOK {
		t.Errorf("liveness asks for a restart that would not help: %d %s", status, body)
	}
	_, err = nats.Connect(p.URL, nats.Timeout(5*time.Second))
	if err == nil || !strings.Contains(err.Error(), "no NATS server upstream can be reached") {
		t.Errorf("a client hears %v", err)
	}
	h.start()
	await(t, "the client is back", func() bool { return nc.Status() == nats.CONNECTED })
	noErr(t, nc.Publish("x", nil))
	await(t, "its subscription too", func() bool { return got.Load() == 1 })
	await(t, "health is back", func() bool { status, _ := page(t, p.Monitor+"/healthz"); return status == http.StatusOK })
	_, metrics := page(t, p.Monitor+"/metrics")
	for _, want := range []string{"ehdb_upstream_lost_total 1", "ehdb_upstream_refused_total"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// With several servers clients find one that is there.
func TestNATSModeFailover(t *testing.T) {
	a, b := startOracle(t, nil), startOracle(t, nil)
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, err)
	noErr(t, dead.Close())
	p := startBefore(t, "", "nats://"+dead.Addr().String(), a.ClientURL(), b.ClientURL())
	var conns []*nats.Conn
	for range 40 {
		conns = append(conns, connect(t, p.URL, nats.ReconnectWait(20*time.Millisecond)))
	}
	if n, m := a.NumClients(), b.NumClients(); n == 0 || m == 0 || n+m != 40 {
		t.Errorf("%d and %d of 40 clients: they should be spread", n, m)
	}
	a.Shutdown()
	await(t, "all are at the other", func() bool { return b.NumClients() == 40 })
	for _, nc := range conns {
		noErr(t, nc.FlushTimeout(5*time.Second))
	}
}

// hole forwards connections to a server until it is frozen; then it takes everything and says nothing.
type hole struct {
	net.Listener
	to     string
	frozen atomic.Bool
	mu     sync.Mutex
	conns  []net.Conn
}

func startHole(t *testing.T, to string) *hole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, err)
	h := &hole{Listener: l, to: to}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			h.mu.Lock()
			h.conns = append(h.conns, c, up)
			h.mu.Unlock()
			go h.pass(up, c)
			go h.pass(c, up)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, c := range h.conns {
			c.Close()
		}
	})
	return h
}

func (h *hole) pass(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !h.frozen.Load() {
			_, _ = to.Write(buf[:n])
		}
		if err != nil {
			if !h.frozen.Load() {
				to.Close()
			}
			return
		}
	}
}

// A server that does not answer any more, though its connection stands, is noticed, and so is such a client.
func TestNATSModeHalfOpen(t *testing.T) {
	t.Run("upstream", func(t *testing.T) {
		ns := startOracle(t, nil)
		h := startHole(t, ns.Addr().String())
		p := startBefore(t, "ping_interval: \"300ms\", ping_max: 2", "nats://"+h.Addr().String())
		gone := make(chan error, 1)
		nc := connect(t, p.URL, nats.NoReconnect(), nats.ClosedHandler(func(nc *nats.Conn) { gone <- nc.LastError() }))
		noErr(t, nc.Flush())
		time.Sleep(time.Second) // it answers, so nothing happens
		noErr(t, nc.Flush())
		h.frozen.Store(true)
		select {
		case <-gone:
		case <-time.After(10 * time.Second):
			t.Fatal("the client's connection still stands")
		}
		if _, metrics := page(t, p.Monitor+"/metrics"); !strings.Contains(metrics, "ehdb_upstream_stale_total 1") {
			t.Error("metrics do not count it")
		}
	})
	t.Run("client", func(t *testing.T) {
		ns := startOracle(t, func(o *server.Options) { o.PingInterval, o.MaxPingsOut = 300*time.Millisecond, 2 })
		p := startBefore(t, "", ns.ClientURL())
		h := startHole(t, strings.TrimPrefix(p.URL, "nats://"))
		nc := connect(t, "nats://"+h.Addr().String())
		noErr(t, nc.Flush())
		h.frozen.Store(true)
		await(t, "the server gives the client up", func() bool { return ns.NumClients() == 0 })
		await(t, "the gateway too", func() bool { return slices.Contains(closedReasons(t, p), "Stale Connection") })
	})
}

// A server that takes connections and says nothing does not keep a client waiting for ever, nor from the other server.
func TestNATSModeSilentServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, err)
	defer silent.Close()
	p := startBefore(t, "", "nats://"+silent.Addr().String())
	start := time.Now()
	_, err = nats.Connect(p.URL, nats.Timeout(2*time.Second)) // its default
	if err == nil || !strings.Contains(err.Error(), "no NATS server upstream can be reached") {
		t.Errorf("after %v the client hears %v", time.Since(start), err)
	}
	ns := startOracle(t, nil)
	p = startBefore(t, "", "nats://"+silent.Addr().String(), ns.ClientURL())
	for range 5 {
		_ = connect(t, p.URL, nats.Timeout(2*time.Second))
	}
}

// A consumer that does not read is closed by the server upstream, as without a gateway, and costs little memory here.
func TestNATSModeSlowConsumer(t *testing.T) {
	ns := startOracle(t, func(o *server.Options) { o.MaxPending = 8 << 20 })
	p := startBefore(t, "", ns.ClientURL())
	c, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "nats://"))
	noErr(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "CONNECT {\"verbose\":false}\r\nSUB big 1\r\nPING\r\n")
	noErr(t, err)
	in := bufio.NewReader(c)
	for line := ""; !strings.HasPrefix(line, "PONG"); {
		line, err = in.ReadString('\n')
		noErr(t, err)
	}
	before := residentMB(t, p)
	nc := connect(t, ns.ClientURL())
	data := make([]byte, 512<<10)
	await(t, "the server closes the consumer", func() bool {
		noErr(t, nc.Publish("big", data))
		noErr(t, nc.Flush())
		return ns.NumSlowConsumers() > 0
	})
	if after := residentMB(t, p); after > before+40 {
		t.Errorf("the gateway grew from %d to %d MB", before, after)
	}
	_, _ = io.Copy(io.Discard, in) // what was on its way comes, then the end
	await(t, "the gateway forgets it", func() bool { return len(closedReasons(t, p)) == 1 })
}

// residentMB is the resident memory of p.
func residentMB(t *testing.T, p *process) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	noErr(t, err)
	for line := range strings.Lines(string(b)) {
		var kb int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kb); err == nil {
			return kb >> 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// Added latency is measured against the direct way, in turns on the same server; the bound is generous.
func TestNATSModeLatency(t *testing.T) {
	ns := startOracle(t, nil)
	p := startBefore(t, "", ns.ClientURL())
	echo := connect(t, ns.ClientURL())
	_, err := echo.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	noErr(t, err)
	noErr(t, echo.Flush())
	times := map[string][]time.Duration{}
	clients := map[string]*nats.Conn{"direct": connect(t, ns.ClientURL()), "through": connect(t, p.URL)}
	data := make([]byte, 128)
	for i := range 4000 {
		for name, nc := range clients {
			start := time.Now()
			_, err := nc.Request("echo", data, 5*time.Second)
			noErr(t, err)
			if i >= 200 { // warm by then
				times[name] = append(times[name], time.Since(start))
			}
		}
	}
	at := func(name string, q float64) time.Duration {
		slices.Sort(times[name])
		return times[name][int(q*float64(len(times[name])-1))]
	}
	for _, q := range []float64{0.5, 0.9, 0.99} {
		t.Logf("request-reply p%v: direct %v, through the gateway %v, added %v", q*100, at("direct", q), at("through", q),
			at("through", q)-at("direct", q))
	}
	if added := at("through", 0.99) - at("direct", 0.99); added > 20*time.Millisecond {
		t.Errorf("the gateway adds %v at the 99th percentile", added)
	}
}

// A gateway that is killed takes nothing with it: what was acknowledged is in the stream, in each publisher's order, and
// clients are back by themselves.
func TestNATSModeGatewayKilled(t *testing.T) {
	t.Parallel()
	ns := startOracle(t, nil)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, err)
	port := fmt.Sprint(free.Addr().(*net.TCPAddr).Port)
	noErr(t, free.Close())
	p := startGateway(t, t.TempDir(), "--upstream", ns.ClientURL(), "-p", port)
	js, err := connect(t, ns.ClientURL()).JetStream()
	noErr(t, err)
	_, err = js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s.*"}})
	noErr(t, err)

	const publishers = 10
	acked := make([][]int, publishers)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range publishers {
		nc := connect(t, p.URL, nats.ReconnectWait(20*time.Millisecond), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
		all.Go(func() {
			js, err := nc.JetStream(nats.MaxWait(500 * time.Millisecond))
			if err != nil {
				t.Error(err)
				return
			}
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := js.Publish(fmt.Sprintf("s.%d", i), []byte(fmt.Sprint(n))); err == nil {
					acked[i] = append(acked[i], n)
				} else {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	for range 3 {
		time.Sleep(500 * time.Millisecond)
		p.Kill()
		p = startGateway(t, t.TempDir(), "--upstream", ns.ClientURL(), "-p", port)
	}
	time.Sleep(500 * time.Millisecond)
	close(stop)
	all.Wait()

	info, err := js.StreamInfo("S")
	noErr(t, err)
	stored := make([][]int, publishers)
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := js.GetMsg("S", seq)
		noErr(t, err)
		var i, n int
		_, err = fmt.Sscanf(m.Subject+" "+string(m.Data), "s.%d %d", &i, &n)
		noErr(t, err)
		if k := len(stored[i]); k > 0 && stored[i][k-1] >= n {
			t.Errorf("publisher %d: %d came after %d", i, n, stored[i][k-1])
		}
		stored[i] = append(stored[i], n)
	}
	total := 0
	for i := range publishers {
		total += len(acked[i])
		for _, n := range acked[i] {
			if _, found := slices.BinarySearch(stored[i], n); !found {
				t.Errorf("publisher %d: %d was acknowledged and is not there", i, n)
			}
		}
		if len(acked[i]) == 0 {
			t.Errorf("publisher %d got nothing through", i)
		}
	}
	t.Logf("acknowledged %d, stored %d, lost 0, over 3 SIGKILLs", total, info.State.Msgs)
}

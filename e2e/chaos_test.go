package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/face"
)

// A chaos run is a nats-server and a gateway before it, processes both, programs that publish and take, and operations
// that come from a seed: moves of streams, changes that clients ask for, and failures, one over the other. What happens
// when is up to the machine; which operations come in which order is up to the seed alone.
//
//	chaos_ops    the operations
//	chaos_work   the programs
//	chaos_ledger what they know for certain
//	chaos_check  what has to hold at the end

// TestChaos plays seeds: EHDB_CHAOS_SEED one again, EHDB_CHAOS_RUNS so many, EHDB_CHAOS_TIME for how long each. A run takes
// about a minute beside that: gates have to fill, and everything is checked there and back.
func TestChaos(t *testing.T) {
	if os.Getenv("EHDB_SLOW") == "" {
		t.Skip("takes minutes: set EHDB_SLOW=1")
	}
	runs, length := 4, 40*time.Second
	if n, err := strconv.Atoi(os.Getenv("EHDB_CHAOS_RUNS")); err == nil {
		runs = n
	}
	if d, err := time.ParseDuration(os.Getenv("EHDB_CHAOS_TIME")); err == nil {
		length = d
	}
	seed, err := strconv.ParseUint(os.Getenv("EHDB_CHAOS_SEED"), 10, 64)
	if err == nil {
		chaosRun(t, seed, length)
		return
	}
	for range runs {
		const readable = 1_000_000
		seed := rand.Uint64N(readable)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { chaosRun(t, seed, length) })
	}
}

// chaos is one run.
type chaos struct {
	t      *testing.T
	began  time.Time
	ctx    context.Context //nolint:containedctx // of the programs
	cancel context.CancelFunc

	nats   *node
	dir    string // of the gateway's data
	conf   string
	client int
	page   int
	gw     atomic.Pointer[before]
	wire   cutter
	js     jetstream.JetStream // of the operator, who is a client too

	streams map[string]*chaosStream
	cas     casLedger
	quit    chan struct{} // publishers end
	pubs    sync.WaitGroup
	takers  sync.WaitGroup

	moving  map[string]*sync.Mutex // by stream
	moves   sync.WaitGroup
	failing sync.Mutex // one failure at a time
	moved   atomic.Int64
	killed  killings // of the nats-server

	mu       sync.Mutex
	problems int
	config   int // the last change that succeeded
	changes  int // begun
}

// chaosRun plays one seed.
func chaosRun(t *testing.T, seed uint64, length time.Duration) {
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("the cutover is ours")
	}
	t.Logf("EHDB_CHAOS_SEED=%d", seed)
	chaosPlan(t, planChaos(rand.New(rand.NewPCG(seed, seed)), length))
}

// chaosPlan plays the operations of a plan.
func chaosPlan(t *testing.T, plan []chaosOp) {
	c := &chaos{
		t: t, began: time.Now(), dir: t.TempDir(), client: freePort(t), page: freePort(t),
		streams: make(map[string]*chaosStream), quit: make(chan struct{}), moving: make(map[string]*sync.Mutex),
	}
	c.ctx, c.cancel = context.WithCancel(t.Context())
	defer c.cancel()
	c.nats = startAlone(t)
	c.conf = writeFile(t, "chaos.conf", fmt.Sprintf(`ehdb { allow_tmp_store: true }
bus { profile: drill, upstream: [%q], monitor: [%q] }
`, c.nats.url(), c.nats.page()))
	c.start("shadow")
	t.Cleanup(func() {
		p := c.gw.Load()
		p.Signal(syscall.SIGCONT)
		p.Kill()
		if t.Failed() {
			t.Logf("log of the last gateway:\n%s", p.Log())
		}
	})
	c.employ()
	for i := range plan {
		time.Sleep(plan[i].after)
		c.do(&plan[i])
	}
	c.calm()
	c.verify()
}

// startAlone starts a nats-server that has synced what it confirms.
func startAlone(t *testing.T) *node {
	t.Helper()
	s := &node{t: t, bin: buildNATS(t), name: "alone", client: freePort(t), pages: freePort(t)}
	s.conf = writeFile(t, "alone.conf", fmt.Sprintf(`server_name: alone
listen: "127.0.0.1:%d"
http: "127.0.0.1:%d"
jetstream { store_dir: %q, sync_interval: always }
`, s.client, s.pages, t.TempDir()))
	s.start()
	s.healthy()
	return s
}

// start starts the gateway in a bus mode.
func (c *chaos) start(mode string) {
	c.t.Helper()
	p, err := launch(c.dir, "-c", c.conf, "--bus", mode, "-p", strconv.Itoa(c.client), "-m", strconv.Itoa(c.page))
	if err != nil {
		c.t.Fatalf("the gateway does not start in mode %s: %v\n%s", mode, err, p.Log())
	}
	c.gw.Store(&before{p, c.t, c.dir})
}

// note writes what happens into the test's log.
func (c *chaos) note(format string, args ...any) {
	c.t.Logf("%6.2f "+format, append([]any{time.Since(c.began).Seconds()}, args...)...)
}

// bad is a check that failed.
func (c *chaos) bad(format string, args ...any) {
	c.mu.Lock()
	c.problems++
	n := c.problems
	c.mu.Unlock()
	const enough = 30
	if n <= enough {
		c.t.Errorf("%6.2f "+format, append([]any{time.Since(c.began).Seconds()}, args...)...)
	}
}

// connect makes a client that comes back for ever, and keeps nothing for later that cannot be sent now.
func (c *chaos) connect() *nats.Conn {
	c.t.Helper()
	return connect(c.t, fmt.Sprintf("nats://127.0.0.1:%d", c.client), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(20*time.Millisecond, 0), nats.ReconnectBufSize(-1),
		nats.SetCustomDialer(&c.wire), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
}

func (c *chaos) jetStream() jetstream.JetStream {
	c.t.Helper()
	js, err := jetstream.New(c.connect())
	noErr(c.t, err)
	return js
}

// cutter is the dialer of all clients, which can cut a connection.
type cutter struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cutter) Dial(network, address string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, 2*time.Second)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cutter) cut(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) > 0 {
		i := n % len(c.conns)
		_ = c.conns[i].Close()
		c.conns = append(c.conns[:i], c.conns[i+1:]...)
	}
}

// killings are when the nats-server was killed.
type killings struct {
	mu sync.Mutex
	at []time.Time
}

func (k *killings) note() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at = append(k.at, time.Now())
}

func (k *killings) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.at) > 0
}

// behind tells whether one followed a time closely. What its consumers have done with is written a moment after it is
// answered, with sync_interval always too: so a kill makes it forget acks that it has confirmed.
func (k *killings) behind(t time.Time) bool {
	const lazy = time.Second
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, at := range k.at {
		if d := at.Sub(t); d > -100*time.Millisecond && d < lazy {
			return true
		}
	}
	return false
}

// watch asks the gateway all the time who has the say about what: it changes with the epoch alone, which never goes back.
func (c *chaos) watch() {
	type stand struct {
		epoch     uint64
		authority string
	}
	var epoch uint64
	last := make(map[string]stand)
	for c.ctx.Err() == nil {
		time.Sleep(200 * time.Millisecond)
		var st face.Status
		if err := c.gw.Load().ask(http.MethodGet, "/status", nil, &st); err != nil || st.Mode != "shadow" {
			continue
		}
		if st.Epoch < epoch {
			c.bad("the epoch went from %d to %d", epoch, st.Epoch)
		}
		epoch = st.Epoch
		for i := range st.Streams {
			s := &st.Streams[i]
			now, name := stand{s.Epoch, s.Authority}, s.Scope.Stream
			if was := last[name]; was.epoch == now.epoch && was.authority != now.authority && was.authority != "" {
				c.bad("%s: %s had the say in epoch %d, and now %s has", name, was.authority, was.epoch, now.authority)
			}
			last[name] = now
		}
	}
}

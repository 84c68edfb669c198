package lease_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func startNATS(t *testing.T) string {
	t.Helper()
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	})
	check(t, err)
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	return ns.ClientURL()
}

// process is a gateway's process, as far as it is about its lease.
type process struct {
	*lease.Lease
	t    *testing.T
	conn *nats.Conn
	stop context.CancelFunc
	done chan error // what Keep has returned

	mu     sync.Mutex
	here   lease.Standing
	raised uint64
}

var orders = cutover.Scope{Account: "$G", Stream: "ORDERS"}

// newProcess is a process on the store_dir dir, where a stream may be that it has the say about.
func newProcess(t *testing.T, url, dir string, epoch, last uint64) *process {
	t.Helper()
	conn, err := nats.Connect(url)
	check(t, err)
	t.Cleanup(conn.Close)
	p := &process{t: t, conn: conn, done: make(chan error, 1)}
	p.stand(epoch, last)
	p.Lease, err = lease.New(lease.Options{
		Dir: dir, Conn: conn, Server: "S", Logger: slog.New(slog.DiscardHandler),
		Standing: func() lease.Standing {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.here
		},
		Raise: func(epoch uint64) { p.raised = epoch },
	})
	check(t, err)
	return p
}

// stand says how the journal stands: the stream is here if it has messages.
func (p *process) stand(epoch, last uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.here = lease.Standing{Epoch: epoch}
	if last > 0 {
		p.here.Streams = map[cutover.Scope]lease.Stream{orders: {Created: time.Unix(1, 0), Last: last}}
	}
}

// begin holds the lease and keeps it.
func (p *process) begin() error {
	p.t.Helper()
	return p.beginWithin(10 * time.Second)
}

// beginWithin is begin with another bound than a test's: how long it waits for a lease that another has.
func (p *process) beginWithin(limit time.Duration) error {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	if err := p.Hold(ctx); err != nil {
		return err
	}
	ctx, p.stop = context.WithCancel(p.t.Context())
	p.t.Cleanup(p.end)
	go func() { p.done <- p.Keep(ctx) }()
	check(p.t, p.conn.Flush())
	return nil
}

// end is what becomes of the process when it is killed.
func (p *process) end() {
	p.stop()
	p.conn.Close()
}

// forget removes a key, as its end would.
func forget(t *testing.T, url, bucket string) {
	t.Helper()
	conn, err := nats.Connect(url)
	check(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	check(t, err)
	kv, err := js.KeyValue(t.Context(), bucket)
	check(t, err)
	check(t, kv.Delete(t.Context(), "gateway"))
}

// wantEnd waits until the process has ended by itself.
func (p *process) wantEnd(want error) {
	p.t.Helper()
	p.Kick()
	select {
	case err := <-p.done:
		if !errors.Is(err, want) {
			p.t.Errorf("it ended with %v, want %v", err, want)
		}
	case <-time.After(5 * time.Second):
		p.t.Errorf("it goes on, want %v", want)
	}
	if p.Wait() == nil {
		p.t.Error("what comes from clients passes")
	}
}

// TestSecond: one process has the lease, and the next one on its store_dir has it at once. A second gateway, and a second
// process on a copy of the store_dir, are refused.
func TestSecond(t *testing.T) {
	url, dir := startNATS(t), t.TempDir()
	first := newProcess(t, url, dir, 0, 0)
	check(t, first.begin())
	const short = 700 * time.Millisecond
	if err := newProcess(t, url, t.TempDir(), 0, 0).beginWithin(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second gateway: %v", err)
	}
	if err := newProcess(t, url, dir, 0, 0).beginWithin(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second process: %v", err)
	}
	first.end()
	again := newProcess(t, url, dir, 0, 0)
	since := time.Now()
	check(t, again.begin())
	if took := time.Since(since); took > time.Second {
		t.Errorf("a restart took %v", took)
	}
}

// TestSameMoment: of gateways that start in the same moment, on store_dirs of their own or on copies of one, one has the
// lease, and the others wait.
func TestSameMoment(t *testing.T) {
	for name, copies := range map[string]bool{"own": false, "copies": true} {
		for round := range 5 {
			t.Run(fmt.Sprint(name, round), func(t *testing.T) {
				url, dir := startNATS(t), t.TempDir()
				newProcess(t, url, dir, 0, 0).conn.Close() // it makes an id
				var list []*process
				for range 3 {
					if !copies {
						dir = t.TempDir()
					}
					list = append(list, newProcess(t, url, dir, 0, 0))
				}
				errs := make([]error, len(list))
				var all sync.WaitGroup
				for i, p := range list {
					all.Go(func() { errs[i] = p.beginWithin(1500 * time.Millisecond) })
				}
				all.Wait()
				began := 0
				for _, err := range errs {
					if err == nil {
						began++
					} else if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
				if began != 1 {
					t.Errorf("%d have begun: %v", began, errs)
				}
			})
		}
	}
}

// TestElsewhere: the lease of a gateway that has the say about a stream ends, and another one, whose store_dir does not
// have it, is refused at once. When the claim is removed it starts, and the first one ends.
func TestElsewhere(t *testing.T) {
	url := startNATS(t)
	first := newProcess(t, url, t.TempDir(), 1, 7)
	check(t, first.begin())
	forget(t, url, lease.Bucket)
	err := newProcess(t, url, t.TempDir(), 0, 0).begin()
	if !errors.Is(err, lease.ErrElsewhere) || !strings.Contains(err.Error(), "$G/ORDERS (up to message 7)") {
		t.Fatal(err)
	}
	forget(t, url, lease.Bucket)
	forget(t, url, lease.ClaimBucket)
	second := newProcess(t, url, t.TempDir(), 0, 0)
	check(t, second.begin())
	first.wantEnd(lease.ErrElsewhere)
}

// TestClaimedMeanwhile: a process that did not run for a while, in which another gateway took a stream over, ends.
func TestClaimedMeanwhile(t *testing.T) {
	url := startNATS(t)
	first := newProcess(t, url, t.TempDir(), 0, 0)
	check(t, first.begin())
	if _, err := newProcess(t, url, t.TempDir(), 0, 0).Claim(t.Context(), orders); !errors.Is(err, lease.ErrSecond) {
		t.Errorf("a claim without the lease: %v", err)
	}
	forget(t, url, lease.Bucket)
	second := newProcess(t, url, t.TempDir(), 0, 0)
	check(t, second.begin())
	done, err := second.Claim(t.Context(), orders)
	check(t, err)
	first.wantEnd(lease.ErrElsewhere)
	done() // the flip did not come about
	second.Leave(t.Context())
	second.end()
	forget(t, url, lease.Bucket)
	check(t, newProcess(t, url, t.TempDir(), 0, 0).begin())
}

// TestTwin: a process did not run, and another one on a copy of its store_dir has taken over.
func TestTwin(t *testing.T) {
	url, dir := startNATS(t), t.TempDir()
	first := newProcess(t, url, dir, 1, 7)
	check(t, first.begin())
	forget(t, url, lease.Bucket)
	check(t, newProcess(t, url, dir, 1, 7).begin())
	first.wantEnd(lease.ErrTwin)
}

// TestStale: a store_dir that is older than what the servers were told is refused, unless no stream was here, then or now.
func TestStale(t *testing.T) {
	url, dir := startNATS(t), t.TempDir()
	p := newProcess(t, url, dir, 3, 7)
	check(t, p.begin())
	p.stand(3, 9)
	p.Leave(t.Context())
	p.end()
	for what, old := range map[string][2]uint64{
		"fewer messages": {3, 8}, "an earlier epoch": {2, 9}, "a journal in which nothing was taken over": {2, 0},
	} {
		if err := newProcess(t, url, dir, old[0], old[1]).begin(); !errors.Is(err, lease.ErrStale) {
			t.Errorf("%s: %v", what, err)
		}
	}
	p = newProcess(t, url, dir, 3, 9)
	check(t, p.begin())
	p.stand(4, 0) // it is given back
	p.Leave(t.Context())
	p.end()
	if err := newProcess(t, url, dir, 3, 9).begin(); !errors.Is(err, lease.ErrStale) {
		t.Errorf("from before it was given back: %v", err)
	}
	p = newProcess(t, url, dir, 2, 0)
	check(t, p.begin())
	if p.raised != 4 {
		t.Errorf("the epoch goes on from %d, want 4", p.raised)
	}
}

// TestBucketsAreMadeAgain: somebody deletes both buckets on the servers.
func TestBucketsAreMadeAgain(t *testing.T) {
	url := startNATS(t)
	p := newProcess(t, url, t.TempDir(), 1, 7)
	check(t, p.begin())
	js, err := jetstream.New(p.conn)
	check(t, err)
	check(t, js.DeleteKeyValue(t.Context(), lease.Bucket))
	check(t, js.DeleteKeyValue(t.Context(), lease.ClaimBucket))
	p.Kick()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		kv, err := js.KeyValue(t.Context(), lease.ClaimBucket)
		if err == nil {
			_, err = kv.Get(t.Context(), "gateway")
		}
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if err := newProcess(t, url, t.TempDir(), 0, 0).begin(); !errors.Is(err, lease.ErrElsewhere) {
		t.Fatalf("a second gateway: %v", err)
	}
}

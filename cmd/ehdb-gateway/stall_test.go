package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/config"
	"github.com/noetl/ehdb-gateway/internal/metrics"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// stall is a disk that can be made to stand still: what changes something waits until it is let go.
type stall struct {
	mu  sync.Mutex
	off chan struct{} // nil: it works
}

func (s *stall) hook(op vfs.Op) error {
	s.mu.Lock()
	off := s.off
	s.mu.Unlock()
	if off != nil && op.Kind.Changes() {
		<-off
	}
	return nil
}

func (s *stall) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = make(chan struct{})
}

func (s *stall) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off != nil {
		close(s.off)
		s.off = nil
	}
}

// within starts the whole program, but for its signals, in this process, with its data on fs; bus is that block.
func within(t *testing.T, fs vfs.FS, busBlock string) *app {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "shadow.conf")
	conf := "ehdb { allow_tmp_store: true }\nbus { " + busBlock + " }\n"
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"-a", "127.0.0.1", "-p", "-1", "-m", "-1", "-js", "-sd", filepath.Join(dir, "store"), "-c", file,
		"-l", filepath.Join(dir, "log"),
	}
	cfg, err := config.Load(args, config.Environ)
	if err != nil {
		t.Fatal(err)
	}
	log, err := newLogger(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := &app{args: args, cfg: cfg, log: log, fs: fs, router: bus.NewRouter(), metrics: metrics.New()}
	t.Cleanup(func() {
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		_ = log.Close()
		if said, err := os.ReadFile(filepath.Join(dir, "log")); err == nil && t.Failed() {
			t.Logf("%s", said)
		}
	})
	if err := a.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a
}

// paced publishes at a steady rate from a few connections, and measures.
type paced struct {
	t    *testing.T
	stop chan struct{}
	wg   sync.WaitGroup

	mu    sync.Mutex
	took  []time.Duration
	total uint64
}

func startPaced(t *testing.T, url string, clients int, every time.Duration) *paced {
	t.Helper()
	p := &paced{t: t, stop: make(chan struct{})}
	for range clients {
		nc, err := nats.Connect(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		p.wg.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				select {
				case <-p.stop:
					return
				case <-tick.C:
				}
				since := time.Now()
				_, err := js.Publish(t.Context(), "orders.x", make([]byte, 256))
				if err != nil {
					t.Errorf("publish: %v", err)
					return
				}
				p.mu.Lock()
				p.took = append(p.took, time.Since(since))
				p.total++
				p.mu.Unlock()
			}
		})
	}
	return p
}

// span measures for a time, and returns how long publishes took, sorted.
func (p *paced) span(d time.Duration) []time.Duration {
	p.mu.Lock()
	p.took = nil
	p.mu.Unlock()
	time.Sleep(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.took)
	return p.took
}

func (p *paced) end() uint64 {
	close(p.stop)
	p.wg.Wait()
	return p.total
}

func p99(sorted []time.Duration) time.Duration { return sorted[len(sorted)*99/100] }

// mirrored returns the value of a series about the copy of ORDERS.
func mirrored(t *testing.T, a *app, name string) float64 {
	t.Helper()
	form := "ehdb_gw_mirror_" + name + `{account="$G",stream="ORDERS"}`
	v, err := strconv.ParseFloat(series(t, "http://"+a.monitor.Addrs()[0].String()+"/metrics", form), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestShadowNeverHurts: while the gateway's disk stands still, publishes through it to a stream of the servers that it copies
// go on as before; what is not copied waits in a queue with a bound, and shows; and when the disk works again the copy is
// whole. The slow suite has it stand still for a minute and holds the 99th percentile against the minute before: 5 % more
// at most, and what two halves of the minute before differ by themselves.
func TestShadowNeverHurts(t *testing.T) {
	before, still := 2*time.Second, 5*time.Second
	slow := os.Getenv("EHDB_SLOW") != ""
	if slow {
		before, still = 30*time.Second, time.Minute
	}
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	var disk stall
	a := within(t, vfs.NewFault(vfs.OS{}, disk.hook),
		fmt.Sprintf("mode: shadow, profile: drill, upstream: [%q]", ns.ClientURL()))
	t.Cleanup(disk.end) // before the program is stopped
	url := "nats://" + a.gw.Addr().String()
	withStream(t, url, "ORDERS", "orders.>")
	p := startPaced(t, url, 4, 5*time.Millisecond)
	status := awaitCopy(t, a, 100)

	first, second := p.span(before), p.span(before)
	disk.begin()
	at := status().Applied
	stalled := p.span(still)
	during := status()
	pending, depth := mirrored(t, a, "pending_events"), mirrored(t, a, "queue_depth")
	disk.end()
	total := p.end()

	if len(first) == 0 || len(second) == 0 || len(stalled) == 0 {
		t.Fatalf("publishes: %d and %d before, %d while the disk stood still", len(first), len(second), len(stalled))
	}
	t.Logf("p99 of a publish: %v and %v before, %v while the disk stood still (n %d, %d, %d); behind by %v, queue %v",
		p99(first), p99(second), p99(stalled), len(first), len(second), len(stalled), pending, depth)
	if slowest := stalled[len(stalled)-1]; slowest >= still-time.Second {
		t.Errorf("a publish took %v: it waited for the disk", slowest)
	}
	if during.Applied > at+2*4096 || pending < float64(len(stalled))/2 || depth == 0 || depth > 3*4096 {
		t.Errorf("the disk did not stand still, or the queue has no bound: %d then, %+v now; metrics: %v behind, queue %v",
			at, during, pending, depth)
	}
	if slow {
		a, b := float64(p99(first)), float64(p99(second))
		noise := max(a, b)/min(a, b) - 1
		if grown := float64(p99(stalled))/max(a, b) - 1; grown > 0.05+noise {
			t.Errorf("the 99th percentile grew by %.1f %%; by itself it differs by %.1f %%", grown*100, noise*100)
		}
	}
	whole(t, a, ns, total, status)
}

// awaitCopy waits until so many messages are copied, and returns what tells how the copy does.
func awaitCopy(t *testing.T, a *app, n uint64) func() capture.Status {
	t.Helper()
	status := func() capture.Status {
		for _, s := range a.mover.pilot.Captured() {
			if s.Scope.Stream == "ORDERS" {
				return s
			}
		}
		return capture.Status{}
	}
	for end := time.Now().Add(time.Minute); status().Applied < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not copied: %+v", status())
		}
	}
	return status
}

// whole holds the copy, and what the queue has counted, against what was published.
func whole(t *testing.T, a *app, ns *server.Server, total uint64, status func() capture.Status) {
	t.Helper()
	awaitCopy(t, a, total)
	c := status().Counts
	if in, out := c.Enqueued+c.EnqueuedAfterWait, c.Drained+c.Returned+c.ShutdownAbandoned+c.Pending; in != out {
		t.Errorf("the queue is not conserved: %d in, %d out: %+v", in, out, c)
	}
	own, err := a.streams.svc.Cutover().Stream("$G", "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	direct, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	js, err := jetstream.New(direct)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := js.Stream(t.Context(), "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := uint64(0)
	err = own.Read(ctx, 1, func(r *cutover.Record, err error) bool {
		if n++; err != nil || r.Seq != n {
			t.Errorf("record %d: %+v, %v", n, r, err)
			return false
		}
		return true
	})
	if st := theirs.CachedInfo().State; err != nil || n != total || st.Msgs != total {
		t.Errorf("%d messages were published, the servers have %d and the copy %d (%v)", total, st.Msgs, n, err)
	}
	if in := mirrored(t, a, "pending_events"); in != 0 {
		t.Errorf("still behind by %v", in)
	}
}

// TestSyncsAreShared: on a disk whose every sync takes 4 ms, 64 clients that each wait for their acknowledgement share the
// syncs: it does not take one for each message, which would be 250 a second.
func TestSyncsAreShared(t *testing.T) {
	var mu sync.Mutex
	syncs := 0
	fs := vfs.NewFault(vfs.OS{}, func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			mu.Lock()
			syncs++
			mu.Unlock()
			time.Sleep(4 * time.Millisecond)
		}
		return nil
	})
	a := within(t, fs, "mode: ehdb")
	js := withStream(t, "nats://"+a.gw.Addr().String(), "S", "s")
	mu.Lock()
	before := syncs
	mu.Unlock()
	const publishers, each = 64, 20
	var wg sync.WaitGroup
	for range publishers {
		wg.Go(func() {
			for range each {
				if _, err := js.Publish(t.Context(), "s", nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	n := syncs - before
	t.Logf("%d syncs for %d messages", n, publishers*each)
	if n == 0 || n*8 > publishers*each {
		t.Errorf("%d syncs for %d messages", n, publishers*each)
	}
}

// withStream connects to url and makes a stream of subject.
func withStream(t *testing.T, url, name, subject string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Command bench-scale measures how the gateway and nats-server live with many stored messages: a start after SIGKILL,
// memory, lookups, a filtered consumer, a purge, a work queue, bytes on disk. Both do the same in one run on one
// machine; what counts is the ratio.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type params struct {
	msgs, subjects, size, queue int
}

func main() {
	p := params{size: 128}
	flag.IntVar(&p.msgs, "msgs", 1_000_000, "messages stored")
	flag.IntVar(&p.subjects, "subjects", 100_000, "subjects they are spread over")
	flag.IntVar(&p.queue, "queue", 50_000, "messages of the work queue")
	gateway := flag.String("gateway", "bin/ehdb-gateway", "the gateway's binary")
	other := flag.String("nats", "nats-server", "nats-server's binary; empty: the gateway alone")
	out := flag.String("json", "", "file that the figures are written to as well")
	flag.Parse()
	if err := run(p, *gateway, *other, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench-scale:", err)
		os.Exit(1)
	}
}

// figures are what is measured of one server, in order.
type figures struct {
	names  []string
	values map[string]float64
}

func (f *figures) set(name string, v float64) {
	if f.values == nil {
		f.values = map[string]float64{}
	}
	f.names = append(f.names, name)
	f.values[name] = v
	fmt.Fprintf(os.Stderr, "  %-34s %12.2f\n", name, v)
}

func run(p params, gateway, other, out string) error {
	names, bins := []string{"nats-server", "ehdb-gateway"}, []string{other, gateway}
	if other == "" {
		names, bins = names[1:], bins[1:]
	}
	var all []figures
	for i, name := range names {
		fmt.Fprintln(os.Stderr, name)
		f, err := measure(p, bins[i])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, f)
	}
	if len(all) == 1 {
		return nil
	}
	fmt.Printf("%d messages of %d bytes on %d subjects\n\n", p.msgs, p.size, p.subjects)
	fmt.Printf("%-34s %14s %14s %8s\n", "", "nats-server", "ehdb-gateway", "ratio")
	for _, n := range all[0].names {
		a, b := all[0].values[n], all[1].values[n]
		fmt.Printf("%-34s %14.2f %14.2f %8.2f\n", n, a, b, b/a)
	}
	if out == "" {
		return nil
	}
	return record(p, all, out)
}

// record writes the figures to a file.
func record(p params, all []figures, out string) error {
	type row struct {
		What    string  `json:"what"`
		NATS    float64 `json:"nats_server"`
		Gateway float64 `json:"ehdb_gateway"`
		Ratio   float64 `json:"ratio"` // the gateway's by nats-server's
	}
	rows := make([]row, 0, len(all[0].names))
	for _, n := range all[0].names {
		a, b := all[0].values[n], all[1].values[n]
		rows = append(rows, row{n, round(a, 2), round(b, 2), round(b/a, 4)})
	}
	text, err := json.MarshalIndent(map[string]any{
		"cores": runtime.NumCPU(), "messages": p.msgs, "bytes": p.size, "subjects": p.subjects, "queue": p.queue,
		"note": "one run of each on one machine: what counts is the ratio", "figures": rows,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}

func round(v float64, digits int) float64 {
	f := math.Pow10(digits)
	return math.Round(v*f) / f
}

// node is a server that runs.
type node struct {
	bin, dir string
	cmd      *exec.Cmd
	nc       *nats.Conn
	js       jetstream.JetStream
}

// start starts the server and returns how long it took until it answered a question about a stream, or, without one,
// about the account.
func (n *node) start(ctx context.Context, stream string) (time.Duration, error) {
	ports := filepath.Join(n.dir, "ports")
	if err := os.RemoveAll(ports); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(ports, 0o755); err != nil {
		return 0, err
	}
	const port = 24722
	n.cmd = exec.Command(n.bin, "-a", "127.0.0.1", "-p", strconv.Itoa(port),
		"-js", "-sd", filepath.Join(n.dir, "store"))
	began := time.Now()
	if err := n.cmd.Start(); err != nil {
		return 0, err
	}
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	for deadline := began.Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("it does not answer")
		}
		nc, err := nats.Connect(url, nats.Timeout(10*time.Second))
		if err != nil {
			continue
		}
		n.nc = nc
		if n.js, err = jetstream.New(nc); err != nil {
			return 0, err
		}
		if stream == "" {
			_, err = n.js.AccountInfo(ctx)
		} else {
			_, err = n.js.Stream(ctx, stream)
		}
		if err == nil {
			return time.Since(began), nil
		}
		nc.Close()
	}
}

func (n *node) kill() error {
	n.nc.Close()
	if err := n.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_ = n.cmd.Wait() // it was killed
	return nil
}

// rss returns the server's resident memory in MiB, peak the most that it was.
func (n *node) rss() float64  { return n.memory("VmRSS:") }
func (n *node) peak() float64 { return n.memory("VmHWM:") }

func (n *node) memory(field string) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kb) / 1024
		}
	}
	return 0
}

// disk returns the bytes that the store takes.
func (n *node) disk() (total int64) {
	_ = filepath.WalkDir(filepath.Join(n.dir, "store"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if i, err := d.Info(); err == nil {
				if st, ok := i.Sys().(*syscall.Stat_t); ok {
					total += st.Blocks * 512
				}
			}
		}
		return nil
	})
	return total
}

func measure(p params, bin string) (f figures, err error) {
	dir, err := os.MkdirTemp(".", ".scale-")
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	n := &node{bin: bin, dir: dir}
	if _, err := n.start(ctx, ""); err != nil {
		return f, err
	}
	defer func() { _ = n.kill() }()
	if _, err := n.js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		return f, err
	}
	took, err := n.fill(ctx, p)
	if err != nil {
		return f, err
	}
	f.set("publish, msg/s", float64(p.msgs)/took.Seconds())
	f.set("memory after publishing, MiB", n.rss())
	f.set("memory at most, MiB", n.peak())
	time.Sleep(12 * time.Second) // what is done behind the scenes may end
	f.set("disk, bytes a message", float64(n.disk())/float64(p.msgs))
	if err := n.kill(); err != nil {
		return f, err
	}
	began, err := n.start(ctx, "S")
	if err != nil {
		return f, err
	}
	f.set("start after SIGKILL, ms", float64(began.Microseconds())/1000)
	f.set("memory after the start, MiB", n.rss())
	return f, n.ask(ctx, p, &f)
}

func (n *node) fill(ctx context.Context, p params) (time.Duration, error) {
	js, err := jetstream.New(n.nc, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		return 0, err
	}
	data := make([]byte, p.size)
	began := time.Now()
	for i := range p.msgs {
		if _, err := js.PublishAsync(subject(i, p), data, jetstream.WithStallWait(time.Minute)); err != nil {
			return 0, err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return time.Since(began), nil
}

// bigSubject has every hundredth message, besides the others.
const bigSubject = "s.big.item"

func subject(i int, p params) string {
	if i%100 == 99 {
		return bigSubject
	}
	return fmt.Sprintf("s.%d.item", uint32(i*7919)%uint32(p.subjects))
}

// ask measures what is asked of a full stream.
func (n *node) ask(ctx context.Context, p params, f *figures) error {
	s, err := n.js.Stream(ctx, "S")
	if err != nil {
		return err
	}
	var times []time.Duration
	for range 500 {
		subj := subject(rand.IntN(p.msgs), p)
		began := time.Now()
		if _, err := s.GetLastMsgForSubject(ctx, subj); err != nil {
			return err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	f.set("last by subject, p50 us", float64(times[len(times)/2].Microseconds()))
	f.set("last by subject, p99 us", float64(times[len(times)*99/100].Microseconds()))
	for _, c := range []struct {
		what   string
		memory bool
	}{
		{"filtered consumer create, p50 us", false},     // on disk; the gateway syncs it before it answers
		{"the same, its state in memory, p50 us", true}, // neither server writes anything
	} {
		p50, err := createConsumers(ctx, s, p, c.memory)
		if err != nil {
			return err
		}
		f.set(c.what, p50)
	}
	times = times[:0]
	for i := range 20 {
		began := time.Now()
		if err := s.Purge(ctx, jetstream.WithPurgeSubject(subject(100+i, p))); err != nil {
			return err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	f.set("purge of a subject, p50 us", float64(times[len(times)/2].Microseconds()))
	began := time.Now()
	if err := s.Purge(ctx, jetstream.WithPurgeSubject(bigSubject)); err != nil {
		return err
	}
	f.set("purge of one message in 100, ms", float64(time.Since(began).Microseconds())/1000)
	f.set("memory after questions, MiB", n.rss())
	return n.workQueue(ctx, p, f)
}

// createConsumers returns the median time, in microseconds, that a consumer of a rare subject takes to make.
func createConsumers(ctx context.Context, s jetstream.Stream, p params, memory bool) (float64, error) {
	times := make([]time.Duration, 0, 100)
	for i := range cap(times) {
		began := time.Now()
		_, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
			FilterSubject: subject(i, p), AckPolicy: jetstream.AckExplicitPolicy, InactiveThreshold: time.Minute,
			MemoryStorage: memory,
		})
		if err != nil {
			return 0, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return float64(times[len(times)/2].Microseconds()), nil
}

// workQueue measures a queue that was filled before a start, worked off.
func (n *node) workQueue(ctx context.Context, p params, f *figures) error {
	cfg := jetstream.StreamConfig{Name: "Q", Subjects: []string{"q"}, Retention: jetstream.WorkQueuePolicy}
	q, err := n.js.CreateStream(ctx, cfg)
	if err != nil {
		return err
	}
	data := make([]byte, p.size)
	for range p.queue {
		if _, err := n.js.PublishAsync("q", data, jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	<-n.js.PublishAsyncComplete()
	c, err := q.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10_000,
	})
	if err != nil {
		return err
	}
	began := time.Now()
	for done := 0; done < p.queue; {
		batch, err := c.Fetch(1000, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			if err := m.Ack(); err != nil {
				return err
			}
			done++
		}
	}
	if err := n.nc.FlushWithContext(ctx); err != nil {
		return err
	}
	f.set("work queue, msg/s", float64(p.queue)/time.Since(began).Seconds())
	return nil
}

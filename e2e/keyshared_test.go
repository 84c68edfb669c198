package e2e

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// keySharedExample is in docs/extensions.md, see TestExtensionsDoc.
func keySharedExample(ctx context.Context, js jetstream.JetStream) error {
	// docs: key_shared
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ACCOUNTS", Subjects: []string{"accounts.>"}})
	if err != nil {
		return err
	}
	bookings, err := js.CreateConsumer(ctx, "ACCOUNTS", jetstream.ConsumerConfig{
		Durable: "bookings", AckPolicy: jetstream.AckExplicitPolicy,
		Metadata: map[string]string{"ehdb.key_shared": "subject:2"}, // accounts.7.debit: the key is 7
	})
	if err != nil {
		return err
	}
	const n = 60
	for i := range n {
		if _, err := js.Publish(ctx, fmt.Sprintf("accounts.%d.debit", i%5), fmt.Append(nil, i)); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	booked := make(map[string][]string) // by account
	var all sync.WaitGroup
	all.Add(n)
	for range 4 { // workers; elsewhere each is a program of its own
		worker, err := bookings.Consume(func(m jetstream.Msg) {
			mu.Lock()
			booked[m.Subject()] = append(booked[m.Subject()], string(m.Data()))
			mu.Unlock()
			if m.Ack() == nil {
				all.Done()
			}
		}, jetstream.PullMaxMessages(4))
		if err != nil {
			return err
		}
		defer worker.Stop()
	}
	all.Wait()
	fmt.Println(booked["accounts.3.debit"]) // [3 8 13 18 23 28 33 38 43 48 53 58]: in order, whoever worked on it
	return nil
	// end
}

// TestKeySharedFetch: programs that fetch, each call an inbox of its own, get each key in order too; a message that was
// given back with a delay holds up its key and nobody else.
func TestKeySharedFetch(t *testing.T) {
	p := startGateway(t, t.TempDir())
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	noErr(t, err)
	cfg := jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, Metadata: map[string]string{"ehdb.key_shared": "subject"},
	}
	c, err := js.CreateConsumer(ctx, "S", cfg)
	noErr(t, err)
	cfg.Metadata = map[string]string{"ehdb.key_shared": "subject:1"}
	if _, err = js.UpdateConsumer(ctx, "S", cfg); err == nil || !strings.Contains(err.Error(), "can not be updated") {
		t.Errorf("the key was changed: %v", err)
	}
	for i := range 9 {
		_, err = js.Publish(ctx, fmt.Sprintf("s.%d", i%3), fmt.Append(nil, i))
		noErr(t, err)
	}
	fetch := func(n int) (got []jetstream.Msg) {
		t.Helper()
		b, err := c.Fetch(n, jetstream.FetchMaxWait(time.Second))
		noErr(t, err)
		for m := range b.Messages() {
			got = append(got, m)
		}
		return got
	}
	first := fetch(2) // 0 and 1: keys 0 and 1 are in its hands
	if len(first) != 2 {
		t.Fatalf("got %d messages", len(first))
	}
	second := fetch(9) // only key 2 is left: 2, 5, 8
	if len(second) != 3 || string(second[0].Data()) != "2" || string(second[2].Data()) != "8" {
		t.Fatalf("the second got %d messages", len(second))
	}
	info, err := c.Info(ctx)
	noErr(t, err)
	if info.NumPending != 4 || info.NumAckPending != 5 || info.AckFloor.Stream != 0 {
		t.Errorf("%d are pending, %d outstanding, the floor is %d", info.NumPending, info.NumAckPending, info.AckFloor.Stream)
	}
	noErr(t, first[0].NakWithDelay(1500*time.Millisecond))
	noErr(t, first[1].DoubleAck(ctx))
	third := fetch(9) // key 0 waits for its delay
	if len(third) != 2 || string(third[0].Data()) != "4" || string(third[1].Data()) != "7" {
		t.Fatalf("the third got %d messages", len(third))
	}
	fourth := fetch(3)
	for len(fourth) == 0 {
		fourth = fetch(3)
	}
	for len(fourth) < 3 {
		fourth = append(fourth, fetch(1)...)
	}
	if string(fourth[0].Data()) != "0" || string(fourth[1].Data()) != "3" || string(fourth[2].Data()) != "6" {
		t.Fatalf("the fourth got %q, %q, %q", fourth[0].Data(), fourth[1].Data(), fourth[2].Data())
	}
	for _, m := range slices.Concat(second, third, fourth) {
		noErr(t, m.DoubleAck(ctx))
	}
	info, err = c.Info(ctx)
	noErr(t, err)
	if info.NumPending != 0 || info.NumAckPending != 0 || info.AckFloor.Stream != 9 {
		t.Errorf("at the end %d are pending, %d outstanding, the floor is %d", info.NumPending, info.NumAckPending,
			info.AckFloor.Stream)
	}
}

// worked is a line of a worker.
type worked struct {
	what    string
	at      int64
	seq     uint64
	subject string
	worker  int
}

// crew is workers that are processes of their own.
type crew struct {
	t   *testing.T
	bin string
	url string

	mu      sync.Mutex
	seen    []worked
	acked   map[uint64]bool
	running map[int]*exec.Cmd
	started int
	killed  map[int]int64
	readers sync.WaitGroup
}

func newCrew(t *testing.T, url string) *crew {
	t.Helper()
	c := &crew{
		t: t, bin: filepath.Join(t.TempDir(), "keyshared"), url: url, acked: map[uint64]bool{},
		running: map[int]*exec.Cmd{}, killed: map[int]int64{},
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", c.bin, "./clients/keyshared").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(c.killAll)
	return c
}

func (c *crew) start() {
	c.t.Helper()
	cmd := exec.Command(c.bin, "-s", c.url, "-stream", "S", "-consumer", "C", "-work", "2ms") //nolint:noctx // killed by hand
	out, err := cmd.StdoutPipe()
	noErr(c.t, err)
	cmd.Stderr = os.Stderr
	noErr(c.t, cmd.Start())
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.started
	c.started++
	c.running[n] = cmd
	c.readers.Go(func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			w := worked{worker: n}
			if _, err := fmt.Sscan(sc.Text(), &w.what, &w.at, &w.seq, &w.subject); err == nil {
				c.mu.Lock()
				c.seen = append(c.seen, w)
				c.mu.Unlock()
			}
		}
		_ = cmd.Wait()
	})
}

// kill ends a worker with SIGKILL, one that is at work if there is one.
func (c *crew) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, cmd := range c.running {
		_ = cmd.Process.Kill()
		c.killed[n] = time.Now().UnixNano()
		delete(c.running, n)
		return
	}
}

func (c *crew) killAll() {
	for range c.started {
		c.kill()
	}
	c.readers.Wait()
}

// done returns how many messages were worked on to the end.
func (c *crew) done() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	ended := map[uint64]bool{}
	for _, w := range c.seen {
		if w.what == "end" {
			ended[w.seq] = true
		}
	}
	return len(ended)
}

// check demands that of each subject the messages were begun in order, and that no two workers were at work on it at the
// same time.
func (c *crew) check() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortStableFunc(c.seen, func(a, b worked) int { return cmp.Compare(a.at, b.at) })
	newest := map[string]uint64{} // begun, by subject
	at := map[string]worked{}     // who is at work on it
	workers := map[string]map[int]bool{}
	for _, w := range c.seen {
		if w.what == "end" {
			if at[w.subject].worker == w.worker {
				delete(at, w.subject)
			}
			continue
		}
		if workers[w.subject] == nil {
			workers[w.subject] = map[int]bool{}
		}
		workers[w.subject][w.worker] = true
		other, busy := at[w.subject]
		died, dead := c.killed[other.worker]
		if busy && other.worker != w.worker && (!dead || died > w.at) {
			c.t.Errorf("%s: worker %d began %d while worker %d was at %d", w.subject, w.worker, w.seq, other.worker, other.seq)
		}
		at[w.subject] = w
		if w.seq > newest[w.subject] {
			for s := newest[w.subject] + keysInTest; newest[w.subject] != 0 && s < w.seq; s += keysInTest {
				c.t.Errorf("%s: %d was begun before %d", w.subject, w.seq, s)
			}
			newest[w.subject] = w.seq
		}
	}
	moved := 0
	for _, who := range workers {
		moved += len(who) - 1
	}
	if moved == 0 {
		c.t.Error("no key ever moved: nothing was shown")
	}
}

const keysInTest = 7

// TestKillKeyShared kills workers and the server with SIGKILL while many keys are worked on.
func TestKillKeyShared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a port that is free
	noErr(t, err)
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	noErr(t, l.Close())
	p := startGateway(t, dir, "-p", port)
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Retention: jetstream.WorkQueuePolicy})
	noErr(t, err)
	_, err = js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 3 * time.Second,
		Metadata: map[string]string{"ehdb.key_shared": "subject:2"},
	})
	noErr(t, err)
	const n = 3000
	for i := range n {
		_, err = js.PublishAsync(fmt.Sprintf("s.k%d", i%keysInTest), nil) // sequences of a key are keysInTest apart
		noErr(t, err)
	}
	<-js.PublishAsyncComplete()
	c := newCrew(t, p.URL)
	for range 3 {
		c.start()
	}
	wait := func(most int) {
		t.Helper()
		for end := time.Now().Add(60 * time.Second); c.done() < most; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d of %d are done, and no more come", c.done(), most)
			}
		}
	}
	wait(n / 6)
	c.kill()
	c.start()
	wait(n / 3)
	p.Kill()
	startGateway(t, dir, "-p", port)
	wait(n / 2)
	c.kill()
	c.start()
	wait(n)
	js, ctx = jetStream(t, connect(t, c.url))
	cons, err := js.Consumer(ctx, "S", "C")
	noErr(t, err)
	eventually(t, func() bool {
		i, err := cons.Info(ctx)
		return err == nil && i.NumPending == 0 && i.NumAckPending == 0 && streamMsgs(t, js, "S") == 0
	})
	c.killAll()
	c.check()
}

package capture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// happening is what is done to a stream while it is copied.
type happening struct {
	name string
	cfg  nats.StreamConfig
	run  func(w *world, stream string)
}

var happenings = []happening{
	{"limits", nats.StreamConfig{MaxMsgs: 50, MaxMsgsPerSubject: 20}, func(w *world, s string) {
		w.publish(120, func(i int) string { return fmt.Sprint(s, ".", i%5) })
	}},
	{"deletes", nats.StreamConfig{}, func(w *world, s string) {
		w.publish(60, on(s+".a"))
		for seq := uint64(2); seq <= 60; seq += 3 {
			w.check(w.js.DeleteMsg(s, seq))
		}
		w.check(w.js.DeleteMsg(s, 1), w.js.DeleteMsg(s, 60))
	}},
	{"purges", nats.StreamConfig{}, func(w *world, s string) {
		w.publish(40, func(i int) string { return fmt.Sprint(s, ".", i%3) })
		w.check(w.js.PurgeStream(s, &nats.StreamPurgeRequest{Subject: s + ".1"}))
		w.publish(10, on(s+".1"))
		w.check(w.js.PurgeStream(s, &nats.StreamPurgeRequest{Sequence: 30}))
	}},
	{"purged at last", nats.StreamConfig{}, func(w *world, s string) {
		w.publish(20, on(s+".a"))
		w.check(w.js.PurgeStream(s))
	}},
	{"rollups", nats.StreamConfig{AllowRollup: true}, func(w *world, s string) {
		w.publish(20, func(i int) string { return fmt.Sprint(s, ".", i%3) })
		m := &nats.Msg{Subject: s + ".1", Data: []byte("all"), Header: nats.Header{"Nats-Rollup": {"sub"}}}
		_, err := w.js.PublishMsg(m)
		w.check(err)
	}},
	{"age", nats.StreamConfig{MaxAge: 300 * time.Millisecond, Duplicates: 100 * time.Millisecond}, func(w *world, s string) {
		w.publish(20, on(s+".a"))
		w.await("all are too old", func() bool { return w.state(s).Msgs == 0 })
	}},
	{"ttl", nats.StreamConfig{AllowMsgTTL: true}, func(w *world, s string) {
		for i := range 12 {
			m := &nats.Msg{Subject: s + ".a", Data: []byte("x")}
			if i%2 == 0 {
				m.Header = nats.Header{"Nats-TTL": {"1s"}}
			}
			_, err := w.js.PublishMsg(m)
			w.check(err)
		}
		w.await("half are too old", func() bool { return w.state(s).Msgs == 6 })
	}},
	{"work queue", nats.StreamConfig{Retention: nats.WorkQueuePolicy}, consumeSome},
	{"interest", nats.StreamConfig{Retention: nats.InterestPolicy}, consumeSome},
	{"in memory", nats.StreamConfig{Storage: nats.MemoryStorage, FirstSeq: 77}, func(w *world, s string) {
		w.publish(20, on(s+".a"))
		w.check(w.js.DeleteMsg(s, 80))
	}},
}

func consumeSome(w *world, s string) {
	sub, err := w.js.PullSubscribe(s+".>", "C", nats.ManualAck())
	w.check(err)
	w.publish(30, on(s+".a"))
	msgs, err := sub.Fetch(20)
	w.check(err)
	for i, m := range msgs {
		if i%3 > 0 {
			w.check(m.AckSync())
		}
	}
}

// Whatever happens to a stream, its standby becomes equal to the byte.
func TestCaptureEquals(t *testing.T) {
	w := newWorld(t)
	for i, h := range happenings {
		for _, when := range []string{"before", "meanwhile"} {
			t.Run(h.name+" "+when, func(t *testing.T) {
				w.t = t
				name := fmt.Sprint("S", i, when)
				cfg := h.cfg
				cfg.Name, cfg.Subjects = name, []string{name + ".>"}
				w.add(&cfg)
				var c *Capturer
				if when == "meanwhile" {
					c = w.capture(name, nil)
				}
				h.run(w, name)
				if c == nil {
					c = w.capture(name, nil)
				}
				w.equal(c)
				if st := c.Status(); st.Lag != 0 || !st.Running || st.State != StateLive && st.State != StateBackfilling {
					t.Errorf("status %+v", st)
				}
			})
		}
	}
	w.t = t
}

// A key-value bucket in use, over everything that can break: the servers, the connection, the disk, this process.
func TestCaptureThroughChaos(t *testing.T) {
	w := newWorld(t)
	js, err := w.nc.JetStream(nats.MaxWait(time.Second)) // what was on its way to servers that stopped is not answered
	w.check(err)
	kv, err := js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "B", History: 3})
	w.check(err)
	c := w.capture("KV_B", func(o *Options) { o.Queue = 64 })
	ctx, stop := context.WithCancel(t.Context())
	var acked atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		random := rand.New(rand.NewPCG(1, 2))
		for ctx.Err() == nil {
			key := fmt.Sprint("k", random.IntN(20))
			var err error
			switch random.IntN(20) {
			case 0:
				err = kv.Purge(key)
			case 1:
				err = kv.Delete(key)
			default:
				_, err = kv.PutString(key, strings.Repeat("x", random.IntN(300)))
			}
			if err != nil {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			acked.Add(1)
		}
	}()
	progress := func() {
		t.Helper()
		from := acked.Load()
		w.await("publishes", func() bool { return acked.Load() >= from+50 })
	}
	for round := range 2 {
		progress()
		w.stopServer(w.srv) // the servers
		time.Sleep(50 * time.Millisecond)
		w.startServer()
		progress()
		for _, info := range connections(w) { // the connection
			_ = w.srv.DisconnectClientByID(info)
		}
		progress()
		w.fault.SetHook(stallOnce(300 * time.Millisecond)) // a disk that hangs
		progress()
		failed := new(atomic.Bool)
		w.fault.SetHook(func(op vfs.Op) error { // a disk that fails, once
			if op.Kind == vfs.OpSync && !failed.Swap(true) {
				return errors.New("the disk is gone")
			}
			return nil
		})
		progress()
		w.fault.SetHook(nil)
		if round == 0 { // this process, which comes back on what would be there after a power loss
			c.Stop()
			conserved(t, c)
			crashed := w.disk.(*vfs.Mem).CrashClone(vfs.CrashOptions{})
			w.stopLocal()
			w.disk = crashed
			w.startLocal()
			c = w.capture("KV_B", nil)
		}
		progress()
	}
	stop()
	<-done
	w.equal(c)
}

func connections(w *world) (ids []uint64) {
	z, err := w.srv.Connz(&server.ConnzOptions{})
	w.check(err)
	for _, c := range z.Conns {
		if strings.HasPrefix(c.Name, "ehdb-gateway ") {
			ids = append(ids, c.Cid)
		}
	}
	return ids
}

// stallOnce returns a hook that lets the first sync hang.
func stallOnce(d time.Duration) vfs.Hook {
	hung := new(atomic.Bool)
	return func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && !hung.Swap(true) {
			time.Sleep(d)
		}
		return nil
	}
}

// While nothing can be written here, records go down the rungs, are counted, and none is lost.
func TestCaptureRungs(t *testing.T) {
	w := newWorld(t)
	w.add(&nats.StreamConfig{Name: "S", Subjects: []string{"S.>"}})
	c := w.capture("S", func(o *Options) { o.Queue = 4 })
	w.publish(20, on("S.a"))
	w.equal(c)
	open := make(chan struct{})
	w.fault.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			<-open
		}
		return nil
	})
	for range 100 {
		_, err := w.js.Publish("S.a", []byte("x"))
		w.check(err)
	}
	w.await("something is read", func() bool { return c.Status().Counts.Pending > 0 })
	time.Sleep(3 * waitForRoom)
	if st := c.Status(); st.Lag == 0 || st.Counts.Pending == 0 {
		t.Errorf("while the disk hangs: %+v", st)
	}
	close(open)
	w.fault.SetHook(nil)
	w.equal(c)
	n := c.Status().Counts
	if n.Enqueued == 0 || n.QueueFullInline == 0 || n.Drained == 0 {
		t.Errorf("counts %+v", n)
	}
	if all := n.Drained + n.QueueFullInline + n.QueueClosedInline; all != 120 {
		t.Errorf("%d records went some way, of 120: %+v", all, n)
	}
}

// Stop writes what was read; what it has no time for is counted, and copied the next time.
func TestCaptureStop(t *testing.T) {
	w := newWorld(t)
	w.add(&nats.StreamConfig{Name: "S", Subjects: []string{"S.>"}})
	c := w.capture("S", func(o *Options) { o.Flush = 200 * time.Millisecond })
	w.publish(20, on("S.a"))
	w.equal(c)
	open := make(chan struct{})
	w.fault.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			<-open
		}
		return nil
	})
	w.publish(30, on("S.a"))
	w.await("something is read", func() bool { return c.Status().Counts.Pending > 0 })
	began := time.Now()
	c.Stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Stop took %v", took)
	}
	conserved(t, c)
	if n := c.Status().Counts; n.ShutdownAbandoned == 0 || n.Pending != 0 {
		t.Errorf("counts %+v", n)
	}
	close(open)
	w.fault.SetHook(nil)
	c.Start()
	w.equal(c)
}

// Capture freezes when the stream is another one, or has gone back, and goes on once it is reset.
func TestCaptureFreezes(t *testing.T) {
	w := newWorld(t)
	cfg := &nats.StreamConfig{Name: "S", Subjects: []string{"S.>"}}
	w.add(cfg)
	c := w.capture("S", nil)
	w.publish(20, on("S.a"))
	w.equal(c)
	w.check(w.js.DeleteStream("S"))
	w.await("it waits", func() bool { return c.Status().State == StateWaiting })
	w.add(cfg)
	w.publish(5, on("S.b"))
	frozen := func(what string) {
		t.Helper()
		w.await("it is frozen", func() bool { return c.Status().State == StateFailed })
		if st := c.Status(); !strings.Contains(st.Reason, what) || st.Running {
			t.Errorf("status %+v", st)
		}
		to, err := w.svc.Cutover().Stream("$G", "S")
		w.check(err)
		if at, _ := to.Progress(); at < 20 {
			t.Errorf("the standby is at %d", at)
		}
	}
	frozen("made again")
	w.check(c.Reset(t.Context()))
	w.equal(c)

	w.publish(20, on("S.b"))
	w.equal(c)
	to, err := w.svc.Cutover().Stream("$G", "S")
	w.check(err)
	w.check(to.Advance(100, time.Now().UnixNano())) // as if the servers had come back from a backup
	frozen("last sequence")
	w.check(c.Reset(t.Context()))
	w.equal(c)
}

// The standby follows changes of the configuration; a stream whose authority is here is left alone, and taken up when
// it comes back.
func TestCaptureConfigAndRole(t *testing.T) {
	w := newWorld(t)
	w.add(&nats.StreamConfig{Name: "S", Subjects: []string{"S.>"}})
	c := w.capture("S", nil)
	w.publish(5, on("S.a"))
	_, err := w.js.UpdateStream(&nats.StreamConfig{Name: "S", Subjects: []string{"S.>", "T"}, MaxMsgs: 3, Description: "new"})
	w.check(err)
	w.publish(2, on("T"))
	var to cutover.Copy
	w.await("the copy", func() bool { to, err = w.svc.Cutover().Stream("$G", "S"); return err == nil })
	w.await("the configuration", func() bool { return to.Config().Description == "new" })
	w.equal(c)
	w.check(to.SetRole(t.Context(), cutover.Authority))
	w.await("it is idle", func() bool { return c.Status().State == StateIdle })
	if err := c.Reset(t.Context()); !errors.Is(err, cutover.ErrRole) {
		t.Errorf("reset of an authority: %v", err)
	}
	w.check(to.SetRole(t.Context(), cutover.Standby))
	w.publish(3, on("S.a"))
	w.equal(c)
}

// What is behind is copied no faster than it may, and not while there is a reason to wait.
func TestCapturePace(t *testing.T) {
	w := newWorld(t)
	w.add(&nats.StreamConfig{Name: "S", Subjects: []string{"S.>"}})
	for range 100 {
		_, err := w.js.Publish("S.a", make([]byte, 1000))
		w.check(err)
	}
	var busy atomic.Bool
	busy.Store(true)
	began := time.Now()
	c := w.capture("S", func(o *Options) {
		o.Rate = 100_000_000
		o.Busy = func() string {
			if busy.Load() {
				return "the disk is busy"
			}
			return ""
		}
	})
	w.await("it is throttled", func() bool { return c.Status().State == StateThrottled })
	if st := c.Status(); st.Reason != "the disk is busy" || st.Applied != 0 {
		t.Errorf("status %+v", st)
	}
	c.SetRate(100_000)
	busy.Store(false)
	w.equal(c)
	if took := time.Since(began); took < 700*time.Millisecond {
		t.Errorf("100 kB at 100 kB/s took %v", took)
	}
}

// A large stream with holes is copied whole.
func TestCaptureBackfill(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 5_000
	}
	w := newWorld(t)
	w.add(&nats.StreamConfig{Name: "S", Subjects: []string{"S.>"}})
	for i := range n {
		_, err := w.js.PublishAsync(fmt.Sprint("S.", i%100), []byte("some data that is not very long"),
			nats.StallWait(time.Minute)) // the server may be busy
		w.check(err)
	}
	<-w.js.PublishAsyncComplete()
	w.check(w.js.PurgeStream("S", &nats.StreamPurgeRequest{Subject: "S.7"}))
	began := time.Now()
	c := w.capture("S", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w.check(c.Settle(ctx, w.state("S").LastSeq))
	t.Logf("%d records in %v", w.state("S").Msgs, time.Since(began))
	w.equal(c)
}

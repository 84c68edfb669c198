package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/origin"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// world is a nats-server with a client, and JetStream here with the gateway's connection to that server.
type world struct {
	t     *testing.T
	dir   string
	srv   *server.Server
	nc    *nats.Conn
	js    nats.JetStreamContext
	conn  *origin.Conn
	disk  vfs.FS
	fault *vfs.Fault
	svc   *jetstreamapi.Service
	port  int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), disk: vfs.NewMem(), port: -1}
	w.startServer()
	var err error
	w.nc, err = nats.Connect(w.srv.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	w.check(err)
	t.Cleanup(w.nc.Close)
	w.js, err = w.nc.JetStream(nats.MaxWait(patience))
	w.check(err)
	w.conn, err = origin.Dial(origin.Options{
		Account: "$G", URLs: []string{w.srv.ClientURL()}, ServerName: "gw", Timeout: 2 * time.Second,
	})
	w.check(err)
	t.Cleanup(w.conn.Close)
	w.await("the connection", func() bool { return w.conn.Status().Connected })
	w.startLocal()
	t.Cleanup(w.stopLocal)
	return w
}

func (w *world) startServer() {
	w.t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: w.port, JetStream: true, StoreDir: w.dir, ServerName: "S1", NoLog: true, NoSigs: true,
	})
	w.check(err)
	s.Start()
	if !s.ReadyForConnections(patience) {
		w.t.Fatal("nats-server does not start")
	}
	w.srv, w.port = s, s.Addr().(*net.TCPAddr).Port
	w.t.Cleanup(func() { w.stopServer(s) })
}

func (*world) stopServer(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

func (w *world) startLocal() {
	w.t.Helper()
	w.fault = vfs.NewFault(w.disk, nil)
	w.svc = jetstreamapi.New(jetstreamapi.Options{
		Bus: bus.NewRouter(), Storage: storage.Options{Dir: "data", FS: w.fault, SegmentSize: 8 << 20}, ServerName: "gw",
		ReopenDelay: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	w.check(w.svc.Start(context.Background()))
}

func (w *world) stopLocal() {
	if err := w.svc.Stop(context.Background()); err != nil {
		w.t.Error(err)
	}
}

func (w *world) check(errs ...error) {
	w.t.Helper()
	if err := errors.Join(errs...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) await(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func (w *world) add(cfg *nats.StreamConfig) {
	w.t.Helper()
	_, err := w.js.AddStream(cfg)
	w.check(err)
}

func (w *world) publish(n int, subject func(i int) string) {
	w.t.Helper()
	for i := range n {
		m := &nats.Msg{Subject: subject(i), Data: fmt.Appendf(nil, "data %d", i)}
		if i%4 == 0 {
			m.Header = nats.Header{"A": {"1"}, "b": {fmt.Sprint(i)}}
		}
		_, err := w.js.PublishMsg(m)
		w.check(err)
	}
}

func on(subject string) func(int) string { return func(int) string { return subject } }

// capture starts to copy a stream.
func (w *world) capture(stream string, change func(*Options)) *Capturer {
	w.t.Helper()
	o := Options{
		Scope: cutover.Scope{Account: "$G", Stream: stream}, From: w.conn.Stream(stream), To: w.svc.Cutover(),
		Reconcile: 50 * time.Millisecond,
	}
	if change != nil {
		change(&o)
	}
	c := New(o)
	c.Start()
	w.t.Cleanup(c.Stop)
	return c
}

func (w *world) state(stream string) server.StreamState {
	w.t.Helper()
	st, err := w.conn.Stream(stream).State(w.t.Context(), true)
	w.check(err)
	return st
}

// equal settles, and compares all that there is.
func (w *world) equal(c *Capturer) {
	w.t.Helper()
	w.await("the connection", func() bool { return w.conn.Status().Connected })
	stream := c.o.Scope.Stream
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*patience)
	defer cancel()
	w.check(c.Settle(ctx, w.state(stream).LastSeq))
	to, err := w.svc.Cutover().Stream("$G", stream)
	w.check(err)
	here, err := to.State(ctx, true)
	w.check(err)
	there := w.state(stream)
	if there.Msgs == 0 {
		here.FirstTime, there.FirstTime = time.Time{}, time.Time{}
	}
	here.Consumers = there.Consumers
	if g, n := fmt.Sprintf("%+v", here), fmt.Sprintf("%+v", there); g != n {
		w.t.Errorf("%s is here\n%s\non the servers\n%s", stream, g, n)
	}
	var want []string
	text := func(r *cutover.Record) string {
		return fmt.Sprintf("%d %d %s %q %q", r.Seq, r.Time, r.Subject, r.Header, r.Data)
	}
	w.check(c.o.From.Read(ctx, 0, func(r *cutover.Record, err error) bool {
		want = append(want, text(r))
		return err == nil
	}))
	i := 0
	w.check(to.Read(ctx, 0, func(r *cutover.Record, err error) bool {
		if err != nil || i >= len(want) || text(r) != want[i] {
			w.t.Errorf("record %d is %s (%v)", i, text(r), err)
			return false
		}
		i++
		return true
	}))
	if i != len(want) {
		w.t.Errorf("%d of %d records", i, len(want))
	}
	conserved(w.t, c)
}

// conserved checks that the counts add up.
func conserved(t *testing.T, c *Capturer) {
	t.Helper()
	n := c.Status().Counts
	if n.Enqueued+n.EnqueuedAfterWait != n.Drained+n.Returned+n.ShutdownAbandoned+n.Pending {
		t.Errorf("records are not conserved: %+v", n)
	}
}

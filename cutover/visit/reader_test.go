package visit

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/feed"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve starts a nats-server with a stream of ten messages, of which the second and the fifth are deleted, and lets a
// visitor in.
func serve(t *testing.T) (*server.Server, jetstream.Stream, jetstream.JetStream, feed.Visitor) {
	t.Helper()
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	})
	noErr(t, err)
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	nc, err := nats.Connect(ns.ClientURL())
	noErr(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	noErr(t, err)
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	noErr(t, err)
	for i := range 10 {
		publish(t, js, i)
	}
	noErr(t, s.DeleteMsg(t.Context(), 2))
	noErr(t, s.DeleteMsg(t.Context(), 5))
	v, err := Enter(t.Context(), Options{
		Dial: func(net.Addr) (net.Conn, error) { return net.Dial("tcp", ns.Addr().String()) },
	}, &auth.Credentials{Host: "127.0.0.1"})
	noErr(t, err)
	t.Cleanup(v.Close)
	return ns, s, js, v
}

// publish publishes to s.0 and s.1 in turn.
func publish(t *testing.T, js jetstream.JetStream, i int) {
	t.Helper()
	_, err := js.Publish(t.Context(), fmt.Sprintf("s.%d", i%2), fmt.Append(nil, i))
	noErr(t, err)
}

// read returns n steps as "3" or "2-2".
func read(t *testing.T, r feed.Reader, n int) (out string) {
	t.Helper()
	end := time.After(10 * time.Second)
	for n > 0 {
		step, err := r.Next()
		noErr(t, err)
		switch {
		case step.Message != nil:
			out += fmt.Sprintf("%d ", step.Upto)
			n--
			continue
		case step.Missing > 0:
			out += fmt.Sprintf("%d-%d ", step.Missing, step.Upto)
			n--
			continue
		}
		select {
		case <-r.Wake():
		case <-end:
			t.Fatalf("%s, and nothing comes", out)
		}
	}
	return out
}

func TestWhereFeedsBegin(t *testing.T) {
	for name, tc := range map[string]struct {
		from feed.From
		n    int
		want string
	}{
		"all":              {feed.From{Policy: feed.DeliverAll}, 10, "1 3 4 6 7 8 9 10 11 12 "},
		"new":              {feed.From{Policy: feed.DeliverNew}, 2, "11 12 "},
		"last":             {feed.From{Policy: feed.DeliverLast}, 3, "10 11 12 "},
		"last of":          {feed.From{Policy: feed.DeliverLast, Filters: []string{"s.0"}}, 2, "9 11 "},
		"last per subject": {feed.From{Policy: feed.DeliverLastPerSubject}, 4, "9 10 11 12 "},
		"sequence":         {feed.From{Policy: feed.DeliverByStartSequence, Seq: 2}, 11, "2-2 3 4 5-5 6 7 8 9 10 11 12 "},
		"filtered":         {feed.From{Policy: feed.DeliverByStartSequence, Seq: 2, Filters: []string{"s.1"}}, 5, "4 6 8 10 12 "},
		"long ago":         {feed.From{Policy: feed.DeliverByStartTime, Time: time.Unix(1, 0)}, 10, "1 3 4 6 7 8 9 10 11 12 "},
		"one day":          {feed.From{Policy: feed.DeliverByStartTime, Time: time.Now().Add(time.Hour)}, 2, "11 12 "},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, js, v := serve(t)
			r, err := v.Open("$G", "S", &tc.from)
			noErr(t, err)
			publish(t, js, 10)
			publish(t, js, 11)
			if got := read(t, r, tc.n); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// A stream that begins later than where the client was says so, with filters too.
func TestGapAtTheBeginning(t *testing.T) {
	_, s, _, v := serve(t)
	noErr(t, s.Purge(t.Context(), jetstream.WithPurgeSequence(8)))
	for _, filters := range [][]string{nil, {"s.0"}} {
		r, err := v.Open("$G", "S", &feed.From{Policy: feed.DeliverByStartSequence, Seq: 3, Filters: filters})
		noErr(t, err)
		want := "3-7 8 "
		if filters != nil {
			want = "3-7 9 "
		}
		if got := read(t, r, 2); got != want {
			t.Errorf("%v: %s", filters, got)
		}
		r.Close()
	}
}

// What is read is that stream and no other of its name.
func TestAnotherStream(t *testing.T) {
	_, _, js, v := serve(t)
	r, err := v.Open("$G", "S", &feed.From{Policy: feed.DeliverAll})
	noErr(t, err)
	read(t, r, 8)
	_, err = v.Renew()
	noErr(t, err)
	noErr(t, js.DeleteStream(t.Context(), "S"))
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	noErr(t, err)
	if _, err = v.Renew(); !errors.Is(err, feed.ErrUnknown) {
		t.Fatal(err)
	}
}

// A client whose server goes away is told to come back.
func TestLost(t *testing.T) {
	ns, _, _, v := serve(t)
	r, err := v.Open("$G", "S", &feed.From{Policy: feed.DeliverAll})
	noErr(t, err)
	ns.Shutdown()
	<-v.Gone()
	if _, err = v.Renew(); !errors.Is(err, feed.ErrLost) {
		t.Error(err)
	}
	for err = nil; err == nil; {
		var step feed.Step
		if step, err = r.Next(); step.Message == nil && err == nil {
			<-r.Wake()
		}
	}
	if !errors.Is(err, feed.ErrLost) {
		t.Error(err)
	}
}

func TestNoSuchStream(t *testing.T) {
	_, _, _, v := serve(t)
	if _, err := v.Subjects("$G", "T"); !errors.Is(err, feed.ErrUnknown) {
		t.Fatal(err)
	}
	if v.Login().Account != "$G" {
		t.Fatal(v.Login())
	}
}

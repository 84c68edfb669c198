package load

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/cutover/drill"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// oracle starts a real nats-server.
func oracle(t *testing.T, dir string, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	return s
}

func end(s *server.Server) { s.Shutdown(); s.WaitForShutdown() }

// TestLoadThroughARestart: a server that stops and starts again keeps its promises, and the account says so, with
// how long it took.
func TestLoadThroughARestart(t *testing.T) {
	dir := t.TempDir()
	s := oracle(t, dir, -1)
	url := s.ClientURL()
	port := s.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it listens on TCP
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	st, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second,
	}); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	l, err := Start(t.Context(), Options{URL: url, Stream: "S", Subject: "s", Consumer: "worker", Rate: 100})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Steady(ctx); err != nil {
		t.Fatal(err)
	}
	l.Fault()
	end(s)
	const down = 500 * time.Millisecond
	time.Sleep(down)
	defer end(oracle(t, dir, port))
	if err := errors.Join(l.Felt(ctx), l.Recovered(ctx)); err != nil {
		t.Fatal(err)
	}
	a := l.Finish(ctx)
	if a.Lost+a.Twice+a.Again+a.Altered+a.Backward+a.Unanswered > 0 || a.Delivered != a.Published || a.Confirmed != a.Published ||
		a.Before < l.Enough() || a.After < l.Enough() || a.Disconnects < 2 || a.Retried == 0 {
		t.Errorf("%+v", a)
	}
	if a.Redial < down.Seconds() || a.Recovery < down.Seconds() || a.Gap < down.Seconds() || a.Recovery > 30 {
		t.Errorf("%+v", a)
	}
}

var errTest = errors.New("a test")

// TestLedgerFires: each broken promise is counted.
func TestLedgerFires(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		do   func(*ledger)
		want drill.Account
	}{
		"kept": {func(l *ledger) {
			id, floor := l.next()
			l.acked(id, 1, floor, long)
			l.delivered(1, id, long)
			l.confirmed(1)
			l.delivered(1, id, long) // it had been asked for before
		}, drill.Account{Published: 1, Before: 1, Delivered: 1, Redelivered: 1, Confirmed: 1, LastSeq: 1}},
		"lost": {func(l *ledger) {
			id, floor := l.next()
			l.acked(id, 1, floor, long)
		}, drill.Account{Published: 1, Before: 1, Lost: 1, LastSeq: 1}},
		"unanswered": {func(l *ledger) {
			l.next()
			l.failed(errTest, long)
		}, drill.Account{Unanswered: 1, Retried: 1, LastError: "a test"}},
		"stored twice": {func(l *ledger) {
			id, floor := l.next()
			l.acked(id, 1, floor, long)
			l.delivered(1, id, long)
			l.delivered(2, id, long)
		}, drill.Account{Published: 1, Before: 1, Delivered: 2, Twice: 1, LastSeq: 1}},
		"again": {func(l *ledger) {
			id, floor := l.next()
			l.acked(id, 1, floor, long)
			l.delivered(1, id, long)
			l.confirmed(1)
			l.delivered(1, id, time.Now().Add(time.Second))
		}, drill.Account{Published: 1, Before: 1, Delivered: 1, Confirmed: 1, Redelivered: 1, Again: 1, LastSeq: 1}},
		"altered": {func(l *ledger) {
			id, floor := l.next()
			l.acked(id, 1, floor, long)
			l.delivered(1, "other", long)
		}, drill.Account{Published: 1, Before: 1, Delivered: 1, Altered: 1, LastSeq: 1}},
		"altered before it was acknowledged": {func(l *ledger) {
			id, floor := l.next()
			l.delivered(1, "other", long)
			l.acked(id, 1, floor, long)
		}, drill.Account{Published: 1, Before: 1, Delivered: 1, Altered: 1, LastSeq: 1}},
		"backward": {func(l *ledger) {
			id, floor := l.next()
			l.acked(id, 7, floor, long)
			l.delivered(7, id, long)
			id, floor = l.next()
			l.acked(id, 3, floor, long)
			l.delivered(3, id, long)
		}, drill.Account{Published: 2, Before: 2, Delivered: 2, Backward: 1, LastSeq: 7}},
		"given twice": {func(l *ledger) {
			one, floor := l.next()
			two, _ := l.next()
			l.acked(one, 1, floor, long)
			l.delivered(1, one, long)
			l.acked(two, 1, floor, long)
		}, drill.Account{Published: 2, Before: 2, Delivered: 1, Backward: 1, Altered: 1, LastSeq: 1}},
	} {
		l := newLedger()
		c.do(&l)
		if got := l.sum(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestLedgerTimes: it works again when both ways do, with what began behind the last trouble.
func TestLedgerTimes(t *testing.T) {
	l := newLedger()
	nc := new(nats.Conn)
	pass := func(began time.Time) {
		id, floor := l.next()
		l.acked(id, floor+1, floor, began)
		l.delivered(floor+1, id, began)
	}
	pass(time.Now())
	l.fault()
	l.faulted = l.faulted.Add(-10 * time.Second) // as if it had been then
	l.out.last, l.in.last = l.faulted, l.faulted
	l.lost(nc, errTest)
	l.down[nc] = l.faulted.Add(time.Second)
	pass(l.faulted) // had been under way
	if a := l.sum(); a.After != 0 || a.Recovery < 9 || a.Redial < 8 || a.Disconnects != 1 {
		t.Errorf("nothing works yet: %+v", a)
	}
	l.back(nc)
	id, floor := l.next()
	l.acked(id, floor+1, floor, time.Now())
	if a := l.sum(); a.After != 0 || a.Recovery < 9 {
		t.Errorf("nothing is delivered yet: %+v", a)
	}
	l.delivered(floor+1, id, time.Now())
	a := l.sum()
	if a.After != 1 || a.Recovery < 9 || a.Recovery > 20 || a.Gap < 9 || a.Before != 1 {
		t.Errorf("it works: %+v", a)
	}
	time.Sleep(time.Millisecond)
	if l.failed(errTest, l.faulted); l.sum().Recovery != a.Recovery || l.sum().After != 1 {
		t.Errorf("an answer that was lost long ago: %+v", l.sum())
	}
	if l.failed(errTest, time.Now()); l.sum().After != 0 || l.sum().Recovery <= a.Recovery {
		t.Errorf("new trouble: %+v", l.sum())
	}
	pass(time.Now())
	l.lasts(time.Hour)
	if a := l.sum(); a.Recovery != 0 || a.After != 1 {
		t.Errorf("it worked before the fault had ended: %+v", a)
	}
	l.ended()
	if l.lost(nc, errTest); l.sum().Disconnects != 1 {
		t.Error("what comes at the end counts")
	}
}

// TestStartSaysWhy: a load that cannot run says so.
func TestStartSaysWhy(t *testing.T) {
	if _, err := Start(t.Context(), Options{URL: "nats://127.0.0.1:1", Rate: 10}); err == nil ||
		!strings.Contains(err.Error(), "cannot log in at nats://127.0.0.1:1") {
		t.Error(err)
	}
}

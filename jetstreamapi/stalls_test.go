package jetstreamapi

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/storage"
)

// stuckClient is a client whose connection takes nothing more: everybody who sends to it is asked to wait.
type stuckClient struct {
	once    sync.Once
	release chan struct{}
}

func (s *stuckClient) Deliver([]bus.Delivery) <-chan struct{} { return s.release }

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestStalledConsumerIsNoticed: a consumer that cannot deliver, because the receiver of its last message never takes
// it, is counted and named in the log; it is no longer once it goes on. Consumers that wait for a reason are not.
func TestStalledConsumerIsNoticed(t *testing.T) {
	r := bus.NewRouter()
	log := new(lockedBuffer)
	svc := startService(t, Options{
		Bus: r, Storage: storage.Options{Dir: t.TempDir()}, StallAfter: 200 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	p := newParty(t, r, "$G")
	for _, c := range []string{
		`STREAM.CREATE.S {"name":"S","subjects":["s"]}`,
		`CONSUMER.CREATE.S.STUCK {"stream_name":"S","config":{"durable_name":"STUCK","ack_policy":"none"}}`,
		`CONSUMER.CREATE.S.FULL {"stream_name":"S","config":{"durable_name":"FULL","ack_policy":"explicit","max_ack_pending":1}}`,
		`CONSUMER.CREATE.S.PAUSED {"stream_name":"S","config":{"durable_name":"PAUSED","pause_until":"2099-01-01T00:00:00Z"}}`,
		`CONSUMER.CREATE.S.UNASKED {"stream_name":"S","config":{"durable_name":"UNASKED"}}`,
	} {
		subject, body, _ := strings.Cut(c, " ")
		if a := p.request(t, "$JS.API."+subject, "", body); strings.Contains(a.data, `"error"`) {
			t.Fatalf("%s: %s", c, a.data)
		}
	}
	stuck := &stuckClient{release: make(chan struct{})}
	defer stuck.once.Do(func() { close(stuck.release) })
	s, err := r.Open(bus.KindClient, bus.Identity{Account: "$G", ID: 2}, stuck)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Subscribe("1", "stuck", ""); err != nil {
		t.Fatal(err)
	}
	// The first message of STUCK goes to the client that takes none; the others wait for somebody who would.
	next := func(consumer, inbox, body string) {
		p.session.Publish(&bus.Msg{
			Subject: []byte("$JS.API.CONSUMER.MSG.NEXT.S." + consumer), Reply: []byte(inbox), Data: []byte(body),
		})
		p.session.Flush()
	}
	p.listen("willing")
	next("STUCK", "stuck", "1")
	for range 3 {
		p.request(t, "s", "", "x")
	}
	for _, c := range []string{"STUCK", "FULL", "PAUSED"} {
		next(c, "willing", `{"batch":10,"expires":60000000000}`)
	}
	eventually(t, "the stall is noticed", func() bool { return svc.Counters().Stalled == 1 })
	if l := log.String(); !strings.Contains(l, "delivers nothing") || !strings.Contains(l, "consumer=STUCK") ||
		!strings.Contains(l, "stream=S") {
		t.Errorf("the log does not name it:\n%s", l)
	}
	time.Sleep(500 * time.Millisecond)
	if n := svc.Counters().Stalled; n != 1 || strings.Contains(log.String(), "consumer=FULL") {
		t.Errorf("%d stalled:\n%s", n, log)
	}
	stuck.once.Do(func() { close(stuck.release) })
	eventually(t, "it goes on", func() bool { return svc.Counters().Stalled == 0 })
	eventually(t, "the log says so", func() bool { return strings.Contains(log.String(), "no longer does") })
}

// TestKeyBlockedIsNoticed: a consumer whose one key has more messages than it may pass over, while another worker
// waits, is counted and named in the log, until the key is free; it does not count as stalled.
func TestKeyBlockedIsNoticed(t *testing.T) {
	r := bus.NewRouter()
	log := new(lockedBuffer)
	svc := startService(t, Options{
		Bus: r, Storage: storage.Options{Dir: t.TempDir()}, StallAfter: 200 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	p := newParty(t, r, "$G")
	p.must(t, nil, "$JS.API.STREAM.CREATE.S", `{"name":"S","subjects":["s.>"]}`)
	p.must(t, nil, "$JS.API.CONSUMER.CREATE.S.KEYS", `{"stream_name":"S","config":{"durable_name":"KEYS","ack_policy":"explicit",`+
		`"metadata":{"ehdb.key_shared":"header:Key"}}}`)
	const n = 4500
	for range n - 1 {
		p.session.Publish(&bus.Msg{Subject: []byte("s.x"), Header: []byte("NATS/1.0\r\nKey: hot\r\n\r\n")})
	}
	p.session.Flush()
	p.request(t, "s.x", "NATS/1.0\r\nKey: hot\r\n\r\n", "")
	const next = "$JS.API.CONSUMER.MSG.NEXT.S.KEYS"
	p.request(t, next, "", "1")
	second := p.ask(next, "", `{"batch":1,"expires":60000000000}`)
	eventually(t, "it is noticed", func() bool { return svc.Counters().KeyBlocked == 1 })
	if !strings.Contains(log.String(), "consumer=KEYS") || !strings.Contains(log.String(), "key_shared=header:Key") {
		t.Errorf("the log does not name it:\n%s", log)
	}
	var info server.ConsumerInfo
	p.must(t, &info, "$JS.API.CONSUMER.INFO.S.KEYS", "")
	if info.NumPending != n-1 || info.NumAckPending != 1 || info.AckFloor.Stream != 0 {
		t.Errorf("%d are pending, %d outstanding, floor %d", info.NumPending, info.NumAckPending, info.AckFloor.Stream)
	}
	p.must(t, nil, "$JS.API.STREAM.PURGE.S", `{"seq":1001}`) // the first and 999 that were passed over
	if a := <-second; !strings.Contains(a.reply, ".1001.") {
		t.Errorf("after a purge of what was before, %+v", a)
	}
	eventually(t, "it goes on", func() bool { return svc.Counters().KeyBlocked == 0 })
	p.must(t, &info, "$JS.API.CONSUMER.INFO.S.KEYS", "")
	if info.NumPending != n-1001 || info.NumAckPending != 1 || svc.Counters().Stalled != 0 {
		t.Errorf("after a purge %d are pending, %d outstanding, %d stalled", info.NumPending, info.NumAckPending,
			svc.Counters().Stalled)
	}
}

// TestMiscountsAreNoticed: the watch looks at every consumer, and one that had lost count is counted and named in the log.
// What makes an audit fail is consumer's TestAudit.
func TestMiscountsAreNoticed(t *testing.T) {
	r := bus.NewRouter()
	log := new(lockedBuffer)
	svc := startService(t, Options{
		Bus: r, Storage: storage.Options{Dir: t.TempDir()}, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	p := newParty(t, r, "$G")
	p.request(t, "$JS.API.STREAM.CREATE.S", "", `{"name":"S","subjects":["s"]}`)
	for _, name := range []string{"A", "B"} {
		p.request(t, "$JS.API.CONSUMER.CREATE.S."+name, "", `{"stream_name":"S","config":{"durable_name":"`+name+`"}}`)
	}
	eventually(t, "both are looked at", func() bool { return svc.Counters().Audits >= 2 })
	if n := svc.Counters().Miscounted; n != 0 {
		t.Errorf("%d miscounted:\n%s", n, log)
	}
	for _, c := range svc.account("$G").servingConsumers() {
		if c.name == "B" {
			svc.noteAudit(c, errors.New("1 of 2"))
		}
	}
	if n := svc.Counters().Miscounted; n != 1 || !strings.Contains(log.String(), "consumer=B") || !strings.Contains(log.String(), "1 of 2") {
		t.Errorf("%d miscounted:\n%s", n, log)
	}
}

package jetstreamapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const answerTimeout = 5 * time.Second

// answer is what a request got: messages up to the last one that was waited for, or nobody.
type answer struct {
	nobody bool // no responders
	header string
	data   string
	reply  string // where the message wants an answer
}

func (a answer) String() string {
	switch {
	case a.nobody:
		return "no responders"
	case a.header != "":
		return a.header + a.data
	}
	return a.data
}

// party is a client on a bus.
type party struct {
	session bus.Session
	mu      sync.Mutex
	got     map[string]chan answer
	n       int
}

func newParty(tb testing.TB, b bus.Bus, account string) *party {
	tb.Helper()
	p := &party{got: make(map[string]chan answer)}
	s, err := b.Open(bus.KindClient, bus.Identity{Account: account, ID: 1}, p)
	if err != nil {
		tb.Fatal(err)
	}
	p.session = s
	tb.Cleanup(s.Close)
	return p
}

func (p *party) Deliver(batch []bus.Delivery) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range batch {
		if ch := p.got[string(d.Sub.SID)]; ch != nil {
			select {
			case ch <- answer{header: string(d.Msg.Header), data: string(d.Msg.Data), reply: string(d.Msg.Reply)}:
			default:
			}
		}
	}
	return nil
}

// listen subscribes and returns what arrives.
func (p *party) listen(filter string) <-chan answer {
	p.mu.Lock()
	p.n++
	sid := fmt.Sprint(p.n)
	ch := make(chan answer, 4096)
	p.got[sid] = ch
	p.mu.Unlock()
	if _, err := p.session.Subscribe(sid, filter, ""); err != nil {
		panic(err)
	}
	return ch
}

// ask sends a request and returns where its answers arrive; nil: nobody took it.
func (p *party) ask(subject, header, body string) <-chan answer {
	inbox := fmt.Sprintf("_INBOX.%p.%d", p, p.n)
	ch := p.listen(inbox)
	m := bus.Msg{Subject: []byte(subject), Reply: []byte(inbox), Header: []byte(header), Data: []byte(body)}
	interest := p.session.Publish(&m)
	p.session.Flush()
	if !interest {
		return nil
	}
	return ch
}

// request sends a request and waits for its answer.
func (p *party) request(tb testing.TB, subject, header, body string) answer {
	tb.Helper()
	ch := p.ask(subject, header, body)
	if ch == nil {
		return answer{nobody: true}
	}
	select {
	case a := <-ch:
		return a
	case <-time.After(answerTimeout):
		tb.Fatalf("%s %s: no answer", subject, body)
		return answer{}
	}
}

// must asks and decodes the answer, which must be no error.
func (p *party) must(tb testing.TB, v any, subject, body string) {
	tb.Helper()
	a := p.request(tb, subject, "", body)
	var head server.ApiResponse
	if err := json.Unmarshal([]byte(a.data), &head); err != nil {
		tb.Fatalf("%s: %v in %q", subject, err, a)
	}
	if head.Error != nil {
		tb.Fatalf("%s: %v", subject, head.Error)
	}
	if v != nil {
		if err := json.Unmarshal([]byte(a.data), v); err != nil {
			tb.Fatal(err)
		}
	}
}

func testOptions(b bus.Bus, dir string) Options {
	return Options{
		Bus: b, Storage: storage.Options{Dir: dir}, ServerName: "S1", ServerID: "ID1",
		Logger: slog.New(slog.DiscardHandler),
	}
}

// startService starts a service that is stopped when the test ends.
func startService(tb testing.TB, o Options) *Service {
	tb.Helper()
	s := New(o)
	if err := s.Start(context.Background()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// oracle is a real nats-server and a client of it.
type oracle struct{ nc *nats.Conn }

func startOracle(tb testing.TB, change func(*server.Options)) *oracle {
	tb.Helper()
	_, o := startOracleServer(tb, change)
	return o
}

func startOracleServer(tb testing.TB, change func(*server.Options)) (*server.Server, *oracle) {
	tb.Helper()
	o := &server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: tb.TempDir(), ServerName: "S1", NoLog: true, NoSigs: true,
	}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(answerTimeout) {
		tb.Fatal("the oracle does not start")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s, &oracle{nc: nc}
}

func (o *oracle) request(tb testing.TB, subject, header, body string) answer {
	tb.Helper()
	inbox := nats.NewInbox()
	sub, err := o.nc.SubscribeSync(inbox)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	m := &nats.Msg{Subject: subject, Reply: inbox, Data: []byte(body), Header: parseHeader(header)}
	if err := o.nc.PublishMsg(m); err != nil {
		tb.Fatal(err)
	}
	r, err := sub.NextMsg(answerTimeout)
	if err != nil {
		if err == nats.ErrNoResponders { //nolint:errorlint // the client's own
			return answer{nobody: true}
		}
		tb.Fatalf("oracle: %s %s: %v", subject, body, err)
	}
	return answer{header: formatHeader(r.Header), data: string(r.Data)}
}

func parseHeader(block string) nats.Header {
	h := nats.Header{}
	for _, line := range strings.Split(block, "\r\n")[1:] {
		if k, v, ok := strings.Cut(line, ": "); ok {
			h[k] = append(h[k], v)
		}
	}
	return h
}

// formatHeader writes a header as parsed by the client, sorted.
func formatHeader(h nats.Header) string {
	if len(h) == 0 {
		return ""
	}
	b, err := json.Marshal(h)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// clientHeader is how the client library would show a raw header block.
func clientHeader(block string) string {
	if block == "" {
		return ""
	}
	m, err := nats.DecodeHeadersMsg([]byte(block))
	if err != nil {
		return "bad header: " + block
	}
	return formatHeader(m)
}

// ours is normal for an answer whose header is the raw block.
func ours(a answer) string {
	a.nobody = a.nobody || strings.HasPrefix(a.header, "NATS/1.0 503\r\n")
	a.header = clientHeader(a.header)
	return normal(a)
}

// normal makes an answer of either server comparable: volatile values are replaced by what kind they are.
func normal(a answer) string {
	if a.nobody {
		return "no responders"
	}
	h := a.header
	if strings.Contains(h, "Nats-Time-Stamp") {
		var m map[string][]string
		if json.Unmarshal([]byte(h), &m) == nil {
			m["Nats-Time-Stamp"] = []string{"T"}
			b, _ := json.Marshal(m)
			h = string(b)
		}
	}
	var v any
	d := json.NewDecoder(bytes.NewReader([]byte(a.data)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return h + " " + a.data
	}
	b, _ := json.MarshalIndent(normalValue("", v), "", " ")
	return h + " " + string(b)
}

func normalValue(key string, v any) any {
	switch x := v.(type) {
	case map[string]any:
		delete(x, "api")
		if x["type"] == server.JSApiConsumerResetResponseType {
			delete(x, "delivered") // nats-server shows it as before or as after, by chance
		}
		for k := range x {
			x[k] = normalValue(k, x[k])
		}
	case []any:
		for i := range x {
			x[i] = normalValue(key, x[i])
		}
	case string:
		switch key {
		case "created", "ts", "first_ts", "last_ts", "time", "last_active", "pause_until":
			if x == "0001-01-01T00:00:00Z" {
				return "never"
			}
			return "T"
		}
	case json.Number:
		if key == "pause_remaining" {
			return "D"
		}
	}
	return v
}

package flip_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/cutover/upstream"
	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi"
	"github.com/noetl/ehdb-gateway/storage"
)

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// rig is a NATS server, a gateway in front of it, the gateway's own JetStream, and what moves streams between them.
type rig struct {
	t      *testing.T
	nats   *server.Server
	gw     *gateway.Server
	relay  *relay.Relay
	router *bus.Router
	svc    *jetstreamapi.Service
	conn   *nats.Conn
	engine *flip.Engine
	dir    string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, relay: relay.New(), router: bus.NewRouter(), dir: t.TempDir()}
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	})
	check(t, err)
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	r.nats = ns
	r.svc = jetstreamapi.New(jetstreamapi.Options{
		Bus: r.router, Storage: storage.Options{Dir: t.TempDir(), Shards: 1}, ServerName: "S", ServerID: "SID", MaxPayload: 1 << 20,
	})
	check(t, r.svc.Start(t.Context()))
	t.Cleanup(func() { check(t, r.svc.Stop(context.Background())) }) //nolint:usetesting // t.Context has ended
	to, err := url.Parse(ns.ClientURL())
	check(t, err)
	up, err := upstream.New(upstream.Options{URLs: []*url.URL{to}})
	check(t, err)
	r.gw, err = gateway.New(gateway.Options{
		Server: &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT}, Bus: r.router, Upstream: up, Director: r.relay,
	})
	check(t, err)
	check(t, r.gw.Start())
	t.Cleanup(r.gw.Shutdown)
	r.conn = r.connect(ns.ClientURL())
	r.open()
	t.Cleanup(func() { r.engine.Close() })
	return r
}

// open opens the engine.
func (r *rig) open() {
	var err error
	r.engine, err = flip.Open(r.t.Context(), flip.Options{
		Dir: r.dir, Local: r.svc.Cutover(), Relay: r.relay, Bus: r.router, Barrier: r.gw.Barrier,
		Site:   func(string) (flip.Site, error) { return site{r.conn}, nil },
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	check(r.t, err)
}

func (r *rig) connect(at string, o ...nats.Option) *nats.Conn {
	r.t.Helper()
	nc, err := nats.Connect(at, o...)
	check(r.t, err)
	r.t.Cleanup(nc.Close)
	return nc
}

type site struct{ conn *nats.Conn }

func (s site) Conn() *nats.Conn { return s.conn }

func (s site) Stream(name string) cutover.Upstream { return &far{s.conn, name} }

func (s site) Capture(name string, to cutover.Copy) flip.Capture {
	return &copier{from: &far{s.conn, name}, to: to, kick: make(chan struct{}, 1)}
}

// far is a stream of the server.
type far struct {
	conn *nats.Conn
	name string
}

func (f *far) ask(ctx context.Context, subject, body string, to any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	m, err := f.conn.RequestWithContext(ctx, "$JS.API."+subject, []byte(body))
	if err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	return json.Unmarshal(m.Data, to)
}

func (f *far) info(ctx context.Context, body string) (*server.StreamInfo, error) {
	var resp server.JSApiStreamInfoResponse
	if err := f.ask(ctx, "STREAM.INFO."+f.name, body, &resp); err != nil {
		return nil, err
	}
	if resp.Error != nil {
		return nil, resp.Error
	}
	return resp.StreamInfo, nil
}

func (f *far) Info(ctx context.Context) (*server.StreamInfo, error) { return f.info(ctx, "") }

func (f *far) State(ctx context.Context, deleted bool) (server.StreamState, error) {
	i, err := f.info(ctx, fmt.Sprintf(`{"deleted_details":%v}`, deleted))
	if err != nil {
		return server.StreamState{}, err
	}
	return i.State, nil
}

func (f *far) next(ctx context.Context, body string) (*cutover.Record, error) {
	var resp server.JSApiMsgGetResponse
	if err := f.ask(ctx, "STREAM.MSG.GET."+f.name, body, &resp); err != nil {
		return nil, err
	}
	if resp.Error != nil {
		if resp.Error.ErrCode == 10037 {
			return nil, cutover.ErrNoRecord
		}
		return nil, resp.Error
	}
	m := resp.Message
	return &cutover.Record{Seq: m.Sequence, Time: m.Time.UnixNano(), Subject: []byte(m.Subject), Header: m.Header, Data: m.Data}, nil
}

func (f *far) Get(ctx context.Context, seq uint64) (*cutover.Record, error) {
	return f.next(ctx, fmt.Sprintf(`{"seq":%d}`, seq))
}

func (f *far) Read(ctx context.Context, from uint64, fn func(*cutover.Record, error) bool) error {
	for {
		r, err := f.next(ctx, fmt.Sprintf(`{"seq":%d,"next_by_subj":">"}`, from))
		if errors.Is(err, cutover.ErrNoRecord) {
			return nil
		}
		if err != nil {
			return err
		}
		if !fn(r, nil) {
			return nil
		}
		from = r.Seq + 1
	}
}

func (f *far) Follow(context.Context, uint64, func([]cutover.Record, bool) error) error {
	return errors.ErrUnsupported
}

func (f *far) Consumers(ctx context.Context) ([]*server.ConsumerInfo, error) {
	var resp server.JSApiConsumerListResponse
	if err := f.ask(ctx, "CONSUMER.LIST."+f.name, "", &resp); err != nil {
		return nil, err
	}
	return resp.Consumers, nil
}

// copier copies a stream, message by message.
type copier struct {
	from   *far
	to     cutover.Copy
	kick   chan struct{}
	mu     sync.Mutex // held while it copies
	cancel context.CancelFunc
	done   chan struct{}
}

func (c *copier) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.done = cancel, make(chan struct{})
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			if st, err := c.from.State(ctx, false); err == nil {
				_ = c.copy(ctx, st.LastSeq)
			}
			select {
			case <-c.kick:
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
}

func (c *copier) Stop() {
	if c.cancel != nil {
		c.cancel()
		<-c.done
	}
}

func (c *copier) Nudge(uint64) {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

func (c *copier) copy(ctx context.Context, last uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	st, err := c.to.State(ctx, false)
	if err != nil {
		return err
	}
	err = c.from.Read(ctx, st.LastSeq+1, func(r *cutover.Record, err error) bool {
		if err != nil || r.Seq > last {
			return false
		}
		_, stall, _ := c.to.Apply([]cutover.Record{*r})
		if stall != nil {
			<-stall
		}
		return true
	})
	if last > 0 {
		err = errors.Join(err, c.to.Advance(last, time.Now().UnixNano()))
	}
	return err
}

func (c *copier) Settle(ctx context.Context, last uint64) error {
	if err := c.copy(ctx, last); err != nil {
		return err
	}
	st, err := c.from.State(ctx, true)
	if err != nil {
		return err
	}
	return errors.Join(c.to.Remove(st.Deleted), c.to.RemoveBelow(st.FirstSeq), c.to.Durable(ctx, last))
}

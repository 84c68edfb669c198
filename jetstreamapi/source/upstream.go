package source

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Upstream is another server whose streams may be mirrored and sourced.
type Upstream struct {
	Name string
	// API is the prefix by which streams name it, as external.api.
	API string
	// RemoteAPI is the prefix of the API as the server at the other end knows it.
	RemoteAPI string
	// Accounts are the accounts of ours whose streams may use it.
	Accounts []string
	URL      string // one or more, with commas between
	Options  []nats.Option
}

// Upstreams are the connections to other servers. One is made when a stream first needs it, and stays.
type Upstreams struct {
	log  *slog.Logger
	list []*upstream

	mu      sync.Mutex
	closed  bool
	dialing sync.WaitGroup
}

// upstream is one of them. Upstreams.mu guards it.
type upstream struct {
	Upstream
	breaks  atomic.Uint64
	conn    *nats.Conn
	dialing bool
	err     error // of the last attempt to make conn
}

// NewUpstreams makes the set; nothing is connected yet.
func NewUpstreams(list []Upstream, log *slog.Logger) *Upstreams {
	u := &Upstreams{log: log}
	for _, one := range list {
		u.list = append(u.list, &upstream{Upstream: one})
	}
	return u
}

var errConnecting = errors.New("the connection is being made")

// wire returns the wire to the upstream that an account's streams know by an API prefix, and the prefix to use on it.
// None: nil. It does not wait for the connection: until that is made, it is an error.
func (u *Upstreams) wire(account, api string) (Wire, string, error) {
	if u == nil {
		return nil, "", nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, up := range u.list {
		if up.API != strings.TrimSuffix(api, ".") || !slices.Contains(up.Accounts, account) {
			continue
		}
		if up.conn == nil {
			u.dial(up)
			return nil, "", fmt.Errorf("upstream %s: %w", up.Name, cmp.Or(up.err, errConnecting))
		}
		return &connWire{up: up, conn: up.conn}, up.RemoteAPI, nil
	}
	return nil, "", nil
}

// dial makes the connection, which then looks after itself. mu is held.
func (u *Upstreams) dial(up *upstream) {
	if up.dialing || u.closed {
		return
	}
	up.dialing = true
	u.dialing.Go(func() {
		conn, err := nats.Connect(up.URL, u.options(up)...)
		u.mu.Lock()
		defer u.mu.Unlock()
		up.dialing, up.conn, up.err = false, conn, err
	})
}

// reconnectWait is the pause between two attempts to reach an upstream.
const reconnectWait = time.Second

func (u *Upstreams) options(up *upstream) []nats.Option {
	log := u.log.With(slog.String("upstream", up.Name), slog.String("url", up.URL))
	return append([]nats.Option{
		nats.Name("ehdb-gateway sources"),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.RetryOnFailedConnect(true),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1), // what cannot be sent now is an error now
		nats.ConnectHandler(func(*nats.Conn) { log.Info("connected to an upstream") }),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("connected to an upstream again") }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			up.breaks.Add(1)
			log.Warn("the connection to an upstream is interrupted", slog.Any("error", err))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrSlowConsumer) {
				up.breaks.Add(1)
			}
			log.Warn("an upstream reports an error", slog.Any("error", err))
		}),
	}, up.Options...)
}

// Close ends all connections.
func (u *Upstreams) Close() {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.dialing.Wait()
	for _, up := range u.list {
		if up.conn != nil {
			up.conn.Close()
		}
	}
}

// connWire is a connection to an upstream. It is shared by the links that use it.
type connWire struct {
	up   *upstream
	conn *nats.Conn
}

func (w *connWire) Send(subject, reply string, header, data []byte) error {
	if !w.conn.IsConnected() {
		return fmt.Errorf("upstream %s is not connected: %w",
			w.up.Name, cmp.Or(w.conn.LastError(), errConnecting))
	}
	m := &nats.Msg{Subject: subject, Reply: reply, Data: data}
	if len(header) > 0 {
		h, err := nats.DecodeHeadersMsg(header)
		if err != nil {
			return err
		}
		m.Header = h
	}
	return w.conn.PublishMsg(m)
}

func (w *connWire) Listen(subject string, take func(*Message)) (stop func(), err error) {
	sub, err := w.conn.Subscribe(subject, func(m *nats.Msg) {
		status, _ := strconv.Atoi(m.Header.Get("Status"))
		take(&Message{
			Subject: m.Subject, Reply: m.Reply, Status: status, Header: encodeHeader(m.Header), Data: m.Data,
		})
	})
	if err != nil {
		return nil, fmt.Errorf("upstream %s: %w", w.up.Name, err)
	}
	if err := sub.SetPendingLimits(-1, 2*maxQueued); err != nil {
		return nil, errors.Join(err, sub.Unsubscribe())
	}
	return func() {
		_ = sub.Unsubscribe() // of a connection that is closed: it is gone
	}, nil
}

// encodeHeader makes a header block. Its fields come in the order of their names: the client does not tell the one they
// had.
func encodeHeader(h nats.Header) []byte {
	if len(h) == 0 {
		return nil
	}
	out := []byte("NATS/1.0\r\n")
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			out = append(append(append(append(out, name...), ": "...), value...), "\r\n"...)
		}
	}
	return append(out, "\r\n"...)
}

func (w *connWire) NewInbox() string { return w.conn.NewInbox() }

func (w *connWire) Breaks() uint64 { return w.up.breaks.Load() }

package origin

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Credentials are how the gateway logs in to an account of the servers: one way, or none.
type Credentials struct {
	User, Password string
	Token          string
	Creds          string // path of a file with a user's JWT and seed
	Nkey           string // path of a file with a seed
}

// options are the credentials in the client's form.
func (c *Credentials) options() ([]nats.Option, error) {
	switch {
	case c.Creds != "":
		return []nats.Option{nats.UserCredentials(c.Creds)}, nil
	case c.Nkey != "":
		seed, err := os.ReadFile(c.Nkey)
		if err != nil {
			return nil, fmt.Errorf("the seed of the nkey: %w", err)
		}
		key, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(seed))))
		if err != nil {
			return nil, fmt.Errorf("%s does not hold the seed of an nkey: %w", c.Nkey, err)
		}
		public, err := key.PublicKey()
		if err != nil {
			return nil, fmt.Errorf("the nkey in %s: %w", c.Nkey, err)
		}
		return []nats.Option{nats.Nkey(public, key.Sign)}, nil
	case c.Token != "":
		return []nats.Option{nats.Token(c.Token)}, nil
	case c.User != "":
		return []nats.Option{nats.UserInfo(c.User, c.Password)}, nil
	}
	return nil, nil
}

// Options make a Conn.
type Options struct {
	Account        string   // as it is called here: of log lines and errors
	URLs           []string // of the servers
	TLS            *tls.Config
	HandshakeFirst bool // TLS starts before INFO
	Credentials    Credentials
	Dialer         nats.CustomDialer // nil: the client's own
	ServerName     string            // of the gateway: the connection is called "ehdb-gateway <name>" on the servers
	Timeout        time.Duration     // of one call; default 5 s
	Poll           time.Duration     // how often the servers are asked for what nobody told of; default 250 ms
	Logger         *slog.Logger
}

const (
	defaultTimeout = 5 * time.Second
	reconnectWait  = 500 * time.Millisecond
	pingEvery      = 5 * time.Second // a half-open connection is found after twice that
)

// Conn is the connection to the servers in one account. It is made in the background and again for ever; calls that
// come meanwhile fail and say so.
type Conn struct {
	o   Options
	log *slog.Logger
	nc  *nats.Conn

	inbox inbox

	mu      sync.Mutex
	state   Status
	link    context.Context // ends when the connection is interrupted: what was asked will not be answered
	sever   context.CancelCauseFunc
	streams map[string]*Stream
}

// Status is what is known of a connection.
type Status struct {
	Connected  bool
	Server     string    // URL of the server, or of the last one
	Since      time.Time // of Connected
	Err        error     // the last failure: of the connection, or one that the servers reported; nil: there was none
	Reconnects uint64
}

// Over returns a Conn over a connection that is there already. Whoever made it closes it; of the options those count
// that are not about how it is made.
func Over(nc *nats.Conn, o Options) *Conn {
	c := newConn(o)
	c.nc, c.state.Connected, c.state.Server = nc, true, nc.ConnectedServerName()
	return c
}

func newConn(o Options) *Conn {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Poll <= 0 {
		o.Poll = pollEvery
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Conn{o: o, log: o.Logger.With(slog.String("account", o.Account)), streams: make(map[string]*Stream)}
	c.state.Since = time.Now()
	c.link, c.sever = context.WithCancelCause(context.Background()) //nolint:forbidigo // the connection's own
	return c
}

// Dial makes the connection; it does not wait for it. An error is one of the options.
func Dial(o Options) (*Conn, error) {
	c := newConn(o)
	login, err := o.Credentials.options()
	if err != nil {
		return nil, c.fail("", "logging in", err)
	}
	if c.nc, err = nats.Connect(strings.Join(o.URLs, ","), append(c.options(), login...)...); err != nil {
		return nil, c.fail("", "connecting", err)
	}
	return c, nil
}

// Through connects with the same login to another address, once: that of the gateway itself, whose certificate is not
// verified. Whoever asks closes it.
func (c *Conn) Through(at string) (*nats.Conn, error) {
	login, err := c.o.Credentials.options()
	if err != nil {
		return nil, c.fail("", "logging in", err)
	}
	unverified := func(o *nats.Options) error {
		o.TLSConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // it is this process
		return nil
	}
	opts := []nats.Option{
		nats.Name("ehdb-gateway " + c.o.ServerName + " overhead"), nats.NoReconnect(), nats.Timeout(c.o.Timeout),
		unverified,
	}
	nc, err := nats.Connect(at, append(opts, login...)...)
	if err != nil {
		return nil, c.fail("", "connecting", err)
	}
	return nc, nil
}

func (c *Conn) options() []nats.Option {
	out := []nats.Option{
		nats.Name("ehdb-gateway " + c.o.ServerName),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.RetryOnFailedConnect(true),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1), // what cannot be sent now is an error now
		nats.PingInterval(pingEvery),
		nats.Timeout(c.o.Timeout),
		nats.ConnectHandler(func(nc *nats.Conn) { c.connected(nc, 0) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { c.connected(nc, 1) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.disconnected(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.note(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			c.note(err)
			c.log.Warn("The NATS servers report an error", slog.Any("error", err))
		}),
	}
	if c.o.Dialer != nil {
		out = append(out, nats.SetCustomDialer(c.o.Dialer))
	}
	if c.o.TLS != nil {
		out = append(out, nats.Secure(c.o.TLS))
	}
	if c.o.HandshakeFirst {
		out = append(out, nats.TLSHandshakeFirst())
	}
	return out
}

func (c *Conn) connected(nc *nats.Conn, again uint64) {
	c.mu.Lock()
	c.state = Status{
		Connected: true, Server: nc.ConnectedUrlRedacted(), Since: time.Now(), Reconnects: c.state.Reconnects + again,
	}
	c.mu.Unlock()
	c.log.Info("Connected to the NATS servers", slog.String("server", nc.ConnectedUrlRedacted()))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		s.Nudge(0) // what came meanwhile was not told
	}
}

func (c *Conn) disconnected(err error) {
	c.mu.Lock()
	c.state.Connected, c.state.Since = false, time.Now()
	if err != nil {
		c.state.Err = err
	}
	c.sever(nats.ErrDisconnected)
	c.link, c.sever = context.WithCancelCause(context.Background()) //nolint:forbidigo // the connection's own
	c.mu.Unlock()
	if err == nil {
		return // Close has ended it
	}
	c.log.Warn("The connection to the NATS servers is interrupted", slog.Any("error", err))
}

// note keeps an error for those who ask why something does not work.
func (c *Conn) note(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	c.state.Err = err
	c.mu.Unlock()
}

// Status returns what is known of the connection.
func (c *Conn) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// linked returns what ends when the connection is interrupted, Done then.
func (c *Conn) linked() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link
}

// Account returns the account's name.
func (c *Conn) Account() string { return c.o.Account }

// NATS returns the client's connection.
func (c *Conn) NATS() *nats.Conn { return c.nc }

// Close ends the connection.
func (c *Conn) Close() {
	c.nc.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sever(nats.ErrConnectionClosed)
}

// Error is a call that failed.
type Error struct {
	Server, Account, Stream string // Stream may be empty
	Op                      string
	Err                     error
}

func (e *Error) Error() string {
	where := "account " + e.Account
	if e.Stream != "" {
		where = "stream " + e.Account + "/" + e.Stream
	}
	return fmt.Sprintf("%s on NATS server %s: %s: %v", where, cmp.Or(e.Server, "(none connected)"), e.Op, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// fail adds to an error what it was about.
func (c *Conn) fail(stream, op string, err error) error {
	if err == nil {
		return nil
	}
	st := c.Status()
	if silent(err) && st.Err != nil {
		err = fmt.Errorf("%w (last trouble with the servers: %w)", err, st.Err)
	}
	return &Error{Server: st.Server, Account: c.o.Account, Stream: stream, Op: op, Err: err}
}

// silent reports whether an error says no more than that there was no answer.
func silent(err error) bool {
	return errors.Is(err, errTimeout) || errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrNoResponders)
}

package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Options configure a Server.
type Options struct {
	// Server is the configuration as nats-server's flags and files yield it. It is not changed.
	Server *server.Options
	// Bus carries the messages.
	Bus bus.Bus
	// Upstream, if not nil, leads to the servers that serve the clients in this one's place: what they send and
	// are sent passes, and nothing is decided here, logins included. Without a Director, Bus is not used then.
	Upstream Upstream
	// Director, if not nil, has a say in what passes to and from Upstream. What it keeps here goes over Bus.
	Director Director
	// Memory, if not nil, remembers the logins that Upstream has accepted. While no server upstream can be reached,
	// their clients are served over Bus what Director has the say about.
	Memory *auth.Memory
	// Logger takes the log; nil discards it.
	Logger *slog.Logger
	// Auth decides about logins; nil: by what Server says about users and tokens.
	Auth auth.Authenticator
	// Accounts are those of operator mode; nil: as Server says, if it names operators.
	Accounts *auth.Accounts
	// Observer is told what happens to connections; may be nil.
	Observer Observer
	// Limits are what accounts grant their connections beyond what Server says, by name.
	Limits map[string]auth.Limits
	// JetStream is what INFO says about it.
	JetStream bool
	// Version is the version of INFO, which clients compare with nats-server's; empty: that of the nats-server
	// whose behaviour this is.
	Version string
	// GitCommit is shown in INFO; may be empty.
	GitCommit string

	// Identity is the server as events name it; nil: not at all. It is called when there is an event.
	Identity func() server.ServerInfo

	// TopTalkers is how many accounts, users and subjects Talkers tells about; 0: none.
	TopTalkers int
	// TopSubjectTokens is of how many tokens of a subject Talkers tells.
	TopSubjectTokens int

	webAuth auth.Authenticator // Auth of WebSocket clients
	host    *auth.Host         // who asks authorization services
}

// defaultStallLimit bounds how long a connection's reads pause for a queue that is full. Sinks end most pauses sooner.
const defaultStallLimit = 10 * time.Second

// defaultHandshakeTimeout bounds the TLS handshake and the HTTP request of a WebSocket client.
const defaultHandshakeTimeout = 2 * time.Second

// settle fills in the defaults of nats-server and refuses what cannot be.
func (o *Options) settle() error {
	if o.Server == nil || o.Bus == nil {
		return errors.New("gateway: Options need Server and Bus")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Version == "" {
		o.Version = server.VERSION
	}
	s := o.Server.Clone()
	settleServer(s)
	o.Server = s
	if int64(s.MaxPayload) > s.MaxPending {
		return fmt.Errorf("max_payload (%d) cannot be higher than max_pending (%d)", s.MaxPayload, s.MaxPending)
	}
	if s.LameDuckGracePeriod >= s.LameDuckDuration {
		return fmt.Errorf("lame duck grace period (%v) should be strictly lower than lame duck duration (%v)",
			s.LameDuckGracePeriod, s.LameDuckDuration)
	}
	if err := checkWebsocket(s, o.Upstream != nil); err != nil {
		return err
	}
	err := o.settleAuth()
	if o.webAuth = o.Auth; err == nil && o.Upstream == nil {
		o.webAuth, err = newWebsocketAuth(s, o.Auth)
	}
	return err
}

// settleAuth fills in who decides about logins.
func (o *Options) settleAuth() (err error) {
	if o.Auth != nil {
		return nil
	}
	if o.Upstream != nil {
		o.Auth, err = auth.NewConfigured(&server.Options{})
		return err
	}
	if o.Accounts == nil {
		if o.Accounts, err = auth.NewAccounts(o.Server, o.Server.AccountResolver, nil); err != nil {
			return err
		}
	}
	host := o.calloutHost()
	switch {
	case o.Accounts != nil:
		o.Auth = auth.NewOperator(o.Accounts, host)
	case o.Server.AuthCallout != nil:
		o.Auth, err = auth.NewConfiguredCallout(o.Server, host)
	default:
		o.Auth, err = auth.NewConfigured(o.Server)
	}
	return err
}

func settleServer(s *server.Options) {
	orDefault(&s.Host, server.DEFAULT_HOST)
	orDefault(&s.Port, server.DEFAULT_PORT)
	orDefault(&s.MaxConn, server.DEFAULT_MAX_CONNECTIONS)
	orDefault(&s.PingInterval, server.DEFAULT_PING_INTERVAL)
	orDefault(&s.MaxPingsOut, server.DEFAULT_PING_MAX_OUT)
	orDefault(&s.AuthTimeout, server.AUTH_TIMEOUT.Seconds())
	orDefault(&s.TLSTimeout, float64(server.TLS_TIMEOUT)/float64(time.Second))
	orDefault(&s.MaxControlLine, server.MAX_CONTROL_LINE_SIZE)
	orDefault(&s.MaxPayload, server.MAX_PAYLOAD_SIZE)
	orDefault(&s.MaxPending, server.MAX_PENDING_SIZE)
	orDefault(&s.WriteDeadline, server.DEFAULT_FLUSH_DEADLINE)
	orDefault(&s.MaxClosedClients, server.DEFAULT_MAX_CLOSED_CLIENTS)
	orDefault(&s.LameDuckDuration, server.DEFAULT_LAME_DUCK_DURATION)
	orDefault(&s.LameDuckGracePeriod, server.DEFAULT_LAME_DUCK_GRACE_PERIOD)
	orDefault(&s.Websocket.Host, server.DEFAULT_HOST)
	orDefault(&s.Websocket.HandshakeTimeout, defaultHandshakeTimeout)
}

func orDefault[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

package visit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/origin"
	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/gateway/feed"
)

// Options of a visit.
type Options struct {
	// Dial returns a connection to the gateway on behalf of a client at that address.
	Dial   func(from net.Addr) (net.Conn, error)
	Logger *slog.Logger
}

const (
	patience = 5 * time.Second // for a login and for an answer: a fence holds them for a second and a half
	askTime  = 2 * time.Second // for what is not about a stream: who may not ask gets no answer
	poll     = time.Second     // what arrives rings a bell, so it is rarely waited for
)

// Visit is a client's connection. It implements feed.Visitor.
type Visit struct {
	o    Options
	nc   *nats.Conn
	conn *origin.Conn
	ctx  context.Context //nolint:containedctx // ends with the visit
	end  context.CancelFunc
	gone chan struct{}

	mu     sync.Mutex
	login  *auth.Login
	reader *reader // nil before Open
}

var _ feed.Visitor = (*Visit)(nil)

// Enter logs a client in.
func Enter(ctx context.Context, o Options, c *auth.Credentials) (feed.Visitor, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	v := &Visit{o: o, gone: make(chan struct{})}
	v.ctx, v.end = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	if v.nc, err = nats.Connect("nats://127.0.0.1", v.options(c)...); err != nil {
		v.end()
		return nil, refusal(err)
	}
	if v.login, err = v.ask(); err != nil {
		v.Close()
		return nil, err
	}
	v.conn = origin.Over(v.nc, origin.Options{
		Account: v.login.Account, Timeout: patience, Poll: poll, Logger: o.Logger,
	})
	return v, nil
}

// dialer connects within the process.
type dialer func() (net.Conn, error)

func (d dialer) Dial(string, string) (net.Conn, error) { return d() }

func (v *Visit) options(c *auth.Credentials) []nats.Option {
	from := &net.TCPAddr{IP: net.ParseIP(c.Host)}
	out := []nats.Option{
		nats.SetCustomDialer(dialer(func() (net.Conn, error) { return v.o.Dial(from) })),
		nats.Name("feed of " + c.Host), nats.NoReconnect(), nats.Timeout(patience),
		nats.ClosedHandler(func(*nats.Conn) { close(v.gone) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			v.o.Logger.Debug("The servers report an error to a feed", slog.Any("error", err))
		}),
	}
	switch {
	case c.JWT != "": // of a user with bearer_token, whose signature nobody asks for
		return append(out, nats.UserJWT(func() (string, error) { return c.JWT, nil },
			func([]byte) ([]byte, error) { return nil, nil }))
	case c.Token != "":
		return append(out, nats.Token(c.Token))
	case c.User != "":
		return append(out, nats.UserInfo(c.User, c.Password))
	}
	return out
}

// refusal is why nobody was let in.
func refusal(err error) error {
	for _, login := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
	} {
		if errors.Is(err, login) {
			return fmt.Errorf("%w: %w", feed.ErrLogin, err)
		}
	}
	return fmt.Errorf("the NATS servers can't be asked now: %w", err)
}

const userInfo = "$SYS.REQ.USER.INFO"

// ask asks the servers who the client is and what it may do.
func (v *Visit) ask() (*auth.Login, error) {
	m, err := v.nc.Request(userInfo, nil, askTime)
	switch {
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrPermissionViolation):
		return nil, fmt.Errorf("%w: the servers do not tell what the login may do: it has to be permitted to publish "+
			"to %s and to subscribe to _INBOX.>", feed.ErrForbidden, userInfo)
	case err != nil:
		return nil, v.lost(err)
	}
	var doc struct {
		Data  server.UserInfo  `json:"data"`
		Error *server.ApiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &doc); err != nil {
		return nil, fmt.Errorf("the answer to %s is none: %w", userInfo, err)
	}
	if doc.Error != nil {
		return nil, doc.Error
	}
	perms, err := auth.NewPermissions(doc.Data.Permissions)
	if err != nil {
		return nil, err
	}
	return &auth.Login{Account: doc.Data.Account, User: doc.Data.UserID, Permissions: perms}, nil
}

// lost is an error of the connection. What the servers said last is the reason.
func (v *Visit) lost(err error) error {
	if last := v.nc.LastError(); last != nil && !v.nc.IsConnected() {
		if why := refusal(last); errors.Is(why, feed.ErrLogin) {
			return why
		}
		err = last
	}
	return fmt.Errorf("%w: %w", feed.ErrLost, err)
}

// Login implements feed.Visitor.
func (v *Visit) Login() *auth.Login {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.login
}

// Gone implements feed.Visitor.
func (v *Visit) Gone() <-chan struct{} { return v.gone }

var errClosed = errors.New("it was closed")

// Renew implements feed.Visitor.
func (v *Visit) Renew() (*auth.Login, error) {
	select {
	case <-v.gone:
		return nil, v.lost(errClosed)
	default:
	}
	login, err := v.ask()
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	v.login = login
	r := v.reader
	v.mu.Unlock()
	if r == nil {
		return login, nil
	}
	return login, r.check(v.ctx)
}

// Close implements feed.Visitor.
func (v *Visit) Close() {
	v.end()
	v.nc.Close()
	v.mu.Lock()
	r := v.reader
	v.mu.Unlock()
	if r != nil {
		r.Close()
	}
}

// Ready implements feed.Source.
func (*Visit) Ready() error { return nil }

// Subjects implements feed.Source.
func (v *Visit) Subjects(_, stream string) ([]string, error) {
	if err := v.permitted(stream); err != nil {
		return nil, err
	}
	info, err := v.conn.Stream(stream).Info(v.ctx)
	if err != nil {
		return nil, v.problem(err)
	}
	if cfg := &info.Config; cfg.Mirror != nil || len(cfg.Sources) > 0 || cfg.SubjectTransform != nil {
		return nil, nil
	}
	return info.Config.Subjects, nil
}

// permitted refuses to ask what would get no answer.
func (v *Visit) permitted(stream string) error {
	for _, request := range []string{"STREAM.INFO.", "STREAM.MSG.GET."} {
		if subject := "$JS.API." + request + stream; !v.Login().Permissions.MayPublish(subject) {
			return fmt.Errorf("%w: the stream is read by requests to %s, and the login may not publish there",
				feed.ErrForbidden, subject)
		}
	}
	return nil
}

// problem makes an error one that feeds understand.
func (v *Visit) problem(err error) error {
	var api *server.ApiError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cutover.ErrNoStream), errors.Is(err, nats.ErrNoResponders),
		errors.As(err, &api) && api.ErrCode == uint16(server.JSNotEnabledForAccountErr):
		return fmt.Errorf("%w: %w", feed.ErrUnknown, err)
	case v.nc.IsClosed():
		return v.lost(err)
	}
	return err
}

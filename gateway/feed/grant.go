package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/subjects"
)

// grant is what a client was let in with.
type grant struct {
	by      auth.Authenticator // nil: others have let it in
	visitor Visitor            // nil: this server has
	source  Source
	login   *auth.Login
	filters []string // what the login must permit
	whole   bool     // the client gave no filters, and gets whatever the stream holds
	narrow  bool     // the login permits the filters, but perhaps not all that comes
}

var (
	errLogin = errors.New("login refused: give the user and password (Basic), the token, or the JWT of a user with " +
		"bearer_token (Bearer) that a NATS client of the account would log in with")
	errMoved = errors.New("the user is in another account now")
)

// admit checks the login of a request.
func (s *Server) admit(ctx context.Context, q *request) (*grant, error) {
	g, err := s.enter(ctx, &q.login)
	switch {
	case errors.Is(err, ErrLogin): // why, is for the log: it would help who guesses
		if s.refusals.Allow() {
			s.o.Logger.Info("A login to a feed was refused: {error}", slog.String("account", shortened(q.account)),
				slog.String("client", q.login.Host), slog.Any("error", err))
		}
		return nil, &refusal{http.StatusUnauthorized, refusedLogin, errLogin}
	case err != nil:
		return nil, err
	case g.login.Account != q.account:
		g.end()
		return nil, &refusal{
			http.StatusForbidden, refusedPermission, fmt.Errorf("the login is not one of account %q", q.account),
		}
	}
	return g, nil
}

// The bounds of what strangers can make the log say; the counts have all of them.
const (
	refusalsPerSecond = 10
	refusalsAtOnce    = 20
	maxQuoted         = 255 // bytes of what a client sent
)

func shortened(text string) string {
	if len(text) > maxQuoted {
		return text[:maxQuoted] + "…"
	}
	return text
}

// enter lets a client in, by whoever decides about that.
func (s *Server) enter(ctx context.Context, c *auth.Credentials) (*grant, error) {
	if s.o.Visit != nil {
		v, err := s.o.Visit(ctx, c)
		if err != nil {
			return nil, err
		}
		return &grant{visitor: v, source: v, login: v.Login()}, nil
	}
	by := s.o.Auth()
	login, err := by.Authenticate(c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLogin, err)
	}
	return &grant{by: by, source: s.o.Source, login: login}, nil
}

// end lets the client go.
func (g *grant) end() {
	if g.visitor != nil {
		g.visitor.Close()
	}
}

// gone is closed when others have put the client out.
func (g *grant) gone() <-chan struct{} {
	if g.visitor == nil {
		return nil
	}
	return g.visitor.Gone()
}

// check refuses filters that are not permitted, or that no subject of the stream can match. Without filters the feed
// has all that the stream takes.
func (g *grant) check(q *request) error {
	takes, err := g.source.Subjects(q.account, q.stream)
	if err != nil {
		return err
	}
	for _, f := range q.from.Filters {
		overlaps := func(s string) bool { return subjects.Overlap(s, f) }
		if len(takes) > 0 && !slices.ContainsFunc(takes, overlaps) {
			return &refusal{http.StatusBadRequest, refusedRequest, fmt.Errorf(
				"filter %q matches no subject that stream %q takes", f, q.stream)}
		}
	}
	g.filters, g.whole = q.from.Filters, len(q.from.Filters) == 0
	if g.whole {
		g.filters = takes
	}
	if len(g.filters) == 0 {
		g.filters = []string{">"}
	}
	return g.permits()
}

// permits refuses what the login may not subscribe to.
func (g *grant) permits() error {
	p := g.login.Permissions
	g.narrow = g.whole && p != nil // a stream may hold subjects that it does not take any more, or comes to take others
	for _, f := range g.filters {
		if !p.MaySubscribe(f, "") {
			return &refusal{http.StatusForbidden, refusedPermission, fmt.Errorf(
				"the login may not subscribe to %q: give filters that it may subscribe to", f)}
		}
		g.narrow = g.narrow || p.NeedsFilter(f, "")
	}
	return nil
}

// mayReceive reports whether a message that matches is permitted.
func (g *grant) mayReceive(subject []byte) bool {
	if !g.narrow {
		return true
	}
	s := string(subject)
	return g.login.Permissions.MayReceive(s, s, "")
}

// renew checks a login again, if what it was checked against may have changed. (JWTs are cheap to check and can be
// revoked at any time; passwords are not, and change with the configuration.)
func (g *grant) renew(auths func() auth.Authenticator, c *auth.Credentials) error {
	login, err := g.again(auths, c)
	switch {
	case err != nil || login == g.login:
		return err
	case login.Account != g.login.Account:
		return errMoved
	}
	g.login = login
	return g.permits()
}

// again returns who the client is now.
func (g *grant) again(auths func() auth.Authenticator, c *auth.Credentials) (*auth.Login, error) {
	if g.visitor != nil {
		return g.visitor.Renew()
	}
	now := auths()
	if now == g.by && c.JWT == "" {
		return g.login, nil
	}
	login, err := now.Renew(c, g.login)
	if err == nil {
		g.by = now
	}
	return login, err
}

// expires returns when the login ends; zero: never.
func (g *grant) expires() time.Time {
	end, account := g.login.Deadline, g.login.AccountDeadline
	if end.IsZero() || (!account.IsZero() && account.Before(end)) {
		end = account
	}
	return end
}

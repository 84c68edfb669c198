package feed

import (
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
	by      auth.Authenticator
	login   *auth.Login
	filters []string // what the login must permit
	narrow  bool     // it permits the filters, but perhaps not all that they match
}

var (
	errLogin = errors.New("login refused: give the user and password (Basic), the token, or the JWT of a user with " +
		"bearer_token (Bearer) that a NATS client of the account would log in with")
	errMoved = errors.New("the user is in another account now")
)

// admit checks the login of a request.
func (s *Server) admit(q *request) (*grant, error) {
	by := s.o.Auth()
	login, err := by.Authenticate(&q.login)
	if err != nil { // why, is for the log: it would help who guesses
		s.o.Logger.Info("A login to a feed was refused: {error}", slog.String("account", q.account),
			slog.String("client", q.login.Host), slog.Any("error", err))
		return nil, &refusal{http.StatusUnauthorized, refusedLogin, errLogin}
	}
	if login.Account != q.account {
		return nil, &refusal{
			http.StatusForbidden, refusedPermission, fmt.Errorf("the login is not one of account %q", q.account),
		}
	}
	return &grant{by: by, login: login}, nil
}

// check refuses filters that are not permitted, or that no subject of the stream can match. Without filters the feed
// has all that the stream takes.
func (g *grant) check(source Source, q *request) error {
	takes, err := source.Subjects(q.account, q.stream)
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
	g.filters = q.from.Filters
	if len(g.filters) == 0 {
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
	g.narrow = false
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
func (g *grant) renew(now auth.Authenticator, c *auth.Credentials) error {
	if now == g.by && c.JWT == "" {
		return nil
	}
	login, err := now.Renew(c, g.login)
	if err != nil {
		return err
	}
	if login.Account != g.login.Account {
		return errMoved
	}
	g.by, g.login = now, login
	return g.permits()
}

// expires returns when the login ends; zero: never.
func (g *grant) expires() time.Time {
	end, account := g.login.Deadline, g.login.AccountDeadline
	if end.IsZero() || (!account.IsZero() && account.Before(end)) {
		end = account
	}
	return end
}

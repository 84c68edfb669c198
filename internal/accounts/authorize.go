package accounts

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/noetl/ehdb-gateway/subjects"
)

// Reasons why an import brings nothing.
var (
	ErrUnknown      = errors.New("the account is not known")
	ErrNoExport     = errors.New("the account does not export this")
	ErrNotApproved  = errors.New("the export is not for this account")
	ErrNoActivation = errors.New("the export needs an activation, and there is none that is valid")
	ErrRevoked      = errors.New("the activation was revoked")
)

// export finds the export that im is served by: that of the very subject, else one that covers it.
func (a *Account) export(im *Import) *Export {
	var found *Export
	for i := range a.Exports {
		e := &a.Exports[i]
		if e.Service != im.Service {
			continue
		}
		if e.Subject == im.Subject {
			return e
		}
		if found == nil && subjects.SubsetOf(pattern(im.Subject), e.Subject) {
			found = e
		}
	}
	return found
}

// authorize returns the export that serves im for the account by, and when that ends (zero: never).
func (a *Account) authorize(by *Account, im *Import, now time.Time) (*Export, time.Time, error) {
	e := a.export(im)
	var never time.Time
	switch {
	case e == nil:
		return nil, never, ErrNoExport
	case e.TokenPosition > 0:
		if subjects.Token(im.Subject, e.TokenPosition-1) != by.Name {
			return nil, never, ErrNotApproved
		}
	case e.TokenRequired:
		until, err := a.activated(by, im, e, now)
		return e, until, err
	case len(e.Approved) > 0 && !slices.Contains(e.Approved, by.Name):
		return nil, never, ErrNotApproved
	}
	return e, never, nil
}

// activated checks the activation of im and returns when it ends.
func (a *Account) activated(by *Account, im *Import, e *Export, now time.Time) (until time.Time, err error) {
	if im.Token == "" {
		return until, ErrNoActivation
	}
	act, err := jwt.DecodeActivationClaims(im.Token) // checks the signature
	if err != nil {
		return until, ErrNoActivation
	}
	vr := jwt.CreateValidationResults()
	act.Validate(vr)
	switch {
	case vr.IsBlocking(true),
		act.Subject != by.Name && act.Subject != "public",
		act.IssuerAccount == "" && act.Issuer != a.Name,
		act.IssuerAccount != "" && (act.IssuerAccount != a.Name || !slices.Contains(a.SigningKeys, act.Issuer)),
		(act.ImportType == jwt.Service) != im.Service,
		!subjects.SubsetOf(pattern(im.Subject), string(act.ImportSubject)),
		act.Expires != 0 && act.Expires <= now.Unix():
		return until, ErrNoActivation
	}
	for _, who := range []string{act.Subject, jwt.All} {
		if t, ok := e.Revoked[who]; ok && t >= act.IssuedAt {
			return until, ErrRevoked
		}
	}
	if act.Expires != 0 {
		until = time.Unix(act.Expires, 0)
	}
	return until, nil
}

// pattern is subject with * for every placeholder.
func pattern(subject string) string {
	plain, _ := placeholders(subject)
	return plain
}

// placeholders replaces $1 and {{wildcard(1)}} by * and returns which wildcard each * of the result is, from 1. A *
// that was one already counts in its order.
func placeholders(subject string) (plain string, order []int) {
	tokens := strings.Split(subject, ".")
	for i, t := range tokens {
		n, ok := placeholder(t)
		switch {
		case ok:
			tokens[i] = "*"
		case t == "*":
			n = len(order) + 1
		default:
			continue
		}
		order = append(order, n)
	}
	return strings.Join(tokens, "."), order
}

package auth

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
)

// applyScope checks that one of the account's keys signed for the user. What a scoped key signs for is what its
// template says, whatever the user's own claims say.
func (a *Account) applyScope(user *jwt.UserClaims) error {
	if a.Gone {
		return ErrAccount
	}
	if user.Issuer == a.Name() {
		return nil
	}
	scope, ok := a.Claims.SigningKeys.GetScope(user.Issuer)
	if !ok {
		return ErrIssuer
	}
	if scope == nil {
		return nil
	}
	if err := scope.ValidateScopedSigner(user); err != nil {
		return ErrJWT
	}
	limited, ok := scope.(*jwt.UserScope)
	if !ok {
		return ErrJWT
	}
	t := template{user: user, account: a.Claims}
	limits, err := t.expand(limited.Template)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPermission, err)
	}
	user.UserPermissionLimits = limits
	return nil
}

// maxExpansions bounds the subjects that the templates of one list become.
const maxExpansions = 4096

// placeholder is {{ operation }} in a subject.
var placeholder = regexp.MustCompile(`{{2}([^}]+)}{2}`)

// template fills in the permissions of a scoped key for a user.
type template struct {
	user    *jwt.UserClaims
	account *jwt.AccountClaims
}

// expand returns limits with every placeholder replaced. A list of allowed subjects that comes out empty allows
// nothing.
func (t *template) expand(limits jwt.UserPermissionLimits) (jwt.UserPermissionLimits, error) {
	for _, p := range []*jwt.Permission{&limits.Sub, &limits.Pub} {
		restricted := len(p.Allow) > 0
		allow, err := t.list(p.Allow, false)
		if err != nil {
			return limits, err
		}
		deny, err := t.list(p.Deny, true)
		if err != nil {
			return limits, err
		}
		if restricted && len(allow) == 0 {
			deny = append(deny, ">")
		}
		p.Allow, p.Deny = allow, deny
	}
	return limits, nil
}

// list replaces the placeholders in subjects. One that comes out invalid is left out, or an error if strict: to leave
// out a denied subject would permit it.
func (t *template) list(subjects []string, strict bool) (jwt.StringList, error) {
	var out jwt.StringList
	for _, s := range subjects {
		if !placeholder.MatchString(s) {
			out = append(out, s)
			continue
		}
		filled, err := t.subject(s)
		switch {
		case err != nil:
			return nil, err
		case strict && len(filled) == 0:
			return nil, fmt.Errorf("template %q: a tag has no value", s)
		}
		for _, f := range filled {
			switch {
			case server.IsValidSubject(f):
				out = append(out, f)
			case strict:
				return nil, fmt.Errorf("template %q makes the invalid subject %q", s, f)
			}
		}
		if len(out) > maxExpansions {
			return nil, fmt.Errorf("templates expand to more than %d subjects", maxExpansions)
		}
	}
	return out, nil
}

// subject returns what a subject becomes: with tags that have several values, every combination; with one that has
// none, nothing.
func (t *template) subject(s string) ([]string, error) {
	out := []string{s}
	found := placeholder.FindAllString(s, -1)
	slices.Sort(found)
	for _, found := range slices.Compact(found) { // the same tag twice stands for the same value
		values, err := t.values(strings.TrimSpace(strings.Trim(found, "{}")))
		if err != nil {
			return nil, fmt.Errorf("template %q: %w", s, err)
		}
		if len(out)*len(values) > maxExpansions {
			return nil, fmt.Errorf("template %q expands to more than %d subjects", s, maxExpansions)
		}
		next := make([]string, 0, len(out)*len(values))
		for _, o := range out {
			for _, v := range values {
				next = append(next, strings.ReplaceAll(o, found, v))
			}
		}
		out = next
	}
	return out, nil
}

// values returns what an operation of a template stands for.
func (t *template) values(op string) ([]string, error) {
	switch strings.ToLower(op) {
	case "name()":
		return []string{t.user.Name}, nil
	case "subject()":
		return []string{t.user.Subject}, nil
	case "account-name()":
		return []string{t.account.Name}, nil
	case "account-subject()":
		return []string{t.user.IssuerAccount}, nil
	}
	low := strings.ToLower(op)
	if rest, ok := strings.CutSuffix(low, ")"); ok {
		if name, ok := strings.CutPrefix(rest, "tag("); ok {
			return tagged(t.user.Tags, name), nil
		}
		if name, ok := strings.CutPrefix(rest, "account-tag("); ok {
			return tagged(t.account.Tags, name), nil
		}
	}
	return nil, fmt.Errorf("operation %q is not defined", op)
}

// tagged returns the values of the tags name:value.
func tagged(tags jwt.TagList, name string) []string {
	var out []string
	for _, tag := range tags {
		if value, ok := strings.CutPrefix(tag, name+":"); ok {
			out = append(out, value)
		}
	}
	return out
}

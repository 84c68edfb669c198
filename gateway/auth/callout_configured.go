package auth

import (
	"fmt"
	"slices"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
)

// ConfiguredCallout authenticates as Configured does and then asks the authorization service of auth_callout about
// everybody who is not one of its own users.
type ConfiguredCallout struct {
	*Configured
	host     *Host
	config   server.AuthCallout
	accounts map[string]bool // that users can be put into
}

// NewConfiguredCallout returns the authenticator for what o says of auth_callout.
func NewConfiguredCallout(o *server.Options, host *Host) (*ConfiguredCallout, error) {
	inner, err := NewConfigured(o)
	if err != nil {
		return nil, err
	}
	a := &ConfiguredCallout{
		Configured: inner, host: host, config: *o.AuthCallout,
		accounts: map[string]bool{GlobalAccount: true, inner.system: inner.system != ""},
	}
	if a.config.Account == "" {
		a.config.Account = GlobalAccount
	}
	for _, acc := range o.Accounts {
		a.accounts[acc.Name] = true
	}
	if !a.accounts[a.config.Account] {
		return nil, fmt.Errorf("auth_callout: account %q is not configured", a.config.Account)
	}
	return a, nil
}

// Anonymous implements Authenticator. Nobody is somebody without a callout.
func (a *ConfiguredCallout) Anonymous(connectionType string) *Login {
	login := a.Configured.Anonymous(connectionType)
	if login == nil || !a.delegates(login.Account) {
		return login
	}
	return nil
}

// Authenticate implements Authenticator.
func (a *ConfiguredCallout) Authenticate(c *Credentials) (*Login, error) {
	proxied, err := a.proxies.check(c)
	if err != nil {
		return nil, err
	}
	login, refused := a.Configured.Authenticate(c)
	account := GlobalAccount
	if refused == nil {
		account = login.Account
	}
	if !a.delegates(account) || slices.Contains(a.config.AuthUsers, a.named(c)) {
		if refused != nil {
			return nil, refused
		}
		return login.guarded(a.config.Account), nil
	}
	return a.called(c, proxied)
}

// delegates reports whether the service decides about users of account. Those who are nobody are in $G, and it does.
func (a *ConfiguredCallout) delegates(account string) bool {
	list := a.config.AllowedAccounts
	return account == GlobalAccount || len(list) == 0 || slices.Contains(list, account)
}

// named returns the configured user whom c names, whether it proves to be that or not; empty: none.
func (a *ConfiguredCallout) named(c *Credentials) string {
	switch {
	case c.Nkey != "" && a.nkeys[c.Nkey] != nil:
		return c.Nkey
	case a.maps(c.Type) && len(a.users) > 0:
		name, err := a.nameIn(c)
		if err != nil {
			return ""
		}
		return name
	case c.User != "" && (a.users[c.User] != nil || (a.token == "" && c.User == a.user)):
		return c.User
	}
	return ""
}

// called lets the service decide.
func (a *ConfiguredCallout) called(c *Credentials, proxied bool) (*Login, error) {
	request := callout{
		host: a.host, account: a.config.Account, subject: a.config.Issuer, xkey: a.config.XKey,
		issuer: func(r *jwt.AuthorizationResponseClaims) error {
			if r.Issuer != a.config.Issuer {
				return errSigner
			}
			return nil
		},
	}
	user, err := request.ask(c, nil)
	if err != nil {
		return nil, err
	}
	switch {
	case user.IssuerAccount != "" || user.Issuer != a.config.Issuer:
		return nil, fmt.Errorf("%w: the user in the answer is signed by an unknown key", ErrCallout)
	case !a.accounts[user.Audience]:
		return nil, fmt.Errorf("%w: there is no account %q", ErrCallout, user.Audience)
	}
	if err := allowed(user, c, proxied); err != nil {
		return nil, err
	}
	target := &Account{Claims: jwt.NewAccountClaims(user.Audience)}
	login, err := target.login(user, a.system)
	if err != nil {
		return nil, err
	}
	return login.byCallout(user).guarded(a.config.Account), nil
}

// Renew implements Authenticator: a client that the service has let in stays, as long as its account is there.
func (a *ConfiguredCallout) Renew(c *Credentials, was *Login) (*Login, error) {
	if !was.called {
		return a.Authenticate(c)
	}
	if !a.accounts[was.Account] {
		return nil, ErrAccount
	}
	return was, nil
}

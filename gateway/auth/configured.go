package auth

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
)

// Configured authenticates against the users, the user or the token of a configuration.
type Configured struct {
	users        map[string]*configuredUser
	user, pass   string // the single user
	token        string
	system       string // name of the system account
	noAuthUser   string
	required     bool
	announced    bool
	everybody    *Login // without any authorization configured
	alwaysNonce  bool
	openToGlobal bool // only the system account has users: everybody else is in $G
}

type configuredUser struct {
	login         *Login
	password      string
	types         map[string]struct{}
	proxyRequired bool
}

// NewConfigured returns the authenticator for the users, user or token of o. It refuses what it cannot honour (NKeys,
// JWTs, callouts) and permissions that are not valid.
func NewConfigured(o *server.Options) (*Configured, error) {
	switch {
	case len(o.Nkeys) > 0:
		return nil, errors.New("authorization by nkey is not supported")
	case len(o.TrustedOperators) > 0 || len(o.TrustedKeys) > 0:
		return nil, errors.New("operator mode (JWT) is not supported")
	case o.AuthCallout != nil:
		return nil, errors.New("auth_callout is not supported")
	}
	a := &Configured{
		user: o.Username, pass: o.Password, token: o.Authorization,
		system: o.SystemAccount, noAuthUser: o.NoAuthUser, alwaysNonce: o.AlwaysEnableNonce,
		everybody: &Login{Account: GlobalAccount},
	}
	if a.system == "" && !o.NoSystemAccount {
		a.system = SystemAccount
	}
	a.required = o.Users != nil || a.user != "" || a.token != ""
	a.announced = a.required && a.noAuthUser == ""
	if err := a.addUsers(o); err != nil {
		return nil, err
	}
	if a.noAuthUser != "" && a.users[a.noAuthUser] == nil {
		return nil, fmt.Errorf("no_auth_user: %q is not a user", a.noAuthUser)
	}
	a.openToGlobal = a.system != "" && a.noAuthUser == "" && len(o.Users) > 0 && onlySystemUsers(o, a.system)
	return a, nil
}

func (a *Configured) addUsers(o *server.Options) error {
	a.users = make(map[string]*configuredUser, len(o.Users))
	for _, u := range o.Users {
		perms, err := NewPermissions(u.Permissions)
		if err != nil {
			return fmt.Errorf("permissions of user %q: %w", u.Username, err)
		}
		account := GlobalAccount
		if u.Account != nil {
			account = u.Account.Name
		}
		a.users[u.Username] = &configuredUser{
			login: &Login{
				Account: account, User: u.Username, IsSystem: account == a.system,
				Permissions: perms, Deadline: u.ConnectionDeadline,
			},
			password: u.Password, types: u.AllowedConnectionTypes, proxyRequired: u.ProxyRequired,
		}
	}
	return nil
}

// onlySystemUsers tells a configuration that adds users to the system account and says nothing about anybody else.
func onlySystemUsers(o *server.Options, system string) bool {
	if o.Username != "" || o.Authorization != "" {
		return false
	}
	for _, u := range o.Users {
		if u.Account == nil || u.Account.Name != system {
			return false
		}
	}
	for _, acc := range o.Accounts {
		if acc.Name != system && acc.Name != GlobalAccount {
			return false
		}
	}
	return true
}

// Required implements Authenticator.
func (a *Configured) Required() bool { return a.required }

// Announced implements Authenticator.
func (a *Configured) Announced() bool { return a.announced }

// NonceRequired implements Authenticator.
func (a *Configured) NonceRequired() bool { return a.alwaysNonce }

// Anonymous implements Authenticator.
func (a *Configured) Anonymous(connectionType string) *Login {
	switch u := a.users[a.noAuthUser]; {
	case !a.required, a.openToGlobal:
		return a.everybody
	case u == nil || a.noAuthUser == "" || u.proxyRequired || !u.allows(connectionType):
		return nil
	default:
		return u.login
	}
}

// Authenticate implements Authenticator.
func (a *Configured) Authenticate(c *Credentials) (*Login, error) {
	if !a.required {
		return a.everybody, nil
	}
	if len(a.users) > 0 {
		if c.User == "" && c.Password == "" && c.Token == "" {
			if l := a.Anonymous(c.Type); l != nil {
				return l, nil
			}
			return nil, ErrCredentials
		}
		if c.User != "" {
			return a.authenticateUser(c)
		}
	}
	switch {
	case a.token != "":
		if samePassword(a.token, c.Token) {
			return a.everybody, nil
		}
	case a.user != "":
		if a.user == c.User && samePassword(a.pass, c.Password) {
			return &Login{Account: GlobalAccount, User: a.user}, nil
		}
	}
	return nil, ErrCredentials
}

func (a *Configured) authenticateUser(c *Credentials) (*Login, error) {
	u := a.users[c.User]
	switch {
	case u == nil:
		return nil, ErrCredentials
	case !u.allows(c.Type):
		return nil, ErrConnectionType
	case u.proxyRequired:
		return nil, ErrProxyRequired
	case !samePassword(u.password, c.Password):
		return nil, ErrCredentials
	}
	return u.login, nil
}

func (u *configuredUser) allows(connectionType string) bool {
	if len(u.types) == 0 {
		return true
	}
	_, ok := u.types[connectionType]
	return ok
}

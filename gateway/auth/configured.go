package auth

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Configured authenticates against the users, nkeys, the user or the token of a configuration.
type Configured struct {
	users        map[string]*configuredUser // by name
	nkeys        map[string]*configuredUser // by public key
	user, pass   string                     // the single user
	token        string
	system       string // name of the system account
	noAuthUser   string
	required     bool
	everybody    *Login // without any authorization configured
	alwaysNonce  bool
	openToGlobal bool // only the system account has users: everybody else is in $G
	fromCert     bool // users are who their certificates say
	fromWebCert  bool // the same for those who come by WebSocket
	names        []distinguishedName
	proxies      proxies
	proxyNeeded  bool // by the single user and by who has the token
}

type configuredUser struct {
	login         *Login
	password      string
	types         map[string]struct{}
	proxyRequired bool
}

// NewConfigured returns the authenticator for what o says of users, nkeys and tokens. It refuses permissions that are
// not valid.
func NewConfigured(o *server.Options) (*Configured, error) {
	a := &Configured{
		user: o.Username, pass: o.Password, token: o.Authorization,
		system: o.SystemAccount, noAuthUser: o.NoAuthUser, alwaysNonce: o.AlwaysEnableNonce,
		everybody: &Login{Account: GlobalAccount}, fromCert: o.TLSMap,
		fromWebCert: o.Websocket.TLSMap, proxyNeeded: o.ProxyRequired,
	}
	if a.system == "" && !o.NoSystemAccount {
		a.system = SystemAccount
	}
	a.required = o.Users != nil || o.Nkeys != nil || a.user != "" || a.token != ""
	var err error
	if a.proxies, err = newProxies(o); err != nil {
		return nil, err
	}
	if err := a.addUsers(o); err != nil {
		return nil, err
	}
	if err := a.addNkeys(o); err != nil {
		return nil, err
	}
	if a.noAuthUser != "" && a.users[a.noAuthUser] == nil && a.nkeys[a.noAuthUser] == nil {
		return nil, fmt.Errorf("no_auth_user: %q is not a user", a.noAuthUser)
	}
	a.openToGlobal = a.system != "" && a.noAuthUser == "" && len(o.Users)+len(o.Nkeys) > 0 &&
		onlySystemUsers(o, a.system)
	return a, nil
}

func (a *Configured) addUsers(o *server.Options) error {
	a.users = make(map[string]*configuredUser, len(o.Users))
	for _, u := range o.Users {
		login, err := a.login(u.Username, u.Account, u.Permissions, u.ConnectionDeadline)
		if err != nil {
			return fmt.Errorf("permissions of user %q: %w", u.Username, err)
		}
		a.users[u.Username] = &configuredUser{
			login: login, password: u.Password, types: u.AllowedConnectionTypes, proxyRequired: u.ProxyRequired,
		}
	}
	if a.fromCert || a.fromWebCert {
		a.names = distinguishedNames(slices.Sorted(maps.Keys(a.users)))
	}
	return nil
}

func (a *Configured) addNkeys(o *server.Options) error {
	a.nkeys = make(map[string]*configuredUser, len(o.Nkeys))
	for _, u := range o.Nkeys {
		login, err := a.login(u.Nkey, u.Account, u.Permissions, time.Time{})
		if err != nil {
			return fmt.Errorf("permissions of nkey %q: %w", u.Nkey, err)
		}
		login.Nkey = u.Nkey
		a.nkeys[u.Nkey] = &configuredUser{login: login, types: u.AllowedConnectionTypes, proxyRequired: u.ProxyRequired}
	}
	return nil
}

func (a *Configured) login(
	user string, account *server.Account, permissions *server.Permissions, deadline time.Time,
) (*Login, error) {
	perms, err := NewPermissions(permissions)
	if err != nil {
		return nil, err
	}
	name := GlobalAccount
	if account != nil {
		name = account.Name
	}
	return &Login{
		Account: name, User: user, IsSystem: name == a.system, Permissions: perms, Deadline: deadline,
	}, nil
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
	for _, u := range o.Nkeys {
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
func (a *Configured) Announced() bool { return a.required && a.noAuthUser == "" }

// NonceRequired implements Authenticator.
func (a *Configured) NonceRequired() bool {
	return a.alwaysNonce || len(a.nkeys) > 0 || len(a.proxies) > 0
}

// Anonymous implements Authenticator.
func (a *Configured) Anonymous(connectionType string) *Login {
	if !a.required || a.openToGlobal {
		return a.everybody
	}
	if a.noAuthUser == "" {
		return nil
	}
	u := a.nkeys[a.noAuthUser]
	if u == nil && !a.maps(connectionType) {
		u = a.users[a.noAuthUser]
	}
	if u == nil || u.proxyRequired || !u.allows(connectionType) {
		return nil
	}
	return u.login
}

// Authenticate implements Authenticator.
func (a *Configured) Authenticate(c *Credentials) (*Login, error) {
	proxied, err := a.proxies.check(c)
	if err != nil {
		return nil, err
	}
	if !a.required {
		return a.everybody, nil
	}
	login, err := a.anybody(c, proxied)
	if err != nil {
		return nil, err
	}
	return login, nil
}

// Renew implements Authenticator.
func (a *Configured) Renew(c *Credentials, _ *Login) (*Login, error) { return a.Authenticate(c) }

// anybody finds out who offers c: an nkey before a user, and those before the single user or the token.
func (a *Configured) anybody(c *Credentials, proxied bool) (*Login, error) {
	if len(a.nkeys) > 0 && c.Nkey != "" {
		return a.byNkey(c, proxied)
	}
	nobody := c.User == "" && c.Password == "" && c.Token == "" && c.Nkey == ""
	if nobody && len(a.nkeys)+len(a.users) > 0 {
		if l := a.Anonymous(c.Type); l != nil {
			return l, nil
		}
	}
	if len(a.users) > 0 {
		if a.maps(c.Type) {
			return a.byCertificate(c, proxied)
		}
		if c.User != "" {
			return a.byName(c, proxied)
		}
	}
	return a.bySecret(c, proxied)
}

// byName accepts the user whom the client names. One without a password is known by its certificate alone.
func (a *Configured) byName(c *Credentials, proxied bool) (*Login, error) {
	u := a.users[c.User]
	if u != nil && u.password == "" && a.mapped(u) {
		return nil, ErrCertificate
	}
	return u.accept(c, proxied)
}

// maps reports whether users who come this way are who their certificates say.
func (a *Configured) maps(connectionType string) bool {
	if connectionType == TypeWebSocket {
		return a.fromWebCert
	}
	return a.fromCert
}

// mapped reports whether there is a way to come on which the user is known by certificate.
func (a *Configured) mapped(u *configuredUser) bool {
	return (a.fromCert && u.allows(TypeStandard)) || (a.fromWebCert && u.allows(TypeWebSocket))
}

// bySecret accepts who has the token, or is the single user.
func (a *Configured) bySecret(c *Credentials, proxied bool) (*Login, error) {
	switch {
	case a.token == "" && a.user == "":
	case a.proxyNeeded && !proxied:
		return nil, ErrProxyRequired
	case a.token != "":
		if samePassword(a.token, c.Token) {
			return a.everybody, nil
		}
	case a.user == c.User && samePassword(a.pass, c.Password):
		return &Login{Account: GlobalAccount, User: a.user}, nil
	}
	return nil, ErrCredentials
}

// byNkey accepts who has signed the nonce.
func (a *Configured) byNkey(c *Credentials, proxied bool) (*Login, error) {
	u := a.nkeys[c.Nkey]
	if err := u.admits(c, proxied); err != nil {
		return nil, err
	}
	if err := verifySignature(c.Nkey, c.Nonce, c.Sig); err != nil && c.Nkey != a.noAuthUser {
		return nil, err
	}
	return u.login, nil
}

// byCertificate accepts the user whom the client's certificate names.
func (a *Configured) byCertificate(c *Credentials, proxied bool) (*Login, error) {
	name, err := a.nameIn(c)
	if err != nil {
		return nil, err
	}
	return a.users[name].accept(c, proxied)
}

// accept checks what belongs to a user of that name; nil is nobody.
func (u *configuredUser) accept(c *Credentials, proxied bool) (*Login, error) {
	if err := u.admits(c, proxied); err != nil {
		return nil, err
	}
	if !samePassword(u.password, c.Password) {
		return nil, ErrCredentials
	}
	return u.login, nil
}

// admits checks what does not depend on how the user proves to be the one; nil is nobody.
func (u *configuredUser) admits(c *Credentials, proxied bool) error {
	switch {
	case u == nil:
		return ErrCredentials
	case !u.allows(c.Type):
		return ErrConnectionType
	case u.proxyRequired && !proxied:
		return ErrProxyRequired
	}
	return nil
}

func (u *configuredUser) allows(connectionType string) bool {
	if len(u.types) == 0 {
		return true
	}
	_, ok := u.types[connectionType]
	return ok
}

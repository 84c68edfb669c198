package auth

import (
	"errors"
	"time"

	"github.com/nats-io/jwt/v2"
)

// Reasons for a refusal in operator mode.
var (
	ErrNoJWT      = errors.New("a user JWT is required")
	ErrJWT        = errors.New("the user JWT is not valid")
	ErrIssuer     = errors.New("the account has no such signing key")
	ErrPinned     = errors.New("the account is not one of resolver_pinned_accounts")
	ErrBearer     = errors.New("the account does not allow bearer tokens")
	ErrRevoked    = errors.New("the user is revoked")
	ErrSource     = errors.New("the user may not come from this address")
	ErrWrongTime  = errors.New("outside of the user's connect times")
	ErrPermission = errors.New("the user's permissions are not valid")
)

// Operator authenticates by JWTs: users are signed by accounts, accounts by a trusted operator.
type Operator struct {
	accounts *Accounts
	host     *Host // who asks authorization services; nil: nobody can
}

// NewOperator returns the authenticator for users of accounts. Those of accounts with an authorization service are let
// in by that, which host asks.
func NewOperator(accounts *Accounts, host *Host) *Operator {
	return &Operator{accounts: accounts, host: host}
}

// Required implements Authenticator.
func (*Operator) Required() bool { return true }

// Announced implements Authenticator.
func (*Operator) Announced() bool { return true }

// NonceRequired implements Authenticator.
func (*Operator) NonceRequired() bool { return true }

// Anonymous implements Authenticator.
func (*Operator) Anonymous(string) *Login { return nil }

// Authenticate implements Authenticator.
func (o *Operator) Authenticate(c *Credentials) (*Login, error) {
	o.accounts.mu.Lock()
	proxies, sentinel := o.accounts.proxies, o.accounts.sentinel
	o.accounts.mu.Unlock()
	proxied, err := proxies.check(c)
	if err != nil {
		return nil, err
	}
	user, err := decodeUser(c.JWT, sentinel)
	if err != nil {
		return nil, err
	}
	acc, err := o.accountOf(user)
	if err != nil {
		return nil, err
	}
	login, err := acc.admit(user, c, proxied, o.accounts.System())
	switch {
	case err != nil || !acc.Claims.HasExternalAuthorization():
		return login, err
	case acc.isCalloutUser(user.Subject):
		return login.guarded(acc.Name()), nil
	default:
		return o.called(acc, c, login, proxied)
	}
}

// decodeUser decodes the claims of a user, which checks their signature. Without any, the sentinel stands in.
func decodeUser(token, sentinel string) (*jwt.UserClaims, error) {
	user, err := jwt.DecodeUserClaims(token)
	if err != nil && sentinel != "" {
		user, err = jwt.DecodeUserClaims(sentinel)
	}
	if err != nil {
		return nil, ErrNoJWT
	}
	if !sound(user) {
		return nil, ErrJWT
	}
	return user, nil
}

// sound reports whether a user's claims hold together and hold now.
func sound(user *jwt.UserClaims) bool {
	vr := jwt.CreateValidationResults()
	user.Validate(vr)
	return !vr.IsBlocking(true)
}

// accountOf returns the account that a user belongs to.
func (o *Operator) accountOf(user *jwt.UserClaims) (*Account, error) {
	name := user.Issuer
	if user.IssuerAccount != "" {
		name = user.IssuerAccount
	}
	o.accounts.mu.Lock()
	pinned := o.accounts.pinned == nil || o.accounts.pinned[name]
	o.accounts.mu.Unlock()
	if !pinned {
		return nil, ErrPinned
	}
	return o.accounts.Get(name)
}

// admit checks all that an account asks of one of its users.
func (a *Account) admit(user *jwt.UserClaims, c *Credentials, proxied bool, system string) (*Login, error) {
	if a.Expired(time.Now()) {
		return nil, ErrAccountExpired
	}
	if err := a.applyScope(user); err != nil {
		return nil, err
	}
	switch {
	case user.ProxyRequired && !proxied:
		return nil, ErrProxyRequired
	case user.BearerToken && a.Claims.Limits.DisallowBearer:
		return nil, ErrBearer
	case !typeAllowed(user.AllowedConnectionTypes, c.Type):
		return nil, ErrConnectionType
	}
	if !user.BearerToken {
		if err := verifySignature(user.Subject, c.Nonce, c.Sig); err != nil {
			return nil, err
		}
	}
	if a.Claims.IsClaimRevoked(user) {
		return nil, ErrRevoked
	}
	if !sourceAllowed(user.Src, c.Host) {
		return nil, ErrSource
	}
	return a.login(user, system)
}

// login makes a login of a user that was checked.
func (a *Account) login(user *jwt.UserClaims, system string) (*Login, error) {
	now := time.Now()
	deadline, ok := deadlineOf(user, now)
	if !ok {
		return nil, ErrWrongTime
	}
	perms := a.defaults
	if own := permissionsOf(&user.Permissions); own != nil {
		var err error
		if perms, err = NewPermissions(own); err != nil {
			return nil, ErrPermission
		}
	}
	limits := a.Claims.Limits
	return &Login{
		Account: a.Name(), User: user.Subject, IsSystem: a.Name() == system, Permissions: perms, Deadline: deadline,
		Nkey: user.Subject, Name: user.Name, Tags: user.Tags, Issued: user.IssuedAt, signer: signerOf(user),
		bearer:          user.BearerToken,
		AccountDeadline: unixTime(a.Claims.Expires),
		Limits: &Limits{
			MaxPayload:     tighter(user.Limits.Payload, limits.Payload),
			MaxSubs:        tighter(user.Subs, limits.Subs),
			MaxConnections: limits.Conn,
		},
	}, nil
}

// signerOf is the signing key of a user; empty if the account itself signed.
func signerOf(user *jwt.UserClaims) string {
	if user.IssuerAccount == "" {
		return ""
	}
	return user.Issuer
}

// tighter is the lower of two limits; negative is none.
func tighter(a, b int64) int64 {
	if a < 0 || (b >= 0 && b < a) {
		return b
	}
	return a
}

func unixTime(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// Renew implements Authenticator.
func (o *Operator) Renew(c *Credentials, was *Login) (*Login, error) {
	acc := o.accounts.Loaded(was.Account)
	if acc != nil && acc.Gone {
		return nil, ErrAccount
	}
	if !was.called {
		return o.Authenticate(c)
	}
	return acc.keep(was)
}

// keep is Renew for a client that an authorization service has let in: the service is not asked again.
func (a *Account) keep(was *Login) (*Login, error) {
	user := jwt.NewUserClaims(was.Nkey)
	user.IssuedAt = was.Issued
	switch {
	case a == nil:
		return nil, ErrAccount
	case a.Expired(time.Now()):
		return nil, ErrAccountExpired
	case a.Claims.IsClaimRevoked(user):
		return nil, ErrRevoked
	case was.signer != "" && was.signer != a.Name() && !a.Claims.SigningKeys.Contains(was.signer):
		return nil, ErrIssuer
	}
	out := *was
	out.AccountDeadline = unixTime(a.Claims.Expires)
	return &out, nil
}

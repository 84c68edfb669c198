package auth

import (
	"crypto/tls"
	"errors"
	"time"
)

// The accounts that exist without being configured.
const (
	GlobalAccount = "$G"
	SystemAccount = "$SYS"
)

// The connection types of allowed_connection_types.
const (
	TypeStandard  = "STANDARD"
	TypeWebSocket = "WEBSOCKET"
	TypeInProcess = "IN_PROCESS"
)

// Reasons for a refusal. Clients are told none of them; the log is.
var (
	// ErrCredentials is a wrong or missing user, password or token.
	ErrCredentials = errors.New("wrong or missing credentials")
	// ErrConnectionType is a user that may not connect this way.
	ErrConnectionType = errors.New("connection type not allowed")
	// ErrProxyRequired is a user that may only come through a trusted proxy.
	ErrProxyRequired = errors.New("proxy connection required")
	// ErrProxyNotTrusted is a proxy's signature that no trusted proxy made.
	ErrProxyNotTrusted = errors.New("proxy is not trusted")
	// ErrSignature is an answer to the nonce that the owner of the key has not given.
	ErrSignature = errors.New("the nonce is not signed by the key")
	// ErrCertificate is a client whose certificate names no user.
	ErrCertificate = errors.New("the client certificate names no user")
)

// Credentials are what a client offers in its CONNECT.
type Credentials struct {
	User, Password string
	Token          string
	Nkey, Sig, JWT string
	ProxySig       string // by the proxy before us
	Nonce          []byte // what INFO asked to be signed
	Type           string // TypeStandard and so on
	Host           string // the client's address without its port
	TLS            *tls.ConnectionState

	// What an authorization service is told besides.
	ID                  uint64 // of the connection
	Name, Lang, Version string
	Protocol            int
}

// Login is an accepted client.
type Login struct {
	Account  string
	User     string // empty: nobody in particular
	Nkey     string // public key of the user, if it was one that was proved
	IsSystem bool   // Account is the system account
	// Permissions is nil for a client that may do anything.
	Permissions *Permissions
	Deadline    time.Time // when the login ends; zero: never
	// AccountDeadline is when the account's claims expire; zero: never.
	AccountDeadline time.Time
	Limits          *Limits // nil: only the server's

	Name   string   // what the user's claims call it
	Tags   []string // of the user's claims
	Issued int64    // when the user's claims were signed, in Unix seconds; 0: it has none
	signer string   // the signing key of the account that signed for the user
	called bool     // an authorization service has let the client in
	bearer bool     // who has the claims may log in with them
}

// ProvedKey reports whether the user's claims let nobody in without the key they name, which it proved to have: then
// they are no secret.
func (l *Login) ProvedKey() bool { return l.Issued != 0 && !l.called && !l.bearer }

// IssuerKey returns the key that vouches for a user with a key of its own: the signing key that signed for it, else its
// account. Empty for other users.
func (l *Login) IssuerKey() string {
	switch {
	case l.Nkey == "":
		return ""
	case l.signer != "":
		return l.signer
	}
	return l.Account
}

// Limits are what an account or the claims of a user grant. Negative means no limit.
type Limits struct {
	MaxPayload     int64 // bytes of a message
	MaxSubs        int64 // subscriptions of the connection
	MaxConnections int64 // of the account
}

// NoLimits returns limits that limit nothing.
func NoLimits() Limits { return Limits{MaxPayload: -1, MaxSubs: -1, MaxConnections: -1} }

// Tighter returns the lower of each of two limits.
func (l Limits) Tighter(o Limits) Limits {
	return Limits{
		MaxPayload:     tighter(l.MaxPayload, o.MaxPayload),
		MaxSubs:        tighter(l.MaxSubs, o.MaxSubs),
		MaxConnections: tighter(l.MaxConnections, o.MaxConnections),
	}
}

// Authenticator decides about logins. Safe for concurrent use.
type Authenticator interface {
	// Required reports whether a client has to send a CONNECT before anything else.
	Required() bool
	// Announced reports whether the first INFO says auth_required: false too when a client without credentials is
	// somebody.
	Announced() bool
	// NonceRequired reports whether INFO carries a nonce.
	NonceRequired() bool
	// Anonymous returns the login of a client that starts without a CONNECT, nil if that is not allowed.
	Anonymous(connectionType string) *Login
	// Authenticate checks c. An error means that the client is refused; it may be logged and names no secret.
	Authenticate(c *Credentials) (*Login, error)
	// Renew is Authenticate for a client that is in already, after what it was checked against may have changed.
	Renew(c *Credentials, was *Login) (*Login, error)
}

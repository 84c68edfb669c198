package auth

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

// CalloutSubject is where an authorization service listens. Its own account has no business there.
const CalloutSubject = "$SYS.REQ.USER.AUTH"

const (
	calloutAudience = "nats-authorization-request"
	calloutXKey     = "Nats-Server-Xkey" // header that names the server's key of an encrypted request
)

// ErrCallout is a client that the authorization service has not let in.
var ErrCallout = errors.New("refused by auth callout")

// Host is the server that asks an authorization service.
type Host struct {
	Key  nkeys.KeyPair // signs requests
	XKey nkeys.KeyPair // encrypts them
	ID   jwt.ServerID
	// Call publishes a request in an account and returns the answer. It returns an error if nobody listens, and when
	// there is none in time.
	Call func(account, subject string, header, data []byte, timeout time.Duration) ([]byte, error)
	// Timeout is how long an answer may take.
	Timeout time.Duration
}

// callout is one request to an authorization service.
type callout struct {
	host    *Host
	account string // where the service listens
	subject string // of the claims of the request
	xkey    string // public key of the service; empty: nothing is encrypted
	issuer  func(*jwt.AuthorizationResponseClaims) error
}

// ask asks about a client. known is what is known about it already; it may be nil. The claims that come back are for a
// key that was made for this request, so that no answer serves twice.
func (o *callout) ask(c *Credentials, known *Login) (*jwt.UserClaims, error) {
	user, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCallout, err)
	}
	public, err := user.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCallout, err)
	}
	header, data, err := o.request(c, known, public)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCallout, err)
	}
	answer, err := o.host.Call(o.account, CalloutSubject, header, data, o.host.Timeout)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCallout, err)
	}
	claims, err := o.open(answer, public)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCallout, err)
	}
	return claims, nil
}

// request returns the header and the body of a request.
func (o *callout) request(c *Credentials, known *Login, public string) (header, data []byte, err error) {
	claims := jwt.NewAuthorizationRequestClaims(o.subject)
	if claims == nil {
		return nil, nil, errors.New("auth callout has no issuer")
	}
	claims.Audience, claims.UserNkey, claims.Server = calloutAudience, public, o.host.ID
	claims.Expires = time.Now().Add(o.host.Timeout).UTC().Unix()
	claims.ClientInformation = jwt.ClientInformation{
		Host: c.Host, ID: c.ID, User: c.claimed(known), Name: c.Name, Kind: "Client", Type: clientType(c.Type),
	}
	if known != nil {
		claims.ClientInformation.Tags, claims.ClientInformation.NameTag = known.Tags, known.Name
	}
	if c.Sig != "" {
		claims.ClientInformation.Nonce = string(c.Nonce)
	}
	claims.ConnectOptions = jwt.ConnectOptions{
		JWT: c.JWT, Nkey: c.Nkey, SignedNonce: c.Sig, Token: c.Token, Username: c.User, Password: c.Password,
		Name: c.Name, Lang: c.Lang, Version: c.Version, Protocol: c.Protocol,
	}
	if c.TLS != nil {
		claims.TLS = clientTLS(c.TLS)
	}
	if o.xkey == "" {
		token, err := claims.Encode(o.host.Key)
		return nil, []byte(token), err
	}
	if claims.Server.XKey, err = o.host.XKey.PublicKey(); err != nil {
		return nil, nil, err
	}
	token, err := claims.Encode(o.host.Key)
	if err != nil {
		return nil, nil, err
	}
	data, err = o.host.XKey.Seal([]byte(token), o.xkey)
	return fmt.Appendf(nil, "NATS/1.0\r\n%s: %s\r\n\r\n", calloutXKey, claims.Server.XKey), data, err
}

// clientType is a connection type as requests name it.
func clientType(connectionType string) string {
	if connectionType == TypeWebSocket {
		return "websocket"
	}
	return "nats"
}

// claimed is who the client says it is.
func (c *Credentials) claimed(known *Login) string {
	switch {
	case c.Nkey != "":
		return c.Nkey
	case c.User != "":
		return c.User
	case c.JWT != "" && known != nil:
		return known.Nkey
	case c.Token != "":
		return "[REDACTED]"
	}
	return ""
}

// clientTLS describes the client's side of a TLS connection.
func clientTLS(s *tls.ConnectionState) *jwt.ClientTLS {
	out := &jwt.ClientTLS{Version: tlsVersion(s.Version), Cipher: tls.CipherSuiteName(s.CipherSuite)}
	for _, chain := range s.VerifiedChains {
		var certs jwt.StringList
		for _, cert := range chain {
			certs = append(certs, pemOf(cert.Raw))
		}
		out.VerifiedChains = append(out.VerifiedChains, certs)
	}
	if len(out.VerifiedChains) == 0 {
		for _, cert := range s.PeerCertificates {
			out.Certs = append(out.Certs, pemOf(cert.Raw))
		}
	}
	return out
}

// tlsVersion is a version as NATS writes it.
func tlsVersion(v uint16) string {
	return string(bytes.TrimPrefix([]byte(tls.VersionName(v)), []byte("TLS ")))
}

func pemOf(raw []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
}

// open checks an answer and returns the claims of the user in it.
func (o *callout) open(answer []byte, public string) (*jwt.UserClaims, error) {
	if len(answer) == 0 {
		return nil, errors.New("no reason supplied")
	}
	encrypted := false
	if o.xkey != "" && !bytes.HasPrefix(answer, []byte("eyJ")) {
		plain, err := o.host.XKey.Open(answer, o.xkey)
		if err != nil {
			return nil, errors.New("the answer cannot be decrypted")
		}
		answer, encrypted = plain, true
	}
	claims, err := jwt.DecodeAuthorizationResponseClaims(string(answer))
	if err != nil {
		return nil, err
	}
	vr := jwt.CreateValidationResults()
	claims.Validate(vr)
	switch {
	case len(vr.Issues) > 0:
		return nil, fmt.Errorf("the answer is not valid: %w", vr.Issues[0])
	case claims.Subject != public:
		return nil, errors.New("the answer is not for this user")
	case claims.Audience != o.host.ID.ID:
		return nil, errors.New("the answer is not for this server")
	}
	if !encrypted {
		if err := o.issuer(claims); err != nil {
			return nil, err
		}
	}
	if claims.Error != "" {
		return nil, fmt.Errorf("the service says: %q", claims.Error)
	}
	user, err := jwt.DecodeUserClaims(claims.Jwt)
	if err != nil {
		return nil, err
	}
	vr = jwt.CreateValidationResults()
	user.Validate(vr)
	switch {
	case len(vr.Issues) > 0:
		return nil, fmt.Errorf("the user in the answer is not valid: %w", vr.Issues[0])
	case user.Subject != public:
		return nil, errors.New("the user in the answer is another one")
	}
	return user, nil
}

// errSigner refuses an answer that was signed by somebody else than the service.
var errSigner = errors.New("the answer is signed by an unknown key")

// allowed checks what holds for any user that a service lets in.
func allowed(user *jwt.UserClaims, c *Credentials, proxied bool) error {
	switch {
	case user.ProxyRequired && !proxied:
		return ErrProxyRequired
	case !typeAllowed(user.AllowedConnectionTypes, c.Type):
		return ErrConnectionType
	}
	return nil
}

// byCallout makes a login of one of an authorization service.
func (l *Login) byCallout(user *jwt.UserClaims) *Login {
	out := *l
	out.called = true
	if user.Name != "" {
		out.User = user.Name
	}
	return &out
}

// guarded is the login, which may not make requests of its own to the service if it is in the service's account. As in
// NATS, one that may do anything may do that, too.
func (l *Login) guarded(account string) *Login {
	if l.Account != account || l.Permissions == nil {
		return l
	}
	out := *l
	out.Permissions = l.Permissions.denyPublish(CalloutSubject)
	return &out
}

// calloutOf is the request to the service of an account in operator mode.
func (a *Account) calloutOf(host *Host) *callout {
	return &callout{
		host: host, account: a.Name(), subject: a.Name(), xkey: a.Claims.Authorization.XKey,
		issuer: func(r *jwt.AuthorizationResponseClaims) error {
			if r.IssuerAccount != "" && r.IssuerAccount != a.Name() {
				return errSigner
			}
			if r.Issuer != a.Name() && !a.Claims.SigningKeys.Contains(r.Issuer) {
				return errSigner
			}
			return nil
		},
	}
}

// called lets the service of acc decide about a client that has logged in as known, one who stands for all.
func (o *Operator) called(acc *Account, c *Credentials, known *Login, proxied bool) (*Login, error) {
	if o.host == nil {
		return nil, ErrCallout
	}
	user, err := acc.calloutOf(o.host).ask(c, known)
	if err != nil {
		return nil, err
	}
	name := user.Issuer
	if user.IssuerAccount != "" {
		name = user.IssuerAccount
	}
	target := acc
	if name != acc.Name() {
		if list := acc.Claims.Authorization.AllowedAccounts; !list.Contains(jwt.AnyAccount) && !list.Contains(name) {
			return nil, fmt.Errorf("%w: account %q is not one of the allowed accounts", ErrCallout, name)
		}
		if target, err = o.accounts.Get(name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCallout, err)
		}
	}
	if err := target.applyScope(user); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCallout, err)
	}
	if err := allowed(user, c, proxied); err != nil {
		return nil, err
	}
	login, err := target.login(user, o.accounts.System())
	if err != nil {
		return nil, err
	}
	return login.byCallout(user).guarded(acc.Name()), nil
}

// isCalloutUser reports whether the user serves the callouts of the account.
func (a *Account) isCalloutUser(user string) bool {
	return slices.Contains(a.Claims.Authorization.AuthUsers, user)
}

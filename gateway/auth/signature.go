package auth

import (
	"encoding/base64"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// verifySignature checks that the owner of a public key has signed the nonce.
func verifySignature(public string, nonce []byte, text string) error {
	if text == "" || len(nonce) == 0 {
		return ErrSignature
	}
	sig, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		if sig, err = base64.StdEncoding.DecodeString(text); err != nil {
			return ErrSignature
		}
	}
	key, err := nkeys.FromPublicKey(public)
	if err != nil || key.Verify(nonce, sig) != nil {
		return ErrSignature
	}
	return nil
}

// proxies are the public keys of trusted proxies.
type proxies []nkeys.KeyPair

func newProxies(o *server.Options) (proxies, error) {
	if o.Proxies == nil {
		return nil, nil
	}
	var out proxies
	for _, p := range o.Proxies.Trusted {
		key, err := nkeys.FromPublicKey(p.Key)
		if err != nil {
			return nil, fmt.Errorf("trusted proxy %q: %w", p.Key, err)
		}
		out = append(out, key)
	}
	return out, nil
}

// check reports whether a trusted proxy stands between the client and us. A signature that none of them made is an
// error.
func (p proxies) check(c *Credentials) (bool, error) {
	if c.ProxySig == "" || len(p) == 0 {
		return false, nil
	}
	sig, err := base64.RawURLEncoding.DecodeString(c.ProxySig)
	if err != nil {
		return false, ErrProxyNotTrusted
	}
	for _, key := range p {
		if key.Verify(c.Nonce, sig) == nil {
			return true, nil
		}
	}
	return false, ErrProxyNotTrusted
}

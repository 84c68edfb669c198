package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net/url"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// shown is a connection whose client has shown cert.
func shown(t *testing.T, cert *x509.Certificate, subject pkix.RDNSequence) *tls.ConnectionState {
	t.Helper()
	raw, err := asn1.Marshal(subject)
	if err != nil {
		t.Fatal(err)
	}
	cert.RawSubject = raw
	cert.Subject.FillFromRDNSequence(&subject)
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
}

func attribute(oid asn1.ObjectIdentifier, value string) pkix.RelativeDistinguishedNameSET {
	return pkix.RelativeDistinguishedNameSET{{Type: oid, Value: value}}
}

func TestUsersByCertificate(t *testing.T) {
	cn, o, dc := asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.ObjectIdentifier{2, 5, 4, 10}, asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 25}
	unknown := asn1.ObjectIdentifier{1, 2, 3}
	where, err := url.Parse("spiffe://host/svc")
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewConfigured(&server.Options{TLSMap: true, Users: []*server.User{
		{Username: "a@example.com"},
		{Username: "host.example.com"},
		{Username: "spiffe://host/svc"},
		{Username: "CN=joe,O=acme"},
		{Username: "DC=com,DC=example,CN=ann"},
		{Username: "CN=x,1.2.3=#0c0179"},
		{Username: "CN=secret", Password: "p"},
		{Username: "plain", Password: "p"},
		{Username: "CN=web", AllowedConnectionTypes: map[string]struct{}{TypeWebSocket: {}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		tls            *tls.ConnectionState
		user, password string // what CONNECT says
		want           string // empty: refused
	}{
		"email":          {tls: shown(t, &x509.Certificate{EmailAddresses: []string{"x@y", "a@example.com"}}, nil), want: "a@example.com"},
		"dns":            {tls: shown(t, &x509.Certificate{DNSNames: []string{"host.example.com"}}, nil), want: "host.example.com"},
		"uri":            {tls: shown(t, &x509.Certificate{URIs: []*url.URL{where}}, nil), want: "spiffe://host/svc"},
		"subject":        {tls: shown(t, &x509.Certificate{}, pkix.RDNSequence{attribute(o, "acme"), attribute(cn, "joe")}), want: "CN=joe,O=acme"},
		"reordered":      {tls: shown(t, &x509.Certificate{}, pkix.RDNSequence{attribute(cn, "joe"), attribute(o, "acme")}), want: "CN=joe,O=acme"},
		"more parts":     {tls: shown(t, &x509.Certificate{}, pkix.RDNSequence{attribute(o, "acme"), attribute(o, "acme"), attribute(cn, "joe")})},
		"components":     {tls: shown(t, &x509.Certificate{}, pkix.RDNSequence{attribute(dc, "com"), attribute(dc, "example"), attribute(cn, "ann")}), want: "DC=com,DC=example,CN=ann"},
		"another":        {tls: shown(t, &x509.Certificate{}, pkix.RDNSequence{attribute(cn, "jim")})},
		"unknown part":   {tls: shown(t, &x509.Certificate{}, pkix.RDNSequence{attribute(unknown, "y"), attribute(cn, "joe"), attribute(o, "acme")}), want: "CN=joe,O=acme"}, // as in NATS, by what Go knows of the subject
		"comma in value": {tls: shown(t, &x509.Certificate{}, pkix.RDNSequence{attribute(cn, "joe,O=acme")})},
		"no certificate": {tls: &tls.ConnectionState{}, user: "a@example.com"},
		"no tls":         {user: "a@example.com"},
		"name in connect, another in the certificate": {
			tls: shown(t, &x509.Certificate{EmailAddresses: []string{"a@example.com"}}, nil), user: "plain", password: "", want: "a@example.com",
		},
		"password too, missing": {tls: shown(t, &x509.Certificate{}, pkix.RDNSequence{attribute(cn, "secret")})},
		"password too":          {tls: shown(t, &x509.Certificate{}, pkix.RDNSequence{attribute(cn, "secret")}), password: "p", want: "CN=secret"},
		"websocket only":        {tls: shown(t, &x509.Certificate{}, pkix.RDNSequence{attribute(cn, "web")})},
	} {
		l, err := a.Authenticate(&Credentials{Type: TypeStandard, TLS: tc.tls, User: tc.user, Password: tc.password})
		switch {
		case (err == nil) != (tc.want != ""):
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		case err == nil && l.User != tc.want:
			t.Errorf("%s: is %q, want %q", name, l.User, tc.want)
		}
	}
}

// Where only one way to come maps certificates, the other does not let users without a password in by name.
func TestMappingOfOneListener(t *testing.T) {
	o := &server.Options{Users: []*server.User{{Username: "a@example.com"}, {Username: "u", Password: "p"}}}
	o.Websocket.TLSMap = true
	a, err := NewConfigured(o)
	if err != nil {
		t.Fatal(err)
	}
	cert := shown(t, &x509.Certificate{EmailAddresses: []string{"a@example.com"}}, nil)
	for _, tc := range []struct {
		c    Credentials
		want error
	}{
		{Credentials{Type: TypeWebSocket, TLS: cert}, nil},
		{Credentials{Type: TypeWebSocket, User: "u", Password: "p"}, ErrCertificate},
		{Credentials{Type: TypeStandard, User: "a@example.com"}, ErrCertificate},
		{Credentials{Type: TypeStandard, TLS: cert}, ErrCredentials},
		{Credentials{Type: TypeStandard, User: "u", Password: "p"}, nil},
	} {
		if _, err := a.Authenticate(&tc.c); !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.c, err, tc.want)
		}
	}
}

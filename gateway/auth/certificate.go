package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"
	"strings"

	"github.com/go-ldap/ldap/v3"
)

// distinguishedName is a user whose name is one.
type distinguishedName struct {
	user string
	dn   *ldap.DN
}

// distinguishedNames returns those of users that are distinguished names.
func distinguishedNames(users []string) []distinguishedName {
	var out []distinguishedName
	for _, u := range users {
		if dn, err := ldap.ParseDN(u); err == nil && len(dn.RDNs) > 0 {
			out = append(out, distinguishedName{u, dn})
		}
	}
	return out
}

// nameIn returns the user whom the client's certificate names: by email, DNS name or URI, then by its subject.
func (a *Configured) nameIn(c *Credentials) (string, error) {
	if c.TLS == nil || len(c.TLS.PeerCertificates) == 0 {
		return "", ErrCertificate
	}
	cert := c.TLS.PeerCertificates[0]
	for _, name := range alternativeNames(cert) {
		if a.isUser(name, c.Type) {
			return name, nil
		}
	}
	if name := a.subjectOf(cert, c.Type); name != "" {
		return name, nil
	}
	text := cert.Subject.ToRDNSequence().String()
	if dcs := domainComponents(cert.RawSubject); dcs != "" && a.isUser(text+","+dcs, c.Type) {
		return text + "," + dcs, nil
	}
	if a.isUser(text, c.Type) {
		return text, nil
	}
	return "", ErrCertificate
}

func alternativeNames(cert *x509.Certificate) []string {
	var out []string
	out = append(out, cert.EmailAddresses...)
	out = append(out, cert.DNSNames...)
	for _, u := range cert.URIs {
		out = append(out, u.String())
	}
	return out
}

// isUser reports whether name is a user who may connect this way.
func (a *Configured) isUser(name, connectionType string) bool {
	u := a.users[name]
	return name != "" && u != nil && u.allows(connectionType)
}

// subjectOf returns the user whose distinguished name is the subject of cert, else one who has the same parts in
// another order, else nothing.
func (a *Configured) subjectOf(cert *x509.Certificate, connectionType string) string {
	subject := subjectDN(cert.RawSubject)
	if subject == nil {
		return ""
	}
	reordered := ""
	for _, n := range a.names {
		if !a.isUser(n.user, connectionType) {
			continue
		}
		if n.dn.Equal(subject) {
			return n.user
		}
		if reordered == "" && sameParts(n.dn, subject) {
			reordered = n.user
		}
	}
	return reordered
}

// sameParts reports whether two names have the same parts in any order.
func sameParts(a, b *ldap.DN) bool {
	if len(a.RDNs) != len(b.RDNs) {
		return false
	}
	taken := make([]bool, len(b.RDNs))
next:
	for _, r := range a.RDNs {
		for i, s := range b.RDNs {
			if !taken[i] && r.Equal(s) {
				taken[i] = true
				continue next
			}
		}
		return false
	}
	return true
}

// attributeTypes are the names of attributes in a subject, as nats-server knows them. A subject with another one
// matches no user by its distinguished name.
var attributeTypes = map[string]string{
	"2.5.4.3": "CN", "2.5.4.5": "SERIALNUMBER", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET",
	"2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.17": "POSTALCODE", oidDomainComponent: "DC",
}

const oidDomainComponent = "0.9.2342.19200300.100.1.25"

// subjectDN reads the subject of a certificate; its order is the reverse of the written form.
func subjectDN(raw []byte) *ldap.DN {
	var parts pkix.RDNSequence
	if rest, err := asn1.Unmarshal(raw, &parts); err != nil || len(rest) > 0 {
		return nil
	}
	dn := &ldap.DN{}
	for _, part := range slices.Backward(parts) {
		if len(part) == 0 {
			continue
		}
		rdn := &ldap.RelativeDN{}
		for _, attr := range part {
			name, known := attributeTypes[attr.Type.String()]
			value, text := attr.Value.(string)
			if !known || !text {
				return nil
			}
			rdn.Attributes = append(rdn.Attributes, &ldap.AttributeTypeAndValue{Type: name, Value: value})
		}
		dn.RDNs = append(dn.RDNs, rdn)
	}
	return dn
}

// domainComponents writes those of a subject, in its order.
func domainComponents(raw []byte) string {
	var parts pkix.RDNSequence
	if _, err := asn1.Unmarshal(raw, &parts); err != nil {
		return ""
	}
	var out []string
	for _, rdn := range parts {
		for _, attr := range rdn {
			if value, ok := attr.Value.(string); ok && attr.Type.String() == oidDomainComponent {
				out = append(out, "DC="+value)
			}
		}
	}
	return strings.Join(out, ",")
}

package auth

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"
)

// FuzzSubject reads subjects of certificates: never a panic, and a name without attributes is no name.
func FuzzSubject(f *testing.F) {
	for _, n := range []pkix.Name{{CommonName: "a"}, {CommonName: "a", Organization: []string{"b", "c"}}, {}} {
		raw, err := asn1.Marshal(n.ToRDNSequence())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	names := distinguishedNames([]string{"CN=a", "CN=a,O=b+O=c", "", "x", "CN=a\\,b"})
	f.Fuzz(func(t *testing.T, raw []byte) {
		dn := subjectDN(raw)
		_ = domainComponents(raw)
		if dn == nil {
			return
		}
		for _, n := range names {
			if n.dn.Equal(dn) && !sameParts(n.dn, dn) {
				t.Fatalf("%q equals and does not match", n.user)
			}
		}
	})
}

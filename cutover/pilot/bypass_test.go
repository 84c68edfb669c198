package pilot

import (
	"slices"
	"testing"

	"github.com/noetl/ehdb-gateway/cutover/face"
)

// A plan counts the clients of the servers by library: not the gateway's own connections, nor leaf nodes.
func TestClientKinds(t *testing.T) {
	of := func(kind, name, lang, version string) seenConn {
		return seenConn{Connection: face.Connection{Kind: kind, Name: name, Lang: lang, Version: version}}
	}
	got := kindsOf([]seenConn{
		of("client", "a", "go", "1.40.0"), of("client", "", "rust", "0.40"), of("client", "", "go", "1.40.0"),
		of("client", "ehdb-gateway front", "go", "1.55.0"), of("leafnode", "", "", ""), of("client", "", "", ""),
	})
	want := []face.ClientKind{{Lang: "go", Version: "1.40.0", Count: 2}, {Lang: "rust", Version: "0.40", Count: 1}, {Lang: "unknown", Count: 1}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

package flip

import (
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/gateway"
)

// TestStrangers: who is in the way is named, and what helps.
func TestStrangers(t *testing.T) {
	if why := strangers(nil); why != "" {
		t.Errorf("nobody is in the way: %s", why)
	}
	why := strangers([]relay.Client{{ID: 12, Identity: gateway.UpstreamIdentity{User: "limited"}}, {ID: 7}})
	for _, part := range []string{"2 clients", "cid 12 limited, cid 7;", "$SYS.REQ.USER.INFO"} {
		if !strings.Contains(why, part) {
			t.Errorf("%q is not in %s", part, why)
		}
	}
}

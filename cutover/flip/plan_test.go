package flip

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

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

// TestOutrun: limits that cannot be lifted on the servers, beside acks that remove messages, stand in the way of a flip.
func TestOutrun(t *testing.T) {
	cfg := server.StreamConfig{Retention: server.WorkQueuePolicy, DenyPurge: true, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPer: -1}
	if list := Unsupported(&cfg); len(list) > 0 {
		t.Errorf("no limits, and %q", list)
	}
	cfg.MaxMsgs = 20
	if list := Unsupported(&cfg); len(list) != 1 || !strings.Contains(list[0], "deny_purge") {
		t.Errorf("limits, and %q", list)
	}
	cfg.DenyPurge = false
	if list := Unsupported(&cfg); len(list) > 0 {
		t.Errorf("they can be lifted, and %q", list)
	}
}

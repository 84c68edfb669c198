package jetstreamapi

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// A message that comes while consumers are detached to be stopped is refused: without its consumers an interest stream
// would confirm it and keep nothing.
func TestPublishBetweenDetachAndStop(t *testing.T) {
	fs := vfs.NewMem()
	l := begin(t, fs)
	l.p.must(t, nil, "$JS.API.STREAM.CREATE.S", asJSON(plainConfig("S", func(cfg *server.StreamConfig) {
		cfg.Retention, cfg.Replicas = server.InterestPolicy, 1
	})))
	l.p.must(t, nil, "$JS.API.CONSUMER.CREATE.S.c", `{"stream_name":"S","config":{"durable_name":"c","ack_policy":"explicit"}}`)
	if a := l.p.request(t, "S.a", "", "before"); !strings.Contains(a.data, `"seq":1`) {
		t.Fatalf("before the stop: %v", a)
	}
	e, failed := l.svc.account("$G").stream("S")
	if failed != nil {
		t.Fatal(failed)
	}
	c := e.consumers["c"]
	detach, late := c.detach, answer{}
	c.detach = func() {
		detach()
		late = l.p.request(t, "S.a", "", "late")
	}
	l.end(t)
	if !strings.Contains(late.data, "10077") {
		t.Errorf("a message that nobody is left to want: %v", late)
	}
	l = begin(t, fs)
	defer l.end(t)
	var info server.JSApiConsumerInfoResponse
	l.p.must(t, &info, "$JS.API.CONSUMER.INFO.S.c", "")
	if info.NumPending != 1 {
		t.Errorf("%d messages for the consumer after the stop, want what was acknowledged before", info.NumPending)
	}
}

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestSystemAccountAPI: what the system account may ask of JetStream, which it does not have itself: the deletion of all
// streams of an account. Nobody else may.
func TestSystemAccountAPI(t *testing.T) {
	compareWith(t, systemConf, func(t *testing.T, e endpoint, tr *transcript) {
		sys, a, b := as(t, e, "sys"), as(t, e, "a"), as(t, e, "b")
		ask := func(nc *nats.Conn, subject, body string) {
			m, err := nc.Request("$JS.API."+subject, []byte(body), 2*time.Second)
			if err != nil {
				tr.Add("%s %s: %v", subject, body, err)
				return
			}
			tr.Raw(subject+" "+body, m.Data)
		}
		for i := range 3 {
			ask(a, fmt.Sprint("STREAM.CREATE.S", i), fmt.Sprintf(`{"name":"S%d"}`, i))
		}
		ask(a, "CONSUMER.CREATE.S1.C", `{"stream_name":"S1","config":{"durable_name":"C"}}`)
		for _, subject := range []string{
			"STREAM.NAMES", "STREAM.LIST", "STREAM.CREATE.X", "STREAM.INFO.S0", "STREAM.DELETE.S0", "CONSUMER.INFO.S1.C",
			"STREAM.SNAPSHOT.S0", "CONSUMER.PAUSE.S1.C", "ACCOUNT.PURGE.B", "ACCOUNT.PURGE.NONE", "ACCOUNT.PURGE.a/b",
		} {
			ask(sys, subject, "")
		}
		for _, nc := range []*nats.Conn{a, b} {
			if m, err := nc.Request("$JS.API.ACCOUNT.PURGE.A", nil, 300*time.Millisecond); err == nil {
				tr.Add("%t", len(m.Data) < 150) // refused here, left without an answer there
			} else {
				tr.Add("true")
			}
		}
		ask(a, "STREAM.NAMES", "")
		ask(sys, "ACCOUNT.PURGE.A", "x")
		ask(a, "STREAM.NAMES", "")
		ask(a, "STREAM.CREATE.S1", `{"name":"S1"}`)
		ask(a, "CONSUMER.NAMES.S1", "")
	})
}

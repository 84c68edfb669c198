package e2e

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestPendingOfWhatIsRemoved: what a consumer with last_per_subject has still to give counts no message that was removed,
// whether the consumer is asked or says it with a delivery.
func TestPendingOfWhatIsRemoved(t *testing.T) {
	for name, c := range map[string]struct{ config, publish, api string }{
		"purge":          {api: `STREAM.PURGE.L`},
		"purge subject":  {api: `STREAM.PURGE.L {"filter":"l.b"}`},
		"purge up to":    {api: `STREAM.PURGE.L {"seq":5}`},
		"purge and keep": {api: `STREAM.PURGE.L {"keep":1}`},
		"delete all":     {api: "STREAM.MSG.DELETE.L {\"seq\":2}\nSTREAM.MSG.DELETE.L {\"seq\":3}\nSTREAM.MSG.DELETE.L {\"seq\":4}\nSTREAM.MSG.DELETE.L {\"seq\":5}"},
		"delete in the middle": {
			api: "STREAM.MSG.DELETE.L {\"seq\":3}\nSTREAM.MSG.DELETE.L {\"seq\":5}",
		},
		"evict":           {config: `,"max_msgs":5`, publish: "l.x.y 1\nl.x.y 2\nl.x.y 3"},
		"evict all":       {config: `,"max_msgs":5`, publish: "l.x.y 1\nl.x.y 2\nl.x.y 3\nl.x.y 4\nl.x.y 5"},
		"per subject":     {config: `,"max_msgs_per_subject":2`, publish: "l.b 1\nl.b 2\nl.c 3"},
		"a rolled-up key": {config: `,"allow_rollup_hdrs":true`, publish: "l.b 1 Nats-Rollup=sub"},
		"rolled up":       {config: `,"allow_rollup_hdrs":true`, publish: "l.b 1 Nats-Rollup=all"},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, func(t *testing.T, e endpoint, tr *transcript) {
				nc := connect(t, e.URL)
				api(t, nc, tr, `STREAM.CREATE.L {"name":"L","subjects":["l.>"]`+c.config+`}`)
				publish(t, nc, tr, "l.a 1\nl.a 2\nl.b 3\nl.c 4\nl.d 5")
				const create = `{"stream_name":"L","config":{"ack_policy":"explicit","deliver_policy":"last_per_subject",`
				api(t, nc, tr, `CONSUMER.CREATE.L.C `+create+`"durable_name":"C","filter_subject":"l.*"}}
					CONSUMER.CREATE.L.D `+create+`"durable_name":"D","filter_subject":"l.*"}}`)
				counts(t, nc, tr, "L", "C")
				fetchAck(t, nc, tr, "L", "D", `{"batch":1,"no_wait":true}`, 1, "+ACK")
				if c.api != "" {
					api(t, nc, tr, c.api)
				}
				if c.publish != "" {
					publish(t, nc, tr, c.publish)
				}
				settle(tr)
				for _, consumer := range []string{"C", "D"} {
					checkDrain(t, e, nc, consumer, counts(t, nc, tr, "L", consumer))
				}
			})
		})
	}
}

// checkDrain fetches what a consumer has left: n messages, of which each says how many follow it. nats-server is let
// off: its first answer to a request is 404 when the message at its turn was removed, whatever is behind it.
func checkDrain(t *testing.T, e endpoint, nc *nats.Conn, consumer string, n uint64) {
	t.Helper()
	if e.Name != "gateway" {
		return
	}
	got := uint64(0)
	for _, m := range pull(t, nc, "L", consumer, `{"batch":20,"no_wait":true}`, 20) {
		if m.Reply == "" {
			continue
		}
		got++
		meta, err := m.Metadata()
		noErr(t, err)
		if got > n || meta.NumPending != n-got {
			t.Errorf("%s: message %d of %d says %d are pending", consumer, got, n, meta.NumPending)
		}
	}
	if got != n {
		t.Errorf("%s: %d messages came, %d were pending", consumer, got, n)
	}
}

// counts records how many messages a consumer has to give and to see acknowledged.
func counts(t *testing.T, nc *nats.Conn, tr *transcript, stream, consumer string) uint64 {
	t.Helper()
	m, err := nc.Request("$JS.API.CONSUMER.INFO."+stream+"."+consumer, nil, 5*time.Second)
	noErr(t, err)
	var info struct {
		NumPending    uint64 `json:"num_pending"`
		NumAckPending int    `json:"num_ack_pending"`
	}
	noErr(t, json.Unmarshal(m.Data, &info))
	tr.Add("%s: %d pending, %d ack pending", consumer, info.NumPending, info.NumAckPending)
	return info.NumPending
}

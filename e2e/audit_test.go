package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

const audited = `server_name: srv
accounts {
	A {
		jetstream: enabled
		users: [{user: a, password: a}]
		exports: [{service: "$JS.API.>"}, {service: "ask.>"}, {service: "open.>"}]
	}
	B {
		users: [{user: b, password: b}]
		imports: [
			{service: {account: A, subject: "$JS.API.>"}, to: "hidden.>"}
			{service: {account: A, subject: "$JS.API.CONSUMER.DELETE.S.C"}, to: "shared", share: true}
			{service: {account: A, subject: "ask.>"}}
			{service: {account: A, subject: "open.>"}, share: true}
		]
	}
}`

// described is what an event says of a client, without what is another each time.
func described(data []byte) string {
	var e struct {
		Client map[string]any
	}
	if json.Unmarshal(data, &e) != nil || e.Client == nil {
		return "nothing"
	}
	for _, k := range []string{"start", "rtt", "id"} {
		if e.Client[k] != nil {
			e.Client[k] = "<" + k + ">"
		}
	}
	b, err := json.Marshal(e.Client)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestAuditNamesTheClient: the audit of API calls and the events of backups say who asked, a service learns of a request by
// an import as much as the importer shares, and nobody can say that he is another.
func TestAuditNamesTheClient(t *testing.T) {
	compareWith(t, audited, func(t *testing.T, e endpoint, tr *transcript) {
		a, b := as(t, e, "a", nats.Name("me")), as(t, e, "b", nats.Name("other"))
		events := subscribe(t, a, "$JS.EVENT.ADVISORY.>")
		asked := subscribe(t, a, "*.me")
		noErr(t, a.Flush())
		ask := func(nc *nats.Conn, subject, body string) {
			m := nats.NewMsg(subject)
			m.Data = []byte(body)
			m.Header.Set("Nats-Request-Info", `{"acc":"A","user":"forged","jwt":"x"}`)
			_, err := nc.RequestMsg(m, time.Second)
			tr.Add("%s %v", subject, err)
			for {
				ev, err := events.NextMsg(200 * time.Millisecond)
				if err != nil {
					break
				}
				if ev.Subject == "$JS.EVENT.ADVISORY.API" || strings.Contains(ev.Subject, "SNAPSHOT") || strings.Contains(ev.Subject, "RESTORE") {
					tr.Add("%s %s", ev.Subject, described(ev.Data))
				}
			}
		}
		ask(a, "$JS.API.STREAM.CREATE.S", `{"name":"S"}`)
		ask(a, "$JS.API.STREAM.CREATE.S", `{"name":"`)
		ask(a, "$JS.API.CONSUMER.CREATE.S.C", `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`)
		ask(a, "$JS.API.CONSUMER.RESET.S.C", "")
		ask(a, "$JS.API.STREAM.INFO.S", "")
		ask(a, "$JS.API.STREAM.SNAPSHOT.S", `{"deliver_subject":"nobody"}`)
		ask(b, "hidden.STREAM.PURGE.S", "")
		ask(b, "shared", "")
		ask(a, "$JS.API.STREAM.RESTORE.R", `{"config":{"name":"R"},"state":{}}`)
		for _, subject := range []string{"ask.me", "open.me"} {
			m := nats.NewMsg(subject)
			m.Header.Set("Nats-Request-Info", `{"acc":"A","user":"forged","jwt":"x"}`)
			noErr(t, b.PublishMsg(m))
			got, err := asked.NextMsg(time.Second)
			noErr(t, err)
			tr.Add("%s %s", subject, described([]byte(fmt.Sprintf(`{"client":%s}`, got.Header.Get("Nats-Request-Info")))))
		}
	})
}

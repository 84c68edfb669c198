package e2e

import (
	"testing"

	"github.com/nats-io/nats.go"
)

func TestAccounts(t *testing.T) {
	const conf = `accounts {
		JS { jetstream: enabled, users: [{user: js, password: x}] }
		BARE { users: [{user: bare, password: x}], limits { max_connections: 1 } }
	}
	no_auth_user: bare`
	compareWith(t, conf, func(t *testing.T, e endpoint, tr *transcript) {
		js, bare := connect(t, e.URL, nats.UserInfo("js", "x")), connect(t, e.URL)
		const calls = `
			STREAM.CREATE.S {"name":"S","subjects":["s"]}
			STREAM.INFO.S
			STREAM.NAMES
			CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C"}}
			CONSUMER.LIST.S
			INFO
		`
		api(t, js, tr, calls)
		api(t, bare, tr, calls)
		publish(t, js, tr, "s 1")
		publish(t, bare, tr, "s 1")
		_, err := nats.Connect(e.URL)
		tr.Add("a second connection: %v", err)
	})
}

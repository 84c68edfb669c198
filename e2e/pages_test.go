package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestPages: lists of streams and consumers of more than one page, and as many consumers as a stream may have.
func TestPages(t *testing.T) {
	const n = 1100
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		requestMany(t, nc, n, func(i int) (string, string) {
			name := fmt.Sprintf("S%04d", i)
			return "$JS.API.STREAM.CREATE." + name, fmt.Sprintf(`{"name":%q,"storage":"memory","max_consumers":%d}`, name, 5000*(1-min(i, 1)))
		})
		requestMany(t, nc, n, func(i int) (string, string) {
			name := fmt.Sprintf("C%04d", i)
			return "$JS.API.CONSUMER.CREATE.S0000." + name, fmt.Sprintf(`{"stream_name":"S0000","config":{"durable_name":%q,"mem_storage":true}}`, name)
		})
		requestMany(t, nc, 1000, func(i int) (string, string) { // as many as a stream has by default
			name := fmt.Sprintf("C%04d", i)
			return "$JS.API.CONSUMER.CREATE.S0001." + name, fmt.Sprintf(`{"stream_name":"S0001","config":{"durable_name":%q,"mem_storage":true}}`, name)
		})
		api(t, nc, tr, `CONSUMER.CREATE.S0001.X {"stream_name":"S0001","config":{"durable_name":"X"}}`)
		for _, subject := range []string{"STREAM.NAMES", "STREAM.LIST", "CONSUMER.NAMES.S0000", "CONSUMER.LIST.S0000"} {
			for _, offset := range []int{0, 1, 256, 1000, 1024, 1099, 1100, 5000} {
				m, err := nc.Request("$JS.API."+subject, fmt.Appendf(nil, `{"offset":%d}`, offset), 10*time.Second)
				noErr(t, err)
				tr.Add("%s from %d: %s", subject, offset, pageOf(t, m.Data))
			}
		}
	})
}

// pageOf says how long a page is, where it begins and ends, and what it says of the whole.
func pageOf(t *testing.T, b []byte) string {
	t.Helper()
	var v struct {
		Total, Offset, Limit int
		Streams, Consumers   []json.RawMessage
	}
	noErr(t, json.Unmarshal(b, &v))
	name := func(b json.RawMessage) string {
		var info struct {
			Name   string
			Config struct{ Name string }
		}
		if json.Unmarshal(b, &info) != nil {
			return string(b) // a name
		}
		return info.Name + info.Config.Name
	}
	list := slices.Concat(v.Streams, v.Consumers)
	out := fmt.Sprintf("%d of %d from %d, at most %d", len(list), v.Total, v.Offset, v.Limit)
	if len(list) > 0 {
		out += fmt.Sprintf(": %s to %s", name(list[0]), name(list[len(list)-1]))
	}
	return out
}

// requestMany sends n requests, not one after the other, and waits for all answers.
func requestMany(t *testing.T, nc *nats.Conn, n int, request func(i int) (subject, body string)) {
	t.Helper()
	sub, err := nc.SubscribeSync(nats.NewInbox())
	noErr(t, err)
	defer sub.Unsubscribe()
	for i := range n {
		subject, body := request(i)
		noErr(t, nc.PublishRequest(subject, sub.Subject, []byte(body)))
	}
	for range n {
		m, err := sub.NextMsg(30 * time.Second)
		noErr(t, err)
		var v struct{ Error *struct{ Description string } }
		noErr(t, json.Unmarshal(m.Data, &v))
		if v.Error != nil {
			t.Fatal(v.Error.Description)
		}
	}
}

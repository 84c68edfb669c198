package jetstreamapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// batch asks ours for several messages and returns all answers up to the status that ends them.
func (p *party) batch(t *testing.T, subject, body string) []string {
	t.Helper()
	ch := p.ask(subject, "", body)
	var out []string
	for {
		a := receive(t, ch)
		out = append(out, ours(a))
		if ended(clientHeader(a.header)) {
			return out
		}
	}
}

func ended(header string) bool { return strings.Contains(header, `"Status"`) }

// batch asks the oracle.
func (o *oracle) batch(t *testing.T, subject, body string) []string {
	t.Helper()
	inbox := nats.NewInbox()
	sub, err := o.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := o.nc.PublishRequest(subject, inbox, []byte(body)); err != nil {
		t.Fatal(err)
	}
	var out []string
	for {
		m, err := sub.NextMsg(answerTimeout)
		if err != nil {
			t.Fatalf("%s: %v after %d answers", body, err, len(out))
		}
		h := formatHeader(m.Header)
		out = append(out, normal(answer{header: h, data: string(m.Data)}))
		if ended(h) {
			return out
		}
	}
}

func TestDirectGetBatchesAsNATSServer(t *testing.T) {
	o, p := pair(t)
	steps := []step{{
		subject: "$JS.API.STREAM.CREATE.S",
		body:    `{"name":"S","subjects":["kv.*"],"allow_direct":true,"max_msgs_per_subject":3}`,
	}}
	for i := range 30 {
		s := step{subject: fmt.Sprintf("kv.%d", i%7), body: fmt.Sprint("value ", i)}
		if i%5 == 0 {
			s.header = "NATS/1.0\r\nKV-Operation: PURGE\r\n\r\n"
		}
		steps = append(steps, s)
	}
	steps = append(steps, step{subject: "$JS.API.STREAM.MSG.DELETE.S", body: `{"seq":20}`})
	runSteps(t, o, p, steps)
	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, body := range []string{
		`{"batch":3,"seq":1}`,
		`{"batch":5,"seq":18}`,
		`{"batch":100,"seq":25}`,
		`{"batch":2,"seq":99}`,
		`{"batch":3,"next_by_subj":"kv.3"}`,
		`{"batch":3,"next_by_subj":"kv.3","seq":20}`,
		`{"batch":30,"next_by_subj":"kv.*","seq":12,"max_bytes":60}`,
		`{"batch":3,"next_by_subj":"nope"}`,
		`{"batch":2,"start_time":"2000-01-01T00:00:00Z"}`,
		`{"batch":2,"start_time":"2100-01-01T00:00:00Z"}`,
		`{"multi_last":["kv.*"]}`,
		`{"multi_last":["kv.1","kv.2"]}`,
		`{"multi_last":["kv.1","nope"]}`,
		`{"multi_last":["kv.*"],"batch":2}`,
		`{"multi_last":["kv.*"],"batch":2,"seq":27}`,
		`{"multi_last":["kv.*"],"up_to_seq":22}`,
		`{"multi_last":["kv.*"],"up_to_seq":3}`,
		`{"multi_last":["kv.*"],"up_to_time":"` + later + `"}`,
		`{"multi_last":["kv.*"],"max_bytes":40}`,
		`{"multi_last":["kv.*"],"last_by_subj":"kv.1"}`,
		`{"multi_last":["kv.*"],"next_by_subj":"kv.1"}`,
	} {
		got, want := p.batch(t, "$JS.API.DIRECT.GET.S", body), o.batch(t, "$JS.API.DIRECT.GET.S", body)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s\n got    %q\n oracle %q", body, got, want)
		}
	}
}

func TestMultiLastIsBounded(t *testing.T) {
	o, p := pair(t)
	runSteps(t, o, p, []step{
		{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","subjects":["kv.*"],"allow_direct":true}`},
	})
	for i := range maxMultiLast {
		subject := fmt.Sprint("kv.", i)
		p.must(t, nil, subject, "x")
		if err := o.nc.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	const body = `{"multi_last":["kv.*"],"batch":1}`
	for range 2 { // one message more is one too many
		runSteps(t, o, p, []step{{subject: "kv.last", body: "x"}, {subject: "$JS.API.STREAM.INFO.S"}})
		got, want := p.batch(t, "$JS.API.DIRECT.GET.S", body), o.batch(t, "$JS.API.DIRECT.GET.S", body)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %.200q\n oracle %.200q", got, want)
		}
		runSteps(t, o, p, []step{{subject: "$JS.API.STREAM.PURGE.S", body: `{"filter":"kv.0"}`}})
	}
}

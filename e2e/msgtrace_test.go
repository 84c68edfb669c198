package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

const traceConf = `
server_name: s1
accounts {
	A {
		jetstream: enabled
		users: [
			{user: a, password: a}
			{user: limited, password: limited, permissions: {publish: {allow: ["ok.>", "trace.ok"]}}}
		]
		exports: [{service: "svc.*"}, {stream: "feed.>"}]
		mappings: { "old.*": "new.$1" }
	}
	B {
		users: [{user: b, password: b}]
		imports: [{service: {account: A, subject: "svc.x"}, to: ask}, {stream: {account: A, subject: "feed.>"}, prefix: in}]
	}
}
`

// TestMessageTracing compares what servers tell about the way of a message whose headers ask for it, and what becomes of
// it.
func TestMessageTracing(t *testing.T) {
	compareWith(t, traceConf, func(t *testing.T, e endpoint, tr *transcript) {
		a, b, limited := as(t, e, "a", nats.Name("one")), as(t, e, "b", nats.Name("two")), as(t, e, "limited")
		js, err := a.JetStream()
		noErr(t, err)
		_, err = js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s.>", "new.kept"}})
		noErr(t, err)
		heard := make(chan string, 100)
		hear := func(m *nats.Msg) { heard <- m.Subject }
		for _, filter := range []string{"x.>", "x.*", "svc.x", "new.*", "ok.>", "feed.a"} {
			_, err = a.Subscribe(filter, hear)
			noErr(t, err)
		}
		_, err = a.QueueSubscribe("x.q", "workers", hear)
		noErr(t, err)
		_, err = b.Subscribe("in.feed.>", hear)
		noErr(t, err)
		noErr(t, a.Flush())
		noErr(t, b.Flush())
		for _, c := range []struct {
			nc              *nats.Conn
			subject, header string
		}{
			{a, "x.1", "Nats-Trace-Dest: trace.ok"},
			{a, "x.1", "Nats-Trace-Dest: trace.ok|Nats-Trace-Only: true"},
			{a, "x.q", "Nats-Trace-Dest: trace.ok"},
			{a, "nobody", "Nats-Trace-Dest: trace.ok"},
			{a, "s.1", "Nats-Trace-Dest: trace.ok|Nats-Trace-Only: 1"},
			{a, "s.1", "Nats-Trace-Dest: trace.ok|Other: x|Other: y"},
			{a, "old.a", "Nats-Trace-Dest: trace.ok"},
			{a, "old.kept", "Nats-Trace-Dest: trace.ok|Nats-Trace-Only: on"},
			{a, "feed.a", "Nats-Trace-Dest: trace.ok"},
			{a, "x.1", "Nats-Trace-Only: true"},
			{a, "x.1", "nats-trace-dest: trace.ok"},
			{a, "x.1", "Nats-Trace-Dest: trace.*"},
			{a, "x.1", "Nats-Trace-Dest: trace.*|Nats-Trace-Only: true"},
			{a, "x.1", "Nats-Trace-Dest: trace disabled"},
			{a, "x.1", "Nats-Trace-Only: false|Nats-Trace-Dest: trace.ok"},
			{limited, "ok.1", "Nats-Trace-Dest: trace.ok"},
			{limited, "ok.1", "Nats-Trace-Dest: trace.no"},
			{limited, "no.1", "Nats-Trace-Dest: trace.ok"},
			{b, "ask", "Nats-Trace-Dest: trace.ok"},
			{b, "ask", "Nats-Trace-Dest: trace.ok|Nats-Trace-Only: true"},
		} {
			who := c.nc.Opts.User
			observer := as(t, e, "a")
			if c.nc == b {
				observer = as(t, e, "b")
			}
			events, err := observer.SubscribeSync("trace.>")
			noErr(t, err)
			noErr(t, observer.Flush())
			m := nats.NewMsg(c.subject)
			m.Data = []byte("hello")
			for h := range strings.SplitSeq(c.header, "|") {
				name, value, _ := strings.Cut(h, ": ")
				m.Header[name] = append(m.Header[name], value)
			}
			noErr(t, c.nc.PublishMsg(m))
			noErr(t, c.nc.Flush())
			label := fmt.Sprintf("%s %s %s", who, c.subject, c.header)
			if ev, err := events.NextMsg(tr.patience(200 * time.Millisecond)); err == nil {
				addTrace(tr, label, ev.Data)
			} else {
				tr.Add("%s: %v", label, err)
			}
			observer.Close()
			var got []string
			tr.pause(20 * time.Millisecond)
			for len(heard) > 0 {
				got = append(got, <-heard)
			}
			slices.Sort(got)
			si, err := js.StreamInfo("S")
			noErr(t, err)
			tr.Add("%s: heard %v, %d stored", label, got, si.State.Msgs)
		}
	})
}

// addTrace records a trace, its events in an order that does not depend on who is served first.
func addTrace(tr *transcript, label string, doc []byte) {
	var trace struct {
		Server  map[string]any
		Request map[string]any
		Events  []map[string]any
	}
	if err := json.Unmarshal(doc, &trace); err != nil {
		tr.Add("%s: %q", label, doc)
		return
	}
	fixed := []string{
		"name", "type", "acc", "subj", "sub", "queue", "to", "from", "stream", "subject", "error", "kind", "msgsize", "header", "ver",
	}
	delete(trace.Server, "flags")
	tr.Add("%s: %s %s", label, shape(trace.Server, fixed...), shape(trace.Request, fixed...))
	var events []string
	for _, event := range trace.Events {
		events = append(events, shape(event, fixed...))
	}
	slices.Sort(events)
	tr.Add("%s: %s", label, strings.Join(events, "\n\t"))
}

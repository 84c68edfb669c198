package e2e

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const subjectMappings = `accounts {
	G {
		jetstream: enabled
		users: [{user: g, password: g}]
		mappings {
			"plain": "renamed"
			"order.*.*": "by.$2.of.$1"
			"wc.*.*": "wc2.{{wildcard(2)}}.{{wildcard(1)}}"
			"part.*": "part.{{partition(10,1)}}.$1"
			"parts.*.*": "parts.{{partition(7,1,2)}}.$1.$2"
			"split.*": "split.{{split(1,-)}}"
			"sfl.*": "sfl.{{splitFromLeft(1,3)}}"
			"sfr.*": "sfr.{{SplitFromRight(1,3)}}"
			"slfl.*": "slfl.{{sliceFromLeft(1,2)}}"
			"slfr.*": "slfr.{{sliceFromRight(1,2)}}"
			"left.*": "left.{{left(1,2)}}"
			"right.*": "right.{{right(1,2)}}"
			"all.*": [{destination: "all.v2.$1", weight: 100%}]
			"lost": [{destination: "lost", weight: 0%}]
			"half": [{destination: "half.1", weight: 50}, {destination: "half.2", weight: 50%}]
			"canary": [{destination: "canary.v2", weight: 20%}]
			"scoped": [{destination: "scoped.c", weight: 100, cluster: "far"}]
			"stored.*": "S.$1"
			"tail.>": "t.>"
		}
	}
	A { users: [{user: a, password: a}], mappings: {"svc": "svc.real"}, exports: [{service: "svc"}] }
	B {
		users: [
			{user: b, password: b, permissions: {publish: {allow: ["out"]}, subscribe: ">"}}
			{user: n, password: n, permissions: {publish: {allow: ["in"]}, subscribe: ">"}}
		]
		mappings: {"in": "out"}
		imports: [{service: {account: A, subject: "svc"}, to: "out"}]
	}
}`

func TestSubjectMappings(t *testing.T) {
	compareWith(t, subjectMappings, func(t *testing.T, e endpoint, tr *transcript) {
		g, a, b := as(t, e, "g"), as(t, e, "a"), as(t, e, "b")
		errs := make(chan string, 1)
		all := subscribe(t, g, ">")
		for _, s := range []string{
			"plain", "order.eu.new", "wc.1.2", "part.a", "part.b", "part.foo", "parts.a.b", "parts.c.d", "split.a-b-c", "sfl.abcdef",
			"sfr.abcdef", "slfl.abcdefg", "slfr.abcdefg", "left.abc", "right.abc", "all.x", "lost", "scoped", "else", "tail.a.b",
		} {
			noErr(t, g.Publish(s, []byte(s)))
		}
		noErr(t, g.Flush())
		told(tr, "mapped", all)
		counts := map[string]int{}
		for range 400 {
			noErr(t, g.Publish("half", nil))
			noErr(t, g.Publish("canary", nil))
		}
		for range 800 {
			counts[next(t, all).Subject]++
		}
		within := func(subject string, n int) bool { return counts[subject] > n-60 && counts[subject] < n+60 }
		tr.Add("weights: %v %v %v %v", within("half.1", 200), within("half.2", 200), within("canary.v2", 80), within("canary", 320))
		noErr(t, all.Unsubscribe())

		js, err := g.JetStream()
		noErr(t, err)
		_, err = js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"S.*"}})
		noErr(t, err)
		ack, err := js.Publish("stored.x", nil)
		noErr(t, err)
		tr.Add("stored: %d in %s", ack.Sequence, ack.Stream)
		m, err := js.GetMsg("S", 1)
		noErr(t, err)
		tr.Add("as %s", m.Subject)
		_, err = g.Request("plain", nil, time.Second)
		tr.Add("nobody: %v", err)
		refused := make(chan *nats.Msg, 1)
		_, err = g.ChanSubscribe("in", refused)
		noErr(t, err)
		noErr(t, g.PublishRequest("order.a.b", "in", nil))
		tr.Msg("503", <-refused)

		_, err = a.Subscribe("svc.real", func(m *nats.Msg) { _ = m.Respond([]byte("from " + m.Subject)) })
		noErr(t, err)
		noErr(t, a.Flush())
		m2, err := b.Request("in", nil, time.Second)
		noErr(t, err)
		tr.Add("mapped here and there: %s", m2.Data)
		narrow := as(t, e, "n", nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err.Error()[:60] }))
		noErr(t, narrow.Publish("in", nil))
		tr.Add("what counts is the subject it becomes: %s", <-errs)
	})
}

// TestGlobalMappings: those at the top of the file are of $G.
func TestGlobalMappings(t *testing.T) {
	compareWith(t, `mappings { "a.*": "b.$1" }`, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		all := subscribe(t, nc, ">")
		noErr(t, nc.Publish("a.x", nil))
		noErr(t, nc.Flush())
		told(tr, "mapped", all)
	})
}

// TestBadLinks: what nats-server refuses is refused here, in its words.
func TestBadLinks(t *testing.T) {
	for name, conf := range map[string]string{
		"weights":   `mappings { "a": [{destination: b, weight: 60}, {destination: c, weight: 60}] }`,
		"function":  `mappings { "a.*": "b.{{nonsense(1)}}" }`,
		"wildcard":  `mappings { "a.*": "b.$2" }`,
		"subject":   `mappings { "a..b": "c" }`,
		"no export": `accounts { A {}, B { imports: [{stream: {account: A, subject: "x"}}] } }`,
		"private":   `accounts { A { exports: [{service: x, accounts: [C]}] }, C {}, B { imports: [{service: {account: A, subject: "x"}}] } }`,
		"cycle": `accounts {
			A { exports: [{service: x}], imports: [{service: {account: B, subject: x}}] }
			B { exports: [{service: x}], imports: [{service: {account: A, subject: x}}] }
		}`,
		"position": `accounts { A { exports: [{stream: "a.b", account_token_position: 2}] } }`,
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, "bad.conf", conf)
			want := (&server.Options{}).ProcessConfigFile(path)
			if want == nil {
				t.Fatal("nats-server takes it")
			}
			out, err := exec.Command(gatewayBin, "-c", path, "-t").CombinedOutput()
			if err == nil || !strings.Contains(string(out), strings.TrimPrefix(want.Error(), path)) {
				t.Errorf("%v: %s\nnats-server: %v", err, out, want)
			}
		})
	}
}

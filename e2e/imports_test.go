package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// as connects as a user whose password is its name.
func as(t *testing.T, e endpoint, user string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return connect(t, e.URL, append(opts, nats.UserInfo(user, user))...)
}

// told takes what comes to sub within a moment, sorted.
func told(tr *transcript, label string, sub *nats.Subscription) {
	var lines []string
	for {
		m, err := sub.NextMsg(tr.patience(150 * time.Millisecond))
		if err != nil {
			break
		}
		lines = append(lines, fmt.Sprintf("%s reply=%q %s %q", m.Subject, scrub(m.Reply), m.Header, m.Data))
	}
	slices.Sort(lines)
	tr.Add("%s: %s", label, strings.Join(lines, " | "))
}

const streamImports = `accounts {
	A {
		users: [{user: a, password: a}]
		exports: [
			{stream: "pub.>"}, {stream: "one"}, {stream: "order.*.*"}, {stream: "private.>", accounts: [B]}
			{stream: "pos.*.>", account_token_position: 2}
		]
	}
	B {
		users: [{user: b, password: b}]
		imports: [
			{stream: {account: A, subject: "pub.>"}}
			{stream: {account: A, subject: "one"}, to: "uno.dos"}
			{stream: {account: A, subject: "order.*.*"}, to: "by.$2.of.$1"}
			{stream: {account: A, subject: "private.>"}, prefix: "from.a"}
			{stream: {account: A, subject: "pos.B.>"}}
		]
	}
	C {
		users: [{user: c, password: c}]
		imports: [{stream: {account: A, subject: "order.eu.*"}, to: "eu.{{wildcard(1)}}"}]
	}
}`

func TestStreamImports(t *testing.T) {
	compareWith(t, streamImports, func(t *testing.T, e endpoint, tr *transcript) {
		a, b, c := as(t, e, "a"), as(t, e, "b"), as(t, e, "c")
		filters := []string{">", "pub.>", "pub.x", "pub.*", "uno.>", "uno.dos", "one", "by.>", "by.*.of.eu", "by.new.>", "by.new.of.eu", "*.new.of.*", "from.a.private.x", "from.>", "private.x", "pos.>", "order.>"}
		subs := map[string]*nats.Subscription{}
		for _, f := range filters {
			subs[f] = subscribe(t, b, f)
		}
		q, err := b.QueueSubscribeSync("by.*.of.*", "q")
		noErr(t, err)
		q2, err := a.QueueSubscribeSync("order.>", "q")
		noErr(t, err)
		noErr(t, a.Flush())
		noErr(t, b.Flush())
		cs := subscribe(t, c, ">")
		for _, s := range []string{"pub.x", "pub.x.y", "one", "order.eu.new", "order.us.new", "order.eu.old", "private.x", "pos.B.x", "pos.C.x", "else"} {
			noErr(t, a.PublishMsg(&nats.Msg{Subject: s, Reply: "r." + s, Data: []byte(s), Header: nats.Header{"K": {s}}}))
		}
		noErr(t, b.Publish("pub.x", []byte("by b itself")))
		noErr(t, a.Flush())
		noErr(t, b.Flush())
		for _, f := range filters {
			told(tr, f, subs[f])
		}
		told(tr, "c", cs)
		n, _, err := q.Pending()
		noErr(t, err)
		n2, _, err := q2.Pending()
		noErr(t, err)
		tr.Add("queue group over both accounts: %d", n+n2)

		noErr(t, subs["uno.dos"].Unsubscribe())
		noErr(t, subs["uno.>"].AutoUnsubscribe(2))
		noErr(t, b.Flush())
		for range 3 {
			noErr(t, a.Publish("one", nil))
		}
		noErr(t, a.Flush())
		told(tr, "unsubscribed", subs["uno.dos"])
		told(tr, "limited", subs["uno.>"])
		told(tr, "all", subs[">"])
	})
}

const serviceImports = `accounts {
	A {
		users: [{user: a, password: a}]
		exports: [
			{service: "one"}, {service: "many", response: stream}, {service: "parts", response: chunked}
			{service: "order.*.*"}, {service: "private", accounts: [B]}, {service: "pos.*", account_token_position: 2}
			{service: "slow", threshold: "200ms"}, {service: "back.>", response: stream}, {service: "chain"}
		]
	}
	B {
		users: [{user: b, password: b}]
		exports: [{service: "chained"}]
		imports: [
			{service: {account: A, subject: "one"}}
			{service: {account: A, subject: "one"}, to: "uno.*"}
			{service: {account: A, subject: "many"}}
			{service: {account: A, subject: "parts"}, to: "p"}
			{service: {account: A, subject: "order.*.*"}, to: "by.$2.of.$1"}
			{service: {account: A, subject: "private"}, share: true}
			{service: {account: A, subject: "pos.B"}}
			{service: {account: A, subject: "slow"}}
			{service: {account: A, subject: "back.>"}}
			{service: {account: A, subject: "chain"}, to: "chained"}
		]
	}
	C {
		users: [{user: c, password: c}]
		imports: [{service: {account: B, subject: "chained"}, to: "far"}]
	}
}`

// shown is a request as a service sees it: reply subjects from other accounts are all alike, and what is told about the
// requestor differs between servers in some places.
func shown(m *nats.Msg) string {
	reply := m.Reply
	if strings.HasPrefix(reply, "_R_.") {
		reply = fmt.Sprintf("_R_.<%d>.<%d>", len(strings.Split(reply, ".")[1]), len(strings.Split(reply, ".")))
	}
	h := nats.Header{}
	maps.Copy(h, m.Header)
	var info map[string]any
	if err := json.Unmarshal([]byte(h.Get("Nats-Request-Info")), &info); err == nil {
		for _, k := range []string{"rtt", "start", "id", "server", "host", "ver"} {
			if _, ok := info[k]; ok {
				info[k] = "<" + k + ">"
			}
		}
		b, _ := json.Marshal(info)
		h.Set("Nats-Request-Info", string(b))
	}
	return fmt.Sprintf("subject=%s reply=%s header=%v data=%q", m.Subject, scrub(reply), h, m.Data)
}

func TestServiceImports(t *testing.T) {
	compareWith(t, serviceImports, func(t *testing.T, e endpoint, tr *transcript) {
		a, b, c := as(t, e, "a"), as(t, e, "b", nats.Name("requestor")), as(t, e, "c")
		call := func(nc *nats.Conn, subject string) {
			m, err := nc.RequestMsg(&nats.Msg{Subject: subject, Data: []byte("q"), Header: nats.Header{"K": {"v"}}}, time.Second)
			if err != nil {
				tr.Add("%s: %v", subject, err)
				return
			}
			tr.Add("%s: %s header=%v", subject, m.Data, m.Header)
		}
		call(b, "one") // nobody
		call(c, "far")
		seen := make(chan string, 100)
		serve := func(subject string, parts ...string) {
			_, err := a.Subscribe(subject, func(m *nats.Msg) {
				seen <- shown(m)
				for _, p := range parts {
					_ = m.RespondMsg(&nats.Msg{Data: []byte(p), Header: nats.Header{"From": {"a"}}})
				}
			})
			noErr(t, err)
		}
		serve("one", "first", "second")
		serve("order.>", "ordered")
		serve("private", "secret")
		serve("pos.>", "position")
		serve("chain", "chained")
		_, err := a.QueueSubscribe("one", "q", func(m *nats.Msg) { seen <- "queue " + shown(m) })
		noErr(t, err)
		noErr(t, a.Flush())
		look := func() {
			var list []string
			for {
				select {
				case s := <-seen:
					list = append(list, s)
				case <-time.After(tr.patience(100 * time.Millisecond)):
					slices.Sort(list)
					tr.Add("seen: %s", strings.Join(list, " | "))
					return
				}
			}
		}
		for _, s := range []string{"one", "uno.x", "by.new.of.eu", "private", "pos.B", "pos.A", "order.eu.new", "chained", "none"} {
			call(b, s)
			look()
		}
		call(c, "far")
		look()

		inbox := subscribe(t, b, "answers.*")
		noErr(t, b.PublishRequest("one", "answers.1", nil)) // a second answer is too many
		noErr(t, b.Flush())
		look()
		told(tr, "single", inbox)
		noErr(t, b.Publish("one", []byte("no answer wanted")))
		noErr(t, b.Flush())
		look()

		_, err = a.Subscribe("many", func(m *nats.Msg) {
			for i := range 3 {
				_ = m.Respond([]byte(fmt.Sprint(i)))
			}
			_ = a.Publish(m.Reply, nil)
			_ = m.Respond([]byte("after the end"))
		})
		noErr(t, err)
		_, err = a.Subscribe("parts", func(m *nats.Msg) {
			_ = m.Respond([]byte("part"))
			_ = a.Publish(m.Reply, nil)
			_ = m.Respond([]byte("after the end"))
		})
		noErr(t, err)
		_, err = a.Subscribe("slow", func(m *nats.Msg) {
			time.Sleep(700 * time.Millisecond)
			_ = m.Respond([]byte("late"))
		})
		noErr(t, err)
		_, err = a.Subscribe("back.x", func(m *nats.Msg) {
			r, err := a.Request(m.Reply, []byte("what do you mean?"), time.Second)
			if err != nil {
				seen <- err.Error()
				return
			}
			_ = m.Respond(append([]byte("so "), r.Data...))
		})
		noErr(t, err)
		noErr(t, a.Flush())
		noErr(t, b.PublishRequest("many", "answers.2", nil))
		noErr(t, b.PublishRequest("p", "answers.3", nil))
		noErr(t, b.PublishRequest("slow", "answers.4", nil))
		noErr(t, b.Flush())
		tr.pause(900 * time.Millisecond)
		told(tr, "streamed and chunked", inbox)

		_, err = b.Subscribe("talk", func(m *nats.Msg) {
			if m.Reply != "" {
				_ = m.Respond([]byte("this"))
				return
			}
			seen <- string(m.Data)
		})
		noErr(t, err)
		noErr(t, b.PublishRequest("back.x", "talk", nil))
		noErr(t, b.Flush())
		tr.pause(100 * time.Millisecond)
		look()
	})
}

// TestServiceImportNoResponders: a requestor without a new-style inbox hears of it too.
func TestServiceImportNoResponders(t *testing.T) {
	compareWith(t, serviceImports, func(t *testing.T, e endpoint, tr *transcript) {
		b := as(t, e, "b")
		inbox := subscribe(t, b, "in")
		for _, s := range []string{"one", "uno.x", "by.x.of.y", "many"} {
			noErr(t, b.PublishRequest(s, "in", nil))
			told(tr, s, inbox)
		}
		_, err := b.Request("uno.z", nil, time.Second)
		tr.Add("%v", errors.Is(err, nats.ErrNoResponders))
	})
}

const jsImports = `accounts {
	A {
		jetstream: enabled
		users: [{user: a, password: a}]
		exports: [
			{service: "$JS.API.>", response: stream}, {service: "$JS.ACK.>"}, {service: "$KV.>"}, {service: "orders.>"}
			{stream: "deliver.>"}, {service: "$JS.FC.>"}
		]
	}
	B {
		users: [{user: b, password: b}]
		imports: [
			{service: {account: A, subject: "$JS.API.>"}, to: "fromA.>"}
			{service: {account: A, subject: "$JS.ACK.>"}}
			{service: {account: A, subject: "$KV.>"}, to: "fromA.$KV.>"}
			{service: {account: A, subject: "orders.>"}}
			{service: {account: A, subject: "$JS.FC.>"}}
			{stream: {account: A, subject: "deliver.>"}}
		]
	}
}`

func TestJetStreamThroughImports(t *testing.T) {
	compareWith(t, jsImports, func(t *testing.T, e endpoint, tr *transcript) {
		a, b := as(t, e, "a"), as(t, e, "b")
		own, err := a.JetStream()
		noErr(t, err)
		js, err := b.JetStream(nats.APIPrefix("fromA"))
		noErr(t, err)
		_, err = js.AddStream(&nats.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
		noErr(t, err)
		for i := range 5 {
			ack, err := js.Publish("orders.eu", []byte(fmt.Sprint(i)))
			noErr(t, err)
			tr.Add("acked %d in %s", ack.Sequence, ack.Stream)
		}
		sub, err := js.PullSubscribe("orders.>", "D")
		noErr(t, err)
		msgs, err := sub.Fetch(3, nats.MaxWait(2*time.Second))
		noErr(t, err)
		for _, m := range msgs {
			tr.Add("%s %q reply=%s", m.Subject, m.Data, scrub(m.Reply))
			noErr(t, m.AckSync())
		}
		info, err := own.ConsumerInfo("ORDERS", "D")
		noErr(t, err)
		tr.Add("acked %d, pending %d", info.AckFloor.Stream, info.NumPending)
		_, err = sub.Fetch(10, nats.MaxWait(200*time.Millisecond))
		tr.Add("the rest: %v", err)
		_, err = sub.Fetch(1, nats.MaxWait(200*time.Millisecond))
		tr.Add("none left: %v", err)

		push, err := js.SubscribeSync("orders.>", nats.DeliverSubject("deliver.b"), nats.OrderedConsumer())
		tr.Add("ordered: %v", err)
		if err == nil {
			_ = push.Unsubscribe()
		}
		push, err = js.SubscribeSync("orders.>", nats.DeliverSubject("deliver.b"), nats.AckExplicit(), nats.Durable("P"))
		noErr(t, err)
		for range 5 {
			m := next(t, push)
			tr.Add("pushed %s %q", m.Subject, m.Data)
			noErr(t, m.AckSync())
		}

		_, err = own.CreateKeyValue(&nats.KeyValueConfig{Bucket: "CFG", History: 3})
		noErr(t, err)
		kv, err := js.KeyValue("CFG")
		noErr(t, err)
		rev, err := kv.Put("k", []byte("v1"))
		tr.Add("put %d %v", rev, err)
		rev, err = kv.Update("k", []byte("v2"), rev)
		tr.Add("update %d %v", rev, err)
		_, err = kv.Update("k", []byte("v3"), 1)
		tr.Add("conflict %v", err)
		entry, err := kv.Get("k")
		noErr(t, err)
		tr.Add("get %q %d", entry.Value(), entry.Revision())
		names := js.StreamNames()
		var list []string
		for n := range names {
			list = append(list, n)
		}
		slices.Sort(list)
		tr.Add("streams %v", list)
	})
}

// TestJetStreamOfAnotherAccountAlone: an account without JetStream that imports the API under its own name gets one
// answer, and not also that it has none.
func TestJetStreamOfAnotherAccountAlone(t *testing.T) {
	const conf = `accounts {
		A { jetstream: enabled, users: [{user: a, password: a}], exports: [{service: "$JS.API.>", response: stream}, {service: "$JS.ACK.>"}] }
		B { users: [{user: b, password: b}], imports: [{service: {account: A, subject: "$JS.API.>"}}, {service: {account: A, subject: "$JS.ACK.>"}}] }
	}`
	compareWith(t, conf, func(t *testing.T, e endpoint, tr *transcript) {
		a, b := as(t, e, "a"), as(t, e, "b")
		js, err := b.JetStream()
		noErr(t, err)
		_, err = js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}})
		noErr(t, err)
		noErr(t, a.Publish("s", []byte("x")))
		sub, err := js.PullSubscribe("s", "D")
		noErr(t, err)
		msgs, err := sub.Fetch(1, nats.MaxWait(2*time.Second))
		noErr(t, err)
		tr.Add("%s %q %v", msgs[0].Subject, msgs[0].Data, msgs[0].AckSync())
		inbox := subscribe(t, b, "in")
		noErr(t, b.PublishRequest("$JS.API.INFO", "in", nil))
		noErr(t, b.PublishRequest("$JS.API.STREAM.INFO.S", "in", nil))
		n := 0
		for {
			if _, err := inbox.NextMsg(tr.patience(300 * time.Millisecond)); err != nil {
				break
			}
			n++
		}
		tr.Add("%d answers", n)
	})
}

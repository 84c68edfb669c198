package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func next(t *testing.T, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsg(5 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func subscribe(t *testing.T, nc *nats.Conn, subject string) *nats.Subscription {
	t.Helper()
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return sub
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCorePublishSubscribe(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		subs := map[string]*nats.Subscription{}
		for _, f := range []string{"a.b.c", "a.*.c", "a.>", ">", "a.b", "*.b.*"} {
			subs[f] = subscribe(t, nc, f)
		}
		for _, s := range []string{"a.b.c", "a.x.c", "a.b", "z", "a.b.c.d"} {
			noErr(t, nc.PublishMsg(&nats.Msg{Subject: s, Reply: "r." + s, Data: []byte(s), Header: nats.Header{"K": {"1", "2"}, "lower": {"x"}}}))
		}
		noErr(t, nc.Flush())
		for _, f := range []string{"a.b.c", "a.*.c", "a.>", ">", "a.b", "*.b.*"} {
			for {
				m, err := subs[f].NextMsg(tr.patience(100 * time.Millisecond))
				if err != nil {
					break
				}
				tr.Msg(f, m)
				tr.Add("reply %s", m.Reply)
			}
		}
	})
}

func TestCoreRequestReply(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc, other := connect(t, e.URL), connect(t, e.URL)
		_, err := other.Subscribe("svc", func(m *nats.Msg) { _ = m.Respond(append([]byte("re: "), m.Data...)) })
		noErr(t, err)
		noErr(t, other.Flush())
		for i := range 10 {
			m, err := nc.Request("svc", []byte(fmt.Sprint(i)), 5*time.Second)
			noErr(t, err)
			tr.Add("%s", m.Data)
		}
		start := time.Now()
		_, err = nc.Request("nobody", nil, 5*time.Second)
		tr.Add("no responders: %v, at once: %v", errors.Is(err, nats.ErrNoResponders), time.Since(start) < 2*time.Second)
		inbox := subscribe(t, nc, nats.NewInbox())
		noErr(t, nc.PublishRequest("nobody", inbox.Subject, nil))
		_, err = inbox.NextMsg(5 * time.Second)
		tr.Add("503: %v", err)
	})
}

func TestCoreQueueGroups(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		pub := connect(t, e.URL)
		counts := make(chan string, 1000)
		for i := range 3 {
			nc := connect(t, e.URL)
			_, err := nc.QueueSubscribe("work.*", "q", func(m *nats.Msg) { counts <- fmt.Sprint("q", i) })
			noErr(t, err)
			noErr(t, nc.Flush())
		}
		plain := subscribe(t, pub, "work.>")
		for range 300 {
			noErr(t, pub.Publish("work.x", nil))
		}
		noErr(t, pub.Flush())
		for range 300 {
			next(t, plain)
		}
		seen := map[string]int{}
		for range 300 {
			select {
			case c := <-counts:
				seen[c]++
			case <-time.After(5 * time.Second):
				t.Fatalf("only %v", seen)
			}
		}
		tr.pause(50 * time.Millisecond)
		fair := len(seen) == 3
		for _, n := range seen {
			fair = fair && n > 40
		}
		tr.Add("each to one member: %v, all members used: %v", len(counts) == 0, fair)
	})
}

func TestCoreAutoUnsubscribeAndDrain(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		sub := subscribe(t, nc, "max")
		noErr(t, sub.AutoUnsubscribe(5))
		for i := range 20 {
			noErr(t, nc.Publish("max", []byte(fmt.Sprint(i))))
		}
		noErr(t, nc.Flush())
		for {
			m, err := sub.NextMsg(tr.patience(200 * time.Millisecond))
			if err != nil {
				tr.Add("end: %v", err)
				break
			}
			tr.Add("%s", m.Data)
		}
		_, err := nc.Request("max", nil, time.Second)
		tr.Add("after the last: %v", err)

		closed := make(chan struct{})
		d := connect(t, e.URL, nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
		var got []string
		_, err = d.Subscribe("drain", func(m *nats.Msg) { time.Sleep(time.Millisecond); got = append(got, string(m.Data)) })
		noErr(t, err)
		noErr(t, d.Flush())
		for i := range 50 {
			noErr(t, nc.Publish("drain", []byte(fmt.Sprint(i))))
		}
		noErr(t, nc.Flush())
		noErr(t, d.Drain())
		<-closed
		tr.Add("drained: %s", strings.Join(got, " "))
	})
}

func TestCoreLimits(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		tr.Add("max payload %d, headers %v, auth %v, tls %v", nc.MaxPayload(), nc.HeadersSupported(), nc.AuthRequired(), nc.TLSRequired())
		sub := subscribe(t, nc, "big")
		noErr(t, nc.Publish("big", make([]byte, nc.MaxPayload())))
		tr.Add("largest: %d", len(next(t, sub).Data))
		tr.Add("too large: %v", nc.Publish("big", make([]byte, nc.MaxPayload()+1)))
		echo := connect(t, e.URL, nats.NoEcho())
		own := subscribe(t, echo, "echo")
		noErr(t, echo.Publish("echo", nil))
		noErr(t, nc.Publish("echo", []byte("other")))
		noErr(t, nc.Flush())
		tr.Add("no echo: %s", next(t, own).Data)
	})
}

// Concurrent publishers: each one's messages arrive in its order, all of them.
func TestCoreOrderPerPublisher(t *testing.T) {
	p := startGateway(t, t.TempDir())
	const publishers, each = 8, 2000
	sub := subscribe(t, connect(t, p.URL), "o.*")
	noErr(t, sub.SetPendingLimits(-1, -1))
	for i := range publishers {
		nc := connect(t, p.URL)
		go func() {
			for n := range each {
				_ = nc.Publish(fmt.Sprintf("o.%d", i), fmt.Append(nil, n)) // a loss is seen below
			}
			_ = nc.Flush()
		}()
	}
	last := map[string]int{}
	for range publishers * each {
		m := next(t, sub)
		if string(m.Data) != fmt.Sprint(last[m.Subject]) {
			t.Fatalf("%s: got %s, want %d", m.Subject, m.Data, last[m.Subject])
		}
		last[m.Subject]++
	}
	keys := []string{}
	for k := range last {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if len(keys) != publishers {
		t.Fatalf("subjects seen: %v", keys)
	}
}

// A client may hear a reply through two subscriptions, its request inbox with a wildcard and one to just that subject: the
// answer that nobody heard goes to the second.
func TestNoRespondersGoToTheNarrowestSubscription(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		_, err := nc.Request("nobody", nil, time.Second) // makes the inbox with a wildcard
		tr.Add("request: %v", err)
		inbox := subscribe(t, nc, nc.NewRespInbox())
		noErr(t, nc.PublishRequest("nobody", inbox.Subject, nil))
		_, err = inbox.NextMsg(2 * time.Second)
		tr.Add("literal inbox: %v", err)
		for range 2 {
			_, err = nc.Request("nobody", nil, time.Second)
			tr.Add("request: %v", err)
		}
		noErr(t, inbox.Unsubscribe())
		_, err = nc.Request("nobody", nil, time.Second)
		tr.Add("request: %v", err)
	})
}

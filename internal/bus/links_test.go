package bus_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/bus/bustest"
)

func inB(tb testing.TB, r *bus.Router) (bus.Session, *bustest.Sink) {
	tb.Helper()
	return open(tb, r, bus.KindClient, bus.Identity{Account: "B", ID: 7})
}

// fromA are links of an account that takes a stream and a service of A.
func fromA(e *bus.Export) *bus.Links {
	return &bus.Links{
		Streams: []bus.StreamImport{{
			Account: "A", From: "pub.*", To: "a.*",
			In:  func(s string) string { return "a." + strings.TrimPrefix(s, "pub.") },
			Out: func(s string) string { return "pub." + strings.TrimPrefix(s, "a.") },
		}},
		Services: []bus.ServiceImport{{From: "ask", To: "svc", Export: e}},
	}
}

func TestStreamImport(t *testing.T) {
	r := bus.NewRouter()
	a, _ := client(t, r)
	b, heard := inB(t, r)
	subscribe(t, b, "early", ">", "")
	r.SetLinks("B", fromA(&bus.Export{Account: "A"}))
	sub := subscribe(t, b, "x", "a.x", "")
	subscribe(t, b, "other", "pub.x", "")
	want(t, "interest", r.HasInterest("A", "pub.x"), true)
	want(t, "interest elsewhere", r.HasInterest("A", "a.x"), false)
	publish(a, "pub.x")
	publish(a, "pub.y")
	a.Flush()
	for _, d := range heard.Take() {
		if !strings.HasPrefix(string(d.Msg.Subject), "a.") {
			t.Errorf("%s hears %s", d.SID, d.Msg.Subject)
		}
	}
	want(t, "counted at the subscription of the party", sub.Delivered(), int64(1))
	b.Unsubscribe("early", 0)
	b.Unsubscribe("x", 2)
	publish(a, "pub.x")
	publish(a, "pub.x")
	a.Flush()
	want(t, "until its limit", sids(heard), "x")
	want(t, "interest after", r.HasInterest("A", "pub.x"), false)
	want(t, "subscriptions left in A", r.NumSubscriptions("A"), 0)

	subscribe(t, b, "again", "a.>", "")
	r.SetLinks("B", nil)
	want(t, "without links", publish(a, "pub.x"), false)
	want(t, "subscriptions left in A", r.NumSubscriptions("A"), 0)
}

func TestServiceImport(t *testing.T) {
	r := bus.NewRouter()
	var told []bus.Latency
	r.SetHooks(bus.Hooks{
		Describe: func(id bus.Identity, share bool, through string) string { return fmt.Sprint(id.ID, share, through) },
		Measured: func(l bus.Latency) { told = append(told, l) },
	})
	e := &bus.Export{Account: "A", Latency: &bus.LatencyExport{
		Results: "took", Sample: func([]byte) (any, bool) { return "trace", true },
	}}
	r.SetLinks("B", fromA(e))
	a, asked := client(t, r)
	b, answered := inB(t, r)
	ask := func() bool {
		return b.Publish(&bus.Msg{Subject: []byte("ask"), Reply: []byte("in"), Header: []byte("NATS/1.0\r\nK: v\r\nNats-Request-Info: forged\r\n\r\n")})
	}
	subscribe(t, b, "in", "in", "")
	want(t, "nobody serves", ask(), false)
	want(t, "interest", r.HasInterest("B", "ask"), false)
	subscribe(t, a, "svc", "svc", "")
	want(t, "interest", r.HasInterest("B", "ask"), true)
	want(t, "served", ask(), true)
	b.Flush()
	got := asked.Take()
	want(t, "requests", len(got), 1)
	want(t, "header", string(got[0].Msg.Header), "NATS/1.0\r\nK: v\r\nNats-Request-Info: 7 false\r\n\r\n")
	reply := string(got[0].Msg.Reply)
	want(t, "reply", strings.HasPrefix(reply, "_R_."), true)
	want(t, "interest in the answer", r.HasInterest("A", reply), true)
	want(t, "exact interest in the answer", r.HasExactInterest("A", reply), true)
	for i, wanted := range []bool{true, false} {
		want(t, fmt.Sprint("answer ", i), publish(a, reply), wanted)
	}
	a.Flush()
	want(t, "answers", sids(answered), "in")
	want(t, "a request without a way back", b.Publish(&bus.Msg{Subject: []byte("ask")}), true)
	b.Flush()
	statuses := ""
	for _, l := range told {
		statuses += fmt.Sprint(l.Status, " ")
	}
	want(t, "measured", statuses, "503 200 400 ")
}

// TestLateAnswer: who waits is forgotten after the export's threshold, and the measurement says so.
func TestLateAnswer(t *testing.T) {
	r := bus.NewRouter()
	late := make(chan bus.Latency, 1)
	r.SetHooks(bus.Hooks{Measured: func(l bus.Latency) { late <- l }})
	e := &bus.Export{Account: "A", Threshold: 30 * time.Millisecond, Latency: &bus.LatencyExport{
		Sample: func([]byte) (any, bool) { return nil, true },
	}}
	r.SetLinks("B", fromA(e))
	a, asked := client(t, r)
	b, _ := inB(t, r)
	subscribe(t, a, "svc", "svc", "")
	subscribe(t, b, "in", "in", "")
	b.Publish(&bus.Msg{Subject: []byte("ask"), Reply: []byte("in")})
	b.Flush()
	want(t, "status", (<-late).Status, 504)
	want(t, "answer", publish(a, string(asked.Take()[0].Msg.Reply)), false)
}

// TestAskerGoes: nobody waits for an answer that nobody wants.
func TestAskerGoes(t *testing.T) {
	r := bus.NewRouter()
	var told []int
	r.SetHooks(bus.Hooks{Measured: func(l bus.Latency) { told = append(told, l.Status) }})
	e := &bus.Export{Account: "A", Latency: &bus.LatencyExport{Sample: func([]byte) (any, bool) { return nil, true }}}
	r.SetLinks("B", fromA(e))
	a, asked := client(t, r)
	subscribe(t, a, "svc", "svc", "")
	b, _ := inB(t, r)
	ask := func(reply string) string {
		b.Publish(&bus.Msg{Subject: []byte("ask"), Reply: []byte(reply)})
		b.Flush()
		return string(asked.Take()[0].Msg.Reply)
	}
	subscribe(t, b, "1", "in.1", "")
	subscribe(t, b, "all", "in.*", "")
	first, second := ask("in.1"), ask("in.2")
	b.Unsubscribe("1", 0)
	want(t, "interest while another listens", r.HasInterest("A", first), true)
	b.Unsubscribe("all", 0)
	want(t, "interest", r.HasInterest("A", first) || r.HasInterest("A", second), false)
	want(t, "measured", fmt.Sprint(told), "[408 408]")

	subscribe(t, b, "2", "in.3", "")
	b.Unsubscribe("2", 1) // ends with the answer, which is one
	want(t, "an answer", publish(a, ask("in.3")), true)
	a.Flush()
	subscribe(t, b, "3", "in.4", "")
	ask("in.4")
	b.Close()
	want(t, "measured", fmt.Sprint(told), "[408 408 200 408]")
}

// TestImportsInACircle end.
func TestImportsInACircle(t *testing.T) {
	r := bus.NewRouter()
	inA, inB := &bus.Export{Account: "A"}, &bus.Export{Account: "B"}
	r.SetLinks("A", &bus.Links{Services: []bus.ServiceImport{{From: "x", To: "x", Export: inB}}})
	r.SetLinks("B", &bus.Links{Services: []bus.ServiceImport{{From: "x", To: "x", Export: inA}}})
	a, _ := client(t, r)
	for range 5 {
		want(t, "interest", publish(a, "x"), false)
		a.Flush()
	}
	want(t, "interest", r.HasInterest("A", "x"), false)
}

func TestRenamed(t *testing.T) {
	r := bus.NewRouter()
	a, _ := client(t, r)
	renamer, ok := a.(bus.Renamer)
	if !ok {
		t.Fatal("a session renames nothing")
	}
	_, changed := renamer.Renamed([]byte("old"))
	want(t, "without links", changed, false)
	r.SetLinks("A", &bus.Links{Map: func(s []byte) ([]byte, bool) { return []byte("new"), string(s) == "old" }})
	to, changed := renamer.Renamed([]byte("old"))
	want(t, "changed", changed, true)
	want(t, "to", string(to), "new")

	// Requests from other accounts are renamed too.
	r.SetLinks("B", &bus.Links{Services: []bus.ServiceImport{{From: "ask", To: "old", Export: &bus.Export{Account: "A"}}}})
	b, _ := inB(t, r)
	subscribe(t, a, "n", "new", "")
	want(t, "a request", publish(b, "ask"), true)
}

// TestLinksChangeUnderUse: whatever happens at once, nothing stays behind.
func TestLinksChangeUnderUse(t *testing.T) {
	r := bus.NewRouter()
	e := &bus.Export{Account: "A"}
	var work sync.WaitGroup
	for i := range 3 {
		work.Go(func() {
			for n := range 300 {
				s, err := r.Open(bus.KindClient, bus.Identity{Account: "B"}, &bustest.Sink{})
				if err != nil {
					t.Error(err)
					return
				}
				for _, f := range []string{">", "a.*", "a.x"} {
					_, _ = s.Subscribe(f, f, "")
				}
				if n%2 == i%2 {
					s.Unsubscribe("a.*", 0)
				}
				s.Close()
			}
		})
		work.Go(func() {
			p, _ := open(t, r, bus.KindClient, bus.Identity{Account: "AB"[i%2 : i%2+1]})
			for range 300 {
				p.Publish(&bus.Msg{Subject: []byte("pub.x")})
				p.Publish(&bus.Msg{Subject: []byte("ask"), Reply: []byte("a.x")})
				p.Flush()
			}
		})
	}
	work.Go(func() {
		for range 200 {
			r.SetLinks("B", fromA(e))
			r.SetLinks("B", nil)
		}
	})
	work.Wait()
	for _, account := range []string{"A", "B"} {
		want(t, "subscriptions left in "+account, r.NumSubscriptions(account), 0)
	}
}

// BenchmarkBesideImports publishes where there are imports that the subject does not meet: it must not allocate.
func BenchmarkBesideImports(b *testing.B) {
	r := bus.NewRouter()
	r.SetLinks("A", &bus.Links{Services: []bus.ServiceImport{{From: "far.>", To: "svc", Export: &bus.Export{Account: "B"}}}})
	p := benchSession(b, r)
	subscribe(b, benchSession(b, r), "1", "orders.*", "")
	m := bus.Msg{Subject: []byte("orders.eu"), Data: make([]byte, 128)}
	b.ReportAllocs()
	for b.Loop() {
		p.Publish(&m)
		p.Flush()
	}
}

// BenchmarkRequestAbroad is a request to a service of another account and its answer.
func BenchmarkRequestAbroad(b *testing.B) {
	r := bus.NewRouter()
	r.SetLinks("B", fromA(&bus.Export{Account: "A"}))
	asker, _ := inB(b, r)
	server, asked := client(b, r)
	subscribe(b, server, "1", "svc", "")
	subscribe(b, asker, "1", "in", "")
	b.ReportAllocs()
	for b.Loop() {
		asker.Publish(&bus.Msg{Subject: []byte("ask"), Reply: []byte("in")})
		asker.Flush()
		server.Publish(&bus.Msg{Subject: asked.Take()[0].Msg.Reply})
		server.Flush()
	}
}

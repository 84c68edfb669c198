package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startNats runs a nats-server inside the test and returns its client and monitoring URLs.
func startNats(t *testing.T) (client, monitor string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, HTTPHost: "127.0.0.1", HTTPPort: -1, ServerName: "shapes", JetStream: true,
		StoreDir: t.TempDir(), NoLog: true, NoSigs: true, MaxClosedClients: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server does not start")
	}
	return s.ClientURL(), "http://" + s.MonitorAddr().String()
}

// populate makes the same streams, consumers and connections on either server.
func populate(t *testing.T, url string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	gone, err := nats.Connect(url, nats.Name("gone"))
	check(err)
	_, err = gone.SubscribeSync("x.y")
	check(err)
	check(gone.Flush())
	gone.Close()
	nc, err := nats.Connect(url, nats.Name("stays"))
	check(err)
	t.Cleanup(nc.Close)
	_, err = nc.QueueSubscribeSync("q.>", "workers")
	check(err)
	js, err := jetstream.New(nc)
	check(err)
	ctx := t.Context()
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "ORDERS", Subjects: []string{"orders.*"}, Duplicates: time.Minute, MaxMsgs: 100, Metadata: map[string]string{"a": "b"}},
		{Name: "WORK", Subjects: []string{"work.>"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.MemoryStorage},
		{Name: "EMPTY", Subjects: []string{"empty"}},
	} {
		_, err := js.CreateStream(ctx, cfg)
		check(err)
	}
	for i := range 10 {
		_, err := js.Publish(ctx, fmt.Sprint("orders.", i%3), []byte("payload"))
		check(err)
		_, err = js.Publish(ctx, "work.a", nil)
		check(err)
	}
	for _, cfg := range []jetstream.ConsumerConfig{
		{Durable: "pull", FilterSubject: "orders.1", AckPolicy: jetstream.AckExplicitPolicy},
		{Durable: "multi", FilterSubjects: []string{"orders.1", "orders.2"}, AckPolicy: jetstream.AckExplicitPolicy, BackOff: []time.Duration{time.Second, time.Minute}, MaxDeliver: 3},
		{Name: "named", InactiveThreshold: time.Hour, AckPolicy: jetstream.AckNonePolicy},
	} {
		c, err := js.CreateConsumer(ctx, "ORDERS", cfg)
		check(err)
		msg, err := c.Next(jetstream.FetchMaxWait(5 * time.Second))
		check(err)
		if cfg.AckPolicy == jetstream.AckExplicitPolicy {
			check(msg.DoubleAck(ctx))
			_, err = c.Next(jetstream.FetchMaxWait(5 * time.Second)) // stays pending
			check(err)
		}
	}
	_, err = js.CreateConsumer(ctx, "WORK", jetstream.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy})
	check(err)
}

func get(t *testing.T, url string) (code int, header http.Header, body string) {
	t.Helper()
	resp, err := http.Get(url) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// shape is the set of paths of a JSON document with the type at each.
func shape(t *testing.T, body string) map[string]bool {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	out := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		out[fmt.Sprintf("%s %T", path, v)] = true
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				walk(path+"."+k, e)
			}
		case []any:
			for _, e := range v {
				walk(path+"[]", e)
			}
		}
	}
	walk("", v)
	return out
}

// without returns a without what is in b or starts with one of known.
func without(a, b map[string]bool, known []string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(a)) {
		if !b[k] && !slices.ContainsFunc(known, func(p string) bool { return strings.HasPrefix(k, p) }) {
			out = append(out, k)
		}
	}
	return out
}

// Each page has nats-server's keys and types when both servers hold the same.
func TestPagesHaveNatsServersShape(t *testing.T) {
	natsURL, natsHTTP := startNats(t)
	p := start(t, "-js", "-sd", t.TempDir(), "-n", "shapes")
	populate(t, natsURL)
	populate(t, p.ports.Nats[0])
	// What our pages may lack or add. Each consumer names its leader, which autoscalers look for, also on a server alone;
	// the configuration says that writes are synced and that blocks may be compressed; the JetStream API is no import.
	known := []string{
		".account_details[].stream_detail[].consumer_detail[].cluster", ".config.compress_ok ", ".config.sync_always ",
		".jetstream.config.compress_ok ", ".jetstream.config.sync_always ", ".account_detail.imports",
	}
	for _, page := range []string{
		"/varz", "/connz", "/connz?subs=1&auth=1", "/connz?subs=detail", "/connz?state=closed", "/connz?state=any&subs=1",
		"/connz?sort=bytes_to&limit=1", "/connz?cid=999999", "/subsz", "/subsz?subs=1", "/subscriptionsz?subs=1&test=q.1",
		"/jsz", "/jsz?accounts=true", "/jsz?streams=true", "/jsz?consumers=true", "/jsz?consumers=true&config=true",
		"/jsz?acc=$G&config=true&consumers=true", "/jsz?acc=none&consumers=true",
		"/accountz", "/accountz?acc=$G", "/accstatz", "/accstatz?unused=1", "/routez", "/gatewayz", "/leafz",
	} {
		natsCode, natsHeader, natsBody := get(t, natsHTTP+page)
		code, header, body := get(t, p.http()+page)
		if code != natsCode {
			t.Errorf("%s: status %d, nats-server's is %d", page, code, natsCode)
			continue
		}
		for _, h := range []string{"Content-Type", "Access-Control-Allow-Origin"} {
			if header.Get(h) != natsHeader.Get(h) {
				t.Errorf("%s: %s is %q, nats-server's %q", page, h, header.Get(h), natsHeader.Get(h))
			}
		}
		ours, theirs := shape(t, body), shape(t, natsBody)
		if lacks := without(theirs, ours, known); len(lacks) > 0 {
			t.Errorf("%s lacks %q", page, lacks)
		}
		if adds := without(ours, theirs, known); len(adds) > 0 {
			t.Errorf("%s adds %q", page, adds)
		}
	}
	p.stop()
}

// Probes and complaints are answered word for word.
func TestAnswersAreNatsServers(t *testing.T) {
	natsURL, natsHTTP := startNats(t)
	p := start(t, "-js", "-sd", t.TempDir(), "-n", "shapes")
	populate(t, natsURL)
	populate(t, p.ports.Nats[0])
	for _, page := range []string{
		"/healthz", "/healthz?js-enabled-only=true", "/healthz?js-server-only=true", "/healthz?details=1",
		"/healthz?js-enabled-only=maybe", "/healthz?stream=ORDERS", "/healthz?consumer=C&details=true",
		"/healthz?account=$G&stream=ORDERS", "/healthz?account=$G&stream=NONE", "/healthz?account=NONE",
		"/healthz?account=$G&stream=ORDERS&consumer=pull", "/healthz?account=$G&stream=ORDERS&consumer=none",
		"/healthz?account=$G&stream=NONE&details=1",
		"/connz?sort=nonsense", "/connz?sort=stop", "/connz?sort=reason", "/connz?limit=x", "/connz?offset=1.5",
		"/connz?cid=-1", "/connz?state=ajar", "/connz?subs=maybe", "/connz?auth=2",
		"/subsz?test=a.*", "/subsz?limit=x", "/jsz?streams=maybe", "/jsz?limit=x", "/accountz?acc=none", "/none",
	} {
		natsCode, _, natsBody := get(t, natsHTTP+page)
		code, _, body := get(t, p.http()+page)
		if code != natsCode || body != natsBody {
			t.Errorf("%s:\n%d %s\nnats-server:\n%d %s", page, code, body, natsCode, natsBody)
		}
	}
	p.stop()
}

// The values that autoscalers and exporters read are the same on both servers.
func TestJszValues(t *testing.T) {
	natsURL, natsHTTP := startNats(t)
	p := start(t, "-js", "-sd", t.TempDir(), "-n", "shapes")
	populate(t, natsURL)
	populate(t, p.ports.Nats[0])
	read := func(base string) server.JSInfo {
		_, _, body := get(t, base+"/jsz?acc=%24G&config=true&consumers=true")
		var j server.JSInfo
		if err := json.Unmarshal([]byte(body), &j); err != nil {
			t.Fatal(err)
		}
		return j
	}
	type row struct {
		msgs, lastSeq, bytes, pending uint64
		ackPending, redelivered       int
		delivered, floor              uint64
		durable                       string
	}
	rows := func(j server.JSInfo) map[string]row {
		out := map[string]row{"": {msgs: j.Messages, bytes: j.Bytes, lastSeq: uint64(j.Streams), pending: uint64(j.Consumers)}}
		if j.Meta != nil {
			t.Error("a server alone has no meta_cluster")
		}
		for _, s := range j.AccountDetails[0].Streams {
			out[s.Name] = row{msgs: s.State.Msgs, lastSeq: s.State.LastSeq, bytes: s.State.Bytes}
			for _, c := range s.Consumer {
				out[s.Name+"/"+c.Name] = row{
					pending: c.NumPending, ackPending: c.NumAckPending, redelivered: c.NumRedelivered,
					delivered: c.Delivered.Stream, floor: c.AckFloor.Stream, durable: c.Config.Durable,
				}
				if c.Cluster != nil && c.Cluster.Leader != "shapes" {
					t.Errorf("%s is led by %q", c.Name, c.Cluster.Leader)
				}
			}
		}
		return out
	}
	mine := read(p.http())
	if c := mine.AccountDetails[0].Streams[0].Consumer; len(c) > 0 && c[0].Cluster == nil {
		t.Error("a consumer has no leader")
	}
	ours, theirs := rows(mine), rows(read(natsHTTP))
	if len(theirs) != 8 {
		t.Fatalf("nats-server has other assets than expected: %v", theirs)
	}
	for name, want := range theirs {
		if got := ours[name]; got != want {
			t.Errorf("%s: want %+v, got %+v", name, want, got)
		}
	}
	p.stop()
}

package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go"
)

const systemConf = `
server_name: s1
accounts {
	SYS { users: [{user: sys, password: sys}] }
	A {
		jetstream: enabled
		users: [{user: a, password: a, permissions: {publish: {allow: [">"], deny: "x.y"}, subscribe: {allow: [">"]}, allow_responses: true}}]
		exports: [{service: "svc"}]
	}
	B { users: [{user: b, password: b}], imports: [{service: {account: A, subject: "svc"}}] }
}
system_account: SYS
`

// shape is the structure of a JSON value: its keys, with the kinds of its leaves. What is in fixed is shown as it is.
func shape(v any, fixed ...string) string {
	switch v := v.(type) {
	case map[string]any:
		// What a log that is always synced and compressed says of itself, and what there is inside nats-server.
		delete(v, "sync_always")
		delete(v, "compress_ok")
		delete(v, "System recvQ")
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if slices.Contains(fixed, k) {
				parts = append(parts, fmt.Sprintf("%s=%v", k, v[k]))
				continue
			}
			parts = append(parts, k+":"+shape(v[k], fixed...))
		}
		return "{" + strings.Join(parts, " ") + "}"
	case []any:
		if len(v) == 0 {
			return "[]"
		}
		return "[" + shape(v[0], fixed...) + "...]"
	default:
		return fmt.Sprintf("%T", v)
	}
}

// addShape records the shape of a JSON document.
func addShape(tr *transcript, label string, doc []byte, fixed ...string) {
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		tr.Add("%s: %q", label, doc)
		return
	}
	tr.Add("%s: %s", label, shape(v, fixed...))
}

func askSystem(t *testing.T, nc *nats.Conn, tr *transcript, subject, body string, fixed ...string) {
	t.Helper()
	m, err := nc.Request(subject, []byte(body), time.Second)
	if err != nil {
		tr.Add("%s %s: %v", strings.ReplaceAll(subject, serverID(t, nc), "<id>"), body, err)
		return
	}
	addShape(tr, strings.ReplaceAll(subject, serverID(t, nc), "<id>")+" "+scrubCID.ReplaceAllString(body, "<n>"), m.Data, fixed...)
}

var scrubCID = regexp.MustCompile(`\d+`)

func serverID(t *testing.T, nc *nats.Conn) string {
	t.Helper()
	return nc.ConnectedServerId()
}

func TestSystemRequests(t *testing.T) {
	compareWith(t, systemConf, func(t *testing.T, e endpoint, tr *transcript) {
		sys, a, b := as(t, e, "sys"), as(t, e, "a", nats.Name("one")), as(t, e, "b")
		_, err := a.Subscribe("x.>", func(*nats.Msg) {})
		noErr(t, err)
		noErr(t, a.Flush())
		id := sys.ConnectedServerId()
		for _, z := range []string{"IDZ", "STATSZ", "SUBSZ", "CONNZ", "ACCOUNTZ", "HEALTHZ", "ROUTEZ", "LEAFZ", "GATEWAYZ", "IPQUEUESZ", "RAFTZ", "NONSENSE"} {
			askSystem(t, sys, tr, "$SYS.REQ.SERVER.PING."+z, "", "code", "description")
			askSystem(t, sys, tr, "$SYS.REQ.SERVER."+id+"."+z, "{}", "code", "description")
		}
		askSystem(t, sys, tr, "$SYS.REQ.SERVER.PING", "")
		for _, body := range []string{
			`{"server_name":"s1"}`, `{"server_name":"s"}`, `{"server_name":"other"}`, `{"exact_match":true,"server_name":"s"}`,
			`{"cluster":"c"}`, `{"domain":"d"}`, `{"tags":["t"]}`, `{"server_name":5}`, `nonsense`,
		} {
			askSystem(t, sys, tr, "$SYS.REQ.SERVER.PING.IDZ", body)
			askSystem(t, sys, tr, "$SYS.REQ.SERVER.PING.HEALTHZ", body, "code", "status")
			askSystem(t, sys, tr, "$SYS.REQ.SERVER.PING", body, "code", "status")
		}
		askSystem(t, sys, tr, "$SYS.REQ.SERVER.PING.CONNZ", `{"auth":true,"acc":"A","subscriptions_detail":true}`, "account", "authorized_user", "name", "total", "num_connections", "subject")
		askSystem(t, sys, tr, "$SYS.REQ.SERVER.PING.CONNZ", `{"sort":"nonsense"}`, "code", "description")
		askSystem(t, sys, tr, "$SYS.REQ.SERVER.PING.JSZ", `{"accounts":true,"streams":true}`, "name")
		for _, z := range []string{"CONNZ", "JSZ", "STATZ", "CONNS", "LEAFZ"} {
			for _, acc := range []string{"A", "B", "SYS", "NONE"} {
				if z == "CONNZ" && acc == "NONE" {
					continue // null there, an empty list here
				}
				askSystem(t, sys, tr, "$SYS.REQ.ACCOUNT."+acc+"."+z, "", "code", "description", "acc", "total", "conns", "total_conns")
			}
		}
		askSystem(t, sys, tr, "$SYS.REQ.ACCOUNT.A.SUBSZ", "")
		askSystem(t, sys, tr, "$SYS.REQ.ACCOUNT.PING.STATZ", "")
		askSystem(t, sys, tr, "$SYS.REQ.ACCOUNT.PING.STATZ", `{"accounts":["A"]}`, "acc")
		askSystem(t, sys, tr, "$SYS.REQ.ACCOUNT.NONE.INFO", "", "code", "description")
		m, err := sys.Request("$SYS.DEBUG.SUBSCRIBERS", []byte("x"), time.Second)
		noErr(t, err)
		tr.Add("subscribers: %s", m.Data)
		m, err = sys.Request("$SYS.REQ.ACCOUNT.NSUBS", []byte(`{"acc":"A","subject":"x.z"}`), time.Second)
		noErr(t, err)
		tr.Add("nsubs: %s", m.Data)

		for _, nc := range []*nats.Conn{a, b, sys} {
			m, err := nc.Request("$SYS.REQ.USER.INFO", nil, time.Second)
			noErr(t, err)
			var info struct{ Data json.RawMessage }
			noErr(t, json.Unmarshal(m.Data, &info))
			tr.Raw("user info", info.Data)
		}
		for _, s := range []string{"$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.SERVER.PING.STATSZ", "$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.A.CONNZ"} {
			askSystem(t, b, tr, s, "", "total", "acc", "conns")
		}
		askSystem(t, sys, tr, "$JS.API.INFO", "", "code", "err_code", "description")

		health := func(encoding string) *nats.Msg {
			m, err := sys.RequestMsg(&nats.Msg{
				Subject: "$SYS.REQ.SERVER.PING.HEALTHZ", Header: nats.Header{"Accept-Encoding": {encoding}},
			}, time.Second)
			noErr(t, err)
			tr.Add("%v", m.Header)
			return m
		}
		unpacked, err := gzip.NewReader(bytes.NewReader(health("gzip").Data))
		noErr(t, err)
		doc, err := io.ReadAll(unpacked)
		noErr(t, err)
		addShape(tr, "gzip", doc)
		doc, err = io.ReadAll(s2.NewReader(bytes.NewReader(health("snappy").Data)))
		noErr(t, err)
		addShape(tr, "snappy", doc)
		addShape(tr, "unknown", health("br").Data)

		cid, err := a.GetClientID()
		noErr(t, err)
		askSystem(t, sys, tr, "$SYS.REQ.SERVER."+id+".KICK", `{"cid":999}`, "code", "description")
		askSystem(t, sys, tr, "$SYS.REQ.SERVER."+id+".LDM", `{"cid":999}`, "code", "description")
		duck := make(chan bool, 1)
		c := as(t, e, "b", nats.LameDuckModeHandler(func(*nats.Conn) { duck <- true }))
		ducked, err := c.GetClientID()
		noErr(t, err)
		askSystem(t, sys, tr, "$SYS.REQ.SERVER."+id+".LDM", fmt.Sprintf(`{"cid":%d}`, ducked), "code", "description")
		tr.Add("told to go: %v", <-duck)
		gone := make(chan error, 1)
		a.SetDisconnectErrHandler(func(_ *nats.Conn, err error) { gone <- err })
		m, err = sys.Request("$SYS.REQ.SERVER."+id+".KICK", []byte(fmt.Sprintf(`{"cid":%d}`, cid)), time.Second)
		noErr(t, err)
		addShape(tr, "kick", m.Data)
		<-gone
	})
}

func TestSystemEvents(t *testing.T) {
	compareWith(t, systemConf, func(t *testing.T, e endpoint, tr *transcript) {
		sys := as(t, e, "sys")
		id := sys.ConnectedServerId()
		all := subscribe(t, sys, "$SYS.ACCOUNT.>")
		errs := subscribe(t, sys, "$SYS.SERVER.*.CLIENT.AUTH.ERR")
		statsz := subscribe(t, sys, "$SYS.SERVER."+id+".STATSZ")
		counts := subscribe(t, sys, "$SYS.SERVER.ACCOUNT.*.CONNS")
		a := as(t, e, "a", nats.Name("one"))
		m := next(t, all)
		seen := map[string]string{}
		see := func(m *nats.Msg) {
			var v any
			noErr(t, json.Unmarshal(m.Data, &v))
			seen[m.Subject] = shape(v, "acc", "type", "user", "name", "reason", "kind", "client_type", "lang")
		}
		see(m)
		see(next(t, all))
		noErr(t, a.Publish("x.z", []byte("data")))
		noErr(t, a.Flush())
		a.Close()
		see(next(t, all))
		see(next(t, all))
		for _, s := range slices.Sorted(maps.Keys(seen)) {
			tr.Add("%s: %s", s, seen[s])
		}
		_, err := nats.Connect(e.URL, nats.UserInfo("nobody", "x"))
		tr.Add("%v", err)
		addShape(tr, "auth error", next(t, errs).Data, "acc", "type", "user", "name", "reason", "kind", "client_type", "lang")
		addShape(tr, "counts", next(t, counts).Data, "acc", "conns", "type")
		noErr(t, sys.Publish("$SYS.REQ.SERVER."+id+".STATSZ", nil))
		addShape(tr, "statsz", next(t, statsz).Data, "ver")
	})
}

const latencyConf = `
accounts {
	SYS { users: [{user: sys, password: sys}] }
	A {
		users: [{user: a, password: a}]
		exports: [
			{service: "svc", latency: {sampling: 100, subject: "took"}}, {service: "shared", latency: {sampling: 100%, subject: "took"}}
			{service: "traced", latency: {sampling: headers, subject: "took"}}
			{service: "slow", threshold: "100ms", latency: "took"}
		]
	}
	B {
		users: [{user: b, password: b}]
		imports: [
			{service: {account: A, subject: "svc"}}, {service: {account: A, subject: "shared"}, share: true}
			{service: {account: A, subject: "traced"}}, {service: {account: A, subject: "slow"}}
		]
	}
}
system_account: SYS
`

func TestServiceLatency(t *testing.T) {
	compareWith(t, latencyConf, func(t *testing.T, e endpoint, tr *transcript) {
		a, b := as(t, e, "a", nats.Name("responder")), as(t, e, "b", nats.Name("requestor"))
		took := subscribe(t, a, "took")
		fixed := []string{"type", "status", "description", "acc", "user", "name", "kind", "client_type", "lang", "header"}
		measured := func(label string) {
			m, err := took.NextMsg(2 * time.Second)
			if err != nil {
				tr.Add("%s: %v", label, err)
				return
			}
			var v struct{ Service, Total time.Duration }
			noErr(t, json.Unmarshal(m.Data, &v))
			addShape(tr, label, m.Data, fixed...)
			tr.Add("plausible: %v", v.Service >= 0 && v.Total >= v.Service && v.Total < time.Second)
		}
		_, err := b.Request("svc", nil, time.Second)
		tr.Add("%v", err)
		measured("nobody")
		for _, s := range []string{"svc", "shared", "traced"} {
			_, err := a.Subscribe(s, func(m *nats.Msg) { _ = m.Respond(nil) })
			noErr(t, err)
		}
		_, err = a.Subscribe("slow", func(m *nats.Msg) {})
		noErr(t, err)
		noErr(t, a.Flush())
		tr.pause(100 * time.Millisecond)
		for _, s := range []string{"svc", "shared"} {
			_, err := b.Request(s, nil, time.Second)
			noErr(t, err)
			measured(s)
		}
		noErr(t, b.Publish("svc", nil))
		measured("no reply")
		_, err = b.Request("traced", nil, time.Second)
		noErr(t, err)
		for _, h := range []nats.Header{
			{"X-B3-Sampled": {"1"}, "X-B3-Traceid": {"abc"}},
			{"Uber-Trace-Id": {"1:2:3:1"}, "Uberctx-X": {"y"}},
			{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "Tracestate": {"s"}},
		} {
			_, err = b.RequestMsg(&nats.Msg{Subject: "traced", Header: h}, time.Second)
			noErr(t, err)
			measured(fmt.Sprint("traced ", len(h)))
		}
		_, err = b.Request("slow", nil, 50*time.Millisecond)
		tr.Add("%v", err)
		measured("slow")
		goes := subscribe(t, b, "in")
		noErr(t, b.PublishRequest("slow", "in", nil))
		noErr(t, b.Flush())
		noErr(t, goes.Unsubscribe())
		noErr(t, b.Flush())
		measured("the requestor went")
	})
}

// TestSystemReload asks for a reload of a file that is good, and of one that is not.
func TestSystemReload(t *testing.T) {
	path := writeFile(t, "reload.conf", "ehdb { allow_tmp_store: true }\n"+systemConf)
	p := startGateway(t, t.TempDir(), "-c", path)
	sys := as(t, endpoint{URL: p.URL}, "sys")
	reload := func() string {
		m, err := sys.Request("$SYS.REQ.SERVER."+sys.ConnectedServerId()+".RELOAD", nil, 5*time.Second)
		noErr(t, err)
		var answer struct{ Error struct{ Description string } }
		noErr(t, json.Unmarshal(m.Data, &answer))
		return answer.Error.Description
	}
	noErr(t, os.WriteFile(path, []byte("ehdb { allow_tmp_store: true }\nmax_payload: 2048\n"+systemConf), 0o600))
	if text := reload(); text != "" {
		t.Fatal(text)
	}
	if n := connect(t, p.URL, nats.UserInfo("b", "b")).MaxPayload(); n != 2048 {
		t.Errorf("max_payload is %d", n)
	}
	noErr(t, os.WriteFile(path, []byte("nonsense: {"), 0o600))
	if text := reload(); text == "" {
		t.Error("no error")
	}
}

// TestSystemLifeEvents: a server says that it goes.
func TestSystemLifeEvents(t *testing.T) {
	p := startGateway(t, t.TempDir(), "-c", writeFile(t, "life.conf", `
		ehdb { allow_tmp_store: true }
		lame_duck_duration: 30s, lame_duck_grace_period: 1s
		`+systemConf))
	sys := as(t, endpoint{URL: p.URL}, "sys")
	id := sys.ConnectedServerId()
	duck := subscribe(t, sys, "$SYS.SERVER.*.LAMEDUCK")
	p.Signal(syscall.SIGUSR2)
	var info struct{ ID, Name string }
	noErr(t, json.Unmarshal(next(t, duck).Data, &info))
	if info.ID != id || info.Name != "s1" {
		t.Errorf("%+v", info)
	}
	<-p.done

	p = startGateway(t, t.TempDir(), "-c", writeFile(t, "life2.conf", "ehdb { allow_tmp_store: true }\n"+systemConf))
	sys = as(t, endpoint{URL: p.URL}, "sys")
	end := subscribe(t, sys, "$SYS.SERVER.*.SHUTDOWN")
	id = sys.ConnectedServerId()
	p.Signal(syscall.SIGTERM)
	if m := next(t, end); m.Subject != "$SYS.SERVER."+id+".SHUTDOWN" {
		t.Error(m.Subject)
	}
	<-p.done
}

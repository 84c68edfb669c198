package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/gateway/monitor"
)

// reading reads one series of a consumer of stream S.
func (p *process) reading(name, consumer string) float64 {
	p.t.Helper()
	form := fmt.Sprintf(`ehdb_consumer_%s{account="$G",consumer="%s",stream="S"}`, name, consumer)
	v, err := strconv.ParseFloat(series(p.t, p.http()+"/metrics", form), 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// expect waits until a series of consumer C has the value.
func (p *process) expect(name string, want float64) {
	p.t.Helper()
	p.await(fmt.Sprint(name, " ", want), func() bool { return p.reading(name, "C") == want })
}

// TestConsumerSeriesMove: each series of a consumer follows what clients do, and another consumer's stay at 0.
func TestConsumerSeriesMove(t *testing.T) {
	p := start(t, "-js", "-sd", t.TempDir())
	nc := p.connect()
	js := p.jetStream()
	ctx := t.Context()
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	durable := func(name, filter string) jetstream.Consumer {
		c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: name, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := durable("C", "s.c")
	durable("IDLE", "s.idle")
	gauges := []string{
		"pending", "ack_pending", "waiting_pulls", "redeliveries_total", "oldest_pending_seconds", "oldest_ack_pending_seconds",
	}
	for _, g := range gauges {
		p.expect(g, 0)
	}
	for range 3 {
		if _, err := js.Publish(ctx, "s.c", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	p.expect("pending", 3)
	time.Sleep(200 * time.Millisecond)
	if age := p.reading("oldest_pending_seconds", "C"); age < 0.2 || age > 30 {
		t.Errorf("the oldest pending message is %g s old", age)
	}
	aged := p.reading("last_delivery_age_seconds", "C")
	if aged < 0.2 {
		t.Errorf("nothing was delivered, and the age is %g s", aged)
	}
	var msgs []jetstream.Msg
	batch, err := c.Fetch(3, jetstream.FetchMaxWait(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		msgs = append(msgs, m)
	}
	p.expect("ack_pending", 3)
	p.expect("oldest_pending_seconds", 0)
	time.Sleep(200 * time.Millisecond)
	if age := p.reading("oldest_ack_pending_seconds", "C"); age < 0.2 || age > 30 {
		t.Errorf("the oldest unacknowledged message was delivered %g s ago", age)
	}
	if age := p.reading("last_delivery_age_seconds", "C"); age < 0.2 || age > 30 {
		t.Errorf("the last delivery was %g s ago", age)
	}
	if err := msgs[0].Nak(); err != nil {
		t.Fatal(err)
	}
	again, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	p.expect("redeliveries_total", 1)
	before := p.reading("last_ack_age_seconds", "C")
	for _, m := range []jetstream.Msg{again, msgs[1], msgs[2]} {
		if err := m.DoubleAck(ctx); err != nil {
			t.Fatal(err)
		}
	}
	p.expect("ack_pending", 0)
	p.expect("oldest_ack_pending_seconds", 0)
	const acks = "ehdb_consumer_ack_seconds"
	if n := series(t, p.http()+"/metrics", acks+"_count"); n != "3" { // a NAK is none
		t.Errorf("%s of 3 acks were measured", n)
	}
	if sum, err := strconv.ParseFloat(series(t, p.http()+"/metrics", acks+"_sum"), 64); err != nil || sum < 0.4 || sum > 90 {
		t.Errorf("two of the messages were out for 0.2 s, all together for %g (%v)", sum, err)
	}
	if after := p.reading("last_ack_age_seconds", "C"); after >= before+0.4 {
		t.Errorf("the age of the last ack went from %g to %g s", before, after)
	}
	inbox, err := nc.SubscribeSync(nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.C", inbox.Subject, []byte(`{"batch":1,"expires":60000000000}`)); err != nil {
		t.Fatal(err)
	}
	p.expect("waiting_pulls", 1)
	for _, g := range gauges {
		if v := p.reading(g, "IDLE"); v != 0 {
			t.Errorf("%s of a consumer without traffic is %g", g, v)
		}
	}
	if n := series(t, p.http()+"/metrics", "ehdb_stream_publish_ack_seconds_count"); n == "0" {
		t.Error("no publish was measured")
	}
	for _, s := range []string{"ehdb_storage_free_bytes", "ehdb_storage_size_bytes", `ehdb_jetstream_limit_bytes{storage="file"}`} {
		if series(t, p.http()+"/metrics", s) == "0" {
			t.Errorf("%s is 0", s)
		}
	}
	p.stop()
}

// TestDisconnectsByReason: every reason has a series from the start, and the right one moves.
func TestDisconnectsByReason(t *testing.T) {
	p := start(t)
	of := func(reason string) string { return `ehdb_gateway_disconnects_total{reason="` + reason + `"}` }
	value := func(reason string) string { return series(t, p.http()+"/metrics", of(reason)) }
	for _, r := range []string{"Client Closed", "Parse Error", "Slow Consumer (Pending Bytes)", "Stale Connection", "Authentication Failure"} {
		if v := value(r); v != "0" {
			t.Errorf("%s: %s before anything happened", r, v)
		}
	}
	says := func(text string) *net.TCPConn {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.ports.Nats[0], "nats://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return c.(*net.TCPConn) //nolint:forcetypeassert // a test
	}
	// A client that goes with something unread resets the connection, which is another reason: so this one reads.
	c := says("CONNECT {\"verbose\":false}\r\nPING\r\n")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Fatal(err)
	}
	p.await("a disconnect", func() bool { return value("Client Closed") == "1" })
	says("CONNECT {}\r\nGET / HTTP/1.1\r\n\r\n")
	p.await("a protocol error", func() bool { return value("Protocol Violation") == "1" || value("Parse Error") == "1" })
	p.stop()
}

// TestTopTalkers: who sends most has series, as many as are configured.
func TestTopTalkers(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "c.conf")
	if err := os.WriteFile(conf, []byte("ehdb { top_talkers: 1, top_tokens: 1 }\nauthorization { users: [{user: a, password: p}, {user: b, password: p}] }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "-c", conf)
	a, b := p.connect(nats.UserInfo("a", "p")), p.connect(nats.UserInfo("b", "p"))
	for i := range 1000 {
		for range 2 {
			if err := a.Publish(fmt.Sprint("orders.", i), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if i%10 == 0 {
			if err := b.Publish("large.x", make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(a.Flush(), b.Flush()); err != nil {
		t.Fatal(err)
	}
	_, _, page := get(t, p.http()+"/metrics")
	var got []string
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "ehdb_top_") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{
		`ehdb_top_account_bytes_total{account="$G"} 102000`, `ehdb_top_account_msgs_total{account="$G"} 2100`,
		`ehdb_top_subject_bytes_total{account="$G",subject="large.>"} `, `ehdb_top_subject_msgs_total{account="$G",subject="orders.>"} `,
		`ehdb_top_user_bytes_total{account="$G",user="b"} 100000`, `ehdb_top_user_msgs_total{account="$G",user="a"} 2000`,
	}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i, w := range want {
		if !strings.HasPrefix(got[i], w) {
			t.Errorf("got %q, want %q", got[i], w)
		}
	}
	p.stop()
}

func TestLagPage(t *testing.T) {
	p := start(t, "-js", "-sd", t.TempDir())
	js := p.jetStream()
	ctx := t.Context()
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := js.Publish(ctx, "s.a", nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Next(jetstream.FetchMaxWait(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	code, _, body := get(t, p.http()+"/api/v1/lag/$G/S/C")
	f := figures(t, code, body)
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(f["as_of"]))
	if err != nil || time.Since(at) > time.Minute {
		t.Errorf("as_of %v (%v)", f["as_of"], err)
	}
	for _, seconds := range []string{
		"oldest_pending_seconds", "oldest_ack_pending_seconds", "last_delivery_age_seconds", "last_ack_age_seconds",
	} {
		if n, ok := f[seconds].(float64); !ok || n <= 0 || n > 60 {
			t.Errorf("%s %v", seconds, f[seconds])
		}
		delete(f, seconds)
	}
	delete(f, "as_of")
	if got, want := fmt.Sprint(f), "map[account:$G ack_pending:1 complete:true consumer:C filters:[map[filter:s.> "+
		"pending:2]] lag:3 pending:2 redelivered:0 source:ehdb stream:S stream_last_seq:3 waiting_pulls:0]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for path, want := range map[string]string{
		"none/S/C": `account "none" with JetStream: not found`, "$G/none/C": `stream "none" of account "$G": not found`,
		"$G/S/none": `consumer "none" of stream "S" of account "$G": not found`,
		"none":      `account "none" with JetStream: not found`,
		"$G/none":   `stream "none" of account "$G": not found`,
	} {
		if code, _, body := get(t, p.http()+"/api/v1/lag/"+path); code != http.StatusNotFound || strings.TrimSpace(body) != want {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	p.stop()
}

func figures(t *testing.T, code int, body string) map[string]any {
	t.Helper()
	var f map[string]any
	if err := json.Unmarshal([]byte(body), &f); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s (%v)", code, body, err)
	}
	return f
}

// TestLagList: the consumers of all, of an account and of a stream, with the lag of each filter: a pool that stands
// still shows beside one that works.
func TestLagList(t *testing.T) {
	p := start(t, "-js", "-sd", t.TempDir())
	js := p.jetStream()
	ctx := t.Context()
	for _, name := range []string{"S", "T"} {
		s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{strings.ToLower(name) + ".>"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "D"}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{
		Durable: "C", FilterSubjects: []string{"s.user", "s.system"}, AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"s.system", "s.user", "s.user", "s.other", "t.a"} {
		if _, err := js.Publish(ctx, subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err == nil {
		err = m.DoubleAck(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"": "7: S/C 2 [s.user 2 s.system 0] S/D 4 [s.> 4] T/D 1 [t.> 1]", "/$G": "7: S/C 2 [s.user 2 s.system 0] S/D 4 [s.> 4] T/D 1 [t.> 1]",
		"/$G/S": "6: S/C 2 [s.user 2 s.system 0] S/D 4 [s.> 4]", "/$G/T": "1: T/D 1 [t.> 1]",
	} {
		code, _, body := get(t, p.http()+"/api/v1/lag"+path)
		f := figures(t, code, body)
		got := fmt.Sprint(f["lag"], ":")
		for _, c := range f["consumers"].([]any) {
			c := c.(map[string]any)
			got += fmt.Sprint(" ", c["stream"], "/", c["consumer"], " ", c["lag"], " ")
			var filters []string
			for _, one := range c["filters"].([]any) {
				one := one.(map[string]any)
				filters = append(filters, fmt.Sprint(one["filter"], " ", one["pending"]))
			}
			got += fmt.Sprint(filters)
		}
		if want != got || f["complete"] != true {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	p.stop()
}

// TestNotReadyIsPlainText: while streams are recovered a scaler gets an error, not zeros and nothing it could decode.
func TestNotReadyIsPlainText(t *testing.T) {
	s := &streams{}
	mux := http.NewServeMux()
	mux.Handle(lagOfConsumer, lagPage(s))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/lag/$G/S/C", nil))
	if w.Code != http.StatusServiceUnavailable || !strings.HasPrefix(w.Body.String(), "not ready: ") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	var unavailable *monitor.UnavailableError // which /jsz answers as 503 in plain text
	if _, err := s.Jsz(&server.JSzOptions{}); !errors.As(err, &unavailable) {
		t.Errorf("jsz: %v", err)
	}
	w = httptest.NewRecorder()
	lagPage(noStreams{}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

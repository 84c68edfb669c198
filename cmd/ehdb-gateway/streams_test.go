package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// series returns the value of a series at url, which must be one line of exactly this form.
func series(t *testing.T, url, form string) string {
	t.Helper()
	code, _, body := get(t, url)
	if code != http.StatusOK {
		t.Fatalf("%s: %d %s", url, code, body)
	}
	var found []string
	for l := range strings.SplitSeq(body, "\n") {
		if v, ok := strings.CutPrefix(l, form+" "); ok {
			found = append(found, v)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d lines of %s", len(found), form)
	}
	return found[0]
}

func (p *process) jetStream() jetstream.JetStream {
	p.t.Helper()
	js, err := jetstream.New(p.connect())
	if err != nil {
		p.t.Fatal(err)
	}
	return js
}

// What was acknowledged is there after a SIGKILL, and the feed's gauges are those of before.
func TestRestartKeepsStreamsAndGauges(t *testing.T) {
	dir := t.TempDir()
	file := configFile(t, `ehdb { shards: 2, subjects: ["commands.shared.shard.0", "commands.shared.shard.9"], metrics_port: -1,
		map: [{ subject: "commands.*.shard.0", shard: 0 }, { subject: "commands.*.shard.*", shard: 1 }] }`)
	p := start(t, "-c", file, "-js", "-sd", dir)
	p.awaitLog("[INF] Starting JetStream")
	p.awaitLog("[INF] Starting metrics on 127.0.0.1:")
	js := p.jetStream()
	ctx := t.Context()
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "COMMANDS", Subjects: []string{"commands.>"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "pool", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	one, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "one", FilterSubject: "commands.shared.shard.1", AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		if _, err := js.Publish(ctx, fmt.Sprint("commands.shared.shard.", i%3), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.Publish(ctx, "commands.shared.shard.0", nil, jetstream.WithExpectLastSequence(99)); err == nil {
		t.Fatal("a wrong expectation is taken")
	}
	msg, err := one.Next(jetstream.FetchMaxWait(5 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := msg.DoubleAck(ctx); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"ehdb_feed_total_lag":                                      "15", // 12 for the one durable, 3 for the other
		`ehdb_feed_shard_lag{shard="0"}`:                           "12",
		`ehdb_feed_shard_lag{shard="1"}`:                           "12",
		`ehdb_feed_subject_lag{subject="commands.shared.shard.1"}`: "3",
		`ehdb_feed_subject_lag{subject="commands.>"}`:              "12",
		`ehdb_feed_subject_lag{subject="commands.shared.shard.0"}`: "4",
		`ehdb_feed_subject_lag{subject="commands.shared.shard.9"}`: "0",
		"ehdb_l0_out_of_order_appends":                             "0",
		"ehdb_jetstream_streams":                                   "1",
		"ehdb_jetstream_consumers":                                 "2",
		"ehdb_jetstream_messages":                                  "12",
		"ehdb_storage_up":                                          "1",
	}
	check := func() (committed int) {
		for form, v := range want {
			if got := series(t, p.http()+"/metrics", form); got != v {
				t.Errorf("%s: want %s, got %s", form, v, got)
			}
		}
		for _, shard := range []string{"0", "1"} {
			n, err := strconv.Atoi(series(t, p.http()+"/metrics", `ehdb_feed_shard_committed{shard="`+shard+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			committed += n
		}
		return committed
	}
	before := check()
	if got := series(t, p.http()+"/metrics", `ehdb_jetstream_publish_refusals_total{err_code="10071"}`); got != "1" {
		t.Errorf("refusals: %s", got)
	}
	p.signal(syscall.SIGKILL)
	<-p.ended

	p = start(t, "-c", file, "-js", "-sd", dir)
	p.awaitLog(" records of ")
	if after := check(); after < before || before < 12 {
		t.Errorf("the committed position went from %d to %d", before, after)
	}
	p.stop()
}

func TestTwoProcessesOneDirectory(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "-js", "-sd", dir)
	pid := strconv.Itoa(p.cmd.Process.Pid)
	_, errs, code := once(t, "-js", "-sd", dir, "--allow_tmp_store", "-a", "127.0.0.1", "-p", "-1", "-P", p.pidFile())
	if code != 1 || !strings.Contains(errs, "can't start JetStream") || !strings.Contains(errs, "in use") || !strings.Contains(errs, pid) {
		t.Errorf("want a refusal that names process %s, got %q (%d)", pid, errs, code)
	}
	if b, err := os.ReadFile(p.pidFile()); err != nil || string(b) != pid {
		t.Errorf("the pid file of the first process holds %q (%v)", b, err)
	}
	p.stop()
}

func TestShardCountIsSettled(t *testing.T) {
	dir := t.TempDir()
	start(t, "-js", "-sd", dir, "-c", configFile(t, "ehdb { shards: 2 }")).stop()
	_, errs, code := once(t, "-js", "-sd", dir, "--allow_tmp_store", "-a", "127.0.0.1", "-p", "-1", "-c", configFile(t, "ehdb { shards: 3 }"))
	if code != 1 || !strings.Contains(errs, "has 2 shards and ehdb.shards says 3") {
		t.Errorf("got %q (%d)", errs, code)
	}
	start(t, "-js", "-sd", dir).stop()
}

func TestJetStreamIsOffUnlessAskedFor(t *testing.T) {
	p := start(t)
	nc := p.connect()
	if _, err := nc.Request("$JS.API.INFO", nil, time.Second); err != nats.ErrNoResponders { //nolint:errorlint // as clients do
		t.Errorf("got %v", err)
	}
	if _, _, body := get(t, p.http()+"/jsz"); !strings.Contains(body, `"disabled": true`) {
		t.Errorf("jsz: %s", body)
	}
	if code, _, body := get(t, p.http()+"/healthz"); code != http.StatusOK || body != `{"status":"ok"}` {
		t.Errorf("healthz: %d %s", code, body)
	}
	if got := series(t, p.http()+"/metrics", "ehdb_feed_total_lag"); got != "0" {
		t.Errorf("lag %s", got)
	}
	p.stop()
}

func TestJSONLog(t *testing.T) {
	p := launch(t, "-c", configFile(t, "ehdb { log_format: json }"))
	p.awaitLog(`"msg":"  NATS:     2.15.2"`) // a message with a place in it
	p.awaitLog(`"msg":"Server is ready"`)
	p.stop()
}

func TestTerminatedWhileStarting(t *testing.T) {
	p := launch(t, "-js", "-sd", t.TempDir())
	p.awaitLog("Starting http monitor")
	p.signal(syscall.SIGTERM)
	p.exit()
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

// TestServedAlone: the nats-server is killed after a stream and a key-value bucket were moved here. Their clients, with
// passwords and keys, go on with what they may do; what was not moved is refused with the reason, and who is not known
// turned away. Pages, metrics and ehdbctl say so, a feed goes on. With the server back the two sides become equal again
// and a rollback loses nothing.
func TestServedAlone(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" || os.Getenv("EHDB_SLOW") == "" {
		t.Skip("takes half a minute: set EHDB_SLOW=1")
	}
	key, err := nkeys.CreateUser()
	noErr(t, err)
	public, err := key.PublicKey()
	noErr(t, err)
	ns := &node{t: t, bin: buildNATS(t), name: "n1", client: freePort(t), pages: freePort(t)}
	ns.conf = writeFile(t, "n1.conf", fmt.Sprintf(`listen: "127.0.0.1:%d"
http: "127.0.0.1:%d"
jetstream { store_dir: %q }
authorization { users: [
  { user: own, password: own }
  { user: alice, password: secret, permissions: { publish: ["orders.a", "audit.>", "$JS.>", "$KV.>", "$SYS.REQ.USER.INFO", "_INBOX.>"], subscribe: ["_INBOX.>", "orders.>"] } }
  { nkey: %s }
] }
`, ns.client, ns.pages, filepath.Join(t.TempDir(), "n1"), public))
	ns.start()
	ns.healthy()
	dir := t.TempDir()
	p := startGateway(t, dir, "-c", writeFile(t, "gw.conf", fmt.Sprintf(`ehdb { allow_tmp_store: true, feed { heartbeat: "1s" } }
bus { mode: shadow, profile: drill, upstream: [%q], monitor: [%q], accounts { "$G": { user: own, password: own } } }`,
		ns.url(), ns.page())))
	patient := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond)}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	alice, _ := jetStream(t, connect(t, p.URL, append(patient, nats.UserInfo("alice", "secret"))...))
	bob, _ := jetStream(t, connect(t, p.URL, append(patient, nats.Nkey(public, key.Sign))...))
	for _, name := range []string{"orders", "audit"} {
		_, err = bob.CreateStream(ctx, jetstream.StreamConfig{Name: strings.ToUpper(name), Subjects: []string{name + ".>"}})
		noErr(t, err)
	}
	kv, err := bob.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "B"})
	noErr(t, err)
	worker, err := alice.CreateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{Durable: "W", AckPolicy: jetstream.AckExplicitPolicy})
	noErr(t, err)
	const before, all = 110, 131 // gates want a hundred
	publish := func(n int, text string) {
		t.Helper()
		for i := range n {
			_, err := alice.Publish(ctx, "orders.a", fmt.Append(nil, text, i))
			noErr(t, err)
		}
	}
	publish(before, "before ")
	_, err = alice.Publish(ctx, "audit.a", nil)
	noErr(t, err)
	for i := range before {
		_, err = kv.PutString(ctx, fmt.Sprint("k", i), "before")
		noErr(t, err)
	}
	ctlBin := buildCtl(t)
	operator := []string{"--server", p.Monitor, "--token-file", filepath.Join(dir, "ehdb-cutover", "operator.token")}
	run := func(args ...string) (string, error) {
		out, code := ctl(t, ctlBin, append(args, operator...)...)
		if code != 0 {
			return out, fmt.Errorf("exit code %d: %s", code, out)
		}
		return out, nil
	}
	for _, stream := range []string{"ORDERS", "KV_B"} {
		until(t, "the flip of "+stream, 2*time.Minute, func() error {
			_, err := run(append(flipArgs("--observe", "0"), "--scope", stream)...)
			return err
		})
	}

	ns.kill()
	killed := time.Now()
	until(t, "a publish", 10*time.Second, func() error {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := alice.Publish(limited, "orders.a", []byte("during"), jetstream.WithMsgID("during"))
		return err
	})
	t.Logf("the first publish %v after the server was killed", time.Since(killed).Round(time.Millisecond))
	publish(20, "during ")
	b, err := worker.Fetch(all, jetstream.FetchMaxWait(5*time.Second))
	noErr(t, err)
	taken := 0
	for m := range b.Messages() {
		noErr(t, m.DoubleAck(ctx))
		taken++
	}
	if taken != all {
		t.Errorf("%d messages taken: %v", taken, b.Error())
	}
	until(t, "a key", 10*time.Second, func() error { _, err := kv.PutString(ctx, "k1", "during"); return err })
	if e, err := kv.Get(ctx, "k1"); err != nil || string(e.Value()) != "during" {
		t.Errorf("a key: %v, %v", e, err)
	}
	var api *jetstream.APIError
	if _, err = alice.Publish(ctx, "audit.a", nil); !errors.As(err, &api) || api.Code != 503 {
		t.Errorf("a publish to what is not here: %v", err)
	}
	if _, err := nats.Connect(p.URL, nats.UserInfo("alice", "guess")); err == nil {
		t.Error("a wrong password is let in")
	}
	if status, body := page(t, p.Monitor+"/healthz"); status != http.StatusOK {
		t.Errorf("healthz: %d %s", status, body)
	}
	_, metrics := page(t, p.Monitor+"/metrics")
	for _, want := range []string{
		"ehdb_outage_active 1", "ehdb_outage_clients 2", "ehdb_outage_logins 2", "ehdb_outage_unknown_logins_total 1",
		"ehdb_outage_refused_messages_total 1",
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	if _, varz := page(t, p.Monitor+"/varz"); !strings.Contains(varz, `"outage"`) || !strings.Contains(varz, `"logins_remembered": 2`) {
		t.Errorf("varz: %s", varz[strings.Index(varz, `"bus"`):])
	}
	if out, err := run("status"); err != nil || !strings.Contains(out, "no NATS server can be reached since") ||
		!strings.Contains(out, "2 clients are served from here alone: $G/KV_B, $G/ORDERS; NOT served: $G/AUDIT") {
		t.Errorf("status: %v\n%s", err, out)
	}
	if status, body := page(t, p.Monitor+"/api/v1/lag/$G/ORDERS/W"); status != http.StatusOK {
		t.Errorf("lag: %d %s", status, body)
	}
	last := fmt.Sprint("id: ", all)
	if text := feedOnce(t, p.Monitor+"/feed/$G/ORDERS?deliver=last", "alice", "secret", last); !strings.Contains(text, last) {
		t.Errorf("feed: %s", text)
	}
	if text := feedOnce(t, p.Monitor+"/feed/$G/ORDERS?deliver=last", "alice", "guess", last); !strings.Contains(text, "503") {
		t.Errorf("feed: %s", text)
	}

	ns.start()
	until(t, "what is not here", 20*time.Second, func() error {
		limited, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := alice.Publish(limited, "audit.a", nil)
		return err
	})
	until(t, "a rollback", time.Minute, func() error { _, err := run("rollback", "--scope", "ORDERS"); return err })
	until(t, "another", time.Minute, func() error { _, err := run("rollback", "--scope", "KV_B"); return err })
	direct, _ := jetStream(t, connect(t, ns.url(), nats.UserInfo("own", "own")))
	s, err := direct.Stream(ctx, "ORDERS")
	noErr(t, err)
	for seq := uint64(1); seq <= all; seq++ {
		want := fmt.Sprint("before ", seq-1)
		if seq == before+1 {
			want = "during"
		} else if seq > before+1 {
			want = fmt.Sprint("during ", seq-before-2)
		}
		m, err := s.GetMsg(ctx, seq)
		noErr(t, err)
		if string(m.Data) != want {
			t.Errorf("sequence %d: %q on the servers, want %q", seq, m.Data, want)
		}
	}
	c, err := direct.Consumer(ctx, "ORDERS", "W")
	noErr(t, err)
	if i := c.CachedInfo(); s.CachedInfo().State.LastSeq != all || i.NumPending != 0 || i.NumAckPending != 0 {
		t.Errorf("the servers have %+v, %+v", s.CachedInfo().State, i)
	}
	dkv, err := direct.KeyValue(ctx, "B")
	noErr(t, err)
	if e, err := dkv.Get(ctx, "k1"); err != nil || string(e.Value()) != "during" {
		t.Errorf("a key on the servers: %v, %v", e, err)
	}
	if _, metrics = page(t, p.Monitor+"/metrics"); !strings.Contains(metrics, "ehdb_outage_active 0\n") {
		t.Error("the outage is not over")
	}
}

// feedOnce returns the beginning of a feed, up to a text, or the status of what is none.
func feedOnce(t *testing.T, url, user, password, upto string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	noErr(t, err)
	req.SetBasicAuth(user, password)
	resp, err := http.DefaultClient.Do(req)
	noErr(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.Status
	}
	var text strings.Builder
	buf := make([]byte, 1<<10)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && !strings.Contains(text.String(), upto); {
		n, err := resp.Body.Read(buf)
		text.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		noErr(t, err)
	}
	return text.String()
}

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// forcedGates are those that a test of some seconds cannot fill.
var forcedGates = map[string]string{
	"G5": "t", "G6": "t", "G7": "t", "G10": "t", "G11": "t", "G12": "t", "G13": "t", "G14": "t", "G17": "t", "G18": "t",
	"G20": "t", "G22": "t",
}

// operate asks the gateway at that monitoring port, whose data is in dir, for a change, again until it is done.
func operate(t *testing.T, monitor int, dir, verb, stream string) {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(dir, "ehdb-cutover", "operator.token"))
	noErr(t, err)
	body := map[string]any{"by": "test", "reason": "test", "scope": stream}
	if verb == "flip" {
		body["retries"], body["force"] = 5, forcedGates
	}
	doc, err := json.Marshal(body)
	noErr(t, err)
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(300 * time.Millisecond) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			fmt.Sprintf("http://127.0.0.1:%d/cutover/v1/%s", monitor, verb), bytes.NewReader(doc))
		noErr(t, err)
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		resp, err := http.DefaultClient.Do(req)
		noErr(t, err)
		answer, err := io.ReadAll(resp.Body)
		noErr(t, err)
		noErr(t, resp.Body.Close())
		if resp.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s of %s: %s", verb, stream, answer)
		}
	}
}

// TestFeedAcrossFlips: feeds of a stream that goes from a nats-server to the gateway, back and there again while messages
// come in have each message once and in order, over the connections that they had at the start. Logins are the
// nats-server's.
func TestFeedAcrossFlips(t *testing.T) {
	t.Parallel()
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("feeds are ours")
	}
	reader := &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			"$SYS.REQ.USER.INFO", "$JS.API.STREAM.INFO.S", "$JS.API.STREAM.MSG.GET.S",
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{"s.>", "_INBOX.>"}, Deny: []string{"s.secret"}},
	}
	ns := startOracle(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "app", Password: "pw"},
			{Username: "reader", Password: "pw", Permissions: reader},
			{Username: "blind", Password: "pw", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{"$SYS.REQ.USER.INFO"}},
			}},
		}
	})
	dir, client, monitor := t.TempDir(), freePort(t), freePort(t)
	conf := writeFile(t, "feed.conf", fmt.Sprintf(`ehdb { allow_tmp_store: true, feed { heartbeat: "1s" } }
bus { mode: shadow, upstream: [%q], monitor: ["http://%s"], profile: drill, accounts { "$G": { user: app, password: pw } } }`,
		ns.ClientURL(), ns.MonitorAddr()))
	start := func() *process {
		return startGateway(t, dir, "-c", conf, "-p", strconv.Itoa(client), "-m", strconv.Itoa(monitor))
	}
	p := start()
	nc := connect(t, p.URL, nats.UserInfo("app", "pw"), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	js, err := jetstream.New(nc)
	noErr(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	noErr(t, err)

	url := fmt.Sprintf("http://127.0.0.1:%d/feed/$G/S", monitor)
	for _, tc := range []struct {
		login, query string
		status       int
		says         string
	}{
		{"", "", 401, "login refused"},
		{"app:wrong", "", 401, "login refused"},
		{"blind:pw", "", 403, "$JS.API.STREAM.INFO.S"},
		{"reader:pw", "?filter=t.x", 400, "matches no subject"},
		{"reader:pw", "?filter=s.secret", 403, "may not subscribe"},
		{"app:pw", "?filter=s.>&deliver=last", 200, "retry"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+tc.query, nil)
		noErr(t, err)
		if user, password, ok := strings.Cut(tc.login, ":"); ok {
			req.SetBasicAuth(user, password)
		}
		resp, err := http.DefaultClient.Do(req)
		noErr(t, err)
		var says [512]byte
		n, _ := resp.Body.Read(says[:])
		_ = resp.Body.Close()
		if resp.StatusCode != tc.status || !strings.Contains(string(says[:n]), tc.says) {
			t.Errorf("%s %s: %s: %s", tc.login, tc.query, resp.Status, says[:n])
		}
	}

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	all := &feedReader{name: "all", user: "app"}
	some := &feedReader{name: "filtered", user: "app"}
	few := &feedReader{name: "permitted", user: "reader"}
	running.Go(func() { all.follow(ctx, url) })
	running.Go(func() { some.follow(ctx, url+"?filter=s.a") })
	running.Go(func() { few.follow(ctx, url) })

	var mu sync.Mutex
	want := map[*feedReader][]string{}
	var publishing sync.WaitGroup
	quit := make(chan struct{})
	publishing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			case <-time.After(2 * time.Millisecond):
			}
			subject := []string{"s.a", "s.b", "s.secret"}[i%3]
			var ack *jetstream.PubAck
			for ack == nil { // the gateway is killed below
				limited, cancel := context.WithTimeout(ctx, 2*time.Second)
				ack, err = js.Publish(limited, subject, fmt.Append(nil, i), jetstream.WithMsgID(fmt.Sprint(i)))
				if cancel(); ctx.Err() != nil {
					return
				}
			}
			mu.Lock()
			line := fmt.Sprint(ack.Sequence, " ", i)
			want[all] = append(want[all], line)
			if subject == "s.a" {
				want[some] = append(want[some], line)
			}
			if subject != "s.secret" {
				want[few] = append(want[few], line)
			}
			mu.Unlock()
		}
	})
	verify := func(connections int) {
		t.Helper()
		for _, r := range []*feedReader{all, some, few} {
			mu.Lock()
			n := len(want[r])
			mu.Unlock()
			for deadline := time.Now().Add(30 * time.Second); r.count() < n && time.Now().Before(deadline); {
				time.Sleep(20 * time.Millisecond)
			}
			mu.Lock()
			r.mu.Lock()
			n = min(len(r.got), len(want[r])) // the acknowledgement of the last ones may be on its way
			switch {
			case r.problem != "" || connections > 0 && r.restarts+1 > connections:
				t.Errorf("%s: %d connections, %s", r.name, r.restarts+1, r.problem)
			case strings.Join(r.got[:n], "\n") != strings.Join(want[r][:n], "\n"):
				t.Errorf("%s got %d messages, want %d:\n%s", r.name, len(r.got), len(want[r]),
					strings.Join(diff(want[r], r.got), "\n"))
			default:
				t.Logf("%s: %d messages, %d connections", r.name, len(r.got), r.restarts+1)
			}
			r.mu.Unlock()
			mu.Unlock()
		}
	}
	time.Sleep(time.Second)
	for _, verb := range []string{"flip", "rollback", "flip"} {
		operate(t, monitor, dir, verb, "S")
		time.Sleep(time.Second)
	}
	verify(1)
	p.Kill()
	p = start()
	time.Sleep(time.Second)
	operate(t, monitor, dir, "rollback", "S")
	time.Sleep(time.Second)
	close(quit)
	publishing.Wait()
	verify(0)
	stop()
	running.Wait()
	noErr(t, p.Stop())
}

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// feedReader follows a feed as an EventSource does: when the connection ends, it comes back behind the last event.
type feedReader struct {
	name string
	user string // logs in with the password "pw"; empty: not at all

	mu       sync.Mutex
	got      []string // "id data"
	problem  string
	restarts int
}

func (r *feedReader) follow(ctx context.Context, url string) {
	last := ""
	for ctx.Err() == nil {
		last = r.once(ctx, url, last)
		r.mu.Lock()
		r.restarts++
		r.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
}

// once reads until the connection ends, and returns the id to go on behind.
func (r *feedReader) once(ctx context.Context, url, last string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	if r.user != "" {
		req.SetBasicAuth(r.user, "pw")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return last
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return last // recovering, or a proxy that finds nobody
	}
	var id, name, data string
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		field, value, _ := strings.Cut(in.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data = value
		case "": // a block that was cut off does not count
			r.take(name, id, data)
			if id != "" {
				last = id
			}
			name, data = "", ""
		}
	}
	return last
}

func (r *feedReader) take(name, id, data string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case name == "gap" || name == "reset":
		r.problem = name + " " + data
	case name == "" && data != "":
		r.got = append(r.got, id+" "+data)
	}
}

func (r *feedReader) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// feedPage is a page that reads a feed with the browser's own EventSource and reports what it got.
const feedPage = `<!doctype html><script>
const got = [], feed = new EventSource(%q)
const report = (path, what) => fetch(path, { method: 'POST', body: JSON.stringify(what) })
feed.onmessage = e => { got.push(e.lastEventId + ' ' + e.data); if (e.data === 'the end') report('/got', got) }
for (const name of ['gap', 'reset']) feed.addEventListener(name, e => report('/problem', name + ' ' + e.data))
feed.onerror = () => { if (feed.readyState === EventSource.CLOSED) report('/problem', 'the browser gave up') }
</script>`

// browse has a real browser follow a feed.
func (r *feedReader) browse(t *testing.T, chromium, url string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, feedPage, url)
	})
	mux.HandleFunc("/got", func(_ http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := json.NewDecoder(req.Body).Decode(&r.got); err != nil {
			r.problem = err.Error()
		}
	})
	mux.HandleFunc("/problem", func(_ http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		_ = json.NewDecoder(req.Body).Decode(&r.problem)
	})
	pages := httptest.NewServer(mux)
	t.Cleanup(pages.Close)
	cmd := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--user-data-dir="+t.TempDir(), "--remote-debugging-port=0",
		pages.URL)
	cmd.WaitDelay = 5 * time.Second
	noErr(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// startNginx puts an nginx, with its default configuration of proxies, before the monitoring port.
func startNginx(t *testing.T, nginx string, port, to int) {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	noErr(t, os.WriteFile(conf, []byte(fmt.Sprintf(`
daemon off; pid %[1]s/pid; error_log %[1]s/error.log;
events {}
http {
  access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f;
  uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  server { listen 127.0.0.1:%[2]d; location / { proxy_pass http://127.0.0.1:%[3]d; } }
}`, dir, port, to)), 0o600))
	cmd := exec.CommandContext(t.Context(), nginx, "-c", conf, "-p", dir)
	noErr(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // the master ends its workers
		_ = cmd.Wait()
	})
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestFeedAcrossKills: whoever follows a feed (an HTTP client, one behind nginx, a browser) gets every message once and
// in order, though the gateway is killed again and again while messages come in. nginx and Chromium take part if they
// are installed.
func TestFeedAcrossKills(t *testing.T) {
	t.Parallel()
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("feeds are ours")
	}
	dir := t.TempDir()
	client, monitor, proxy := freePort(t), freePort(t), freePort(t)
	conf := writeFile(t, "feed.conf", `ehdb { allow_tmp_store: true, feed { origins: ["*"], heartbeat: "1s" } }`)
	start := func() *process {
		return startGateway(t, dir, "-c", conf, "-p", strconv.Itoa(client), "-m", strconv.Itoa(monitor))
	}
	p := start()
	nc := connect(t, p.URL, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	js, err := jetstream.New(nc)
	noErr(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	noErr(t, err)

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	url := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d/feed/$G/S", port) }
	direct := &feedReader{name: "an HTTP client"}
	readers := []*feedReader{direct}
	running.Go(func() { direct.follow(ctx, url(monitor)) })
	if nginx, err := exec.LookPath("nginx"); err == nil {
		startNginx(t, nginx, proxy, monitor)
		behind := &feedReader{name: "behind nginx"}
		readers = append(readers, behind)
		running.Go(func() { behind.follow(ctx, url(proxy)) })
	}
	if chromium, err := exec.LookPath("chromium"); err == nil {
		browser := &feedReader{name: "a browser"}
		readers = append(readers, browser)
		browser.browse(t, chromium, url(monitor))
	}

	var want []string
	publish := func(data string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; {
			ack, err := js.Publish(t.Context(), "s.a", []byte(data), jetstream.WithMsgID(data))
			if err == nil {
				want = append(want, fmt.Sprint(ack.Sequence, " ", data))
				return
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	for round := range rounds() {
		until := time.Now().Add(1500 * time.Millisecond)
		for i := 0; time.Now().Before(until); i++ {
			publish(fmt.Sprintf("%d.%d", round, i))
		}
		p.Kill()
		p = start()
	}
	publish("the end")
	for _, r := range readers {
		for deadline := time.Now().Add(60 * time.Second); r.count() < len(want) && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
		}
		r.mu.Lock()
		switch {
		case r.problem != "":
			t.Errorf("%s: %s", r.name, r.problem)
		case strings.Join(r.got, "\n") != strings.Join(want, "\n"):
			t.Errorf("%s got %d messages, want %d:\n%s", r.name, len(r.got), len(want),
				strings.Join(diff(want, r.got), "\n"))
		default:
			t.Logf("%s: %d messages, %d connections", r.name, len(r.got), r.restarts)
		}
		r.mu.Unlock()
	}
}

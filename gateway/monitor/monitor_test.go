package monitor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// facts is a Core that knows what it was told.
type facts struct {
	notReady     error
	open, closed []Connection
}

func (f *facts) Info() Info         { return Info{ID: "ID", Name: "<name>", Start: time.Now()} }
func (f *facts) Ready() error       { return f.notReady }
func (f *facts) Counters() Counters { return Counters{Connections: len(f.open)} }
func (f *facts) Connections(w Wanted) []Connection {
	list := f.open
	if w.Closed {
		list = f.closed
	}
	out := append([]Connection(nil), list...)
	for i := range out {
		if !w.Subs {
			out[i].Subs = nil
		}
	}
	return out
}

func (f *facts) Accounts() []Account { return []Account{{Name: "B"}, {Name: "A", Connections: 1}} }

func (f *facts) Matching(string) server.SublistStats { return server.SublistStats{NumSubs: 3} }

func newServer(f *facts, o server.Options) *Server {
	o.HTTPHost = "127.0.0.1"
	return New(Options{
		Server: &o, Core: f, Logger: slog.New(slog.DiscardHandler), MetricsPort: -1,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") }),
	})
}

func ask(s *Server, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func conn(cid uint64, change func(*Connection)) Connection {
	c := Connection{Account: "$G", ConnInfo: server.ConnInfo{Cid: cid, Start: time.Now(), LastActivity: time.Now()}}
	if change != nil {
		change(&c)
	}
	return c
}

func TestListensAndCloses(t *testing.T) {
	s := newServer(&facts{}, server.Options{HTTPPort: -1})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	for i, path := range []string{"/varz", "/metrics"} {
		resp, err := http.Get("http://" + s.Addrs()[i].String() + path) //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || len(b) == 0 {
			t.Errorf("%s: %d %s %v", path, resp.StatusCode, b, err)
		}
		resp.Body.Close()
	}
	port := s.Addrs()[0]
	taken := newServer(&facts{}, server.Options{})
	taken.o.MetricsPort = 0
	var n int
	fmt.Sscanf(port.String()[strings.LastIndex(port.String(), ":")+1:], "%d", &n)
	taken.o.Server.HTTPPort = n
	if err := taken.Start(); err == nil || !strings.Contains(err.Error(), "can't listen to the monitor port") {
		t.Errorf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBasePath(t *testing.T) {
	s := newServer(&facts{}, server.Options{HTTPBasePath: "mon"})
	for path, want := range map[string]int{"/mon/varz": 200, "/mon": 200, "/varz": 404, "/mon/none": 404, "/mon/metrics": 200} {
		if w := ask(s, path); w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if body := ask(s, "/mon").Body.String(); !strings.Contains(body, `href="./mon/varz"`) || strings.Contains(body, "<name>") {
		t.Errorf("got %s", body)
	}
	var v server.Varz
	if err := json.Unmarshal(ask(s, "/mon/varz").Body.Bytes(), &v); err != nil || v.HTTPReqStats["/varz"] != 2 || v.HTTPReqStats["/"] != 2 {
		t.Errorf("requests are not counted: %v %v", v.HTTPReqStats, err)
	}
}

func TestNotReady(t *testing.T) {
	s := newServer(&facts{notReady: errors.New("not yet")}, server.Options{})
	for path, want := range map[string]string{
		"/healthz":                     `{"status":"error","error":"not yet"}`,
		"/healthz?details=true":        `{"status":"error","errors":[{"type":"CONNECTION","error":"not yet"}]}`,
		"/healthz?js-server-only=true": `{"status":"error","error":"not yet"}`,
	} {
		if w := ask(s, path); w.Code != http.StatusInternalServerError || w.Body.String() != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestOrders(t *testing.T) {
	now := time.Now()
	early, late := now.Add(-time.Hour), now.Add(-time.Minute)
	f := &facts{
		open: []Connection{
			conn(1, func(c *Connection) {
				c.NumSubs, c.Pending, c.OutMsgs, c.InBytes, c.RTT, c.LastActivity, c.Start = 1, 2, 3, 1, "2ms", late, early
			}),
			conn(2, func(c *Connection) {
				c.NumSubs, c.Pending, c.OutMsgs, c.InBytes, c.RTT, c.LastActivity, c.Start = 2, 1, 1, 2, "30µs", early, late
			}),
			conn(3, func(c *Connection) {
				c.NumSubs, c.Pending, c.OutMsgs, c.InBytes, c.RTT, c.LastActivity, c.Start = 3, 3, 2, 3, "0s", now, now
			}),
		},
		closed: []Connection{
			conn(4, func(c *Connection) { c.Stop, c.Reason = &early, "Client Closed" }),
			conn(5, func(c *Connection) { c.Stop, c.Reason = &late, "Authentication Failure" }),
		},
	}
	s := newServer(f, server.Options{})
	for query, want := range map[string]string{
		"": "1 2 3", "sort=cid": "1 2 3", "sort=start": "1 2 3", "sort=subs": "3 2 1", "sort=pending": "3 1 2",
		"sort=msgs_to": "1 3 2", "sort=msgs_from": "1 2 3", "sort=bytes_from": "3 2 1", "sort=bytes_to": "1 2 3",
		"sort=last": "3 1 2", "sort=idle": "2 1 3", "sort=uptime": "3 2 1", "sort=rtt": "1 2 3",
		"state=closed": "4 5", "state=closed&sort=stop": "5 4", "state=closed&sort=reason": "5 4", "state=any": "1 2 3 4 5",
		"limit=2": "1 2", "offset=1": "2 3", "offset=1&limit=1": "2", "offset=9": "", "cid=3": "3", "cid=9": "",
	} {
		var c server.Connz
		if err := json.Unmarshal(ask(s, "/connz?"+query).Body.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, ci := range c.Conns {
			got = append(got, fmt.Sprint(ci.Cid))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: want %s, got %s", query, want, got)
		}
	}
}

func TestFiltersAndDetails(t *testing.T) {
	sub := server.SubDetail{Subject: "a.*", Sid: "1", Cid: 2}
	f := &facts{open: []Connection{
		conn(1, func(c *Connection) { c.User = "u" }),
		conn(2, func(c *Connection) { c.User, c.Account, c.Subs = "v", "A", []server.SubDetail{sub} }),
	}}
	s := newServer(f, server.Options{})
	cids := func(o *server.ConnzOptions) (out []uint64) {
		t.Helper()
		c, err := s.Connz(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, ci := range c.Conns {
			out = append(out, ci.Cid)
		}
		return out
	}
	for want, o := range map[uint64]*server.ConnzOptions{
		1: {User: "u"}, 2: {Account: "A", FilterSubject: "a.b"},
	} {
		if got := cids(o); len(got) != 1 || got[0] != want {
			t.Errorf("%+v: want %d, got %v", o, want, got)
		}
	}
	for _, o := range []*server.ConnzOptions{{User: "w"}, {Account: "A", FilterSubject: "b"}, {Account: "none"}, {MQTTClient: "m"}} {
		if got := cids(o); len(got) != 0 {
			t.Errorf("%+v: got %v", o, got)
		}
	}
	if _, err := s.Connz(&server.ConnzOptions{FilterSubject: "a"}); err == nil {
		t.Error("a subject without an account")
	}
	c, err := s.Connz(nil)
	if err != nil || c.Conns[1].AuthorizedUser != "" || c.Conns[1].Account != "" || c.Conns[1].Subs != nil {
		t.Errorf("shown without being asked for: %+v %v", c.Conns[1], err)
	}
	c, err = s.Connz(&server.ConnzOptions{Username: true, Subscriptions: true})
	if err != nil || c.Conns[1].AuthorizedUser != "v" || c.Conns[1].Account != "A" || len(c.Conns[1].Subs) != 1 || c.Conns[0].Account != "" {
		t.Errorf("got %+v %v", c.Conns[1], err)
	}
	z, err := s.Subsz(&server.SubszOptions{Subscriptions: true, Test: "a.b"})
	if err != nil || z.Total != 1 || z.Subs[0].Account != "A" {
		t.Errorf("got %+v %v", z, err)
	}
	z, err = s.Subsz(&server.SubszOptions{Subscriptions: true, Test: "b"})
	if err != nil || z.Total != 0 {
		t.Errorf("got %+v %v", z, err)
	}
}

// Whatever is asked for, a page is a part of the list, in order, and no longer than the limit.
func TestPageProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := make([]int, rapid.IntRange(0, 20).Draw(t, "n"))
		for i := range list {
			list[i] = i
		}
		offset, limit := rapid.IntRange(-3, 30).Draw(t, "offset"), rapid.IntRange(1, 30).Draw(t, "limit")
		got := page(list, offset, limit)
		want := max(0, min(limit, len(list)-max(offset, 0)))
		if len(got) != want || len(got) > 0 && got[0] != max(offset, 0) {
			t.Fatalf("page(%d, %d, %d) = %v", len(list), offset, limit, got)
		}
	})
}

func TestUptime(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": -time.Second, "59s": 59999 * time.Millisecond, "1m0s": time.Minute, "2h0m1s": 2*time.Hour + time.Second,
		"3d4h5m6s": 76*time.Hour + 5*time.Minute + 6*time.Second, "1y1d0h0m0s": 366 * 24 * time.Hour,
	} {
		if got := uptime(d); got != want {
			t.Errorf("want %s, got %s", want, got)
		}
	}
}

func TestProcessPages(t *testing.T) {
	s := newServer(&facts{}, server.Options{})
	var vars struct {
		Memstats struct{ Alloc uint64 }
		Cmdline  []string
	}
	if err := json.Unmarshal(ask(s, "/debug/vars").Body.Bytes(), &vars); err != nil || vars.Memstats.Alloc == 0 || len(vars.Cmdline) == 0 {
		t.Errorf("/debug/vars: %+v %v", vars, err)
	}
	if body := ask(s, "/stacksz").Body.String(); !strings.Contains(body, "TestProcessPages") {
		t.Errorf("/stacksz: %s", body)
	}
}

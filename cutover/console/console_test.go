package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "0123456789012345678901234567890123456789"

var orders = cutover.Scope{Account: "$G", Stream: "ORDERS"}

// side is a stream in memory.
type side []cutover.Record

func (s side) State(context.Context, bool) (server.StreamState, error) {
	return server.StreamState{Msgs: uint64(len(s)), FirstSeq: 1, LastSeq: s[len(s)-1].Seq}, nil
}

func (s side) Read(_ context.Context, from uint64, fn func(*cutover.Record, error) bool) error {
	for i := range s {
		if s[i].Seq >= from && !fn(&s[i], nil) {
			break
		}
	}
	return nil
}

func (s side) Get(_ context.Context, seq uint64) (*cutover.Record, error) {
	for i := range s {
		if s[i].Seq == seq {
			return &s[i], nil
		}
	}
	return nil, cutover.ErrNoRecord
}

// secret is what a message says.
const secret = "tWo-is-nobodys-business"

// stage is an engine of a few streams, whose copy of the first has one other payload.
type stage struct {
	face.Engine // what is not here is not called
	parity      *parity.Engine

	mu      sync.Mutex
	streams []face.StreamState
	events  []face.Event
	facts   gate.Facts
	err     error
	frozen  time.Time // when its status was so; zero: now
	flips   []face.FlipRequest
	hooks   face.Hooks

	rollbacks []face.RollbackRequest
	canaries  []face.CanaryRequest
	drills    []face.Drill // besides the one that there is
	paused    string
	slowed    []any  // pauses and throttles
	released  string // what became of a postponed flip
}

func newStage(t *testing.T) *stage {
	t.Helper()
	e, err := parity.New(parity.Options{})
	noErr(t, err)
	nats := side{}
	for i := range uint64(400) {
		nats = append(nats, cutover.Record{
			Seq: i + 1, Time: int64(i) + 1, Subject: []byte("orders.<b>new</b>"), Data: []byte("two-is-nobodys-business"),
		})
	}
	ehdb := slices.Clone(nats)
	ehdb[1].Data = []byte(secret)
	noErr(t, e.Attach(parity.Stream{Scope: orders, NATS: nats, EHDB: ehdb, Config: &server.StreamConfig{}}))
	e.Tick(t.Context())
	p, err := e.Status(orders)
	noErr(t, err)
	p.Consumers = []parity.ConsumerReport{{
		Consumer: "worker<i>", Side: "nats", Known: true, Balanced: true, Delivered: 398, AckFloor: 390, NumPending: 2, WorstCase: 37,
	}}
	p.DeliveryAt = time.Now()
	s := &stage{parity: e, facts: gate.Facts{}}
	s.streams = []face.StreamState{{
		Scope: orders, Phase: face.PhaseShadow, Epoch: 41, Authority: "nats", Since: time.Now().Add(-3 * time.Hour), By: "ops",
		ReversibleUntil: "complete", Legal: []string{"flip", "shadow stop", "shadow reset", "dance"},
		NATS: face.Position{First: 1, Last: 8412077, Messages: 8412077, Bytes: 3 << 30}, Parity: &p,
		EHDB:   face.Position{First: 1, Last: 8412071, Messages: 8412071, Bytes: 3 << 30},
		Ledger: face.LedgerState{Last: 8412077, Published: 9000, Acknowledged: 8998, InFlight: 2},
		Copy:   face.CopyState{Enqueued: 8412071, Drained: 8412065, Pending: 6, Conserved: true, Rung: "try", LagMessages: 6, LagSeconds: .011, Backfill: 1},
		Latency: []face.Latency{
			{Kind: "publish_ack", Side: "nats", P50: .0019, P99: .0074, P999: .02, N: 41220, Utilisation: .22},
			{Kind: "publish_ack", Side: "ehdb", P50: .0008, P99: .0031, P999: .009, N: 41220, Utilisation: .9},
		},
		Fences: []face.Fence{{At: time.Now().Add(-time.Hour), Kind: "flip", Seconds: .117, Held: 180, Outcome: "done"}},
		Back:   face.RollbackCard{Why: "the authority is NATS", Rehearsed: time.Now().Add(-3 * time.Hour)},
		Next:   "ehdbctl gates", Undo: "ehdbctl shadow stop",
	}}
	s.events = []face.Event{{ID: 1, Time: time.Now(), Kind: "shadow", Scope: orders, By: "ops<script>", Text: "a copy is kept"}}
	return s
}

func (s *stage) Parity() *parity.Engine { return s.parity }

func (s *stage) Status(context.Context) (*face.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.frozen
	if at.IsZero() {
		at = time.Now()
	}
	return &face.Status{
		At: at, Server: "gw-1", Version: "1.0", Mode: "shadow", Profile: gate.Production, Epoch: 41,
		Verdict: "0 of 1 streams are served from here", Streams: slices.Clone(s.streams), Controls: s.parity.SelfTest(),
		Hooks:  s.hooks,
		Paused: s.paused,
		Drills: append([]face.Drill{{ID: 4, Kind: "partition", State: "passed", Result: "0 lost", Started: at, Lapsed: "it has expired"}}, s.drills...),
		Servers: []face.ServerState{
			{URL: "nats://n1:4222", Reachable: true, Dials: 1200}, {URL: "nats://n2:4222", Dials: 9, Failures: 9, LastError: "connection refused"},
		},
		Bypass: []face.BypassState{{Account: "$G", At: at, Total: 3, Around: []face.Connection{
			{Kind: "client", Addr: "10.3.1.9:4711", Name: "report<i>cron", Lang: "go", Version: "1.36", Server: "n1:8222", Since: at},
		}}},
		Scrapes: []face.Scrape{{Agent: "KEDA/2.20", Addr: "10.0.0.4", Page: "/jsz", At: at, Count: 77}},
	}, s.err
}

func (s *stage) Gates(_ context.Context, sc cutover.Scope, p gate.Purpose) (gate.Report, error) {
	return gate.Evaluate(s.facts, sc, gate.Options{Now: time.Now(), Purpose: p}), nil
}

func (s *stage) Events(_ context.Context, after uint64, limit int, _ bool) ([]face.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.events[min(int(after), len(s.events)):] //nolint:gosec // small
	return list[:min(limit, len(list))], nil
}

func (s *stage) Plan(_ context.Context, r face.PlanRequest) (*face.Plan, error) {
	sc, to := r.Scope, r.To
	return &face.Plan{
		Scope: sc, To: to, Epoch: 41, Digest: "7c1e55aa", Steps: []string{"hold publishes and pulls", "wait for what is in flight"},
		Refusals: []string{"G8"}, Gates: "NO-GO", Undo: "ehdbctl rollback " + sc.Flag(),
	}, nil
}

// Flip moves the stream.
func (s *stage) Flip(_ context.Context, r face.FlipRequest) (*face.Move, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flips = append(s.flips, r)
	s.flipped()
	return &face.Move{Scope: r.Scope, To: "ehdb", State: "done", Epoch: 42, Fence: .117, Undo: "ehdbctl rollback"}, nil
}

func (s *stage) Rollback(_ context.Context, r face.RollbackRequest) (*face.Move, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rollbacks = append(s.rollbacks, r)
	return &face.Move{Scope: r.Scope, To: "nats", State: "done", Undo: "ehdbctl flip"}, nil
}

func (s *stage) flipped() {
	st := &s.streams[0]
	st.Phase, st.Authority, st.Epoch, st.Legal = face.PhaseEHDB, "ehdb", 42, []string{"rollback", "complete"}
	st.Back = face.RollbackCard{Possible: true, Lossless: true, Seconds: .1}
	s.events = append(s.events, face.Event{ID: uint64(len(s.events)) + 1, Kind: "flip", Scope: orders, Time: time.Now(), Text: "served from here"})
}

func (s *stage) change(f func(s *stage)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// serve serves a stage's console and API.
func serve(t *testing.T, s *stage, o Options) (*Console, *httptest.Server) {
	t.Helper()
	o.Engine = s
	if o.Interval == 0 {
		o.Interval = 50 * time.Millisecond
	}
	c := New(o)
	mux := http.NewServeMux()
	for _, routes := range []map[string]http.Handler{c.Routes(), face.Routes(face.Options{Engine: s, Token: token})} {
		for p, h := range routes {
			mux.Handle(p, h)
		}
	}
	web := httptest.NewServer(mux)
	t.Cleanup(func() {
		c.Close()
		web.CloseClientConnections()
		web.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return c, web
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, url string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	noErr(t, err)
	res, err := http.DefaultClient.Do(req)
	noErr(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	noErr(t, err)
	return res.StatusCode, res.Header, string(b)
}

var tags = regexp.MustCompile(`<[^>]*>|\s+`)

// text is what a page says to who reads it.
func text(page string) string {
	return strings.Join(strings.Fields(tags.ReplaceAllString(page, " ")), " ")
}

func wants(t *testing.T, page string, list ...string) {
	t.Helper()
	for _, want := range list {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
}

func TestOverview(t *testing.T) {
	s := newStage(t)
	_, web := serve(t, s, Options{})
	code, header, page := get(t, web.URL+"/console")
	if code != 200 || !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Fatal(code, header)
	}
	wants(t, text(page), "NO-GO: $G/ORDERS: sequences that differ: 1", "SHADOW", "reversible until here",
		"epoch 41", "by ops", "Flip to EHDB…", "ehdbctl dance --scope", "1–8,412,077", "3.0 GiB", "the authority is NATS",
		"last rehearsed 3 h ago", "examined 400", "match 399 + mismatch 1", "digest DIFFERS", "≤ 37 twice", "$G/ORDERS:2",
		"data, byte 1", "detected", "117 ms", "saturated: says nothing", "a copy is kept",
		"1 of 3 connections go around the gateway", "10.3.1.9:4711", "connection refused", "KEDA/2.20", "In the way", "partition – passed 0 lost", "partition", "0 lost",
		"does not count: it has expired",
		"It can never be forced.", "NOT ENOUGH EVIDENCE", "G3", "UNKNOWN", "controls.ok_ticks is not measured")
	wants(t, page, `<noscript><meta http-equiv="refresh"`, `href="console/plan?scope=%24G%2fORDERS&amp;do=flip"`, `aria-current="step"`)
	for _, never := range []string{secret, token, "style=", "onclick", "<i>", "<script>", "ZgotmplZ"} {
		if strings.Contains(strings.ReplaceAll(page, `<i aria-hidden`, ""), never) {
			t.Errorf("%q is in the page", never)
		}
	}
	s.change(func(s *stage) {
		s.flipped()
		s.streams[0].Back = face.RollbackCard{Possible: true, Lost: 4112, Why: "reverse lag 4,112 msgs"}
		s.streams[0].Parity = nil
	})
	_, _, page = get(t, waitInterval(t, web.URL+"/console"))
	wants(t, text(page), "● EHDB", "NOT LOSSLESS : reverse lag 4,112 msgs", "lost 4,112", "Roll back to NATS…", "Complete…", "Nothing is compared")
}

// Canaries are listed with how they stand and what ends them, and so are a flip that waits, a pause, and the hooks.
func TestCanariesAndWaiting(t *testing.T) {
	s := newStage(t)
	_, web := serve(t, s, Options{})
	now := time.Now()
	s.change(func(s *stage) {
		st := &s.streams[0]
		st.Parity, st.Phase, st.Legal = nil, face.PhaseCanary, []string{"flip go", "flip abort"}
		st.Copy.Paused = "backup"
		st.Postponed = &face.Postponed{Since: now, Until: now.Add(time.Hour), By: "ann", Waits: "the file /run/<wait> to go"}
		st.Canaries = []face.Canary{
			{Consumer: "worker", Since: now, By: "ann", Abort: []string{"G4", "G10"}, Delivered: 1234, AckFloor: 1200, Pending: 7, Mirrored: now},
			{Consumer: "old", Mirrored: now.Add(-time.Hour)},
		}
		s.hooks = face.Hooks{Dir: "/etc/hooks", Timeout: 30, Found: []string{"on-before-flip"}}
	})
	_, _, page := get(t, waitInterval(t, web.URL+"/console"))
	wants(t, text(page), "● CANARY", "A flip is postponed since", "by ann: it waits for the file /run/&lt;wait&gt; to go, and is given up at",
		"paused backup", "✓ worker", "1,234 1,200 7", "G4 , G10 failing twice", "◌ old", "Go on with the flip…", "Abort the flip…",
		"/etc/hooks : on-before-flip", "each at most; those of on-before-… may refuse")
	s.change(func(s *stage) {
		s.streams[0].Canaries[0].Failing = "G10 (worker: 5 waiting)"
		s.hooks.Problems = []string{"on-before-flip is not executable"}
		s.streams[0].Gates = nil
	})
	_, _, page = get(t, waitInterval(t, web.URL+"/console"))
	wants(t, text(page), "canary worker: G10 (worker: 5 waiting)", "on-before-flip is not executable")
}

// waitInterval lets what was seen become old.
func waitInterval(t *testing.T, url string) string {
	t.Helper()
	select {
	case <-time.After(60 * time.Millisecond):
	case <-t.Context().Done():
	}
	return url
}

func TestWorstFirst(t *testing.T) {
	s := newStage(t)
	for i := range 12 {
		st := s.streams[0]
		st.Scope.Stream, st.Parity = fmt.Sprintf("S%02d", i), nil
		st.Copy.LagMessages = uint64(i) //nolint:gosec // small
		s.streams = append(s.streams, st)
	}
	s.streams[3].LastErr = "the fence took too long"
	l := look{at: time.Now()}
	l.status, _ = s.Status(t.Context())
	v := newView(&l, time.Now(), "", "")
	var names []string
	for _, st := range v.Streams {
		names = append(names, st.Scope.Stream)
	}
	if got := strings.Join(names[:4], " "); got != "ORDERS S02 S11 S10" || v.Tone != bad || len(v.Shown) != maxStreams || v.Hidden != 5 {
		t.Fatal(names, v.Tone, len(v.Shown), v.Hidden)
	}
	if v = newView(&l, time.Now(), "", "$G/S07"); len(v.Shown) != 1 || v.Shown[0].Scope.Stream != "S07" {
		t.Fatal(v.Shown)
	}
}

// Names come from clients of the servers: whatever they are, they stay text.
func TestHostileNames(t *testing.T) {
	s := newStage(t)
	const evil = `"><script>alert(1)</script>&do=complete'`
	s.streams[0].Scope.Stream = evil
	s.streams[0].LastErr = "<img src=x onerror=alert(1)>"
	_, web := serve(t, s, Options{})
	_, _, page := get(t, web.URL+"/console")
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img") || strings.Contains(page, "orders.<b>") {
		t.Fatal(page)
	}
	wants(t, page, "&lt;script&gt;alert(1)", "&do=complete"[1:], "%3cscript%3e")
	if strings.Contains(page, "&amp;do=complete'&amp;do=flip") {
		t.Fatal("a name can put something into a link")
	}
}

// What is old is never shown as good.
func TestStale(t *testing.T) {
	s := newStage(t)
	s.streams[0].Parity, s.streams[0].Phase = nil, face.PhaseComplete
	s.streams[0].Back = face.RollbackCard{Possible: true, Lossless: true}
	l := look{at: time.Now()}
	l.status, _ = s.Status(t.Context())
	fresh, err := render("overview.html", newView(&l, time.Now(), "", ""))
	noErr(t, err)
	wants(t, string(fresh), `class="tone good"`, `class="back good"`, `<li class="good"`, `class="top good"`)
	for name, v := range map[string]*view{
		"old":    newView(&l, time.Now().Add(2*time.Minute), "", ""),
		"failed": newView(&look{at: time.Now(), status: l.status, err: errors.New("the servers are away")}, time.Now(), "", ""),
	} {
		page, err := render("overview.html", v)
		noErr(t, err)
		if strings.Contains(string(page), " good") || strings.Contains(string(page), `"good`) {
			t.Errorf("%s: something is good in\n%s", name, page)
		}
		wants(t, text(string(page)), "STALE since")
	}
	v := newView(&look{at: time.Now(), err: errors.New("the servers are away")}, time.Now(), "", "")
	page, err := render("overview.html", v)
	noErr(t, err)
	wants(t, text(string(page)), "It is not known how the cutover stands", "the servers are away")
}

func TestPlanPage(t *testing.T) {
	s := newStage(t)
	_, web := serve(t, s, Options{})
	plan := web.URL + "/console/plan?scope=$G/ORDERS&do="
	_, _, page := get(t, plan+"flip")
	wants(t, text(page), "hold publishes and pulls", "refuse it now: G8", "plan digest 7c1e55aa", "UNDO ehdbctl rollback --scope &#39;$G/ORDERS&#39;",
		"Type the stream's name, ORDERS", "The operator's token", "--expect 7c1e55aa")
	wants(t, page, `data-api="../cutover/v1/flip"`, `&#34;expect&#34;:&#34;7c1e55aa&#34;`, `type="password"`, "<noscript>", "disabled")
	_, _, page = get(t, plan+"shadow+reset")
	wants(t, text(page), "UNDO cannot be undone")
	_, _, page = get(t, plan+"complete")
	wants(t, text(page), "not legal in the phase", "The way back is given up")
	for q, want := range map[string]int{
		"scope=NOPE&do=flip": 404, "scope=a.b&do=flip": 400, "scope=ORDERS&do=dance": 404, "scope=ORDERS": 404,
	} {
		if code, _, page := get(t, web.URL+"/console/plan?"+q); code != want || text(page) == "" {
			t.Errorf("%s: %d", q, code)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, plan+"flip", http.NoBody)
	noErr(t, err)
	res, err := http.DefaultClient.Do(req)
	noErr(t, err)
	noErr(t, res.Body.Close())
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Fatal(res.StatusCode)
	}
}

func TestExplainPage(t *testing.T) {
	s := newStage(t)
	_, web := serve(t, s, Options{})
	code, _, page := get(t, web.URL+"/console/explain?scope=ORDERS&seq=2")
	if code != 200 || strings.Contains(page, secret) {
		t.Fatal(code, page)
	}
	wants(t, text(page), "mismatch", "in the data, at byte 1", "orders.&lt;b&gt;new", "ledger knows of no acknowledgement")
	for q, want := range map[string]int{"scope=NOPE&seq=1": 404, "scope=ORDERS&seq=900": 404, "scope=ORDERS&seq=x": 400, "scope=": 400} {
		if code, _, _ := get(t, web.URL+"/console/explain?"+q); code != want {
			t.Errorf("%s: %d", q, code)
		}
	}
}

func TestNone(t *testing.T) {
	w := httptest.NewRecorder()
	None("bus mode <off> has no cutover")[Path].ServeHTTP(w, httptest.NewRequest(http.MethodGet, Path, http.NoBody))
	wants(t, w.Body.String(), "bus mode &lt;off&gt; has no cutover", `href="console/style.css"`)
}

// listen opens the stream of updates.
func listen(t *testing.T, url string) (*http.Response, *bufio.Scanner) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/console/events", http.NoBody)
	noErr(t, err)
	res, err := http.DefaultClient.Do(req)
	noErr(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	return res, lines
}

// until reads lines until one has a text.
func until(t *testing.T, lines *bufio.Scanner, want string) string {
	t.Helper()
	for range 200 {
		if !lines.Scan() {
			break
		}
		if strings.Contains(lines.Text(), want) {
			return lines.Text()
		}
	}
	t.Fatalf("%q does not come: %v", want, lines.Err())
	return ""
}

func TestFollow(t *testing.T) {
	s := newStage(t)
	c, web := serve(t, s, Options{MaxListeners: 2})
	res, lines := listen(t, web.URL)
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" || res.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatal(res.Header)
	}
	until(t, lines, "retry: 2000")
	first := until(t, lines, "data: ")
	for _, name := range parts {
		wants(t, first, `"`+name+`":"`)
	}
	if strings.Contains(first, secret) || strings.Contains(first, token) {
		t.Fatal("a secret is sent")
	}
	s.change((*stage).flipped)
	wants(t, until(t, lines, "Roll back to NATS"), "served from here")
	until(t, lines, "event: update") // which says that it is fresh, with no change or with some

	listen(t, web.URL)
	if res, _ := listen(t, web.URL); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Fatal(res.Status)
	}
	s.change(func(s *stage) { s.err = errors.New("the servers are away") })
	until(t, lines, "STALE since")
	c.Close()
	until(t, lines, "event: bye")
	for lines.Scan() {
		if strings.Contains(lines.Text(), "update") {
			t.Fatal("it goes on")
		}
	}
	if res, _ := listen(t, web.URL); res.StatusCode != http.StatusServiceUnavailable {
		t.Fatal(res.Status)
	}
}

// A place is free again when who listened has gone.
func TestListenersLeave(t *testing.T) {
	_, web := serve(t, newStage(t), Options{MaxListeners: 1})
	for range 5 {
		deadline := time.Now().Add(5 * time.Second)
		for {
			res, lines := listen(t, web.URL)
			if res.StatusCode == http.StatusOK {
				until(t, lines, "data: ")
				noErr(t, res.Body.Close())
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(res.Status)
			}
		}
	}
}

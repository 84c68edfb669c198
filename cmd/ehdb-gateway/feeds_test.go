package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

func TestFeed(t *testing.T) {
	p := startFeeds(t, `heartbeat: "1s", origins: ["https://app.example.com"]`, "")
	js := fill(t, p.connect(), "s.a", "s.b", "s.a")
	url := p.http() + "/feed/$G/S"

	f := openFeed(t, url)
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache, no-transform",
		"X-Accel-Buffering": "no",
	} {
		if got := f.resp.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	f.expect("1 on s.a", "2 on s.b", "3 on s.a")
	put(t, js, "s.c")
	f.expect("4 on s.c")
	f.end()

	openFeed(t, url, "Last-Event-ID: 3").expect("4 on s.c")
	openFeed(t, url+"?last_event_id=2&deliver=new").expect("3 on s.a", "4 on s.c")
	openFeed(t, url+"?filter=s.b&filter=s.c").expect("2 on s.b", "4 on s.c")
	openFeed(t, url+"?deliver=last_per_subject").expect("2 on s.b", "3 on s.a", "4 on s.c")
	openFeed(t, url+"?deliver=last").expect("4 on s.c")
	openFeed(t, url+"?start_seq=3").expect("3 on s.a")
	openFeed(t, url, "Last-Event-ID: 99").expect(
		`reset {"last_event_id":99,"last_seq":4,"reason":"the stream ends before that event: it was made anew, or `+
			`restored from a backup; it follows from its first message"}`, "1 on s.a")

	s, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(4)); err != nil {
		t.Fatal(err)
	}
	openFeed(t, url, "Last-Event-ID: 1").expect(
		`gap 3 {"from":2,"to":3,"reason":"removed from the stream before it was sent"}`, "4 on s.c")

	for _, c := range []struct {
		query, header string
		code          int
		text          string
	}{
		{query: "?filtre=s.a", code: 400, text: `parameter "filtre" is not known; there are filter, deliver, start_seq, start_time, last_event_id, format, access_token`},
		{query: "?filter=s..a", code: 400, text: `filter "s..a" is not a valid subject`},
		{query: "?filter=t", code: 400, text: `filter "t" matches no subject that stream "S" takes`},
		{query: "?start_seq=0", code: 400, text: `start_seq "0" is not a sequence: they are whole numbers from 1`},
		{query: "?start_time=now", code: 400, text: `start_time "now" is not a time as 2026-01-02T15:04:05Z`},
		{query: "?deliver=new&start_seq=1", code: 400, text: "deliver=new and a start_seq or start_time contradict each other"},
		{query: "?deliver=by_start_time", code: 400, text: "deliver=by_start_time needs its start_seq or start_time"},
		{query: "?deliver=some", code: 400, text: `deliver "some" is not known; there are all, new, last, last_per_subject, by_start_sequence, by_start_time`},
		{query: "?format=xml", code: 400, text: `format "xml" is not known; there are raw and json`},
		{query: "?format=raw&format=json", code: 400, text: `parameter "format" is given 2 times`},
		{header: "Last-Event-ID: x", code: 400, text: `Last-Event-ID "x" is no id of a feed: they are sequences of the stream`},
		{header: "Origin: https://other.example.com", code: 403, text: "pages of this origin may not read feeds: list it in ehdb.feed.origins"},
	} {
		if code, text := refused(t, url+c.query, c.header); code != c.code || text != c.text {
			t.Errorf("%s %s: %d %q", c.query, c.header, code, text)
		}
	}
	for path, want := range map[string]string{
		"/feed/$G/NONE": `404 stream "NONE" of account "$G": not found`,
		"/feed/OTHER/S": `403 the login is not one of account "OTHER"`,
	} {
		if code, text := refused(t, p.http()+path); fmt.Sprint(code, " ", text) != want {
			t.Errorf("%s: %d %q", path, code, text)
		}
	}
	page := p.http() // the page of this very host
	for origin, allowed := range map[string]string{"https://app.example.com": "https://app.example.com", page: ""} {
		f := openFeed(t, url, "Origin: "+origin)
		if got := f.resp.Header.Get("Access-Control-Allow-Origin"); got != allowed || f.resp.StatusCode != http.StatusOK {
			t.Errorf("origin %s: %s, allowed %q", origin, f.resp.Status, got)
		}
	}
	for method, want := range map[string]string{http.MethodHead: "200", http.MethodOptions: "204", http.MethodPost: "405"} {
		resp, err := http.DefaultClient.Do(feedRequest(t.Context(), t, method, url))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if !strings.HasPrefix(resp.Status, want) {
			t.Errorf("%s: %s", method, resp.Status)
		}
	}
	_, _, metrics := get(t, p.http()+"/metrics")
	for _, want := range []string{
		`ehdb_sse_refused_total{reason="request"} 12`, `ehdb_sse_refused_total{reason="origin"} 1`,
		`ehdb_sse_refused_total{reason="login"} 0`, "ehdb_sse_gaps_total 1\n", "ehdb_sse_resumed_total 4\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestFeedHeartbeat: an idle feed is alive, and its id moves past what it has no interest in.
func TestFeedHeartbeat(t *testing.T) {
	p := startFeeds(t, `heartbeat: "1s"`, "")
	js := fill(t, p.connect(), "s.a", "s.b")
	f := openFeed(t, p.http()+"/feed/$G/S?filter=s.a")
	f.expect("1 on s.a")
	put(t, js, "s.b")
	var seen []string
	for f.in.Scan() {
		if line := f.in.Text(); line != "" {
			seen = append(seen, line)
		}
		if len(seen) > 2 && strings.HasPrefix(seen[len(seen)-2], ": hb ") {
			break
		}
	}
	if got := seen[len(seen)-1]; got != "id: 3" && seen[1] != "id: 3" {
		t.Errorf("%q", seen)
	}
}

// TestFeedLogin: who may read what is as on the client port.
func TestFeedLogin(t *testing.T) {
	accounts := func(users string) string {
		return `accounts {
  A { jetstream: enabled, users: [` + users + `] }
  B { users: [{ user: bob, password: b }] }
}
`
	}
	const all, some = `{ user: ann, password: a }, `,
		`{ user: sue, password: s, permissions: { subscribe: { allow: ["s.a", "s.x.>"], deny: "s.x.secret" } } }`
	p := startFeeds(t, `heartbeat: "1s", cookie: "feed"`, accounts(all+some))
	js := fill(t, p.connect(nats.UserInfo("ann", "a")), "s.a", "s.b", "s.x.open", "s.x.secret", "s.x.more")
	url := p.http() + "/feed/A/S"
	basic := func(user, password string) string {
		r := feedRequest(t.Context(), t, http.MethodGet, url)
		r.SetBasicAuth(user, password)
		return "Authorization: " + r.Header.Get("Authorization")
	}
	openFeed(t, url, basic("ann", "a")).expect("1 on s.a", "2 on s.b", "3 on s.x.open", "4 on s.x.secret")
	openFeed(t, url+"?filter=s.a", basic("sue", "s")).expect("1 on s.a")
	sue := openFeed(t, url+"?filter=s.x.>", basic("sue", "s"))
	sue.expect("3 on s.x.open", "5 on s.x.more")
	for name, c := range map[string]struct {
		query, header, want string
	}{
		"no login":       {"", "Accept: text/event-stream", "401 login refused: "},
		"wrong password": {"", basic("ann", "s"), "401 login refused: "},
		"a wrong token":  {"?access_token=a", "", "401 login refused: "},
		"another's":      {"", basic("bob", "b"), `403 the login is not one of account "A"`},
		"not permitted": {
			"?filter=s.b", basic("sue", "s"),
			`403 the login may not subscribe to "s.b": give filters that it may subscribe to`,
		},
		"not all permitted": {
			"", basic("sue", "s"),
			`403 the login may not subscribe to "s.>": give filters that it may subscribe to`,
		},
	} {
		code, text := refused(t, url+c.query, c.header)
		if got := fmt.Sprint(code, " ", text); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	// A reload that takes the user away ends the feed.
	conf := p.configFile()
	if err := os.WriteFile(conf, []byte(`ehdb { feed { heartbeat: "1s", cookie: "feed" } }`+"\n"+accounts(all)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	sue.expectBye("login_ended")
	put(t, js, "s.a")
	if strings.Contains(p.logged(), basic("ann", "a")) {
		t.Error("a password is in the log")
	}
}

// configFile is the file that the process was started with.
func (p *process) configFile() string { return p.cmd.Args[len(p.cmd.Args)-1] }

// TestFeedToken: a token, in every place where it may be.
func TestFeedToken(t *testing.T) {
	p := startFeeds(t, `cookie: "feed"`, `authorization { token: "s3cret" }`)
	fill(t, p.connect(nats.Token("s3cret")), "s.a")
	url := p.http() + "/feed/$G/S"
	openFeed(t, url, "Authorization: Bearer s3cret").expect("1 on s.a")
	openFeed(t, url, "Cookie: feed=s3cret").expect("1 on s.a")
	openFeed(t, url+"?access_token=s3cret").expect("1 on s.a")
	f := openFeed(t, url, "Cookie: other=s3cret")
	if f.resp.StatusCode != http.StatusUnauthorized || len(f.resp.Header.Values("WWW-Authenticate")) != 2 {
		t.Errorf("%s %v", f.resp.Status, f.resp.Header)
	}
	if strings.Contains(p.logged(), "s3cret") {
		t.Error("the token is in the log")
	}
}

// TestFeedJWT: in operator mode the JWT of a bearer user, for as long as it holds.
func TestFeedJWT(t *testing.T) {
	c, tenant := newCompany(t), newKey(t, nkeys.CreateAccount)
	preload := fmt.Sprintf("resolver: MEMORY\nresolver_preload { %s: %q, %s: %q }\n",
		c.system.pub, c.systemJWT, tenant.pub, c.account(t, tenant, nil))
	p := startFeeds(t, `heartbeat: "1s"`, fmt.Sprintf("operator: %q\nsystem_account: %s\n%s",
		c.operatorJWT, c.system.pub, preload))
	file, _ := creds(t, tenant)
	fill(t, p.connect(nats.UserCredentials(file)), "s.a")
	user := func(edit func(*jwt.UserClaims)) string {
		claims := jwt.NewUserClaims(newKey(t, nkeys.CreateUser).pub)
		claims.BearerToken = true
		edit(claims)
		return "Authorization: Bearer " + signed(t, claims, tenant)
	}
	url := p.http() + "/feed/" + tenant.pub + "/S"
	f := openFeed(t, url, user(func(u *jwt.UserClaims) { u.Expires = time.Now().Add(3 * time.Second).Unix() }))
	f.expect("1 on s.a")
	f.expectBye("login_ended")
	for name, edit := range map[string]func(*jwt.UserClaims){
		"one that has to sign": func(u *jwt.UserClaims) { u.BearerToken = false },
		"expired":              func(u *jwt.UserClaims) { u.Expires = time.Now().Add(-time.Minute).Unix() },
		"of another transport": func(u *jwt.UserClaims) { u.AllowedConnectionTypes.Add(jwt.ConnectionTypeStandard) },
	} {
		if code, text := refused(t, url, user(edit)); code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	openFeed(t, url, user(func(u *jwt.UserClaims) { u.AllowedConnectionTypes.Add(jwt.ConnectionTypeWebsocket) })).expect("1 on s.a")
}

// TestFeedEnds: a feed ends with a goodbye and a pause, and a browser is told to come back rather than turned away.
func TestFeedEnds(t *testing.T) {
	for _, c := range []struct {
		signal syscall.Signal
		reason string
	}{{syscall.SIGTERM, "shutdown"}, {syscall.SIGUSR2, "lame_duck"}} {
		t.Run(c.reason, func(t *testing.T) {
			p := startFeeds(t, "", `lame_duck_duration: "30s", lame_duck_grace_period: "20s"`)
			fill(t, p.connect(), "s.a")
			url := p.http() + "/feed/$G/S"
			f := openFeed(t, url)
			f.expect("1 on s.a")
			p.signal(c.signal)
			f.expectBye(c.reason)
			if c.signal == syscall.SIGTERM {
				p.exit()
				return
			}
			openFeed(t, url, "Accept: text/event-stream").expectBye("lame_duck")
			if code, text := refused(t, url); code != http.StatusServiceUnavailable || text != "not ready: the server stops" {
				t.Errorf("%d %s", code, text)
			}
		})
	}
	t.Run("stream deleted", func(t *testing.T) {
		p := startFeeds(t, "max_connections: 1", "")
		js := fill(t, p.connect(), "s.a")
		url := p.http() + "/feed/$G/S"
		f := openFeed(t, url)
		f.expect("1 on s.a")
		openFeed(t, url, "Accept: text/event-stream").expectBye("max_connections")
		if code, text := refused(t, url); code != http.StatusServiceUnavailable || !strings.Contains(text, "max_connections") {
			t.Errorf("%d %s", code, text)
		}
		if err := js.DeleteStream(t.Context(), "S"); err != nil {
			t.Fatal(err)
		}
		f.expectBye("stream_closed")
	})
}

// TestFeedSlowReader: who does not read is disconnected, holds up nobody, and finds everything when he comes back.
func TestFeedSlowReader(t *testing.T) {
	p := startFeeds(t, "", `write_deadline: "1s"`)
	js := fill(t, p.connect())
	const n, size = 100, 200_000 // more than sockets hold
	for range n {
		if _, err := js.Publish(t.Context(), "s.big", make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.http(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "GET /feed/$G/S HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	p.await("end of the slow reader", func() bool {
		_, _, page := get(t, p.http()+"/metrics")
		return strings.Contains(page, "ehdb_sse_slow_readers_total 1\n") && strings.Contains(page, "ehdb_sse_connections 0\n")
	})
	f := openFeed(t, p.http()+"/feed/$G/S?start_seq=1")
	for i := range n {
		if e, err := f.next(); err != nil || e.id != fmt.Sprint(i+1) || len(e.data) != size {
			t.Fatalf("%v: id %s, %d bytes of %d", err, e.id, len(e.data), size)
		}
	}
}

// TestFeedHTTP2: with TLS many feeds share a connection, and one that is not read does not end the others.
func TestFeedHTTP2(t *testing.T) {
	dir := t.TempDir()
	cert, certFile, keyFile := selfSigned(t, dir, "srv")
	conf := filepath.Join(dir, "feed.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "https_port: -1\nwrite_deadline: \"1s\"\nehdb { feed {} }\n"+
		"tls { cert_file: %q, key_file: %q }\n", certFile, keyFile), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "-js", "-sd", t.TempDir(), "-m", "0", "-c", conf)
	js := fill(t, p.connect(nats.Secure(trusting(cert))), "s.a")
	for range 50 {
		if _, err := js.Publish(t.Context(), "s.big", make([]byte, 200_000)); err != nil {
			t.Fatal(err)
		}
	}
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: trusting(cert), ForceAttemptHTTP2: true, MaxConnsPerHost: 1,
	}}
	url := p.http() + "/feed/$G/S"
	openFeedWith(t, client, url) // is not read
	var feeds []*feedClient
	for range 20 {
		f := openFeedWith(t, client, url+"?filter=s.a")
		if f.resp.ProtoMajor != 2 {
			t.Fatal(f.resp.Proto)
		}
		f.expect("1 on s.a")
		feeds = append(feeds, f)
	}
	p.await("end of the slow reader", func() bool {
		resp, err := client.Get(p.http() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(page), "ehdb_sse_slow_readers_total 1\n") &&
			strings.Contains(string(page), "ehdb_sse_connections 20\n")
	})
	put(t, js, "s.a")
	for _, f := range feeds {
		f.expect("52 on s.a")
	}
	p.signal(syscall.SIGTERM)
	for _, f := range feeds {
		f.expectBye("shutdown")
	}
}

// TestNoFeeds: where there are none, the page says why.
func TestNoFeeds(t *testing.T) {
	p := start(t, "-js", "-sd", t.TempDir())
	code, text := refused(t, p.http()+"/feed/$G/S")
	if code != http.StatusNotImplemented || !strings.HasPrefix(text, "feeds are off on this server") {
		t.Errorf("%d %s", code, text)
	}
	conf := filepath.Join(t.TempDir(), "feed.conf")
	if err := os.WriteFile(conf, []byte("ehdb { feed {} }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"JetStream is off": {"-c", conf},
	} {
		p := start(t, args...)
		if code, text := refused(t, p.http()+"/feed/$G/S"); code != http.StatusNotImplemented || !strings.HasPrefix(text, want) {
			t.Errorf("%d %s", code, text)
		}
	}
	out, errs, code := once(t, "-c", conf, "-t")
	if code == 0 || !strings.Contains(out+errs, "ehdb.feed needs the monitoring port") {
		t.Errorf("%d %s%s", code, out, errs)
	}
}

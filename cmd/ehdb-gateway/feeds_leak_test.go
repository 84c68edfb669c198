package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/gateway/feed"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// feedParts are the parts of the program that a feed needs, in this process.
type feedParts struct {
	svc   *jetstreamapi.Service
	gw    *gateway.Server
	feeds *feed.Server
	http  *httptest.Server
}

func startFeedParts(t *testing.T) *feedParts {
	t.Helper()
	router := bus.NewRouter()
	p := &feedParts{svc: jetstreamapi.New(jetstreamapi.Options{
		Bus: router, Storage: storage.Options{Dir: t.TempDir()}, ServerName: "S", ServerID: "ID",
		Logger: slog.New(slog.DiscardHandler),
	})}
	if err := p.svc.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	p.gw, err = gateway.New(gateway.Options{Server: &server.Options{Host: "127.0.0.1", Port: -1}, Bus: router})
	if err == nil {
		err = p.gw.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.feeds = feed.New(feed.Options{Source: feedSource{&streams{svc: p.svc, serving: true}}, Auth: p.gw.WebAuth})
	mux := http.NewServeMux()
	mux.Handle(feed.Path, p.feeds)
	p.http = httptest.NewServer(mux)
	return p
}

func (p *feedParts) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	p.feeds.Close(ctx)
	if ctx.Err() != nil {
		t.Error("the feeds did not end")
	}
	p.http.Close()
	p.gw.Shutdown()
	if err := p.svc.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestThousandReconnects: a client that is cut off a thousand times, wherever it happens to be, sees every message once
// and in order, and leaves nothing behind.
func TestThousandReconnects(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	p := startFeedParts(t)
	defer p.stop(t)
	nc, err := nats.Connect(p.gw.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js := fill(t, nc)
	const reconnects, most = 1000, 5
	publish := func(ctx context.Context) {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := js.PublishAsync("s.a", fmt.Append(nil, i)); err != nil {
				t.Error(err)
				return
			}
			if i%100 == 0 {
				<-js.PublishAsyncComplete()
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		publish(ctx)
	}()
	defer http.DefaultClient.CloseIdleConnections()
	last := ""
	for n, next := 0, 0; n < reconnects; n++ {
		f := openFeed(t, p.http.URL+"/feed/$G/S", "Last-Event-ID: "+last)
		for range rand.IntN(most) {
			e, err := f.next()
			if err != nil || e.name != "" || e.data != fmt.Sprint(next) || e.id != fmt.Sprint(next+1) {
				t.Fatalf("%+v (%v), want message %d", e, err, next)
			}
			next, last = next+1, e.id
		}
		f.end() // in the middle of whatever is being sent
		_ = f.resp.Body.Close()
	}
	stop()
	<-done
	<-js.PublishAsyncComplete()
	for deadline := time.Now().Add(10 * time.Second); p.feeds.Stats().Connections > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d feeds are still open", p.feeds.Stats().Connections)
		}
	}
	if s := p.feeds.Stats(); s.Opened != reconnects || s.Gaps != 0 || s.Slow != 0 {
		t.Errorf("%+v", s)
	}
}

// A feed without filters has what the stream holds, and that may be other than what it takes: the login decides about each
// message. Strangers do not fill the log.
func TestFeedWithoutFilters(t *testing.T) {
	p := startFeeds(t, "", `accounts { A { jetstream: enabled, users: [
		{ user: ann, password: a }
		{ user: sue, password: s, permissions: { subscribe: { allow: ["s.a", "s.x.>"], deny: "s.x.secret" } } }
	] } }
`)
	js := fill(t, p.connect(nats.UserInfo("ann", "a")), "s.a", "s.b", "s.x.open", "s.x.secret", "s.x.more")
	_, err := js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.a"}})
	if err != nil {
		t.Fatal(err)
	}
	put(t, js, "s.a")
	sue := feedRequest(t.Context(), t, http.MethodGet, p.http())
	sue.SetBasicAuth("sue", "s")
	login := "Authorization: " + sue.Header.Get("Authorization")
	openFeed(t, p.http()+"/feed/A/S", login).expect("1 on s.a", "3 on s.x.open", "5 on s.x.more", "6 on s.a")
	for range 100 {
		refused(t, p.http()+"/feed/"+strings.Repeat("Q", 10_000)+"/S")
	}
	if n := len(p.logged()); n > 40_000 {
		t.Errorf("100 refused logins wrote %d bytes to the log", n)
	}
}

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// event is an event of a feed.
type event struct{ name, id, data, retry string }

// feedClient reads a feed.
type feedClient struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Scanner
	end  context.CancelFunc
}

// openFeed asks for a feed, with headers as "Name: value".
func openFeed(t *testing.T, url string, headers ...string) *feedClient {
	t.Helper()
	return openFeedWith(t, http.DefaultClient, url, headers...)
}

func openFeedWith(t *testing.T, client *http.Client, url string, headers ...string) *feedClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	resp, err := client.Do(feedRequest(ctx, t, http.MethodGet, url, headers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 1<<20)
	return &feedClient{t: t, resp: resp, in: in, end: cancel}
}

func feedRequest(ctx context.Context, t *testing.T, method, url string, headers ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		if name, value, ok := strings.Cut(h, ": "); ok {
			req.Header.Set(name, value)
		}
	}
	return req
}

// next returns the next event that is not only an id, and io.EOF at the end of the feed.
func (f *feedClient) next() (event, error) {
	e, data := event{}, []string(nil)
	for f.in.Scan() {
		field, value, _ := strings.Cut(f.in.Text(), ": ")
		switch field {
		case "":
			if data != nil {
				e.data = strings.Join(data, "\n")
				return e, nil
			}
			e = event{}
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			data = append(data, value)
		case "retry":
			e.retry = value
		}
	}
	if err := f.in.Err(); err != nil {
		return e, err
	}
	return e, io.EOF
}

// expect reads the events wanted, each as "name id data" without what is empty.
func (f *feedClient) expect(want ...string) {
	f.t.Helper()
	for _, w := range want {
		e, err := f.next()
		if err != nil {
			f.t.Fatalf("%v instead of %q", err, w)
		}
		got := strings.Join(strings.Fields(e.name+" "+e.id+" "+e.data), " ")
		if got != w {
			f.t.Fatalf("%q, want %q", got, w)
		}
	}
}

// expectBye reads until the feed ends, which it must do with this reason and a pause.
func (f *feedClient) expectBye(reason string) {
	f.t.Helper()
	for {
		e, err := f.next()
		if err != nil {
			f.t.Fatalf("%v without a goodbye", err)
		}
		if e.name != "bye" {
			continue
		}
		if !strings.Contains(e.data, `"reason":"`+reason+`"`) || len(e.retry) != 4 {
			f.t.Errorf("goodbye %+v", e)
		}
		if e, err := f.next(); !errors.Is(err, io.EOF) {
			f.t.Errorf("%+v (%v) after the goodbye", e, err)
		}
		return
	}
}

// refused returns status and text of an answer that is no feed.
func refused(t *testing.T, url string, headers ...string) (int, string) {
	t.Helper()
	f := openFeed(t, url, headers...)
	body, err := io.ReadAll(f.resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return f.resp.StatusCode, strings.TrimSpace(string(body))
}

// startFeeds runs the program with feeds, the configuration given, and JetStream.
func startFeeds(t *testing.T, feed, more string) *process {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "feed.conf")
	if err := os.WriteFile(conf, []byte("ehdb { feed { "+feed+" } }\n"+more), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, "-js", "-sd", t.TempDir(), "-c", conf)
}

// fill makes a stream S of s.> and publishes to its subjects.
func fill(t *testing.T, nc *nats.Conn, subjects ...string) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	put(t, js, subjects...)
	return js
}

func put(t *testing.T, js jetstream.JetStream, subjects ...string) {
	t.Helper()
	for _, s := range subjects {
		if _, err := js.Publish(t.Context(), s, []byte("on "+s)); err != nil {
			t.Fatal(err)
		}
	}
}

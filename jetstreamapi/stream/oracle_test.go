package stream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
)

const patience = 10 * time.Second

// world is a stream on a server: ours, or nats-server.
type world interface {
	// create makes the stream; the error is the one of the API.
	create(t *testing.T, cfg server.StreamConfig) *server.ApiError
	update(t *testing.T, cfg server.StreamConfig) *server.ApiError
	config(t *testing.T) server.StreamConfig
	// publish returns the answer as it came; empty for none (when no reply is asked for).
	publish(t *testing.T, subject string, header []byte, data string) string
	purge(t *testing.T, req server.JSApiStreamPurgeRequest) (uint64, *server.ApiError)
	deleteMsg(t *testing.T, seq uint64, noErase bool) *server.ApiError
	state(t *testing.T) server.StreamState
	// message returns what is stored at seq; empty if nothing is.
	message(t *testing.T, seq uint64) string
	// listen returns what is published on subject from now on.
	listen(t *testing.T, subject string) <-chan string
}

// bothWorlds runs a script on both and compares what it returns, line by line.
func bothWorlds(t *testing.T, script func(t *testing.T, w world) []string) {
	t.Helper()
	want := script(t, newTheirs(t))
	got := script(t, newOurs(t))
	for i := range max(len(want), len(got)) {
		var a, b string
		if i < len(want) {
			a = want[i]
		}
		if i < len(got) {
			b = got[i]
		}
		if a != b {
			t.Errorf("line %d:\n nats-server: %s\n ours:        %s", i, a, b)
		}
	}
}

// canonical re-marshals JSON, so that equal answers are equal texts.
func canonical(text string) string {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return "not JSON: " + text
	}
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// stateLine is a state without its times of day.
func stateLine(st server.StreamState) string {
	first, last := "none", "none"
	if !st.FirstTime.IsZero() {
		first = "some"
	}
	if !st.LastTime.IsZero() {
		last = "some"
	}
	if st.LastSeq == 0 {
		st.NumDeleted, st.Deleted = 0, nil // nats-server counts sequence 0 of a new stream as deleted
	}
	return fmt.Sprintf("msgs=%d bytes=%d first=%d (%s) last=%d (%s) subjects=%d %v deleted=%d %v", st.Msgs, st.Bytes,
		st.FirstSeq, first, st.LastSeq, last, st.NumSubjects, st.Subjects, st.NumDeleted, st.Deleted)
}

func errorLine(err *server.ApiError) string {
	if err == nil {
		return "ok"
	}
	return fmt.Sprintf("%d/%d %s", err.Code, err.ErrCode, err.Description)
}

// The world of nats-server.

type theirs struct {
	nc   *nats.Conn
	name string
}

func newTheirs(t *testing.T) *theirs {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(patience) {
		t.Fatal("nats-server does not start")
	}
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return &theirs{nc: nc}
}

func (w *theirs) api(t *testing.T, subject string, req, resp any) *server.ApiError {
	t.Helper()
	var body []byte
	if req != nil {
		var err error
		if body, err = json.Marshal(req); err != nil {
			t.Fatal(err)
		}
	}
	m, err := w.nc.Request("$JS.API."+subject, body, patience)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	var env struct {
		Error *server.ApiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &env); err != nil {
		t.Fatal(err)
	}
	if env.Error == nil && resp != nil {
		if err := json.Unmarshal(m.Data, resp); err != nil {
			t.Fatal(err)
		}
	}
	return env.Error
}

func (w *theirs) create(t *testing.T, cfg server.StreamConfig) *server.ApiError {
	t.Helper()
	w.name = cfg.Name
	if w.name == "" || strings.ContainsAny(w.name, " .*>/\\") {
		t.Fatalf("the API cannot be asked for %q", w.name)
	}
	for try := 0; ; try++ {
		err := w.api(t, "STREAM.CREATE."+w.name, cfg, nil)
		// On a busy machine its file store now and then fails to make a directory.
		if err == nil || err.Description != "error creating store for stream" || try == 5 {
			return err
		}
	}
}

func (w *theirs) update(t *testing.T, cfg server.StreamConfig) *server.ApiError {
	t.Helper()
	return w.api(t, "STREAM.UPDATE."+w.name, cfg, nil)
}

func (w *theirs) info(t *testing.T) server.StreamInfo {
	t.Helper()
	var info server.StreamInfo
	req := map[string]any{"deleted_details": true, "subjects_filter": ">"}
	if err := w.api(t, "STREAM.INFO."+w.name, req, &info); err != nil {
		t.Fatal(err)
	}
	return info
}

func (w *theirs) config(t *testing.T) server.StreamConfig {
	t.Helper()
	cfg := w.info(t).Config
	for k := range cfg.Metadata {
		if strings.HasPrefix(k, "_nats.") {
			delete(cfg.Metadata, k)
		}
	}
	if len(cfg.Metadata) == 0 {
		cfg.Metadata = nil
	}
	return cfg
}

func (w *theirs) state(t *testing.T) server.StreamState {
	t.Helper()
	return w.info(t).State
}

func (w *theirs) publish(t *testing.T, subject string, header []byte, data string) string {
	t.Helper()
	m := &nats.Msg{Subject: subject, Data: []byte(data)}
	for line := range strings.SplitSeq(string(header), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			if m.Header == nil {
				m.Header = nats.Header{}
			}
			m.Header[name] = append(m.Header[name], value)
		}
	}
	r, err := w.nc.RequestMsg(m, patience)
	if err != nil {
		t.Fatalf("publish to %s: %v", subject, err)
	}
	return string(r.Data)
}

func (w *theirs) purge(t *testing.T, req server.JSApiStreamPurgeRequest) (uint64, *server.ApiError) {
	t.Helper()
	var resp server.JSApiStreamPurgeResponse
	err := w.api(t, "STREAM.PURGE."+w.name, req, &resp)
	return resp.Purged, err
}

func (w *theirs) deleteMsg(t *testing.T, seq uint64, noErase bool) *server.ApiError {
	t.Helper()
	return w.api(t, "STREAM.MSG.DELETE."+w.name, server.JSApiMsgDeleteRequest{Seq: seq, NoErase: noErase}, nil)
}

func (w *theirs) message(t *testing.T, seq uint64) string {
	t.Helper()
	var resp server.JSApiMsgGetResponse
	if err := w.api(t, "STREAM.MSG.GET."+w.name, server.JSApiMsgGetRequest{Seq: seq}, &resp); err != nil {
		return ""
	}
	return fmt.Sprintf("%s %q %q", resp.Message.Subject, resp.Message.Header, resp.Message.Data)
}

func (w *theirs) listen(t *testing.T, subject string) <-chan string {
	t.Helper()
	got := make(chan string, 100)
	// The raw header block, in its order on the wire, is not to be had from the client: the values are sorted here.
	if _, err := w.nc.Subscribe(subject, func(m *nats.Msg) {
		var lines []string
		for name, values := range m.Header {
			for _, v := range values {
				lines = append(lines, name+": "+v)
			}
		}
		got <- published(m.Subject, lines, m.Data)
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return got
}

// published is a message as one line, without its time.
func published(subject string, lines []string, data []byte) string {
	slices.Sort(lines)
	for i := range lines {
		if strings.HasPrefix(lines[i], "Nats-Time-Stamp: ") {
			lines[i] = "Nats-Time-Stamp: some"
		}
	}
	return fmt.Sprintf("%s %q %q", subject, lines, data)
}

// The world of ours.

type ours struct {
	store  *storage.Store
	router *bus.Router
	stream *stream.Stream
	client *client
	tweak  func(*stream.Options)
}

func openStore(t *testing.T, dir string) *storage.Store {
	t.Helper()
	store, err := storage.Open(context.Background(), storage.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func newStore(t *testing.T, dir string) *storage.Store {
	t.Helper()
	store := openStore(t, dir)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func newOurs(t *testing.T) *ours {
	t.Helper()
	router := bus.NewRouter()
	return &ours{store: newStore(t, ""), router: router, client: newClient(t, router)}
}

func (w *ours) create(t *testing.T, cfg server.StreamConfig) *server.ApiError {
	t.Helper()
	if err := stream.Complete(&cfg, false, stream.Limits{}); err != nil {
		return err
	}
	spec := stream.LogSpec("$G", &cfg)
	spec.Shards = []storage.ShardID{0}
	log, err := w.store.CreateLog(spec)
	if err != nil {
		t.Fatal(err)
	}
	w.start(t, cfg, log)
	return nil
}

func (w *ours) start(t *testing.T, cfg server.StreamConfig, log *storage.Log) {
	t.Helper()
	o := stream.Options{Account: "$G", Config: cfg, Created: time.Now(), Log: log, Bus: w.router, Stall: w.store.Stall}
	if w.tweak != nil {
		w.tweak(&o)
	}
	s, err := stream.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	w.stream = s
}

func (w *ours) update(t *testing.T, cfg server.StreamConfig) *server.ApiError {
	t.Helper()
	if err := stream.Complete(&cfg, false, stream.Limits{}); err != nil {
		return err
	}
	old := w.stream.Config()
	if err := stream.CheckUpdate(&old, &cfg, false); err != nil {
		return err
	}
	if err := w.stream.Update(cfg); err != nil {
		t.Fatal(err)
	}
	return nil
}

func (w *ours) config(*testing.T) server.StreamConfig { return w.stream.Config() }

func (w *ours) publish(t *testing.T, subject string, header []byte, data string) string {
	t.Helper()
	return w.client.request(t, subject, header, data)
}

func (w *ours) purge(t *testing.T, req server.JSApiStreamPurgeRequest) (purged uint64, err *server.ApiError) {
	t.Helper()
	done := make(chan struct{})
	w.stream.Purge(req, func(n uint64, e *server.ApiError) { purged, err = n, e; close(done) })
	wait(t, done)
	return purged, err
}

func (w *ours) deleteMsg(t *testing.T, seq uint64, noErase bool) (err *server.ApiError) {
	t.Helper()
	done := make(chan struct{})
	w.stream.DeleteMsg(seq, !noErase, func(e *server.ApiError) { err = e; close(done) })
	wait(t, done)
	return err
}

func (w *ours) state(t *testing.T) (st server.StreamState) {
	t.Helper()
	done := make(chan struct{})
	w.stream.DurableState(true, ">", func(s server.StreamState) { st = s; close(done) })
	wait(t, done)
	return st
}

func (w *ours) message(t *testing.T, seq uint64) string {
	t.Helper()
	r, err := w.stream.Log().Get(seq)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %q %q", r.Key, r.Header, r.Data)
}

func (w *ours) listen(t *testing.T, subject string) <-chan string {
	t.Helper()
	got := make(chan string, 100)
	session, err := w.router.Open(bus.KindClient, bus.Identity{ID: 2}, sinkFunc(func(m *bus.Msg) {
		var lines []string
		for line := range strings.SplitSeq(string(m.Header), "\r\n") {
			if strings.Contains(line, ":") {
				lines = append(lines, line)
			}
		}
		got <- published(string(m.Subject), lines, m.Data)
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	if _, err := session.Subscribe("1", subject, ""); err != nil {
		t.Fatal(err)
	}
	return got
}

// sinkFunc is a bus.Sink that is a function of one message.
type sinkFunc func(m *bus.Msg)

func (f sinkFunc) Deliver(batch []bus.Delivery) <-chan struct{} {
	for i := range batch {
		f(&batch[i].Msg)
	}
	return nil
}

func wait(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("no answer")
	}
}

// client makes requests on the bus.
type client struct {
	session bus.Session
	answers chan string
	n       int
}

func newClient(t *testing.T, router *bus.Router) *client {
	t.Helper()
	c := &client{answers: make(chan string, 1024)}
	session, err := router.Open(bus.KindClient, bus.Identity{ID: 1}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	c.session = session
	if _, err := session.Subscribe("1", "_INBOX.c.*", ""); err != nil {
		t.Fatal(err)
	}
	return c
}

// Deliver implements bus.Sink.
func (c *client) Deliver(batch []bus.Delivery) <-chan struct{} {
	for i := range batch {
		c.answers <- string(batch[i].Msg.Subject) + " " + string(batch[i].Msg.Data)
	}
	return nil
}

func (c *client) request(t *testing.T, subject string, header []byte, data string) string {
	t.Helper()
	c.n++
	reply := fmt.Sprintf("_INBOX.c.%d", c.n)
	m := bus.Msg{Subject: []byte(subject), Reply: []byte(reply), Header: header, Data: []byte(data)}
	if !c.session.Publish(&m) {
		t.Fatalf("nobody listens on %s", subject)
	}
	c.session.Flush()
	select {
	case a := <-c.answers:
		to, body, _ := strings.Cut(a, " ")
		if to != reply {
			t.Fatalf("answer to %s, want %s", to, reply)
		}
		return body
	case <-time.After(patience):
		t.Fatalf("no answer to a message on %s", subject)
	}
	return ""
}

func unmarshal(text string, v any) error { return json.Unmarshal([]byte(text), v) }

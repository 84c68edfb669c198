package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// TestListsAcrossFlips: what a client sees of all streams of its account (names, lists of many pages, what the account
// uses) is what it is served, before, in and after a flip: each stream once, as it stands where it is served.
func TestListsAcrossFlips(t *testing.T) {
	t.Parallel()
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about the cutover")
	}
	const others = 1030 // more than a page of names, and several of infos
	ns := startOracle(t, nil)
	around := connect(t, ns.ClientURL())
	direct, ctx := jetStream(t, around)
	for i := range others {
		_, err := direct.CreateStream(ctx, jetstream.StreamConfig{
			Name: fmt.Sprintf("M%04d", i), Subjects: []string{fmt.Sprintf("m.%d", i)}, Storage: jetstream.MemoryStorage,
		})
		noErr(t, err)
	}
	around.Close() // nobody may go around the gateway when a stream is flipped
	b := startShadowWith(t, []string{ns.ClientURL()}, []string{"http://" + ns.MonitorAddr().String()},
		`streams: ["M0300X", "M0900X"]`)
	nc := connect(t, b.URL)
	js, _ := jetStream(t, nc)
	for _, name := range []string{"M0300X", "M0900X"} {
		s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, MaxBytes: 1 << 20})
		noErr(t, err)
		_, err = s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy})
		noErr(t, err)
	}
	publish := func() {
		t.Helper()
		for i := range 240 {
			_, err := js.Publish(ctx, []string{"M0300X.a", "M0900X.a"}[i%2], []byte("hello"))
			noErr(t, err)
		}
	}
	publish()
	for _, name := range []string{"M0300X", "M0900X"} {
		until(t, "compared", time.Minute, func() error {
			publish() // the comparison's window is measured
			if _, err := b.stream(name); err != nil {
				return err
			}
			if g := b.gate(name, "G2"); g.State != gate.Pass {
				return fmt.Errorf("G2 of %s is %s: %s of %s", name, g.State, g.Value, g.Threshold)
			}
			return nil
		})
	}
	see := func(streams int) (now *inventory) {
		t.Helper()
		until(t, fmt.Sprintf("%d streams", streams), 10*time.Second, func() (err error) {
			if now, err = seeAll(t, nc); err == nil && len(now.names) != streams {
				err = fmt.Errorf("%q", now.names)
			}
			return err
		})
		return now
	}
	const streams = others + 4 // and the buckets with the gateway's lease and its claim
	before := see(streams)
	for _, name := range []string{"M0300X", "M0900X"} {
		until(t, "flip "+name, time.Minute, func() error { _, err := b.flip(name); return err })
	}
	before.alike(t, "flipped", see(streams))
	last := before.infos["M0300X"].State.LastSeq + 120
	publish()
	direct, _ = jetStream(t, connect(t, ns.ClientURL()))
	until(t, "the servers follow", 10*time.Second, func() error {
		s, err := direct.Stream(ctx, "M0300X")
		if err == nil && s.CachedInfo().State.LastSeq != last {
			err = fmt.Errorf("at %d", s.CachedInfo().State.LastSeq)
		}
		return err
	})
	published := see(streams)
	// On the servers the same takes a little more: what is published there has a header that says where it comes from.
	more := sum(published, "M0300X", "M0900X") - sum(before, "M0300X", "M0900X")
	own := []string{"KV_EHDB_CUTOVER", "KV_EHDB_AUTHORITY"} // the gateway's, which it writes to
	if got := published.info.Store - sum(published, own...) - (before.info.Store - sum(before, own...)); got != more {
		t.Errorf("the account uses %d bytes more, and %d were published", got, more)
	}
	if i := published.infos["M0300X"]; i == nil || i.State.Msgs != last {
		t.Errorf("listed as %+v", i)
	}

	// Filters find streams by the subjects that they have where they are served.
	_, err := js.UpdateStream(ctx, jetstream.StreamConfig{Name: "M0900X", Subjects: []string{"new.>"}, MaxBytes: 1 << 20})
	noErr(t, err)
	for subject, want := range map[string][]string{"new.x": {"M0900X"}, "M0900X.x": nil, "m.3": {"M0003"}, "M0300X.>": {"M0300X"}} {
		if got := names(t, nc, subject); !slices.Equal(got, want) {
			t.Errorf("%s is stored by %q", subject, got)
		}
	}

	// What a client has deleted is gone, though the servers keep it, and what it makes anew is there once.
	noErr(t, js.DeleteStream(ctx, "M0300X"))
	gone := see(streams - 1)
	if slices.Contains(gone.names, "M0300X") || gone.infos["M0300X"] != nil || gone.info.Streams != before.info.Streams-1 ||
		gone.info.Consumers != before.info.Consumers-1 || gone.info.Store-sum(gone, own...) != published.info.Store-sum(published, append(own, "M0300X")...) {
		t.Errorf("deleted: %d names, uses %+v of %+v", len(gone.names), gone.info.JetStreamTier, published.info.JetStreamTier)
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "M0300X", Subjects: []string{"M0300X.>"}})
	noErr(t, err)
	again := see(streams)
	if !slices.Equal(again.names, before.names) || again.info.Streams != before.info.Streams {
		t.Errorf("made anew: %d names of %d", len(again.names), len(before.names))
	}
	ns.Shutdown()
}

// inventory is what a client sees of an account.
type inventory struct {
	names []string
	infos map[string]*server.StreamInfo
	info  server.JetStreamAccountStats
}

// seeAll looks at everything. The error is that the pages of the lists do not fit: the gateway has streams of its own
// on the servers, now and then.
func seeAll(t *testing.T, nc *nats.Conn) (*inventory, error) {
	t.Helper()
	all := &inventory{names: names(t, nc, ""), infos: make(map[string]*server.StreamInfo)}
	for n := 0; ; {
		var page server.JSApiStreamListResponse
		ask(t, nc, "STREAM.LIST", map[string]any{"offset": n}, &page)
		for _, i := range page.Streams {
			if n >= len(all.names) || i.Config.Name != all.names[n] {
				return nil, fmt.Errorf("%s stands in a list at %d of %q", i.Config.Name, n, all.names)
			}
			all.infos[i.Config.Name] = i
			n++
		}
		if n >= page.Total || len(page.Streams) == 0 {
			break
		}
	}
	var info server.JSApiAccountInfoResponse
	ask(t, nc, "INFO", nil, &info)
	all.info = *info.JetStreamAccountStats
	if len(all.infos) != len(all.names) || all.info.Streams != len(all.names) {
		return nil, fmt.Errorf("%d infos of %d streams, and %d are counted", len(all.infos), len(all.names), all.info.Streams)
	}
	return all, nil
}

// sum is how many bytes streams hold.
func sum(v *inventory, streams ...string) (n uint64) {
	for _, name := range streams {
		n += v.infos[name].State.Bytes
	}
	return n
}

// alike complains about what is not as it was.
func (e *inventory) alike(t *testing.T, what string, now *inventory) {
	t.Helper()
	if !slices.Equal(e.names, now.names) {
		t.Errorf("%s: %d names, were %d", what, len(now.names), len(e.names))
	}
	if now.info.API.Total <= e.info.API.Total {
		t.Errorf("%s: %d calls of the API, after %d", what, now.info.API.Total, e.info.API.Total)
	}
	was, is := e.info, now.info
	for name, i := range e.infos { // the gateway's own are not what is compared
		if n := now.infos[name]; strings.HasPrefix(name, "KV_EHDB_") && n != nil {
			was.Store, is.Store = was.Store-i.State.Bytes, is.Store-n.State.Bytes
		}
	}
	was.API, is.API = server.JetStreamAPIStats{}, server.JetStreamAPIStats{}
	if a, b := fmt.Sprintf("%+v", was), fmt.Sprintf("%+v", is); a != b {
		t.Errorf("%s: uses\n%s, used\n%s", what, b, a)
	}
	for name, i := range e.infos {
		if strings.HasPrefix(name, "KV_EHDB_") {
			continue // the gateway's own
		}
		if n := now.infos[name]; n == nil || n.State.Msgs != i.State.Msgs || n.State.Bytes != i.State.Bytes ||
			n.State.Consumers != i.State.Consumers || !n.Created.Equal(i.Created) {
			t.Errorf("%s: %s is %+v, was %+v", what, name, n, i)
		}
	}
}

// names returns the names of all streams that store a subject, page by page.
func names(t *testing.T, nc *nats.Conn, subject string) (all []string) {
	t.Helper()
	for {
		var page server.JSApiStreamNamesResponse
		ask(t, nc, "STREAM.NAMES", map[string]any{"offset": len(all), "subject": subject}, &page)
		all = append(all, page.Streams...)
		if len(all) >= page.Total || len(page.Streams) == 0 {
			break
		}
	}
	if !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Fatalf("names out of order, or twice: %q", all)
	}
	return all
}

// ask asks the JetStream API.
func ask(t *testing.T, nc *nats.Conn, subject string, body, to any) {
	t.Helper()
	doc, err := json.Marshal(body)
	noErr(t, err)
	if body == nil {
		doc = nil
	}
	m, err := nc.Request("$JS.API."+subject, doc, 5*time.Second)
	noErr(t, err)
	var head server.ApiResponse
	noErr(t, json.Unmarshal(m.Data, &head))
	if head.Error != nil {
		t.Fatalf("%s: %+v", subject, head.Error)
	}
	noErr(t, json.Unmarshal(m.Data, to))
}

package pilot_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/pilot"
)

// A plan lists what refers to the streams: deliver groups, programs that keep their configuration, autoscalers, queue
// groups, where each stream will be, and how much there is to copy.
func TestInventory(t *testing.T) {
	scrape := face.Scrape{Agent: "Go-http-client/1.1", Addr: "10.0.0.1", Page: "/jsz", At: time.Now(), Count: 9}
	browser := face.Scrape{Agent: "Mozilla", Addr: "10.0.0.2", Page: "/jsz", At: time.Now(), Count: 1}
	group := face.QueueGroup{Account: "$G", Subject: "work", Queue: "pool", Members: 3}
	r := newRig(t, func(o *pilot.Options) {
		o.CopyRate = 1000
		o.Shards = func(account, stream string, subjects []string) []uint32 {
			if account != "$G" || stream != "S" || len(subjects) != 1 {
				t.Errorf("%s %s %v", account, stream, subjects)
			}
			return []uint32{3, 1}
		}
		o.Scrapes = func() []face.Scrape { return []face.Scrape{scrape, browser} }
		o.Queues = func() []face.QueueGroup { return []face.QueueGroup{group, {Account: "OTHER", Queue: "q"}} }
	})
	nack := r.connect(r.gw.ClientURL(), nats.Name("jetstream-controller"))
	defer nack.Close()
	name := r.stream(jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s"}, Metadata: map[string]string{"app.kubernetes.io/managed-by": "nack", "team": "a"},
	}, 20)
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	_, err = js.CreatePushConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "push", DeliverSubject: "to", DeliverGroup: "team"})
	check(t, err)
	var inv *face.Inventory
	until(t, "all clients are seen", func() bool { // a look at the servers' connections counts for half a second
		inv, err = r.pilot.Inventory(t.Context())
		check(t, err)
		return len(inv.Clients) == 1 && inv.Clients[0].Count >= 3
	})
	if len(inv.Streams) != 1 {
		t.Fatalf("%+v", inv.Streams)
	}
	s := &inv.Streams[0]
	if s.Scope != name || !slices.Equal(s.Shards, []uint32{3, 1}) || !slices.Equal(s.Groups, []string{"push/team"}) ||
		!slices.Equal(s.Managed, []string{"app.kubernetes.io/managed-by=nack"}) {
		t.Errorf("%+v", s)
	}
	if inv.Total.Streams != 1 || inv.Total.Messages != 20 || inv.Total.Bytes != s.Bytes || inv.Total.Seconds != float64(s.Bytes)/1000 {
		t.Errorf("%+v", inv.Total)
	}
	if len(inv.Queues) != 1 || inv.Queues[0] != group || len(inv.Scalers) != 1 || inv.Scalers[0].Addr != "10.0.0.1" {
		t.Errorf("%+v %+v", inv.Queues, inv.Scalers)
	}
	if len(inv.Controllers) != 1 || !strings.Contains(strings.Join(inv.Notes, "\n"), "1 connections of NACK") {
		t.Errorf("%+v %q", inv.Controllers, inv.Notes)
	}
	if inv.Clients[0].Lang != "go" {
		t.Errorf("%+v", inv.Clients)
	}
}

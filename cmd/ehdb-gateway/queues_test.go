package main

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/upstream"
	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// The queue groups of clients whose bytes go upstream are known by their subscriptions, and how many are in each.
func TestQueues(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	must(err)
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	to, err := url.Parse(ns.ClientURL())
	must(err)
	up, err := upstream.New(upstream.Options{URLs: []*url.URL{to}})
	must(err)
	gw, err := gateway.New(gateway.Options{
		Server: &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT}, Bus: bus.NewRouter(), Upstream: up,
	})
	must(err)
	must(gw.Start())
	t.Cleanup(gw.Shutdown)
	var last *nats.Subscription
	for range 2 {
		nc, err := nats.Connect(gw.ClientURL())
		must(err)
		t.Cleanup(nc.Close)
		for _, s := range [][2]string{{"work.>", "pool"}, {"work.>", "audit"}, {"_INBOX.x", "own"}} {
			last, err = nc.QueueSubscribeSync(s[0], s[1])
			must(err)
		}
		_, err = nc.SubscribeSync("alone")
		must(err)
		must(nc.Flush())
	}
	must(last.Unsubscribe())
	want := []face.QueueGroup{
		{Account: "$G", Subject: "work.>", Queue: "audit", Members: 2}, {Account: "$G", Subject: "work.>", Queue: "pool", Members: 2},
	}
	if got := queues(gw); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

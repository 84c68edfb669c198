package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startCluster runs three nats-servers with JetStream.
func startCluster(t *testing.T) (nodes []*server.Server, monitors []*url.URL) {
	t.Helper()
	ports, routes := make([]int, 3), make([]string, 3) //nolint:mnd // three servers
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		ports[i] = l.Addr().(*net.TCPAddr).Port
		routes[i] = "nats://" + l.Addr().String()
		check(t, l.Close())
	}
	for i, port := range ports {
		o := &server.Options{
			Host: "127.0.0.1", Port: -1, HTTPHost: "127.0.0.1", HTTPPort: -1, NoLog: true, NoSigs: true,
			ServerName: fmt.Sprintf("n%d", i), JetStream: true, StoreDir: t.TempDir(),
			Routes: server.RoutesFromStr(strings.Join(routes, ",")),
		}
		o.Cluster.Name, o.Cluster.Host, o.Cluster.Port = "C", "127.0.0.1", port
		ns, err := server.NewServer(o)
		check(t, err)
		go ns.Start()
		t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
		nodes = append(nodes, ns)
	}
	for _, ns := range nodes {
		if !ns.ReadyForConnections(20 * time.Second) {
			t.Fatal("nats-server is not ready")
		}
		monitors = append(monitors, urls(t, "http://"+ns.MonitorAddr().String())...)
	}
	leads := func(ns *server.Server) bool { return ns.JetStreamIsLeader() }
	for end := time.Now().Add(30 * time.Second); !slices.ContainsFunc(nodes, leads); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the cluster has no leader")
		}
	}
	return nodes, monitors
}

// Of each stream and consumer the leader's figures count, and there is one server to be seen.
func TestJszOfACluster(t *testing.T) {
	nodes, monitors := startCluster(t)
	nc, err := nats.Connect(nodes[0].ClientURL())
	check(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	check(t, err)
	names := []string{"A", "B", "C", "D"}
	for _, name := range names {
		cfg := jetstream.StreamConfig{Name: name, Subjects: []string{name}, Replicas: 3}
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			if _, err = js.CreateStream(t.Context(), cfg); err == nil || time.Now().After(end) {
				break
			}
		}
		check(t, err)
		c, err := js.CreateConsumer(t.Context(), name, jetstream.ConsumerConfig{Durable: "W", AckPolicy: jetstream.AckExplicitPolicy})
		check(t, err)
		for range 10 {
			_, err = js.Publish(t.Context(), name, nil)
			check(t, err)
		}
		batch, err := c.Fetch(4)
		check(t, err)
		for m := range batch.Messages() {
			check(t, m.DoubleAck(t.Context()))
		}
	}
	m := NewMonitor(monitors, "front")
	defer m.Close()
	j, err := m.Jsz(t.Context(), &server.JSzOptions{Account: "$G", Streams: true, Consumer: true, Config: true})
	check(t, err)
	if j.Meta.Size != 1 || j.Meta.Leader != "front" || len(j.AccountDetails) != 1 || len(j.AccountDetails[0].Streams) != len(names) {
		t.Fatalf("got %+v", j)
	}
	for _, s := range j.AccountDetails[0].Streams {
		if s.State.Msgs != 10 || s.Config == nil || s.Cluster.Leader != "front" || len(s.Consumer) != 1 {
			t.Fatalf("stream %+v", s)
		}
		if c := s.Consumer[0]; c.NumPending != 6 || c.NumAckPending != 0 || c.Cluster.Leader != "front" {
			t.Errorf("consumer of %s: %+v", s.Name, c)
		}
	}
	// One server alone does not lead all, and followers' figures are not passed for the truth.
	one := NewMonitor(monitors[:1], "front")
	defer one.Close()
	if _, err := one.Jsz(t.Context(), &server.JSzOptions{Account: "$G", Streams: true, Consumer: true}); err == nil ||
		!strings.Contains(err.Error(), "add the monitoring URLs of all servers") {
		t.Errorf("got %v", err)
	}
}

func TestJszErrors(t *testing.T) {
	none := NewMonitor(nil, "front")
	if _, err := none.Jsz(t.Context(), &server.JSzOptions{}); !errors.Is(err, ErrNoMonitor) {
		t.Errorf("got %v", err)
	}
	pages := httptest.NewServer(http.NotFoundHandler())
	defer pages.Close()
	wrong := NewMonitor(urls(t, pages.URL+"/base"), "front")
	defer wrong.Close()
	_, err := wrong.Jsz(t.Context(), &server.JSzOptions{})
	if err == nil || !strings.Contains(err.Error(), pages.URL+"/base/varz: 404 Not Found") {
		t.Errorf("got %v", err)
	}
}

// Scrapes in quick succession are one question upstream.
func TestJszIsRemembered(t *testing.T) {
	asked := 0
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == server.JszPath {
			asked++
		}
		fmt.Fprint(w, `{"server_name":"n"}`)
	}))
	defer pages.Close()
	m := NewMonitor(urls(t, pages.URL), "front")
	defer m.Close()
	for range 20 {
		_, err := m.Jsz(t.Context(), &server.JSzOptions{Consumer: true})
		check(t, err)
	}
	if asked > 3 {
		t.Errorf("asked %d times", asked)
	}
}

package system

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/bus/bustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newService(log io.Writer) (*Service, *bus.Router) {
	r := bus.NewRouter()
	return New(Options{
		Bus: r, Account: "SYS", Logger: slog.New(slog.NewTextHandler(log, nil)),
		Identity: func() server.ServerInfo {
			return server.ServerInfo{ID: "ID", Name: "me", Host: "h", Cluster: "c", Domain: "d"}
		},
	}), r
}

// TestEventsAreBounded: what nobody sends is lost beyond the bound, and told about.
func TestEventsAreBounded(t *testing.T) {
	var log bytes.Buffer
	s, r := newService(&log) // not started: nothing is sent
	described := 0
	connect := func() {
		s.Observe(gateway.EventConnected, "A", func() gateway.Event {
			described++
			return gateway.Event{Client: &server.ClientInfo{}}
		})
	}
	connect()
	if len(s.jobs) != 0 {
		t.Error("an event that nobody listens to is queued")
	}
	listener, err := r.Open(bus.KindClient, bus.Identity{Account: "SYS"}, &bustest.Sink{})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if _, err := listener.Subscribe("1", "$SYS.ACCOUNT.>", ""); err != nil {
		t.Fatal(err)
	}
	for range 2 * maxJobs {
		connect()
	}
	// One of them stands for the account's number of connections, however often it changes.
	if len(s.jobs) != maxJobs || s.lost.Load() != maxJobs+1 || described != 0 {
		t.Errorf("%d events wait, %d are lost, %d described", len(s.jobs), s.lost.Load(), described)
	}
	s.tellLost()
	s.tellLost()
	if n := strings.Count(log.String(), "were lost"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
}

// TestAskersAreSlowedDown: requests are not lost; who asks waits.
func TestAskersAreSlowedDown(t *testing.T) {
	s, _ := newService(io.Discard)
	one := []bus.Delivery{{Msg: bus.Msg{Subject: []byte("$SYS.REQ.SERVER.PING")}}}
	for range maxJobs - 1 {
		if s.Deliver(one) != nil {
			t.Fatal("a stall before the queue is full")
		}
	}
	stall := s.Deliver(one)
	if stall == nil {
		t.Fatal("no stall")
	}
	s.mu.Lock()
	s.release()
	s.mu.Unlock()
	<-stall
}

func TestMeant(t *testing.T) {
	s, _ := newService(io.Discard)
	for _, c := range []struct {
		filter server.EventFilterOptions
		want   bool
	}{
		{server.EventFilterOptions{}, true},
		{server.EventFilterOptions{Name: "m", Host: "h", Cluster: "c", Domain: "d"}, true},
		{server.EventFilterOptions{Name: "m", ExactMatch: true}, false},
		{server.EventFilterOptions{Name: "me", ExactMatch: true}, true},
		{server.EventFilterOptions{Host: "x"}, false},
		{server.EventFilterOptions{Cluster: "x"}, false},
		{server.EventFilterOptions{Domain: "dd"}, false},
	} {
		// No tags are asked for, so the gateway is not.
		if got := s.meant(&c.filter); got != c.want {
			t.Errorf("%+v: %v", c.filter, got)
		}
	}
}

func TestCompressed(t *testing.T) {
	encoding, b := compressed("s2", []byte("text"))
	text, err := io.ReadAll(s2.NewReader(bytes.NewReader(b)))
	if err != nil || encoding != "snappy" || string(text) != "text" {
		t.Errorf("%s, %q, %v", encoding, text, err)
	}
	if encoding, b := compressed("br", []byte("text")); encoding != "identity" || string(b) != "text" {
		t.Errorf("%s, %q", encoding, b)
	}
}

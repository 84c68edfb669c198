package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// scaler does what KEDA's nats-jetstream scaler is documented to do with a monitoring endpoint: it does not look at the
// status, keeps the last figures of its stream, forgets them only when it knew a leader and then misses the consumer,
// and walks the cluster when there is more than one server.
type scaler struct {
	endpoint, account, stream, consumer string

	leader   string
	last     *scaledStream // nil: forgotten
	requests int
}

type scaledStream struct {
	Name  string
	State struct {
		LastSeq int64 `json:"last_seq"`
	}
	Consumers []struct {
		Name       string
		Pending    int64 `json:"num_pending"`
		AckPending int64 `json:"num_ack_pending"`
		Cluster    struct{ Leader string }
	} `json:"consumer_detail"`
}

var (
	errClusterWalk = errors.New("the scaler would look for the leader in the cluster")
	errNoFigures   = errors.New("stream not found")
)

// lag polls once.
func (s *scaler) lag() (int64, error) {
	s.requests++
	resp, err := http.Get(fmt.Sprintf("%s/jsz?acc=%s&consumers=true&config=true", s.endpoint, s.account))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var page struct {
		Meta struct {
			Size int `json:"cluster_size"`
		} `json:"meta_cluster"`
		Accounts []struct {
			Name    string
			Streams []scaledStream `json:"stream_detail"`
		} `json:"account_details"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		return 0, fmt.Errorf("decode: %w", err)
	}
	found := false
	for _, a := range page.Accounts {
		for _, st := range a.Streams {
			if a.Name != s.account || st.Name != s.stream {
				continue
			}
			s.last = &st
			for _, c := range st.Consumers {
				if c.Name == s.consumer {
					found, s.leader = true, c.Cluster.Leader
				}
			}
		}
	}
	if !found && s.leader != "" {
		s.leader, s.last = "", nil
	}
	if page.Meta.Size > 1 {
		return 0, errClusterWalk
	}
	if s.last == nil {
		return 0, errNoFigures
	}
	for _, c := range s.last.Consumers {
		if c.Name == s.consumer {
			return c.Pending + c.AckPending, nil
		}
	}
	return s.last.State.LastSeq, nil // which scales to the maximum
}

// TestKEDA: the scaler gets the lag with one request, in either mode, and an error where there is no lag to tell: never 0
// and never the figures of before.
func TestKEDA(t *testing.T) {
	t.Run("ehdb", func(t *testing.T) {
		p := startGateway(t, t.TempDir())
		scales(t, p, p.URL)
		p.Kill()
		if n, err := (&scaler{endpoint: p.Monitor, account: "$G", stream: "S", consumer: "C"}).lag(); err == nil {
			t.Errorf("a gateway that is not there has the lag %d", n)
		}
	})
	t.Run("nats", func(t *testing.T) {
		ns := startOracle(t, nil)
		conf := fmt.Sprintf("bus { monitor: %q }\nserver_name: front", "http://"+ns.MonitorAddr().String())
		p := startBefore(t, conf, ns.ClientURL())
		scales(t, p, p.URL)
		blind := startBefore(t, "", ns.ClientURL()) // it does not know: no JSON, which a scaler would take for figures
		if n, err := (&scaler{endpoint: blind.Monitor, account: "$G", stream: "S", consumer: "C"}).lag(); err == nil || !strings.Contains(err.Error(), "decode") {
			t.Errorf("without a monitor: %d (%v)", n, err)
		}
	})
}

func scales(t *testing.T, p *process, url string) {
	t.Helper()
	ctx := t.Context()
	js, err := jetstream.New(connect(t, url))
	noErr(t, err)
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	noErr(t, err)
	c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy})
	noErr(t, err)
	k := &scaler{endpoint: p.Monitor, account: "$G", stream: "S", consumer: "C"}
	expect := func(want int64) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second) // in front of a server an answer may be a second old
		for {
			n, err := k.lag()
			if err == nil && n == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("lag %d (%v), want %d", n, err, want)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	for range 5 {
		_, err := js.Publish(ctx, "s", nil)
		noErr(t, err)
	}
	expect(5)
	m, err := c.Next()
	noErr(t, err)
	expect(5) // one of them is in work
	noErr(t, m.DoubleAck(ctx))
	expect(4)
	var varz struct {
		Name string `json:"server_name"`
	}
	_, body := page(t, p.Monitor+"/varz")
	noErr(t, json.Unmarshal([]byte(body), &varz))
	if k.leader == "" || k.leader != varz.Name {
		t.Errorf("the consumer's leader is %q, the server %q: the scaler would keep stale figures", k.leader, varz.Name)
	}
	if n, err := (&scaler{endpoint: p.Monitor, account: "nobody", stream: "S", consumer: "C"}).lag(); !errors.Is(err, errNoFigures) {
		t.Errorf("a wrong account has the lag %d (%v)", n, err)
	}
	noErr(t, js.DeleteStream(ctx, "S"))
	deadline := time.Now().Add(20 * time.Second)
	for _, err = k.lag(); err == nil && time.Now().Before(deadline); _, err = k.lag() {
		time.Sleep(100 * time.Millisecond)
	}
	if !errors.Is(err, errNoFigures) {
		t.Errorf("a stream that is gone: %v, want an error, not the last figures", err)
	}
}

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/face"
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

// subjectLag does what its metrics-api scaler does with the lag of a subject: a line that is missing is an error, not 0.
func (s *scaler) subjectLag(subject string) (int64, error) {
	resp, err := http.Get(s.endpoint + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	want := fmt.Sprintf("ehdb_feed_subject_lag{subject=%q} ", subject)
	for line := range strings.Lines(string(body)) {
		if v, ok := strings.CutPrefix(line, want); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, errNoFigures
}

// TestKEDA: the scaler gets the lag with one request, in every bus mode, and an error where there is no lag to tell: never 0
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

// TestKEDAAcrossFlips: while a stream goes to the gateway and back, the scaler sees what there is, or was until some seconds
// ago, and an error at worst: no spike, no dip, no walk through the servers.
func TestKEDAAcrossFlips(t *testing.T) {
	t.Parallel()
	ns := startOracle(t, nil)
	b := startShadow(t, []string{ns.ClientURL()}, []string{"http://" + ns.MonitorAddr().String()})
	js, err := jetstream.New(connect(t, b.URL))
	noErr(t, err)
	ctx := t.Context()
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	noErr(t, err)
	c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour})
	noErr(t, err)
	publish := func(n int) {
		t.Helper()
		for range n {
			_, err := js.Publish(ctx, "s", nil)
			noErr(t, err)
		}
	}
	take := func(n int) {
		t.Helper()
		for range n {
			m, err := c.Next(jetstream.FetchMaxWait(20 * time.Second))
			noErr(t, err)
			noErr(t, m.DoubleAck(ctx))
		}
	}
	until(t, "the stream is watched", time.Minute, func() error { _, err := b.stream("S"); return err })
	publish(100) // as many as are compared before a stream may move
	take(100)
	publish(17)
	m, err := c.Next()
	noErr(t, err) // outstanding all the way
	lag := int64(17)
	k := &scaler{endpoint: b.Monitor, account: "$G", stream: "S", consumer: "C"}
	reaches := func(want int64) {
		t.Helper()
		when(t, fmt.Sprintf("lag %d", want), func() bool { n, err := k.lag(); return err == nil && n == want })
		when(t, fmt.Sprintf("lag %d of the subject", want), func() bool {
			n, err := k.subjectLag("s")
			return err == nil && n == want
		})
		_, series := page(t, b.Monitor+"/metrics") // the log's own alarms are there wherever the stream is
		for _, s := range []string{"ehdb_storage_up 1", "ehdb_l0_out_of_order_appends 0", "ehdb_storage_sync_seconds_count "} {
			if !strings.Contains(series, "\n"+s) {
				t.Errorf("/metrics has no %s", s)
			}
		}
	}
	reaches(lag)
	var seen []string // while it moves
	polled := func(move func(string) (face.Move, error), before int64) {
		t.Helper()
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				n, err := k.lag()
				if err == nil && n != lag && n != before || errors.Is(err, errClusterWalk) {
					seen = append(seen, fmt.Sprint(n, err))
				}
				if n, err := k.subjectLag("s"); err == nil && n != lag && n != before {
					seen = append(seen, fmt.Sprint("by subject ", n))
				}
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
		until(t, "the stream moves", 2*time.Minute, func() error { _, err := move("S"); return err })
		time.Sleep(2 * time.Second)
		close(stop)
		<-stopped
		if len(seen) > 0 {
			t.Errorf("with a lag of %d the scaler saw %v", lag, seen)
		}
	}
	polled(b.flip, lag)
	take(2)
	lag -= 2
	reaches(lag)
	polled(b.rollback, lag+2)
	reaches(lag)
	noErr(t, m.DoubleAck(ctx))
	take(1)
	reaches(lag - 2)
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

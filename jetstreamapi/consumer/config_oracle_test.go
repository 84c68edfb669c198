package consumer

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

// oracle is a real nats-server with streams to try configurations on.
type oracle struct {
	t       testing.TB
	nc      *nats.Conn
	streams map[string]server.StreamConfig
	n       int
}

func newOracle(tb testing.TB) *oracle {
	tb.Helper()
	s, err := server.NewServer(&server.Options{
		ServerName: "oracle", DontListen: true, JetStream: true, StoreDir: tb.TempDir(), NoLog: true, NoSigs: true,
	})
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	tb.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		tb.Fatal("nats-server does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	o := &oracle{t: tb, nc: nc, streams: map[string]server.StreamConfig{}}
	for _, cfg := range []server.StreamConfig{
		{Name: "L", Subjects: []string{"l.>"}},
		{Name: "I", Subjects: []string{"i.>"}, Retention: server.InterestPolicy},
		{Name: "C", Subjects: []string{"c.>"}, ConsumerLimits: server.StreamConsumerLimits{
			InactiveThreshold: time.Minute, MaxAckPending: 50,
		}},
	} {
		cfg.Replicas = 1
		cfg.Storage = server.MemoryStorage
		var resp server.JSApiStreamCreateResponse
		o.request("$JS.API.STREAM.CREATE."+cfg.Name, cfg, &resp)
		if resp.Error != nil {
			tb.Fatal(resp.Error)
		}
		o.streams[cfg.Name] = resp.Config
	}
	return o
}

func (o *oracle) request(subject string, req, resp any) {
	body, err := json.Marshal(req)
	if err != nil {
		o.t.Fatal(err)
	}
	m, err := o.nc.Request(subject, body, 10*time.Second)
	if err != nil {
		o.t.Fatalf("%s: %v", subject, err)
	}
	if err := json.Unmarshal(m.Data, resp); err != nil {
		o.t.Fatalf("%s: %v", subject, err)
	}
}

// create tries a configuration and returns what the server made of it.
func (o *oracle) create(
	stream string, cfg server.ConsumerConfig, action server.ConsumerAction, pedantic bool,
) (*server.ConsumerConfig, *server.ApiError) {
	subject := "$JS.API.CONSUMER.CREATE." + stream
	if cfg.Name != "" {
		subject += "." + cfg.Name
	}
	var resp server.JSApiConsumerCreateResponse
	o.request(subject, server.CreateConsumerRequest{Stream: stream, Config: cfg, Action: action, Pedantic: pedantic}, &resp)
	if resp.Error != nil {
		return nil, resp.Error
	}
	return resp.Config, nil
}

func (o *oracle) remove(stream, name string) {
	var resp server.JSApiConsumerDeleteResponse
	o.request("$JS.API.CONSUMER.DELETE."+stream+"."+name, nil, &resp)
}

// drawConfig draws a configuration with a good chance of breaking some rule, but not of breaking many.
func drawConfig(t *rapid.T, name string) server.ConsumerConfig {
	cfg := server.ConsumerConfig{Name: name, Durable: name, AckPolicy: server.AckExplicit}
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	second, minute := time.Second, time.Minute
	for range rapid.IntRange(0, 5).Draw(t, "fields") {
		switch rapid.IntRange(0, 28).Draw(t, "field") {
		case 0:
			cfg.Durable = rapid.SampledFrom([]string{"", "other"}).Draw(t, "durable")
		case 1:
			cfg.AckPolicy = rapid.SampledFrom([]server.AckPolicy{0, 1, 2, 3}).Draw(t, "ack")
		case 2:
			cfg.DeliverSubject = rapid.SampledFrom([]string{"d", "d.*", "d..e", "l.x", "i.x", "d.a*"}).Draw(t, "deliver")
			cfg.MaxWaiting = 0
		case 3:
			cfg.AckWait = rapid.SampledFrom([]time.Duration{-1, 5 * second, 0}).Draw(t, "ack_wait")
		case 4:
			cfg.MaxDeliver = rapid.IntRange(-3, 3).Draw(t, "max_deliver")
		case 5:
			cfg.BackOff = rapid.SampledFrom([][]time.Duration{
				nil, {second}, {second, minute}, {second, -1}, {5 * second, second, minute},
			}).Draw(t, "backoff")
		case 6:
			cfg.FilterSubject = rapid.SampledFrom([]string{"l.a", "l.>", "x", "l..b", "l.a b"}).Draw(t, "filter")
		case 7:
			cfg.FilterSubjects = rapid.SampledFrom([][]string{
				{"l.a", "l.b"}, {"l.a", "l.*"}, {""}, {"l.a", "l..b"}, {"c.a", "c.a"}, {"l.*.b", "l.a.*"},
			}).Draw(t, "filters")
		case 8:
			cfg.ReplayPolicy = rapid.SampledFrom([]server.ReplayPolicy{0, 1}).Draw(t, "replay")
		case 9:
			cfg.RateLimit = rapid.Uint64Range(0, 1000).Draw(t, "rate")
		case 10:
			cfg.SampleFrequency = rapid.SampledFrom([]string{"", "50%", "7", "x%", "-1", "200%"}).Draw(t, "sample")
		case 11:
			cfg.MaxWaiting = rapid.IntRange(-1, 3).Draw(t, "max_waiting")
		case 12:
			cfg.MaxAckPending = rapid.SampledFrom([]int{-2, -1, 0, 10, 51, 5000}).Draw(t, "max_ack_pending")
		case 13:
			cfg.FlowControl = rapid.Bool().Draw(t, "flow_control")
		case 14:
			cfg.HeadersOnly = true
		case 15:
			cfg.MaxRequestBatch = rapid.IntRange(-1, 3).Draw(t, "max_batch")
		case 16:
			cfg.MaxRequestExpires = rapid.SampledFrom([]time.Duration{-1, 5, second}).Draw(t, "max_expires")
		case 17:
			cfg.MaxRequestMaxBytes = rapid.IntRange(-1, 3).Draw(t, "max_bytes")
		case 18:
			cfg.Heartbeat = rapid.SampledFrom([]time.Duration{-1, 5, second, minute}).Draw(t, "heartbeat")
		case 19:
			cfg.InactiveThreshold = rapid.SampledFrom([]time.Duration{-1, second, minute, time.Hour}).Draw(t, "threshold")
		case 20:
			cfg.Replicas = rapid.IntRange(-1, 1).Draw(t, "replicas")
		case 21:
			cfg.MemoryStorage = rapid.Bool().Draw(t, "memory")
		case 22:
			cfg.DeliverPolicy = rapid.SampledFrom([]server.DeliverPolicy{0, 1, 2, 3, 4, 5}).Draw(t, "policy")
		case 23:
			cfg.OptStartSeq = rapid.Uint64Range(0, 3).Draw(t, "start_seq")
		case 24:
			cfg.OptStartTime = rapid.SampledFrom([]*time.Time{nil, &at}).Draw(t, "start_time")
		case 25:
			cfg.PriorityGroups = rapid.SampledFrom([][]string{{"g"}, {""}, {"g$"}, {"g", "h"}}).Draw(t, "groups")
		case 26:
			cfg.PriorityPolicy = rapid.SampledFrom([]server.PriorityPolicy{0, 1, 2, 3}).Draw(t, "priority")
		case 27:
			cfg.PinnedTTL = rapid.SampledFrom([]time.Duration{-1, 0, second}).Draw(t, "pinned_ttl")
		case 28:
			cfg.Description = string(make([]byte, rapid.SampledFrom([]int{0, 4096, 4097}).Draw(t, "description")))
		}
	}
	return cfg
}

// TestConfigLikeNATS tries random configurations on a nats-server and on Complete: the error, or what is made of the
// configuration, has to be the same.
func TestConfigLikeNATS(t *testing.T) {
	o := newOracle(t)
	rapid.Check(t, func(rt *rapid.T) {
		o.n++
		name := fmt.Sprintf("c%d", o.n)
		cfg := drawConfig(rt, name)
		stream := rapid.SampledFrom([]string{"L", "L", "I", "C"}).Draw(rt, "stream")
		pedantic := rapid.IntRange(0, 3).Draw(rt, "pedantic") == 0
		ours := clone(rt, &cfg)
		theirs, want := o.create(stream, cfg, server.ActionCreateOrUpdate, pedantic)
		if theirs != nil {
			defer o.remove(stream, name)
		}
		sc := o.streams[stream]
		if apiLevel(want) {
			rt.Skip() // decided before the rules of a consumer
		}
		got := Complete(ours, &sc, Limits{}, pedantic)
		if !sameError(got, want) {
			rt.Fatalf("%s: we say %+v, nats-server %+v", show1(cfg), got, want)
		}
		if want == nil {
			compare(rt, ours, theirs)
		}
	})
}

// TestUpdateLikeNATS does the same for changes of a consumer.
func TestUpdateLikeNATS(t *testing.T) {
	o := newOracle(t)
	rapid.Check(t, func(rt *rapid.T) {
		o.n++
		name := fmt.Sprintf("u%d", o.n)
		first := drawConfig(rt, name)
		stream := rapid.SampledFrom([]string{"L", "I", "C"}).Draw(rt, "stream")
		sc := o.streams[stream]
		old := clone(rt, &first)
		if _, err := o.create(stream, first, server.ActionCreate, false); err != nil {
			rt.Skip()
		}
		defer o.remove(stream, name)
		if err := Complete(old, &sc, Limits{}, false); err != nil {
			rt.Fatalf("%s: %v", show1(first), err)
		}
		next := clone(rt, &first)
		drawn := drawConfig(rt, name)
		merge(rt, next, &drawn)
		ours := clone(rt, next)
		_, want := o.create(stream, *next, server.ActionUpdate, false)
		if want != nil && want.ErrCode == 10013 {
			rt.Skip() // somebody listens on the old deliver subject: that is the caller's to see
		}
		got := Complete(ours, &sc, Limits{}, false)
		if got == nil {
			got = CheckUpdate(old, ours)
		}
		if !sameError(got, want) {
			rt.Fatalf("from %s\nto %s: we say %+v, nats-server %+v", show1(first), show1(*next), got, want)
		}
	})
}

// merge sets a few of the fields of from in to.
func merge(t *rapid.T, to, from *server.ConsumerConfig) {
	for _, set := range []func(){
		func() { to.AckWait = from.AckWait }, func() { to.MaxDeliver = from.MaxDeliver },
		func() { to.BackOff = from.BackOff }, func() { to.DeliverPolicy = from.DeliverPolicy },
		func() { to.AckPolicy = from.AckPolicy }, func() { to.DeliverSubject = from.DeliverSubject },
		func() { to.MaxWaiting = from.MaxWaiting }, func() { to.OptStartSeq = from.OptStartSeq },
		func() { to.OptStartTime = from.OptStartTime }, func() { to.ReplayPolicy = from.ReplayPolicy },
		func() { to.Heartbeat = from.Heartbeat }, func() { to.FlowControl = from.FlowControl },
		func() { to.MemoryStorage = from.MemoryStorage }, func() { to.FilterSubject = from.FilterSubject },
	} {
		if rapid.IntRange(0, 4).Draw(t, "merge") == 0 {
			set()
		}
	}
}

func clone(t *rapid.T, cfg *server.ConsumerConfig) *server.ConsumerConfig {
	b, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := new(server.ConsumerConfig)
	if err := json.Unmarshal(b, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// apiLevel reports errors of the request, not of the configuration.
func apiLevel(e *server.ApiError) bool {
	if e == nil {
		return false
	}
	switch e.ErrCode {
	case 10016, 10017, 10018, 10019, 10020, 10056, 10127:
		return true
	}
	return false
}

func sameError(a, b *server.ApiError) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// compare checks what was made of a configuration, but for what others add to it: metadata, and the inactive
// threshold of ephemerals.
func compare(t *rapid.T, ours, theirs *server.ConsumerConfig) {
	theirs.Metadata = ours.Metadata
	if ours.Durable == "" && ours.InactiveThreshold == 0 {
		theirs.InactiveThreshold = 0
	}
	a, b := show1(*ours), show1(*theirs)
	if a != b {
		t.Fatalf("we make it\n%s\nnats-server\n%s", a, b)
	}
}

func show1(cfg server.ConsumerConfig) string {
	b, err := json.Marshal(cfg)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

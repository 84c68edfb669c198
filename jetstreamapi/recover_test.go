package jetstreamapi

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// life is a service on a file system that outlives it.
type life struct {
	fs  vfs.FS
	bus *bus.Router
	svc *Service
	p   *party
}

func begin(t *testing.T, fs vfs.FS) *life {
	t.Helper()
	b := bus.NewRouter()
	o := testOptions(b, "data")
	o.Storage.FS, o.Storage.SegmentSize = fs, 1<<20
	o.ReopenDelay = 1
	s := New(o)
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	return &life{fs: fs, bus: b, svc: s, p: newParty(t, b, "$G")}
}

func (l *life) end(t *testing.T) {
	t.Helper()
	if err := l.svc.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// picture is everything clients can see of streams and consumers, but for the time it was asked.
func (l *life) picture(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	var names jsapi.StreamNamesResponse
	l.p.must(t, &names, "$JS.API.STREAM.NAMES", "")
	for _, s := range names.Streams {
		var info jsapi.StreamInfoResponse
		l.p.must(t, &info, "$JS.API.STREAM.INFO."+s, `{"subjects_filter":">","deleted_details":true}`)
		fmt.Fprintf(&b, "%s %v\n%s\n%+v\n", s, info.Created, asJSON(info.Config), info.State)
		var list jsapi.ConsumerListResponse
		l.p.must(t, &list, "$JS.API.CONSUMER.LIST."+s, "")
		for _, c := range list.Consumers {
			fmt.Fprintf(&b, "  %s %v %s %v %v %d %d\n", c.Name, c.Created, asJSON(c.Config),
				position(c.Delivered), position(c.AckFloor), c.NumAckPending, c.NumPending)
		}
	}
	return b.String()
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func position(s server.SequenceInfo) [2]uint64 { return [2]uint64{s.Consumer, s.Stream} }

func (l *life) fill(t *testing.T) {
	t.Helper()
	createStream(t, l.p, "S", `,"allow_direct":true,"metadata":{"k":"v"}`)
	createStream(t, l.p, "W", `,"retention":"workqueue"`)
	createStream(t, l.p, "M", `,"storage":"memory"`)
	createStream(t, l.p, "GONE", "")
	createConsumer(t, l.p, "S", "D", `,"durable_name":"D","filter_subject":"S.a"`)
	createConsumer(t, l.p, "S", "E", `,"inactive_threshold":3600000000000`)
	createConsumer(t, l.p, "S", "RAM", `,"mem_storage":true,"inactive_threshold":3600000000000`)
	createConsumer(t, l.p, "S", "GONE", `,"durable_name":"GONE"`)
	createConsumer(t, l.p, "W", "Q", `,"durable_name":"Q"`)
	for i := range 20 {
		for _, s := range []string{"S", "W", "M", "GONE"} {
			l.p.must(t, nil, fmt.Sprintf("%s.%c", s, 'a'+i%3), "x")
		}
	}
	for range 5 {
		l.ackNext(t, "S", "D")
		l.ackNext(t, "W", "Q")
	}
	l.p.must(t, nil, "$JS.API.STREAM.MSG.DELETE.S", `{"seq":7}`)
	l.p.must(t, nil, "$JS.API.STREAM.PURGE.S", `{"seq":3}`)
	l.p.must(t, nil, "$JS.API.CONSUMER.PAUSE.S.D", `{"pause_until":"2100-01-01T00:00:00Z"}`)
	l.p.must(t, nil, "$JS.API.STREAM.UPDATE.W", `{"name":"W","subjects":["W.>"],"retention":"workqueue","max_msgs":1000}`)
	l.p.must(t, nil, "$JS.API.CONSUMER.DELETE.S.GONE", "")
	l.p.must(t, nil, "$JS.API.STREAM.DELETE.GONE", "")
}

// ackNext takes the next message and acknowledges it, which is durable when it is confirmed.
func (l *life) ackNext(t *testing.T, stream, consumer string) {
	t.Helper()
	m := l.p.request(t, jsapi.NextSubject(stream, consumer), "", "1")
	if a := l.p.request(t, m.reply, "", "+ACK"); a.nobody {
		t.Fatalf("nobody takes the ack on %q", m.reply)
	}
}

func TestEverythingComesBack(t *testing.T) {
	fs := vfs.NewMem()
	l := begin(t, fs)
	l.fill(t)
	l.p.must(t, nil, "$JS.API.STREAM.DELETE.M", "")
	l.p.must(t, nil, "$JS.API.CONSUMER.DELETE.S.RAM", "")
	want := l.picture(t)
	l.end(t)
	for range 2 {
		l = begin(t, fs)
		if got := l.picture(t); got != want {
			t.Errorf("after a restart:\n%s\nbefore:\n%s", got, want)
		}
		if got := l.svc.Health("", "", ""); len(got) != 0 {
			t.Errorf("health: %v", got)
		}
		l.end(t)
	}
	l = begin(t, fs)
	l.p.must(t, nil, "S.a", "goes on")
	l.ackNext(t, "W", "Q")
	if a := l.p.request(t, "$JS.API.DIRECT.GET.S.S.a", "", ""); a.data != "goes on" {
		t.Errorf("direct get after a restart: %v", a)
	}
	l.end(t)
}

func TestWhatLivesInMemoryIsGoneAfterARestart(t *testing.T) {
	fs := vfs.NewMem()
	l := begin(t, fs)
	l.fill(t)
	l.end(t)
	l = begin(t, fs)
	defer l.end(t)
	if got := errCode(t, l.p.request(t, "$JS.API.STREAM.INFO.M", "", "")); got != 10059 {
		t.Errorf("the stream in memory: error %d", got)
	}
	if got := errCode(t, l.p.request(t, "$JS.API.CONSUMER.INFO.S.RAM", "", "")); got != 10014 {
		t.Errorf("the consumer in memory: error %d", got)
	}
}

func TestADeletedStreamMadeAgainIsEmpty(t *testing.T) {
	fs := vfs.NewMem()
	l := begin(t, fs)
	l.fill(t)
	l.p.must(t, nil, "$JS.API.STREAM.DELETE.S", "")
	createStream(t, l.p, "S", "")
	check := func(l *life) {
		t.Helper()
		var info jsapi.StreamInfoResponse
		l.p.must(t, &info, "$JS.API.STREAM.INFO.S", "")
		if info.State.Msgs != 0 || info.State.LastSeq != 0 || info.State.Consumers != 0 {
			t.Errorf("the new stream: %+v", info.State)
		}
	}
	check(l)
	l.end(t)
	l = begin(t, fs)
	defer l.end(t)
	check(l)
}

func TestOneBadStreamDoesNotKeepOthersFromServing(t *testing.T) {
	fs := vfs.NewMem()
	l := begin(t, fs)
	l.fill(t)
	c, err := l.svc.fileCatalog()
	if err != nil {
		t.Fatal(err)
	}
	// A record whose log does not exist is what a catalog looks like whose data was damaged.
	bad := l.svc.account("$G").streams["W"].record(l.svc.account("$G").streams["W"].config())
	bad.LogID = 1 << 40
	durable := make(chan error, 1)
	if err := c.put(bad, func(err error) { durable <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-durable; err != nil {
		t.Fatal(err)
	}
	l.end(t)
	l = begin(t, fs)
	defer l.end(t)
	l.p.must(t, nil, "S.a", "served")
	if got := errCode(t, l.p.request(t, "$JS.API.STREAM.INFO.W", "", "")); got != 10194 {
		t.Errorf("info of the bad stream: error %d", got)
	}
	if got := errCode(t, l.p.request(t, "$JS.API.CONSUMER.INFO.W.Q", "", "")); got != 10194 {
		t.Errorf("info of its consumer: error %d", got)
	}
	var list jsapi.StreamListResponse
	l.p.must(t, &list, "$JS.API.STREAM.LIST", "")
	if len(list.Streams) != 1 || len(list.Missing) != 1 || list.Offline["W"] == "" {
		t.Errorf("list: %d streams, missing %v, offline %v", len(list.Streams), list.Missing, list.Offline)
	}
	health := l.svc.Health("", "", "")
	if len(health) != 1 || health[0].Stream != "W" || !strings.Contains(health[0].Error, "no such log") {
		t.Errorf("health: %+v", health)
	}
	l.p.must(t, nil, "$JS.API.STREAM.DELETE.W", "")
	if got := l.svc.Health("", "", ""); len(got) != 0 {
		t.Errorf("health after it was deleted: %+v", got)
	}
	createStream(t, l.p, "W", "")
}

// TestNothingAnsweredIsLostInACrash crashes at random moments of a random run of changes and compares what is there
// with what was answered.
func TestNothingAnsweredIsLostInACrash(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := vfs.NewMem()
	l := begin(t, fs)
	streams := map[string]uint64{} // name to acknowledged messages
	rounds := 6
	if os.Getenv("EHDB_SLOW") != "" {
		rounds = 100
	}
	for range rounds {
		for range 30 {
			name := fmt.Sprint("S", rng.IntN(5))
			n, exists := streams[name]
			switch {
			case !exists:
				createStream(t, l.p, name, "")
				createConsumer(t, l.p, name, "C", `,"durable_name":"C"`)
				streams[name] = 0
			case rng.IntN(8) == 0:
				l.p.must(t, nil, "$JS.API.STREAM.DELETE."+name, "")
				delete(streams, name)
			default:
				l.p.must(t, nil, name+".x", "x")
				streams[name] = n + 1
			}
		}
		crashed := fs.CrashClone(vfs.CrashOptions{Seed: rng.Uint64(), Keep: rng.Float64()})
		l.end(t)
		fs = crashed
		l = begin(t, fs)
		var names jsapi.StreamNamesResponse
		l.p.must(t, &names, "$JS.API.STREAM.NAMES", "")
		if len(names.Streams) != len(streams) {
			t.Fatalf("streams %v, answered for %v", names.Streams, streams)
		}
		for name, n := range streams {
			var info jsapi.StreamInfoResponse
			l.p.must(t, &info, "$JS.API.STREAM.INFO."+name, "")
			if info.State.Msgs != n || info.State.Consumers != 1 {
				t.Fatalf("stream %s: %+v, acknowledged %d", name, info.State, n)
			}
		}
	}
	l.end(t)
}

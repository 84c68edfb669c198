package jetstreamapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// history is something that happens to streams of a real server.
type history struct {
	name, stream string
	run          func(t *testing.T, js nats.JetStreamContext)
}

func publish(t *testing.T, js nats.JetStreamContext, subject string, n int) {
	t.Helper()
	for i := range n {
		m := &nats.Msg{Subject: subject, Data: fmt.Appendf(nil, "%d", i)}
		if i%3 == 0 {
			m.Header = nats.Header{"K": {"v", "w"}, "lower": {fmt.Sprint(i)}}
		}
		must[*nats.PubAck](t)(js.PublishMsg(m))
	}
}

func addStream(t *testing.T, js nats.JetStreamContext, cfg *nats.StreamConfig) {
	t.Helper()
	must[*nats.StreamInfo](t)(js.AddStream(cfg))
}

func deleteAll(t *testing.T, js nats.JetStreamContext, stream string, seqs ...uint64) {
	t.Helper()
	for _, seq := range seqs {
		if err := js.DeleteMsg(stream, seq); err != nil {
			t.Fatal(err)
		}
	}
}

var histories = []history{
	{"empty", "E", func(t *testing.T, js nats.JetStreamContext) {
		t.Helper()
		addStream(t, js, &nats.StreamConfig{Name: "E", Subjects: []string{"e.>"}, Metadata: map[string]string{"a": "b"}})
	}},
	{"gaps everywhere", "D", func(t *testing.T, js nats.JetStreamContext) {
		t.Helper()
		addStream(t, js, &nats.StreamConfig{Name: "D", Subjects: []string{"d.>"}, Description: "with \u00fcml\u00e4uts"})
		publish(t, js, "d.a", 10)
		publish(t, js, "d.b", 10)
		deleteAll(t, js, "D", 1, 2, 5, 9, 10, 11, 20)
	}},
	{"everything deleted", "DD", func(t *testing.T, js nats.JetStreamContext) {
		t.Helper()
		addStream(t, js, &nats.StreamConfig{Name: "DD", Subjects: []string{"dd.>"}})
		publish(t, js, "dd.a", 4)
		deleteAll(t, js, "DD", 1, 2, 3, 4)
	}},
	{"purged", "P", func(t *testing.T, js nats.JetStreamContext) {
		t.Helper()
		addStream(t, js, &nats.StreamConfig{Name: "P", Subjects: []string{"p.>"}})
		publish(t, js, "p.a", 10)
		if err := js.PurgeStream("P"); err != nil {
			t.Fatal(err)
		}
	}},
	{"purged and gone on", "PP", func(t *testing.T, js nats.JetStreamContext) {
		t.Helper()
		addStream(t, js, &nats.StreamConfig{Name: "PP", Subjects: []string{"pp.>"}, Storage: nats.MemoryStorage})
		publish(t, js, "pp.a", 10)
		if err := js.PurgeStream("PP", &nats.StreamPurgeRequest{Sequence: 7}); err != nil {
			t.Fatal(err)
		}
		publish(t, js, "pp.b", 3)
	}},
	{"first sequence", "F", func(t *testing.T, js nats.JetStreamContext) {
		t.Helper()
		addStream(t, js, &nats.StreamConfig{Name: "F", Subjects: []string{"f.>"}, FirstSeq: 1000})
		publish(t, js, "f.a", 3)
	}},
	{"limits", "L", func(t *testing.T, js nats.JetStreamContext) {
		t.Helper()
		addStream(t, js, &nats.StreamConfig{Name: "L", Subjects: []string{"l.>"}, MaxMsgs: 7, MaxMsgsPerSubject: 4})
		publish(t, js, "l.a", 3)
		publish(t, js, "l.b", 9)
		publish(t, js, "l.c", 2)
	}},
	{"key value", "KV_B", func(t *testing.T, js nats.JetStreamContext) {
		t.Helper()
		kv := must[nats.KeyValue](t)(js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "B", History: 2}))
		for i := range 5 {
			must[uint64](t)(kv.PutString("a", fmt.Sprint(i)))
			must[uint64](t)(kv.PutString("b", fmt.Sprint(i)))
		}
		if err := errors.Join(kv.Delete("a"), kv.Purge("b")); err != nil {
			t.Fatal(err)
		}
	}},
	{"work queue", "W", func(t *testing.T, js nats.JetStreamContext) {
		t.Helper()
		addStream(t, js, &nats.StreamConfig{Name: "W", Subjects: []string{"w.>"}, Retention: nats.WorkQueuePolicy})
		publish(t, js, "w.a", 10)
		sub := must[*nats.Subscription](t)(js.PullSubscribe("w.>", "C", nats.ManualAck()))
		for i, m := range must[[]*nats.Msg](t)(sub.Fetch(6)) {
			if i%2 == 0 {
				if err := m.AckSync(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}},
}

// A standby that was given what a real server has shows the same state, to the byte; also after it was stopped and
// started, and after a crash.
func TestStandbyEquals(t *testing.T) {
	o := startOracle(t, nil)
	js := must[nats.JetStreamContext](t)(o.nc.JetStream())
	for _, h := range histories {
		t.Run(h.name, func(t *testing.T) {
			h.run(t, js)
			fs := vfs.NewMem()
			l := begin(t, fs)
			c := mirror(t, o, l.svc.Cutover(), h.stream)
			importConsumers(t, o, c, h.stream)
			sameState(t, o, c, h.stream)
			if o.info(t, h.stream).Config.Storage == server.MemoryStorage {
				l.end(t)
				return // it is gone after a restart, as everywhere
			}
			crashed := fs.CrashClone(vfs.CrashOptions{})
			l.end(t)
			for name, disk := range map[string]vfs.FS{"restart": fs, "crash": crashed} {
				l := begin(t, disk)
				if roles := fmt.Sprint(l.svc.Cutover().Scopes()); roles != "map[$G/"+h.stream+":0]" {
					t.Errorf("after a %s: %s", name, roles)
				}
				sameState(t, o, must[cutover.Copy](t)(l.svc.Cutover().Stream("$G", h.stream)), h.stream)
				l.end(t)
			}
		})
	}
}

// importConsumers gives a standby the consumers of a real server's stream, as far as its INFO tells of them.
func importConsumers(tb testing.TB, o *oracle, c cutover.Copy, name string) {
	tb.Helper()
	var list jsapi.ConsumerListResponse
	a := o.request(tb, "$JS.API.CONSUMER.LIST."+name, "", "")
	if err := json.Unmarshal([]byte(a.data), &list); err != nil {
		tb.Fatal(err)
	}
	for _, i := range list.Consumers {
		in := cutover.ConsumerCopy{Name: i.Name, Config: *i.Config, Created: i.Created}
		in.State.Delivered = server.SequencePair{Consumer: i.Delivered.Consumer, Stream: i.Delivered.Stream}
		in.State.AckFloor = server.SequencePair{Consumer: i.AckFloor.Consumer, Stream: i.AckFloor.Stream}
		if err := c.ImportConsumer(tb.Context(), &in); err != nil {
			tb.Fatal(err)
		}
	}
}

// A standby runs nothing and answers nobody, and what a client asks changes nothing.
func TestStandbyIsDark(t *testing.T) {
	l := begin(t, vfs.NewMem())
	defer l.end(t)
	advisories := l.p.listen("$JS.EVENT.>")
	c := testStandby(t, l.svc.Cutover(), plainConfig("S", func(cfg *server.StreamConfig) {
		cfg.MaxMsgs, cfg.MaxAge, cfg.Duplicates = 2, 100*time.Millisecond, 100*time.Millisecond
		cfg.RePublish = &server.RePublish{Source: ">", Destination: "again.>"}
	}))
	again := l.p.listen("again.>")
	applySome(t, c, "S.a", 5, 6, 7, 9)
	time.Sleep(250 * time.Millisecond)
	st, err := c.State(t.Context(), true)
	if err != nil || st.Msgs != 4 || st.FirstSeq != 5 || st.LastSeq != 9 || fmt.Sprint(st.Deleted) != "[8]" {
		t.Errorf("state %+v, %v", st, err)
	}
	if a := l.p.request(t, "S.a", "", "x"); !a.nobody {
		t.Errorf("a publish was taken: %v", a)
	}
	for _, subject := range []string{
		"STREAM.INFO.S", "STREAM.DELETE.S", "STREAM.PURGE.S", "CONSUMER.NAMES.S", "CONSUMER.DELETE.S.C", "CONSUMER.INFO.S.C",
	} {
		var resp server.ApiResponse
		a := l.p.request(t, "$JS.API."+subject, "", "")
		if err := json.Unmarshal([]byte(a.data), &resp); err != nil || resp.Error == nil || resp.Error.ErrCode != 10008 {
			t.Errorf("%s: %v", subject, a)
		}
	}
	for subject, body := range map[string]string{
		"STREAM.CREATE.S":     `{"name":"S","subjects":["x"]}`,
		"STREAM.CREATE.T":     `{"name":"T","subjects":["S.a"]}`,
		"STREAM.UPDATE.S":     `{"name":"S","subjects":["x"]}`,
		"CONSUMER.CREATE.S.C": `{"stream_name":"S","config":{"name":"C","ack_policy":"explicit"}}`,
	} {
		var resp server.ApiResponse
		a := l.p.request(t, "$JS.API."+subject, "", body)
		if err := json.Unmarshal([]byte(a.data), &resp); err != nil || resp.Error == nil {
			t.Errorf("%s: %v", subject, a)
		}
	}
	if bad := l.svc.Health("", "", ""); len(bad) > 0 {
		t.Errorf("health: %v", bad)
	}
	for what, ch := range map[string]<-chan answer{"advisory": advisories, "republished": again} {
		select {
		case a := <-ch:
			if what != "advisory" || len(a.data) == 0 || !json.Valid([]byte(a.data)) || !isAudit(a.data) {
				t.Errorf("%s: %v", what, a)
			}
		default:
		}
	}
}

// isAudit reports whether an advisory tells of an API request, which there were.
func isAudit(data string) bool {
	var e server.TypedEvent
	return json.Unmarshal([]byte(data), &e) == nil && e.Type == server.JSAPIAuditType
}

// An authority goes on where the standby ended, applies the limits, knows the ids of what it was given, and goes back.
func TestStandbyRoles(t *testing.T) {
	fs := vfs.NewMem()
	l := begin(t, fs)
	local := l.svc.Cutover()
	c := testStandby(t, local, plainConfig("S", func(cfg *server.StreamConfig) { cfg.MaxMsgs = 3 }))
	applySome(t, c, "S.a", 5, 6, 7, 9)
	if err := c.ImportDedup([]cutover.DedupEntry{{ID: "gone", Seq: 8, Time: time.Now().UnixNano()}}); err != nil {
		t.Fatal(err)
	}
	if err := c.SetRole(t.Context(), cutover.Authority); err != nil {
		t.Fatal(err)
	}
	st := must[server.StreamState](t)(c.State(t.Context(), false))
	if st.FirstSeq != 6 || st.Msgs != 3 || st.LastSeq != 9 {
		t.Errorf("as authority: %+v", st)
	}
	for id, want := range map[string]string{
		"id9":  `{"stream":"S","seq":9,"duplicate": true}`,
		"gone": `{"stream":"S","seq":8,"duplicate": true}`,
	} {
		if a := l.p.request(t, "S.a", "NATS/1.0\r\nNats-Msg-Id: "+id+"\r\n\r\n", "x"); a.data != want {
			t.Errorf("id %s: %v", id, a)
		}
	}
	if a := l.p.request(t, "S.b", "NATS/1.0\r\nNats-Msg-Id: new\r\n\r\n", "x"); a.data != `{"stream":"S","seq":10}` {
		t.Errorf("the next: %v", a)
	}
	if _, _, err := c.Apply([]cutover.Record{{Seq: 11, Time: 1, Subject: []byte("S.a")}}); !errors.Is(err, cutover.ErrRole) {
		t.Errorf("applied to an authority: %v", err)
	}
	if _, err := local.Create(t.Context(), "$G", &server.StreamConfig{Name: "S"}, time.Now(), 1); !errors.Is(err, cutover.ErrRole) {
		t.Errorf("a standby in the place of an authority: %v", err)
	}
	var up jsapi.StreamInfoResponse
	l.p.must(t, &up, "$JS.API.STREAM.UPDATE.S", asJSON(c.Config())) // three replicas, as it was
	crashed := fs.CrashClone(vfs.CrashOptions{})
	l.end(t)
	l = begin(t, crashed)
	defer l.end(t)
	c = must[cutover.Copy](t)(l.svc.Cutover().Stream("$G", "S"))
	if c.Role() != cutover.Authority {
		t.Fatal("the role is lost in a crash")
	}
	if err := c.SetRole(t.Context(), cutover.Standby); err != nil {
		t.Fatal(err)
	}
	if a := l.p.request(t, "S.b", "", "x"); !a.nobody {
		t.Errorf("a standby took a publish: %v", a)
	}
	applySome(t, c, "S.a", 11)
	if ids := c.Dedup(); len(ids) == 0 || ids[len(ids)-1].ID != "id11" {
		t.Errorf("ids %v", ids)
	}
	if st := must[server.StreamState](t)(c.State(t.Context(), false)); st.LastSeq != 11 || st.Msgs != 4 {
		t.Errorf("as standby: %+v", st)
	}
}

// Nothing that was acknowledged is lost while the role goes there and back under publishing.
func TestStandbyRolesUnderPublishing(t *testing.T) {
	l := begin(t, vfs.NewMem())
	defer l.end(t)
	c := testStandby(t, l.svc.Cutover(), plainConfig("S", nil))
	applySome(t, c, "S.a", 1)
	ctx, cancel := context.WithCancel(t.Context())
	acked := make(chan []uint64)
	for i := range 2 {
		p := newParty(t, l.bus, "$G")
		go func() {
			var mine []uint64
			defer func() { acked <- mine }()
			for ctx.Err() == nil {
				a := p.request(t, fmt.Sprint("S.", i), "", "x")
				var ack server.JSPubAckResponse
				if a.nobody || a.header != "" || json.Unmarshal([]byte(a.data), &ack) != nil || ack.Error != nil {
					continue // it stops
				}
				mine = append(mine, ack.Sequence)
			}
		}()
	}
	for range 10 {
		for _, role := range []cutover.Role{cutover.Authority, cutover.Standby} {
			if err := c.SetRole(t.Context(), role); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		last, _ := c.Progress()
		applySome(t, c, "S.x", last+1)
	}
	cancel()
	seen, total := make(map[uint64]bool), 0
	for range 2 {
		for _, seq := range <-acked {
			if seen[seq] {
				t.Errorf("%d was given twice", seq)
			}
			seen[seq] = true
			total++
			if _, err := c.Get(t.Context(), seq); err != nil {
				t.Errorf("%d was acknowledged: %v", seq, err)
			}
		}
	}
	if total == 0 {
		t.Error("nothing was published")
	}
	if st := must[server.StreamState](t)(c.State(t.Context(), true)); st.NumDeleted > 0 {
		t.Errorf("holes: %v", st.Deleted)
	}
}

// A consumer that was imported goes on exactly, and what it did can be taken over exactly.
func TestStandbyConsumers(t *testing.T) {
	fs := vfs.NewMem()
	l := begin(t, fs)
	c := testStandby(t, l.svc.Cutover(), plainConfig("W", func(cfg *server.StreamConfig) {
		cfg.Retention = server.WorkQueuePolicy
	}))
	applySome(t, c, "W.a", 3, 4, 5, 6, 7, 8)
	now := time.Now().UnixNano()
	in := cutover.ConsumerCopy{
		Name: "C", Created: time.Unix(3, 0).UTC(), Exact: true,
		Config: server.ConsumerConfig{
			Durable: "C", Name: "C", AckPolicy: server.AckExplicit, AckWait: 10 * time.Second, MaxDeliver: -1, MaxAckPending: 1000,
			MaxWaiting: 512, Replicas: 3,
		},
		State: server.ConsumerState{
			Delivered: server.SequencePair{Consumer: 9, Stream: 5}, AckFloor: server.SequencePair{Consumer: 4, Stream: 2},
			Pending: map[uint64]*server.Pending{
				3: {Sequence: 5, Timestamp: now - int64(8*time.Second)}, 5: {Sequence: 7, Timestamp: now + int64(time.Hour)},
			},
			Redelivered: map[uint64]uint64{3: 2},
		},
	}
	for range 2 { // the second time in its place
		if err := c.ImportConsumer(t.Context(), &in); err != nil {
			t.Fatal(err)
		}
	}
	check := func(c cutover.Copy, want *cutover.ConsumerCopy) {
		t.Helper()
		got, err := c.Consumers()
		if err != nil || len(got) != 1 {
			t.Fatalf("consumers %v, %v", got, err)
		}
		got[0].Exact = true // but for a restart, which forgets that
		if g, w := asJSON(got[0]), asJSON(want); g != w {
			t.Errorf("consumer\n%s\nwant\n%s", g, w)
		}
	}
	check(c, &in)
	l.end(t)
	l = begin(t, fs)
	defer l.end(t)
	c = must[cutover.Copy](t)(l.svc.Cutover().Stream("$G", "W"))
	check(c, &in)
	if err := c.SetRole(t.Context(), cutover.Authority); err != nil {
		t.Fatal(err)
	}
	// 4 is acknowledged in the state, so it is gone; 3 comes again when its ack wait is over.
	if _, err := c.Get(t.Context(), 4); !errors.Is(err, cutover.ErrNoRecord) {
		t.Errorf("message 4: %v", err)
	}
	got := l.p.ask("$JS.API.CONSUMER.MSG.NEXT.W.C", "", `{"batch":3,"expires":5000000000}`)
	next := func() answer {
		select {
		case a := <-got:
			return a
		case <-time.After(answerTimeout):
			t.Fatal("no message")
			return answer{}
		}
	}
	first := next()
	second, third := next(), next()
	if first.data != "m6" || second.data != "m7" || third.data != "m8" {
		t.Errorf("delivered %v %v %v", first, second, third)
	}
	got = l.p.ask("$JS.API.CONSUMER.MSG.NEXT.W.C", "", `{"batch":2,"expires":5000000000}`)
	if again := next(); again.data != "m3" {
		t.Errorf("then %v", again)
	}
	for _, a := range []answer{first, third} { // not waited for: it is in the mailbox
		l.p.session.Publish(&bus.Msg{Subject: []byte(a.reply), Data: []byte("+ACK")})
	}
	l.p.session.Flush()
	if err := c.SetRole(t.Context(), cutover.Standby); err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-got:
		t.Errorf("the waiting pull got %v", a)
	default:
	}
	pulls := c.TakePulls()
	if len(pulls) != 1 || pulls[0].Consumer != "C" || !strings.HasPrefix(string(pulls[0].Request), `{"batch":1,"expires":`) {
		t.Errorf("what is left of the waiting pull: %s", asJSON(pulls))
	}
	if pulls = c.TakePulls(); len(pulls) != 0 {
		t.Errorf("and again: %s", asJSON(pulls))
	}
	all, err := c.Consumers()
	if err != nil || len(all) != 1 || !all[0].Exact {
		t.Fatalf("consumers %v, %v", all, err)
	}
	s := all[0].State
	if s.Delivered != (server.SequencePair{Consumer: 13, Stream: 8}) || len(s.Pending) != 3 || s.Redelivered[3] != 3 ||
		s.Pending[3] == nil || s.Pending[5] == nil || s.Pending[7] == nil {
		t.Errorf("state %s", asJSON(s))
	}
	if st := must[server.StreamState](t)(c.State(t.Context(), true)); st.Msgs != 3 || st.Consumers != 1 {
		t.Errorf("stream %s", asJSON(st))
	}
	if err := c.DeleteConsumer(t.Context(), "C"); err != nil {
		t.Fatal(err)
	}
	if all := must[[]cutover.ConsumerCopy](t)(c.Consumers()); len(all) != 0 {
		t.Errorf("left: %v", all)
	}
}

// What could not be served here is refused when it is made, with what to do.
func TestStandbyRefusals(t *testing.T) {
	b := bus.NewRouter()
	o := testOptions(b, t.TempDir())
	limits := NoLimits()
	limits.MaxStore, limits.MaxStreams = 400, 3
	o.Accounts = map[string]server.JetStreamAccountLimits{"$G": limits}
	s := startService(t, o)
	p := newParty(t, b, "$G")
	createStream(t, p, "MINE", `,"subjects":["S.x"]`)
	local := s.Cutover()
	at := time.Unix(9, 0)
	for name, try := range map[string]func() error{
		"unknown account": func() error {
			cfg := plainConfig("T", nil)
			_, err := local.Create(t.Context(), "NONE", &cfg, at, 1)
			return err
		},
		"a client's stream": func() error {
			cfg := plainConfig("MINE", nil)
			_, err := local.Create(t.Context(), "$G", &cfg, at, 1)
			return err
		},
		"subjects": func() error {
			cfg := plainConfig("S", nil)
			_, err := local.Create(t.Context(), "$G", &cfg, at, 1)
			return err
		},
		"max_bytes": func() error {
			cfg := plainConfig("T", func(cfg *server.StreamConfig) { cfg.MaxBytes = 1 << 20 })
			_, err := local.Create(t.Context(), "$G", &cfg, at, 1)
			return err
		},
		"another incarnation": func() error {
			cfg := plainConfig("T", nil)
			if _, err := local.Create(t.Context(), "$G", &cfg, at, 1); err != nil {
				t.Fatal(err)
			}
			_, err := local.Create(t.Context(), "$G", &cfg, at.Add(1), 1)
			if !errors.Is(err, cutover.ErrIncarnation) {
				t.Errorf("another incarnation: %v", err)
			}
			return err
		},
		"too much": func() error {
			c := testStandby(t, local, plainConfig("U", nil))
			_, _, err := c.Apply([]cutover.Record{{Seq: 1, Time: 1, Subject: []byte("U.a"), Data: make([]byte, 500)}})
			return err
		},
	} {
		if err := try(); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	c := must[cutover.Copy](t)(local.Stream("$G", "MINE"))
	if err := c.SetRole(t.Context(), cutover.Standby); !errors.Is(err, cutover.ErrRole) {
		t.Errorf("a client's stream as standby: %v", err)
	}
	if _, err := local.Stream("$G", "NONE"); !errors.Is(err, cutover.ErrNoStream) {
		t.Errorf("no stream: %v", err)
	}
}

package jetstreamapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

func start(t *testing.T, change func(*Options)) (*Service, *party) {
	t.Helper()
	b := bus.NewRouter()
	o := testOptions(b, "")
	if change != nil {
		change(&o)
	}
	return startService(t, o), newParty(t, b, "$G")
}

func receive(t *testing.T, ch <-chan answer) answer {
	t.Helper()
	select {
	case a := <-ch:
		return a
	case <-time.After(answerTimeout):
		t.Fatal("nothing arrives")
		return answer{}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(answerTimeout); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func errCode(t *testing.T, a answer) uint16 {
	t.Helper()
	var head server.ApiResponse
	if err := json.Unmarshal([]byte(a.data), &head); err != nil {
		t.Fatalf("%v in %q", err, a)
	}
	if head.Error == nil {
		return 0
	}
	return head.Error.ErrCode
}

func createStream(t *testing.T, p *party, name, more string) {
	t.Helper()
	p.must(t, nil, "$JS.API.STREAM.CREATE."+name, fmt.Sprintf(`{"name":%q,"subjects":["%s.>"]%s}`, name, name, more))
}

func createConsumer(t *testing.T, p *party, stream, name, more string) {
	t.Helper()
	p.must(t, nil, "$JS.API.CONSUMER.CREATE."+stream+"."+name,
		fmt.Sprintf(`{"stream_name":%q,"config":{"name":%q,"ack_policy":"explicit"%s}}`, stream, name, more))
}

func TestRoutesAreSortedAndReachable(t *testing.T) {
	sorted := slices.IsSortedFunc(routes, func(a, b route) int { return strings.Compare(a.pattern, b.pattern) })
	if !sorted {
		t.Error("routes are not sorted")
	}
	for _, r := range routes {
		subject := strings.NewReplacer("*", "x", ">", "y.z").Replace(r.pattern)
		if got := findRoute(strings.Split(subject, ".")); got.pattern != r.pattern {
			t.Errorf("%s goes to %q, not %q", subject, got.pattern, r.pattern)
		}
		covered := slices.ContainsFunc(jsapi.APIFilters(), func(f string) bool {
			return server.SubjectsCollide(f, jsapi.APIPrefix+subject)
		})
		if !covered {
			t.Errorf("nobody subscribes to %s", subject)
		}
	}
}

func TestTooManyRequestsAreRefused(t *testing.T) {
	s, p := start(t, func(o *Options) { o.QueueLimit, o.System = 1, "$G" })
	told := p.listen("$JS.EVENT.ADVISORY.API.LIMIT_REACHED")
	a := s.account("$G")
	a.change.Lock() // the writer hangs in its first request
	create := func(name string) <-chan answer {
		return p.ask("$JS.API.STREAM.CREATE."+name, "", fmt.Sprintf(`{"name":%q}`, name))
	}
	first := create("A")
	eventually(t, "the writer takes the first request", func() bool {
		a.writes.mu.Lock()
		defer a.writes.mu.Unlock()
		return len(a.writes.jobs) == a.writes.head
	})
	second, third := create("B"), create("C")
	if got := errCode(t, receive(t, third)); got != uint16(server.JSStreamTooManyRequests) {
		t.Errorf("the third request got error %d", got)
	}
	if got := receive(t, told).data; !strings.Contains(got, `"dropped":1`) {
		t.Errorf("the advisory is %s", got)
	}
	a.change.Unlock()
	for name, ch := range map[string]<-chan answer{"first": first, "second": second} {
		if got := errCode(t, receive(t, ch)); got != 0 {
			t.Errorf("the %s request got error %d", name, got)
		}
	}
}

// TestRequestsOnTheirWayAreAnswered: a pull request and an ack that were published before their consumer was deleted, and
// come to it after, are answered all the same.
func TestRequestsOnTheirWayAreAnswered(t *testing.T) {
	svc, p := start(t, nil)
	createStream(t, p, "S", "")
	createConsumer(t, p, "S", "C", "")
	other := newParty(t, svc.opts.Bus, "$G")
	got := other.listen("late")
	other.session.Publish(&bus.Msg{Subject: []byte("$JS.API.CONSUMER.MSG.NEXT.S.C"), Reply: []byte("late"), Data: []byte("1")})
	if code := errCode(t, p.request(t, "$JS.API.CONSUMER.DELETE.S.C", "", "")); code != 0 {
		t.Fatalf("the consumer is not deleted: %d", code)
	}
	other.session.Flush()
	if a := receive(t, got); !strings.Contains(a.header, "409 Consumer Deleted") {
		t.Errorf("the request is answered %+v", a)
	}
	if a := p.request(t, "$JS.API.CONSUMER.MSG.NEXT.S.C", "", ""); !a.nobody {
		t.Errorf("the next request gets %v", a)
	}
}

func TestUnusedEphemeralConsumerIsDeleted(t *testing.T) {
	_, p := start(t, nil)
	createStream(t, p, "S", "")
	deleted := p.listen("$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.E")
	createConsumer(t, p, "S", "E", `,"inactive_threshold":100000000`)
	if !strings.Contains(receive(t, deleted).data, `"action":"delete"`) {
		t.Error("the advisory does not say so")
	}
	if a := p.request(t, "$JS.API.CONSUMER.MSG.NEXT.S.E", "", ""); !a.nobody {
		t.Errorf("a pull request still gets %v", a)
	}
	if got := errCode(t, p.request(t, "$JS.API.CONSUMER.INFO.S.E", "", "")); got != uint16(server.JSConsumerNotFoundErr) {
		t.Errorf("info: error %d", got)
	}
}

func TestWaitingPullsAreToldWhy(t *testing.T) {
	const pull = `{"batch":1,"expires":60000000000}`
	tests := map[string]struct {
		end    func(t *testing.T, s *Service, p *party)
		status string
	}{
		"consumer deleted": {
			func(t *testing.T, _ *Service, p *party) {
				t.Helper()
				p.must(t, nil, "$JS.API.CONSUMER.DELETE.S.C", "")
			},
			"409 Consumer Deleted",
		},
		"stream deleted": {
			func(t *testing.T, _ *Service, p *party) {
				t.Helper()
				p.must(t, nil, "$JS.API.STREAM.DELETE.S", "")
			},
			"409 Consumer Deleted",
		},
		"server stopped": {
			func(t *testing.T, s *Service, _ *party) {
				t.Helper()
				if err := s.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			},
			"409 Server Shutdown",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := bus.NewRouter()
			s := New(testOptions(b, ""))
			if err := s.Start(context.Background()); err != nil {
				t.Fatal(err)
			}
			p := newParty(t, b, "$G")
			createStream(t, p, "S", "")
			createConsumer(t, p, "S", "C", "")
			waiting := p.ask("$JS.API.CONSUMER.MSG.NEXT.S.C", "", pull)
			eventually(t, "the pull waits", func() bool {
				var info jsapi.ConsumerInfoResponse
				p.must(t, &info, "$JS.API.CONSUMER.INFO.S.C", "")
				return info.NumWaiting == 1
			})
			tt.end(t, s, p)
			if a := receive(t, waiting); !strings.HasPrefix(a.header, "NATS/1.0 "+tt.status) {
				t.Errorf("the pull got %v, want %s", a, tt.status)
			}
			if name != "server stopped" {
				if err := s.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestAdvisories(t *testing.T) {
	_, p := start(t, func(o *Options) { o.Domain = "hub" })
	events := p.listen("$JS.EVENT.ADVISORY.>")
	audit := p.listen("$JS.EVENT.ADVISORY.API")
	createStream(t, p, "S", "")
	p.must(t, nil, "$JS.API.STREAM.UPDATE.S", `{"name":"S","subjects":["S.>"],"max_msgs":5}`)
	createConsumer(t, p, "S", "C", "")
	p.must(t, nil, "$JS.API.CONSUMER.PAUSE.S.C", `{"pause_until":"2100-01-01T00:00:00Z"}`)
	p.must(t, nil, "$JS.API.CONSUMER.DELETE.S.C", "")
	p.must(t, nil, "$JS.API.STREAM.DELETE.S", "")
	var got []string
	for len(got) < 6+6 {
		var e struct {
			Type, ID, Action, Domain, Stream, Consumer string
			Paused                                     bool
		}
		if err := json.Unmarshal([]byte(receive(t, events).data), &e); err != nil {
			t.Fatal(err)
		}
		if e.ID == "" || e.Domain != "hub" {
			t.Errorf("an event without id or domain: %+v", e)
		}
		got = append(got, strings.TrimPrefix(e.Type, "io.nats.jetstream.advisory.v1.")+" "+e.Action+e.Stream+e.Consumer)
	}
	slices.Sort(got)
	want := []string{
		"api_audit ", "api_audit ", "api_audit ", "api_audit ", "api_audit ", "api_audit ",
		"consumer_action createSC", "consumer_action deleteSC", "consumer_pause SC",
		"stream_action createS", "stream_action deleteS", "stream_action modifyS",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	var e server.JSAPIAudit
	if err := json.Unmarshal([]byte(receive(t, audit).data), &e); err != nil || e.Server != "S1" ||
		!strings.HasPrefix(e.Subject, "$JS.API.STREAM.CREATE") || !strings.Contains(e.Response, `"did_create":true`) {
		t.Errorf("audit: %+v, %v", e, err)
	}
}

func TestAccountsAreApart(t *testing.T) {
	b := bus.NewRouter()
	o := testOptions(b, "")
	o.Accounts = map[string]server.JetStreamAccountLimits{"A": NoLimits(), "B": NoLimits()}
	s := startService(t, o)
	pa, pb, pc := newParty(t, b, "A"), newParty(t, b, "B"), newParty(t, b, "C")
	createStream(t, pa, "S", "")
	createStream(t, pb, "S", `,"max_msgs":7`)
	pa.must(t, nil, "S.x", "")
	var info jsapi.StreamInfoResponse
	pb.must(t, &info, "$JS.API.STREAM.INFO.S", "")
	if info.State.Msgs != 0 || info.Config.MaxMsgs != 7 {
		t.Errorf("account B sees %+v of %+v", info.State, info.Config)
	}
	if a := pc.request(t, "$JS.API.INFO", "", ""); !a.nobody {
		t.Errorf("an account without JetStream gets %v", a)
	}
	if got := s.Accounts(); !slices.Equal(got, []string{"A", "B"}) {
		t.Errorf("accounts: %v", got)
	}
}

func TestAccountsChangeWhileRunning(t *testing.T) {
	b := bus.NewRouter()
	s := startService(t, testOptions(b, ""))
	pa, pb := newParty(t, b, "$G"), newParty(t, b, "B")
	createStream(t, pa, "S", "")
	createConsumer(t, pa, "S", "C", `,"durable_name":"C"`)
	pa.must(t, nil, "S.x", "")
	set := func(accounts map[string]server.JetStreamAccountLimits) {
		t.Helper()
		var outsiders []string
		for _, name := range []string{"$G", "B"} {
			if _, has := accounts[name]; !has {
				outsiders = append(outsiders, name)
			}
		}
		if err := s.SetAccounts(accounts, outsiders); err != nil {
			t.Fatal(err)
		}
	}
	limits := NoLimits()
	limits.MaxStreams = 1
	set(map[string]server.JetStreamAccountLimits{"$G": limits, "B": NoLimits()})
	if got := errCode(t, pa.request(t, "$JS.API.STREAM.CREATE.T", "", `{"name":"T"}`)); got != 10027 {
		t.Errorf("beyond the new limit: error %d", got)
	}
	pb.must(t, nil, "$JS.API.INFO", "")
	set(map[string]server.JetStreamAccountLimits{"B": NoLimits()})
	if got := errCode(t, pa.request(t, "$JS.API.INFO", "", "")); got != 10039 {
		t.Errorf("an account that lost JetStream gets error %d", got)
	}
	if a := pa.request(t, "S.x", "", ""); !a.nobody {
		t.Errorf("its stream still answers %v", a)
	}
	set(map[string]server.JetStreamAccountLimits{"$G": limits, "B": NoLimits()})
	var info jsapi.StreamInfoResponse
	pa.must(t, &info, "$JS.API.STREAM.INFO.S", "")
	if info.State.Msgs != 1 || info.State.Consumers != 1 {
		t.Errorf("after it got it back: %+v", info.State)
	}
}

func TestUsageFollowsWhatIsStored(t *testing.T) {
	s, p := start(t, nil)
	createStream(t, p, "S", `,"max_bytes":1000`)
	createStream(t, p, "M", `,"storage":"memory"`)
	for range 10 {
		p.must(t, nil, "S.x", "hello")
		p.must(t, nil, "M.x", "hello")
	}
	var info jsapi.AccountInfoResponse
	p.must(t, &info, "$JS.API.INFO", "")
	const perFile, perMemory = 22 + 8 + 3 + 5, 16 + 3 + 5
	if info.Store != 10*perFile || info.Memory != 10*perMemory || info.ReservedStore != 1000 {
		t.Errorf("after 10 messages: %+v", info.JetStreamTier)
	}
	p.must(t, nil, "$JS.API.STREAM.PURGE.S", "")
	p.must(t, nil, "$JS.API.STREAM.MSG.DELETE.M", `{"seq":4}`)
	p.must(t, &info, "$JS.API.INFO", "")
	if info.Store != 0 || info.Memory != 9*perMemory {
		t.Errorf("after a purge and a delete: %+v", info.JetStreamTier)
	}
	p.must(t, nil, "$JS.API.STREAM.DELETE.S", "")
	p.must(t, nil, "$JS.API.STREAM.DELETE.M", "")
	if st := s.stats(); st.Store != 0 || st.Memory != 0 || st.ReservedStore != 0 {
		t.Errorf("with nothing left: %+v", st)
	}
}

func TestLags(t *testing.T) {
	s, p := start(t, nil)
	createStream(t, p, "S", "")
	createConsumer(t, p, "S", "D", `,"durable_name":"D","filter_subject":"S.a"`)
	createConsumer(t, p, "S", "E", "")
	for range 3 {
		p.must(t, nil, "S.a", "")
		p.must(t, nil, "S.b", "")
	}
	p.request(t, "$JS.API.CONSUMER.MSG.NEXT.S.D", "", "")
	lags := s.Lags()
	if len(lags) != 1 {
		t.Fatalf("%d durables: %+v", len(lags), lags)
	}
	l := lags[0]
	if l.Stream != "S" || l.Consumer != "D" || l.Pending != 2 || l.AckPending != 1 ||
		!slices.Equal(l.Filters, []string{"S.a"}) || l.Count("S.a") != 2 || len(l.Shards) != 1 {
		t.Errorf("lag: %+v, counted %d", l, l.Count("S.a"))
	}
}

func TestHealth(t *testing.T) {
	s, p := start(t, nil)
	createStream(t, p, "S", "")
	createConsumer(t, p, "S", "C", "")
	tests := []struct {
		account, stream, consumer, want string
	}{
		{"", "", "", ""},
		{"$G", "S", "C", ""},
		{"nope", "", "", `JetStream account "nope" not found`},
		{"$G", "nope", "", "stream not found"},
		{"$G", "S", "nope", "consumer not found"},
	}
	for _, tt := range tests {
		got := ""
		for _, e := range s.Health(tt.account, tt.stream, tt.consumer) {
			got += e.Error
		}
		if got != tt.want {
			t.Errorf("%q %q %q: %q, want %q", tt.account, tt.stream, tt.consumer, got, tt.want)
		}
	}
}

func TestDomainFormsAsNATSServer(t *testing.T) {
	o := startOracle(t, func(o *server.Options) { o.JetStreamDomain = "hub" })
	_, p := start(t, func(o *Options) { o.Domain = "hub" })
	runSteps(t, o, p, []step{
		{subject: "$JS.API.INFO"},
		{subject: "$JS.hub.API.INFO"},
		{subject: "$JS.other.API.INFO"},
		{subject: "$JS.hub.API.STREAM.CREATE.S", body: `{"name":"S","subjects":["s.*"],"allow_direct":true}`},
		{subject: "s.a", body: "one"},
		{subject: "$JS.hub.API.STREAM.INFO.S"},
		{subject: "$JS.hub.API.DIRECT.GET.S.s.a"},
		{subject: "$JS.hub.API.DIRECT.GET.S", body: `{"seq":1}`},
		{subject: "$JS.hub.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"name":"C","ack_policy":"explicit"}}`},
		{subject: "$JS.hub.API.CONSUMER.MSG.NEXT.S.C"},
		{subject: "$JS.hub.API.CONSUMER.RESET.S.C"},
		{subject: "$JS.hub.API.CONSUMER.MSG.NEXT.S.D"},
		{subject: "$JS.hub.API.STREAM.LIST"},
		{subject: "$JS.hub.API.STREAM.UPDATE.S", body: `{"name":"S","subjects":["s.*"]}`},
		{subject: "$JS.hub.API.DIRECT.GET.S", body: `{"seq":1}`},
		{subject: "$JS.hub.API.STREAM.CREATE.KV_b", body: `{"name":"KV_b","subjects":["$KV.b.>"],"max_msgs_per_subject":1}`},
		{subject: "$JS.hub.API.$KV.b.k", body: "value"},
		{subject: "$JS.hub.API.$KV.b.k", body: "other", header: "NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 9\r\n\r\n"},
		{subject: "$JS.hub.API.STREAM.MSG.GET.KV_b", body: `{"last_by_subj":"$KV.b.k"}`},
		{subject: "$JS.hub.API.$KV.nope.k", body: "value"},
	})
}

func TestJszAsNATSServer(t *testing.T) {
	srv, o := startOracleServer(t, nil)
	s, p := start(t, nil)
	runSteps(t, o, p, []step{
		{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","subjects":["s.*"]}`},
		{subject: "$JS.API.STREAM.CREATE.T", body: `{"name":"T","subjects":["t.*"],"storage":"memory"}`},
		{subject: "s.a", body: "one"},
		{subject: "t.a", body: "two"},
		{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`},
	})
	for _, opts := range []server.JSzOptions{
		{},
		{Accounts: true},
		{Account: "$G"},
		{Account: "nope"},
		{Streams: true},
		{Account: "$G", Streams: true, Config: true},
		{Accounts: true, Offset: 9},
	} {
		want, err := srv.Jsz(&opts)
		if err != nil {
			t.Fatal(err)
		}
		got := s.Jsz(&opts)
		if g, w := normalJsz(t, got), normalJsz(t, want); g != w {
			t.Errorf("%+v\n got    %s\n oracle %s", opts, g, w)
		}
	}
}

// normalJsz leaves out what depends on the machine.
func normalJsz(t *testing.T, info *server.JSInfo) string {
	t.Helper()
	c := *info
	c.ID, c.Now, c.Config, c.Limits = "", time.Time{}, server.JetStreamConfig{}, nil
	for _, a := range c.AccountDetails {
		slices.SortFunc(a.Streams, func(x, y server.StreamDetail) int { return strings.Compare(x.Name, y.Name) })
	}
	b, err := json.Marshal(&c)
	if err != nil {
		t.Fatal(err)
	}
	return normal(answer{data: string(b)})
}

func TestJszNamesTheLeaderOfConsumers(t *testing.T) {
	s, p := start(t, nil)
	createStream(t, p, "S", "")
	createConsumer(t, p, "S", "C", "")
	info := s.Jsz(&server.JSzOptions{Account: "$G", Config: true, Consumer: true})
	c := info.AccountDetails[0].Streams[0].Consumer[0]
	if c.Cluster == nil || c.Cluster.Leader != "S1" || c.Config == nil {
		t.Errorf("consumer detail: %+v", c)
	}
}

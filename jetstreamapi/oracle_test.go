package jetstreamapi

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// step is one request, asked of both servers in the same order.
type step struct {
	subject, body, header string
	// ours is what we answer where that is meant to differ, and why says why.
	ours, why string
}

const level9 = "NATS/1.0\r\nNats-Required-Api-Level: 9\r\n\r\n"

const badRequest = ` {
 "error": {
  "code": 400,
  "description": "bad request",
  "err_code": 10003
 },
 "type": "io.nats.jetstream.api.v1.system_response"
}`

const violates = ` {
 "error": {
  "code": 500,
  "description": "change to limits violates consumers: C, F, L, P",
  "err_code": 10069
 },
 "type": "io.nats.jetstream.api.v1.stream_update_response"
}`

// runSteps asks both servers every step and compares the answers.
func runSteps(t *testing.T, o *oracle, p *party, steps []step) {
	t.Helper()
	for _, s := range steps {
		got := ours(p.request(t, s.subject, s.header, s.body))
		if s.why != "" {
			if got != s.ours {
				t.Errorf("%s %s\n got  %s\n want %s (%s)", s.subject, s.body, got, s.ours, s.why)
			}
			continue
		}
		if want := normal(o.request(t, s.subject, s.header, s.body)); got != want {
			t.Errorf("%s %s\n got    %s\n oracle %s", s.subject, s.body, got, want)
		}
	}
}

func pair(t *testing.T) (*oracle, *party) {
	t.Helper()
	b := bus.NewRouter()
	startService(t, testOptions(b, ""))
	return startOracle(t, nil), newParty(t, b, "$G")
}

func TestAnswersAsNATSServer(t *testing.T) {
	tests := map[string][]step{
		"subjects": {
			{subject: "$JS.API.INFO"},
			{subject: "$JS.API.INFO", body: "ignored"},
			{subject: "$JS.API.INFO", header: level9},
			{subject: "$JS.API.STREAM.FOO.S", ours: badRequest, why: "nats-server lets it time out"},
			{subject: "$JS.API.STREAM.INFO", ours: badRequest, why: "nats-server lets it time out"},
			{subject: "$JS.API.STREAM.INFO.A.B", ours: badRequest, why: "nats-server lets it time out"},
			{subject: "$JS.API.META.LEADER.STEPDOWN", ours: badRequest, why: "nats-server lets it time out"},
			{subject: "$JS.API.SERVER.REMOVE", ours: badRequest, why: "nats-server lets it time out"},
			{subject: "$JS.API.ACCOUNT.PURGE.A", ours: badRequest, why: "nats-server lets it time out"},
			{subject: "$JS.API.FOO", ours: "no responders", why: "nats-server lets it time out"},
			{subject: "$JS.API.CONSUMER.MSG.NEXT.S.C"},
			{subject: "$JS.API.DIRECT.GET.S"},
			{subject: "$JS.API.DIRECT.GET.S.foo"},
			{subject: "$JS.API.CONSUMER.RESET.S.C", ours: "no responders", why: "nats-server lets it time out"},
			{subject: "$JS.ACK.S.C.1.1.1.1.1"},
			{subject: "$JS.D.API.INFO"},
			{subject: "$JS.API.STREAM.LEADER.STEPDOWN.S"},
			{subject: "$JS.API.STREAM.PEER.REMOVE.S", body: `{"peer":"x"}`},
			{subject: "$JS.API.STREAM.PEER.EVACUATE.S", body: `{"peer":"x"}`},
			{subject: "$JS.API.STREAM.CANCEL_MOVE.S"},
			{subject: "$JS.API.CONSUMER.LEADER.STEPDOWN.S.C"},
			{subject: "$JS.API.CONSUMER.PEER.REMOVE.S.C", body: `{"peer":"x"}`},
			{subject: "$JS.API.CONSUMER.PEER.EVACUATE.S.C", body: `{"peer":"x"}`},
			{subject: "$JS.API.STREAM.SNAPSHOT.S"},
			{subject: "$JS.API.STREAM.SNAPSHOT.S", body: `{"deliver_subject":"x"}`},
			{subject: "$JS.API.STREAM.RESTORE.S"},
		},
		"acks whose subjects cannot be read": {
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","subjects":["s"],"storage":"memory"}`},
			{
				subject: "$JS.API.CONSUMER.DURABLE.CREATE.S.C",
				body:    `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`,
			},
			{subject: "$JS.ACK.S.C.x.y.z.a.b", body: "-NAK"},
			{subject: "$JS.ACK.S.C.x.y.z.a.b", body: "+WPI"},
			{subject: "$JS.ACK.S.C.-1.-1.-1.1.0", body: "-NAK"},
			{
				subject: "$JS.ACK.S.C.1.99999999999999999999999.1.1.0", body: "+ACK",
				ours: "no responders", why: "nats-server lets it time out",
			},
		},
		"nothing there": {
			{subject: "$JS.API.STREAM.INFO.S"},
			{subject: "$JS.API.STREAM.INFO.S", header: level9},
			{subject: "$JS.API.STREAM.NAMES"},
			{subject: "$JS.API.STREAM.LIST"},
			{subject: "$JS.API.STREAM.UPDATE.S", body: `{"name":"S"}`},
			{subject: "$JS.API.STREAM.UPDATE.S", body: `{"name":"T"}`},
			{subject: "$JS.API.STREAM.DELETE.S"},
			{subject: "$JS.API.STREAM.DELETE.S", body: "x"},
			{subject: "$JS.API.STREAM.PURGE.S"},
			{subject: "$JS.API.STREAM.MSG.GET.S"},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"seq":1}`},
			{subject: "$JS.API.STREAM.MSG.DELETE.S"},
			{subject: "$JS.API.STREAM.MSG.DELETE.S", body: `{"seq":1}`},
			{subject: "$JS.API.CONSUMER.CREATE.S", body: `{"stream_name":"S","config":{"ack_policy":"explicit"}}`},
			{subject: "$JS.API.CONSUMER.NAMES.S"},
			{subject: "$JS.API.CONSUMER.LIST.S"},
			{subject: "$JS.API.CONSUMER.INFO.S.C"},
			{subject: "$JS.API.CONSUMER.INFO.S.C", body: "x"},
			{subject: "$JS.API.CONSUMER.DELETE.S.C"},
			{subject: "$JS.API.CONSUMER.PAUSE.S.C"},
			{subject: "$JS.API.CONSUMER.UNPIN.S.C"},
			{subject: "$JS.API.CONSUMER.UNPIN.S.C", body: `{"group":"a"}`},
		},
		"stream requests that are refused": {
			{subject: "$JS.API.STREAM.CREATE.S"},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S",`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `not json`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `[]`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","bad":true}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","max_age":"x"}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","retention":"x"}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S"}`, header: level9},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"T"}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","sealed":true}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","mirror_direct":true}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","num_replicas":3}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","num_replicas":9}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","num_replicas":-1}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","subjects":["a..b"]}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","subjects":["a","a"]}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","subjects":["a.*","a.b"]}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","subjects":[">"]}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","subjects":["$JS.API.>"]}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","max_age":1}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","duplicate_window":1}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","max_msgs":-5,"pedantic":true}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","deny_purge":true,"allow_rollup_hdrs":true}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","discard_new_per_subject":true}`},
			{subject: "$JS.API.STREAM.NAMES"},
		},
		"stream life": {
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","subjects":["foo.*"],"allow_direct":true,"metadata":{"k":"v"}}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","subjects":["foo.*"],"allow_direct":true,"metadata":{"k":"v"}}`},
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","subjects":["foo.*"]}`},
			{subject: "$JS.API.STREAM.CREATE.T", body: `{"name":"T","subjects":["foo.a"]}`},
			{subject: "$JS.API.STREAM.CREATE.T", body: `{"name":"T","subjects":["bar"],"storage":"memory","max_msgs":5}`},
			{subject: "foo.a", body: "one", header: "NATS/1.0\r\nX: y\r\n\r\n"},
			{subject: "foo.a", body: "two"},
			{subject: "foo.b", body: "three"},
			{subject: "bar", body: "in memory"},
			{subject: "$JS.API.STREAM.INFO.S"},
			{subject: "$JS.API.STREAM.INFO.T", body: "ignored"},
			{subject: "$JS.API.STREAM.INFO.S", body: `{"subjects_filter":">"}`},
			{subject: "$JS.API.STREAM.INFO.S", body: `{"subjects_filter":"foo.a","deleted_details":true}`},
			{subject: "$JS.API.STREAM.INFO.S", body: `{"subjects_filter":"nope"}`},
			{subject: "$JS.API.STREAM.INFO.S", body: `{"subjects_filter":">","offset":1}`},
			{subject: "$JS.API.STREAM.INFO.S", body: `{"subjects_filter":">","offset":7}`},
			{subject: "$JS.API.STREAM.INFO.S", body: `{"nope":1}`},
			{subject: "$JS.API.STREAM.NAMES"},
			{subject: "$JS.API.STREAM.NAMES", body: `{"subject":"foo.a"}`},
			{subject: "$JS.API.STREAM.NAMES", body: `{"subject":"nothing"}`},
			{subject: "$JS.API.STREAM.NAMES", body: `{"offset":1}`},
			{subject: "$JS.API.STREAM.NAMES", body: `{"offset":9}`},
			{subject: "$JS.API.STREAM.NAMES", body: `{"offset":-9}`},
			{subject: "$JS.API.STREAM.LIST"},
			{subject: "$JS.API.STREAM.LIST", body: `{"subject":"bar"}`},
			{subject: "$JS.API.STREAM.LIST", body: `{"offset":5}`},
			{subject: "$JS.API.STREAM.LIST", body: `[1]`},
			{subject: "$JS.API.INFO"},
			{subject: "$JS.API.STREAM.UPDATE.S", body: `{"name":"S","subjects":["foo.*"],"allow_direct":true,"max_msgs":100}`},
			{subject: "$JS.API.STREAM.UPDATE.S", body: `{"name":"S","subjects":["bar"],"allow_direct":true}`},
			{subject: "$JS.API.STREAM.UPDATE.S", body: `{"name":"S","subjects":["foo.*"],"storage":"memory"}`},
			{subject: "$JS.API.STREAM.UPDATE.S", body: `{"name":"S","subjects":["foo.*"],"retention":"workqueue"}`},
			{subject: "$JS.API.STREAM.UPDATE.S", body: `{"name":"S","subjects":["foo.*"],"num_replicas":3}`},
			{subject: "$JS.API.STREAM.UPDATE.S", body: `{"name":"X","subjects":["foo.*"]}`},
			{subject: "$JS.API.STREAM.UPDATE.S", body: `{"name":"S","subjects":["foo.*"],"max_msgs":2,"allow_direct":true}`},
			{subject: "$JS.API.STREAM.INFO.S", body: `{"subjects_filter":">","deleted_details":true}`},
			{subject: "$JS.API.STREAM.PURGE.S", body: `{"seq":2,"keep":1}`},
			{subject: "$JS.API.STREAM.PURGE.S", body: `{"filter":"foo.a"}`},
			{subject: "$JS.API.STREAM.INFO.S"},
			{subject: "$JS.API.STREAM.PURGE.S"},
			{subject: "$JS.API.STREAM.INFO.S"},
			{subject: "$JS.API.STREAM.PURGE.T", body: `{"keep":1}`},
			{subject: "$JS.API.STREAM.UPDATE.T", body: `{"name":"T","subjects":["bar"],"storage":"memory","deny_purge":true,"deny_delete":true}`},
			{subject: "$JS.API.STREAM.PURGE.T"},
			{subject: "$JS.API.STREAM.MSG.DELETE.T", body: `{"seq":1}`},
			{subject: "$JS.API.STREAM.UPDATE.T", body: `{"name":"T","subjects":["bar"],"storage":"memory"}`},
			{subject: "$JS.API.STREAM.UPDATE.T", body: `{"name":"T","subjects":["bar"],"storage":"memory","sealed":true}`},
			{subject: "$JS.API.STREAM.PURGE.T"},
			{subject: "$JS.API.STREAM.MSG.DELETE.T", body: `{"seq":1}`},
			{subject: "$JS.API.STREAM.DELETE.T", body: `{"a":1}`},
			{subject: "$JS.API.STREAM.DELETE.T", body: "{}"},
			{subject: "$JS.API.STREAM.DELETE.T"},
			{subject: "$JS.API.STREAM.NAMES"},
		},
		"messages": {
			{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","subjects":["foo.*"],"allow_direct":true}`},
			{subject: "foo.a", body: "one", header: "NATS/1.0\r\nX: y\r\n\r\n"},
			{subject: "foo.a", body: "two"},
			{subject: "foo.b", body: "three"},
			{subject: "foo.c", body: ""},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"seq":1}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"seq":1,"no_hdr":true}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"seq":4}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"seq":0}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"seq":9}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"last_by_subj":"foo.a"}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"last_by_subj":"foo.*"}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"last_by_subj":"nope"}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"next_by_subj":"foo.b"}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"next_by_subj":"foo.*","seq":2}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"next_by_subj":"foo.a","seq":3}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"start_time":"2000-01-01T00:00:00Z"}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"start_time":"2100-01-01T00:00:00Z"}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"seq":1,"last_by_subj":"foo.a"}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"seq":1,"batch":3}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"nope":1}`},
			{subject: "$JS.API.DIRECT.GET.S", body: `{"seq":1}`},
			{subject: "$JS.API.DIRECT.GET.S", body: `{"seq":2}`},
			{subject: "$JS.API.DIRECT.GET.S", body: `{"seq":2,"no_hdr":true}`},
			{subject: "$JS.API.DIRECT.GET.S", body: `{"seq":9}`},
			{subject: "$JS.API.DIRECT.GET.S", body: `{}`},
			{subject: "$JS.API.DIRECT.GET.S", body: ``},
			{subject: "$JS.API.DIRECT.GET.S", body: `x`},
			{subject: "$JS.API.DIRECT.GET.S", body: `{"seq":1}`, header: level9},
			{subject: "$JS.API.DIRECT.GET.S", body: `{"last_by_subj":"foo.a"}`},
			{subject: "$JS.API.DIRECT.GET.S", body: `{"last_by_subj":"nope"}`},
			{subject: "$JS.API.DIRECT.GET.S", body: `{"next_by_subj":"foo.b"}`},
			{subject: "$JS.API.DIRECT.GET.S", body: `{"start_time":"2000-01-01T00:00:00Z"}`},
			{subject: "$JS.API.DIRECT.GET.S", body: `{"last_by_subj":"foo.a","seq":1}`},
			{subject: "$JS.API.DIRECT.GET.S", body: `{"multi_last":["nope"]}`},
			{subject: "$JS.API.DIRECT.GET.S", body: `{"multi_last":["foo.*"],"up_to_time":"2000-01-01T00:00:00Z"}`},
			{subject: "$JS.API.DIRECT.GET.S.foo.a"},
			{subject: "$JS.API.DIRECT.GET.S.foo.z"},
			{subject: "$JS.API.DIRECT.GET.S.foo.a", body: `{"seq":1}`},
			{subject: "$JS.API.DIRECT.GET.S.foo.a", body: `{"no_hdr":true}`},
			{subject: "$JS.API.DIRECT.GET.S.foo.a", body: `x`},
			{subject: "$JS.API.STREAM.MSG.DELETE.S", body: `{"seq":2}`},
			{subject: "$JS.API.STREAM.MSG.DELETE.S", body: `{"seq":2}`},
			{subject: "$JS.API.STREAM.MSG.DELETE.S", body: `{"seq":9}`},
			{subject: "$JS.API.STREAM.MSG.DELETE.S", body: `{"seq":3,"no_erase":true}`},
			{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"seq":2}`},
			{subject: "$JS.API.STREAM.INFO.S", body: `{"deleted_details":true,"subjects_filter":">"}`},
			{subject: "$JS.API.STREAM.UPDATE.S", body: `{"name":"S","subjects":["foo.*"]}`},
			{subject: "$JS.API.DIRECT.GET.S", body: `{"seq":1}`},
			{subject: "$JS.API.DIRECT.GET.S.foo.a"},
		},
		"consumers": consumerSteps,
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			o, p := pair(t)
			runSteps(t, o, p, steps)
		})
	}
}

var consumerSteps = []step{
	{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","subjects":["foo.*"],"max_consumers":4}`},
	{subject: "foo.a", body: "one"},
	{subject: "foo.b", body: "two"},
	{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"},"action":"create"}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","max_deliver":3},"action":"create"}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","max_deliver":3},"action":"update"}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.X", body: `{"stream_name":"S","config":{"durable_name":"X","ack_policy":"explicit"},"action":"update"}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"none"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"D","ack_policy":"explicit"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"T","config":{"durable_name":"C","ack_policy":"explicit"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C"},"nope":1}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C"}}`, header: level9},
	{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C"},"action":"nope"}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C","num_replicas":3}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S", body: `{"stream_name":"S","config":{"durable_name":"C"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.F.foo.a", body: `{"stream_name":"S","config":{"name":"F","filter_subject":"foo.b"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.F.foo.a", body: `{"stream_name":"S","config":{"name":"F","filter_subjects":["foo.a"]}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.F.foo.a", body: `{"stream_name":"S","config":{"name":"F","filter_subject":"foo.a","ack_policy":"explicit","inactive_threshold":60000000000}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.E", body: `{"stream_name":"S","config":{"name":"E","ack_policy":"explicit"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.E", body: `{"stream_name":"S","config":{"name":"E","ack_policy":"explicit"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.E", body: `{"stream_name":"S","config":{"name":"E","ack_policy":"explicit"},"action":"create"}`},
	{subject: "$JS.API.CONSUMER.DELETE.S.E"},
	{subject: "$JS.API.CONSUMER.DURABLE.CREATE.S.L", body: `{"stream_name":"S","config":{"ack_policy":"explicit"}}`},
	{subject: "$JS.API.CONSUMER.DURABLE.CREATE.S.L", body: `{"stream_name":"S","config":{"durable_name":"M","ack_policy":"explicit"}}`},
	{subject: "$JS.API.CONSUMER.DURABLE.CREATE.S.L", body: `{"stream_name":"S","config":{"durable_name":"L","ack_policy":"all","filter_subjects":["foo.a","foo.b"]}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.P", body: `{"stream_name":"S","config":{"durable_name":"P","ack_policy":"explicit","deliver_subject":"inbox.p"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.S.Q", body: `{"stream_name":"S","config":{"durable_name":"Q","ack_policy":"explicit"}}`},
	{subject: "$JS.API.CONSUMER.NAMES.S"},
	{subject: "$JS.API.CONSUMER.NAMES.S", body: `{"offset":2}`},
	{subject: "$JS.API.CONSUMER.NAMES.S", body: `{"x":2}`},
	{subject: "$JS.API.CONSUMER.LIST.S"},
	{subject: "$JS.API.CONSUMER.LIST.S", body: `{"offset":3}`},
	{subject: "$JS.API.CONSUMER.INFO.S.C"},
	{subject: "$JS.API.CONSUMER.INFO.S.F"},
	{subject: "$JS.API.CONSUMER.INFO.S.P"},
	{subject: "$JS.API.CONSUMER.INFO.S.C", body: "{}"},
	{subject: "$JS.API.STREAM.INFO.S"},
	{subject: "$JS.API.INFO"},
	{subject: "$JS.API.CONSUMER.MSG.NEXT.S.C", body: ""},
	{subject: "$JS.API.CONSUMER.INFO.S.C"},
	{subject: "$JS.API.CONSUMER.MSG.NEXT.S.P", body: ""},
	{subject: "$JS.API.CONSUMER.PAUSE.S.C", body: `{"pause_until":"2100-01-01T00:00:00Z"}`},
	{subject: "$JS.API.CONSUMER.INFO.S.C"},
	{subject: "$JS.API.CONSUMER.PAUSE.S.C"},
	{subject: "$JS.API.CONSUMER.PAUSE.S.C", body: `{"x":1}`},
	{subject: "$JS.API.CONSUMER.UNPIN.S.C", body: `{"group":"a"}`},
	{subject: "$JS.API.CONSUMER.UNPIN.S.C", body: `{"group":"a b"}`},
	{subject: "$JS.API.CONSUMER.UNPIN.S.C", body: `{}`},
	{subject: "$JS.API.CONSUMER.RESET.S.C"},
	{subject: "$JS.API.CONSUMER.RESET.S.C", body: `{"seq":2}`},
	{subject: "$JS.API.CONSUMER.RESET.S.C", body: `x`},
	{subject: "$JS.API.STREAM.UPDATE.S", body: `{"name":"S","subjects":["foo.*"],"max_consumers":4,"consumer_limits":{"max_ack_pending":5}}`, ours: violates, why: "nats-server names them in no order"},
	{subject: "$JS.API.CONSUMER.DELETE.S.C", body: "x"},
	{subject: "$JS.API.CONSUMER.DELETE.S.C"},
	{subject: "$JS.API.CONSUMER.DELETE.S.C"},
	{subject: "$JS.API.CONSUMER.MSG.NEXT.S.C"},
	{subject: "$JS.API.CONSUMER.NAMES.S"},
	{subject: "$JS.API.STREAM.CREATE.W", body: `{"name":"W","subjects":["w.*"],"retention":"workqueue"}`},
	{subject: "$JS.API.CONSUMER.CREATE.W.A", body: `{"stream_name":"W","config":{"durable_name":"A","ack_policy":"none"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.W.A", body: `{"stream_name":"W","config":{"durable_name":"A","ack_policy":"explicit","deliver_policy":"new"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.W.A", body: `{"stream_name":"W","config":{"durable_name":"A","ack_policy":"explicit","filter_subject":"w.a"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.W.B", body: `{"stream_name":"W","config":{"durable_name":"B","ack_policy":"explicit"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.W.B", body: `{"stream_name":"W","config":{"durable_name":"B","ack_policy":"explicit","filter_subject":"w.*"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.W.B", body: `{"stream_name":"W","config":{"durable_name":"B","ack_policy":"explicit","filter_subject":"w.b"}}`},
	{subject: "$JS.API.CONSUMER.CREATE.W.B", body: `{"stream_name":"W","config":{"durable_name":"B","ack_policy":"explicit","filter_subject":"w.a"}}`},
	{subject: "$JS.API.STREAM.DELETE.W"},
	{subject: "$JS.API.CONSUMER.NAMES.W"},
}

func TestAccountLimitsAsNATSServer(t *testing.T) {
	limits := server.JetStreamAccountLimits{
		MaxMemory: 1000, MaxStore: 2000, MaxStreams: 2, MaxConsumers: 1, MaxAckPending: 100,
		MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: 1500, MaxBytesRequired: true,
	}
	o := startOracle(t, func(o *server.Options) {
		conf := filepath.Join(t.TempDir(), "oracle.conf")
		text := `accounts { A { users: [{user: u, password: p}]
			jetstream { max_mem: 1000, max_store: 2000, max_streams: 2, max_consumers: 1, max_ack_pending: 100
				store_max_stream_bytes: 1500, max_bytes_required: true } } }
			no_auth_user: u`
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := o.ProcessConfigFile(conf); err != nil {
			t.Fatal(err)
		}
	})
	b := bus.NewRouter()
	opts := testOptions(b, "")
	opts.Accounts = map[string]server.JetStreamAccountLimits{"A": limits}
	startService(t, opts)
	runSteps(t, o, newParty(t, b, "A"), []step{
		{subject: "$JS.API.INFO"},
		{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S"}`},
		{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","max_bytes":1600}`},
		{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","max_bytes":2600}`},
		{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","max_bytes":2600,"storage":"file"}`},
		{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S","max_bytes":1500}`},
		{subject: "$JS.API.STREAM.CREATE.T", body: `{"name":"T","max_bytes":600}`},
		{subject: "$JS.API.STREAM.CREATE.T", body: `{"name":"T","max_bytes":1200,"storage":"memory"}`},
		{subject: "$JS.API.STREAM.CREATE.T", body: `{"name":"T","max_bytes":600,"storage":"memory","max_consumers":2}`},
		{subject: "$JS.API.STREAM.CREATE.T", body: `{"name":"T","max_bytes":600,"storage":"memory"}`},
		{subject: "$JS.API.STREAM.CREATE.U", body: `{"name":"U","max_bytes":10}`},
		{subject: "$JS.API.STREAM.UPDATE.S", body: `{"name":"S","max_bytes":1400}`},
		{subject: "$JS.API.STREAM.UPDATE.T", body: `{"name":"T","max_bytes":1100,"storage":"memory"}`},
		{subject: "$JS.API.STREAM.UPDATE.T", body: `{"name":"T","max_bytes":1000,"storage":"memory"}`},
		{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`},
		{subject: "$JS.API.CONSUMER.CREATE.S.D", body: `{"stream_name":"S","config":{"durable_name":"D","ack_policy":"explicit"}}`},
		{subject: "$JS.API.CONSUMER.CREATE.S.D", body: `{"stream_name":"S","config":{"durable_name":"D","ack_policy":"explicit","max_ack_pending":200}}`},
		{subject: "S", body: string(make([]byte, 1000))},
		{subject: "T", body: string(make([]byte, 900))},
		{subject: "$JS.API.INFO"},
		{subject: "$JS.API.STREAM.DELETE.S"},
		{subject: "$JS.API.INFO"},
	})
}

func TestOutsidersAsNATSServer(t *testing.T) {
	o := startOracle(t, func(o *server.Options) {
		conf := filepath.Join(t.TempDir(), "oracle.conf")
		text := `accounts { A { users: [{user: u, password: p}] }, B { users: [{user: v, password: p}], jetstream: enabled } }
			no_auth_user: u`
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := o.ProcessConfigFile(conf); err != nil {
			t.Fatal(err)
		}
	})
	b := bus.NewRouter()
	opts := testOptions(b, "")
	opts.Accounts = map[string]server.JetStreamAccountLimits{"B": NoLimits()}
	opts.Outsiders = []string{"A"}
	startService(t, opts)
	runSteps(t, o, newParty(t, b, "A"), []step{
		{subject: "$JS.API.INFO"},
		{subject: "$JS.API.INFO", header: level9},
		{subject: "$JS.API.STREAM.CREATE.S", body: `{"name":"S"}`},
		{subject: "$JS.API.STREAM.UPDATE.S", body: `{"name":"S"}`},
		{subject: "$JS.API.STREAM.INFO.S"},
		{subject: "$JS.API.STREAM.LIST"},
		{subject: "$JS.API.STREAM.NAMES"},
		{subject: "$JS.API.STREAM.DELETE.S"},
		{subject: "$JS.API.STREAM.PURGE.S"},
		{subject: "$JS.API.STREAM.MSG.GET.S", body: `{"seq":1}`},
		{subject: "$JS.API.STREAM.MSG.DELETE.S", body: `{"seq":1}`},
		{subject: "$JS.API.CONSUMER.CREATE.S", body: `{"stream_name":"S","config":{"ack_policy":"explicit"}}`},
		{subject: "$JS.API.CONSUMER.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C"}}`},
		{subject: "$JS.API.CONSUMER.DURABLE.CREATE.S.C", body: `{"stream_name":"S","config":{"durable_name":"C"}}`},
		{subject: "$JS.API.CONSUMER.INFO.S.C"},
		{subject: "$JS.API.CONSUMER.LIST.S"},
		{subject: "$JS.API.CONSUMER.NAMES.S"},
		{subject: "$JS.API.CONSUMER.DELETE.S.C"},
		{subject: "$JS.API.CONSUMER.PAUSE.S.C"},
		{subject: "$JS.API.CONSUMER.UNPIN.S.C", body: `{"group":"g"}`},
		{subject: "$JS.API.CONSUMER.MSG.NEXT.S.C"},
		{subject: "$JS.API.DIRECT.GET.S"},
		{subject: "$JS.API.INFO"},
	})
}

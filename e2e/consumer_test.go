package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestConsumerAPI(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `
			STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
			CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"},"action":"create"}
			CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"},"action":"create"}
			CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","ack_wait":5000000000},"action":"create"}
			CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","ack_wait":5000000000},"action":"update"}
			CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"all"},"action":"update"}
			CONSUMER.CREATE.S.X {"stream_name":"S","config":{"durable_name":"X"},"action":"update"}
			CONSUMER.CREATE.S.X {"stream_name":"S","config":{"durable_name":"Y"}}
			CONSUMER.CREATE.S.F.s.a {"stream_name":"S","config":{"durable_name":"F","filter_subject":"s.a","ack_policy":"explicit"}}
			CONSUMER.CREATE.S.F2.s.a {"stream_name":"S","config":{"durable_name":"F2","filter_subject":"s.b","ack_policy":"explicit"}}
			CONSUMER.CREATE.S.F3 {"stream_name":"S","config":{"durable_name":"F3","filter_subjects":["s.a","s.b.*"],"ack_policy":"explicit"}}
			CONSUMER.CREATE.S.F4 {"stream_name":"S","config":{"durable_name":"F4","filter_subjects":["s.a","s.*"],"ack_policy":"explicit"}}
			CONSUMER.CREATE.S.F5 {"stream_name":"S","config":{"durable_name":"F5","filter_subject":"s.a","filter_subjects":["s.b"]}}
			CONSUMER.CREATE.S.P {"stream_name":"S","config":{"durable_name":"P","deliver_subject":"push.p","ack_policy":"none","flow_control":true}}
			CONSUMER.CREATE.S.P {"stream_name":"S","config":{"durable_name":"P","deliver_subject":"push.*","ack_policy":"none"}}
			CONSUMER.CREATE.S.P {"stream_name":"S","config":{"durable_name":"P","deliver_subject":"push.p","ack_policy":"none","max_waiting":5}}
			CONSUMER.CREATE.S.P {"stream_name":"S","config":{"durable_name":"P","deliver_subject":"push.p","ack_policy":"none","flow_control":true,"idle_heartbeat":1000000000}}
			CONSUMER.CREATE.S.Q {"stream_name":"S","config":{"durable_name":"Q","idle_heartbeat":1000000000}}
			CONSUMER.CREATE.S.Q {"stream_name":"S","config":{"durable_name":"Q","deliver_policy":"by_start_sequence"}}
			CONSUMER.CREATE.S.Q {"stream_name":"S","config":{"durable_name":"Q","deliver_policy":"last","opt_start_seq":5}}
			CONSUMER.CREATE.S.Q {"stream_name":"S","config":{"durable_name":"Q","max_deliver":1,"backoff":[1000000000,2000000000]}}
			CONSUMER.CREATE.S.Q {"stream_name":"S","config":{"durable_name":"Q.x"}}
			CONSUMER.CREATE.S {"stream_name":"S","config":{"ack_policy":"explicit","name":"eph"}}
			CONSUMER.CREATE.NONE.C {"stream_name":"NONE","config":{"durable_name":"C"}}
			CONSUMER.CREATE.S.C {"stream_name":"T","config":{"durable_name":"C"}}
			CONSUMER.CREATE.S.C {"bad
			CONSUMER.CREATE.S.C
			CONSUMER.DURABLE.CREATE.S.D {"stream_name":"S","config":{"durable_name":"D","ack_policy":"explicit"}}
			CONSUMER.DURABLE.CREATE.S.D {"stream_name":"S","config":{"ack_policy":"explicit"}}
			CONSUMER.NAMES.S
			CONSUMER.LIST.S
			CONSUMER.INFO.S.C
			CONSUMER.INFO.S.NONE
			CONSUMER.INFO.NONE.C
			CONSUMER.DELETE.S.D
			CONSUMER.DELETE.S.D
			STREAM.INFO.S
		`)
	})
}

func TestWorkQueueRules(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `
			STREAM.CREATE.W {"name":"W","subjects":["w.>"],"retention":"workqueue"}
			CONSUMER.CREATE.W.A {"stream_name":"W","config":{"durable_name":"A"}}
			CONSUMER.CREATE.W.A {"stream_name":"W","config":{"durable_name":"A","ack_policy":"explicit","deliver_policy":"new"}}
			CONSUMER.CREATE.W.A {"stream_name":"W","config":{"durable_name":"A","ack_policy":"explicit","filter_subject":"w.a"}}
			CONSUMER.CREATE.W.B {"stream_name":"W","config":{"durable_name":"B","ack_policy":"explicit"}}
			CONSUMER.CREATE.W.B {"stream_name":"W","config":{"durable_name":"B","ack_policy":"explicit","filter_subject":"w.b"}}
			CONSUMER.CREATE.W.C {"stream_name":"W","config":{"durable_name":"C","ack_policy":"explicit","filter_subject":"w.*"}}
		`)
		publish(t, nc, tr, "w.a 1\nw.b 2\nw.c 3\nw.a 4")
		settle(tr)
		fetchAck(t, nc, tr, "W", "A", `{"batch":2,"expires":2000000000}`, 2, "+ACK")
		fetchAck(t, nc, tr, "W", "B", `{"batch":1}`, 1, "+TERM")
		api(t, nc, tr, `STREAM.INFO.W {"deleted_details":true,"subjects_filter":">"}
			CONSUMER.INFO.W.A
			CONSUMER.INFO.W.B`)
	})
}

// settle waits for nats-server, which counts what is pending a little after the PubAck.
func settle(tr *transcript) { tr.pause(100 * time.Millisecond) }

// fetchAck pulls and records n messages or statuses, and answers each message with ack, confirmed.
func fetchAck(t *testing.T, nc *nats.Conn, tr *transcript, stream, consumer, req string, n int, ack string) {
	t.Helper()
	for _, m := range pull(t, nc, stream, consumer, req, n) {
		tr.Msg("got", m)
		tr.Add("reply %s", scrub(m.Reply))
		if ack == "" || m.Reply == "" {
			continue
		}
		a, err := nc.Request(m.Reply, []byte(ack), 5*time.Second)
		if err != nil {
			tr.Add("ack: %v", err)
			continue
		}
		tr.Add("ack: %q", a.Data)
	}
}

// pull sends a pull request from a fresh inbox and returns up to n answers; a status that ends the request is the last.
func pull(t *testing.T, nc *nats.Conn, stream, consumer, req string, n int) []*nats.Msg {
	t.Helper()
	msgs := make(chan *nats.Msg, 100)
	inbox := nats.NewInbox()
	sub, err := nc.ChanSubscribe(inbox, msgs)
	noErr(t, err)
	defer sub.Unsubscribe()
	noErr(t, nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+stream+"."+consumer, inbox, []byte(req)))
	var got []*nats.Msg
	for len(got) < n {
		select {
		case m := <-msgs:
			got = append(got, m)
			if s := m.Header.Get("Status"); s != "" && s != "100" {
				return got
			}
		case <-time.After(2 * time.Second):
			return got
		}
	}
	return got
}

func TestPull(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `
			STREAM.CREATE.S {"name":"S","subjects":["s.>"]}
			CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","ack_wait":1000000000,"max_deliver":3,"max_waiting":2,"max_batch":50,"max_expires":10000000000}}
			CONSUMER.CREATE.S.H {"stream_name":"S","config":{"durable_name":"H","ack_policy":"none","headers_only":true}}
		`)
		for _, req := range []string{
			`{"batch":1,"no_wait":true}`, `{"batch":1,"expires":100000000}`, `{"batch":1,"expires":1}`, `{"batch":-1}`, `nonsense`,
			`{"batch":51}`, `{"batch":1,"expires":20000000000}`, `{"batch":1,"expires":1000000000,"idle_heartbeat":900000000}`,
			`{"batch":1,"expires":500000000,"idle_heartbeat":200000000}`,
		} {
			for _, m := range pull(t, nc, "S", "C", req, 1) {
				tr.Msg(req, m)
			}
		}
		publish(t, nc, tr, "s.a 1\ns.b 22 K=v\ns.a 333\ns.c 4444\ns.d 55555")
		settle(tr)
		fetchAck(t, nc, tr, "S", "C", "", 1, "+ACK")
		fetchAck(t, nc, tr, "S", "C", "1", 1, "-NAK")
		fetchAck(t, nc, tr, "S", "C", `{"batch":2}`, 2, "+WPI")
		fetchAck(t, nc, tr, "S", "C", `{"batch":5,"no_wait":true}`, 3, "+ACK")
		api(t, nc, tr, "CONSUMER.INFO.S.C")
		tr.pause(1300 * time.Millisecond) // past ack_wait
		fetchAck(t, nc, tr, "S", "C", `{"batch":5,"expires":1000000000}`, 2, "+ACK")
		api(t, nc, tr, "CONSUMER.INFO.S.C")
		fetchAck(t, nc, tr, "S", "H", `{"batch":3}`, 3, "")
		fetchAck(t, nc, tr, "S", "H", `{"batch":3,"max_bytes":10}`, 1, "")
		fetchAck(t, nc, tr, "S", "H", `{"batch":10,"max_bytes":1000,"expires":300000000}`, 3, "")
		api(t, nc, tr, "CONSUMER.INFO.S.H")
		tr.Add("none: %v", func() error { _, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT.S.NONE", nil, time.Second); return err }())
	})
}

func TestDeliverPolicies(t *testing.T) {
	for _, cfg := range []string{
		`"deliver_policy":"all"`, `"deliver_policy":"last"`, `"deliver_policy":"new"`,
		`"deliver_policy":"by_start_sequence","opt_start_seq":4`,
		`"deliver_policy":"last_per_subject","filter_subject":"s.>"`,
		`"deliver_policy":"last","filter_subject":"s.1"`,
		`"filter_subjects":["s.0","s.2"]`, `"deliver_policy":"last_per_subject","filter_subjects":["s.0","s.2"]`,
		`"filter_subject":"s.none"`,
	} {
		t.Run(cfg, func(t *testing.T) {
			compare(t, func(t *testing.T, e endpoint, tr *transcript) {
				nc := connect(t, e.URL)
				api(t, nc, tr, `STREAM.CREATE.S {"name":"S","subjects":["s.*"]}`)
				for i := range 8 {
					publish(t, nc, tr, fmt.Sprintf("s.%d %d", i%3, i))
				}
				api(t, nc, tr, `STREAM.MSG.DELETE.S {"seq":5}
					CONSUMER.CREATE.S.C {"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit",`+cfg+`}}`)
				publish(t, nc, tr, "s.0 late\ns.1 late")
				settle(tr)
				fetchAck(t, nc, tr, "S", "C", `{"batch":3,"no_wait":true}`, 3, "+ACK")
				fetchAck(t, nc, tr, "S", "C", `{"batch":100,"no_wait":true}`, 12, "+ACK")
				api(t, nc, tr, "CONSUMER.INFO.S.C")
			})
		})
	}
}

func TestPushConsumer(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `STREAM.CREATE.S {"name":"S","subjects":["s.*"]}`)
		publish(t, nc, tr, "s.a 1\ns.b 2")
		sub := subscribe(t, nc, "push")
		api(t, nc, tr, `CONSUMER.CREATE.S.P {"stream_name":"S","config":{"durable_name":"P","ack_policy":"explicit","deliver_subject":"push","idle_heartbeat":300000000,"flow_control":true}}`)
		publish(t, nc, tr, "s.c 3")
		for got := 0; got < 3; {
			m := next(t, sub)
			if m.Reply == "" {
				continue // a heartbeat, on a machine that takes so long
			}
			tr.Msg("push", m)
			noErr(t, m.Respond(nil))
			got++
		}
		heartbeat := next(t, sub)
		for heartbeat.Header.Get("Nats-Last-Consumer") != "3" { // one from before the third message
			heartbeat = next(t, sub)
		}
		tr.Msg("push", heartbeat)
		consumerInfo(t, nc, tr, "S", "P", func(i *nats.ConsumerInfo) bool { return i.AckFloor.Stream == 3 })
		noErr(t, sub.Unsubscribe())
		noErr(t, nc.Flush())
		consumerInfo(t, nc, tr, "S", "P", func(i *nats.ConsumerInfo) bool { return !i.PushBound })
	})
}

// consumerInfo asks about a consumer until the answer is as ok says, and records that. Acks and lost interest reach a
// consumer of nats-server through queues of their own: an answer may come before them.
func consumerInfo(t *testing.T, nc *nats.Conn, tr *transcript, stream, consumer string, ok func(*nats.ConsumerInfo) bool) {
	t.Helper()
	call := "$JS.API.CONSUMER.INFO." + stream + "." + consumer
	var answer []byte
	within(t, 10*time.Second, func() error {
		answer = request(t, nc, call, "")
		var info nats.ConsumerInfo
		noErr(t, json.Unmarshal(answer, &info))
		if !ok(&info) {
			return fmt.Errorf("consumer %s stays at %s", consumer, answer)
		}
		return nil
	})
	tr.Raw(call, answer)
}

// Whoever makes a push consumer hears that it exists before its first message.
func TestTheAnswerComesBeforeTheMessages(t *testing.T) {
	nc := connect(t, startGateway(t, t.TempDir()).URL)
	var tr transcript
	api(t, nc, &tr, `STREAM.CREATE.S {"name":"S","subjects":["s"]}`)
	publish(t, nc, &tr, "s 1\ns 2")
	for i := range 20 {
		all := make(chan *nats.Msg, 10)
		for _, subject := range []string{"answer", "push"} {
			sub, err := nc.ChanSubscribe(fmt.Sprint(subject, i), all)
			noErr(t, err)
			defer sub.Unsubscribe()
		}
		noErr(t, nc.PublishRequest("$JS.API.CONSUMER.CREATE.S", fmt.Sprint("answer", i), []byte(fmt.Sprintf(
			`{"stream_name":"S","config":{"ack_policy":"none","deliver_subject":"push%d","mem_storage":%t}}`, i, i%2 == 0))))
		var got []string
		for len(got) < 3 {
			select {
			case m := <-all:
				got = append(got, strings.TrimRight(m.Subject, "0123456789"))
			case <-time.After(5 * time.Second):
				t.Fatalf("only %v came", got)
			}
		}
		if !slices.Equal(got, []string{"answer", "s", "s"}) {
			t.Fatalf("consumer %d: %v", i, got)
		}
	}
}

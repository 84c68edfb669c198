package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// api sends each line "SUBJECT BODY" to $JS.API.SUBJECT and records the answer.
func api(t *testing.T, nc *nats.Conn, tr *transcript, calls string) {
	t.Helper()
	for line := range strings.Lines(calls) {
		subject, body, _ := strings.Cut(strings.TrimSpace(line), " ")
		if subject == "" {
			continue
		}
		tr.Raw(line, request(t, nc, "$JS.API."+subject, body))
	}
}

// publish sends "SUBJECT DATA [HEADER=VALUE ...]" for each line as a request and records the PubAck.
func publish(t *testing.T, nc *nats.Conn, tr *transcript, lines string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		m := nats.NewMsg(f[0])
		if len(f) > 1 {
			m.Data = []byte(f[1])
		}
		for _, h := range f[min(2, len(f)):] {
			k, v, _ := strings.Cut(h, "=")
			m.Header.Add(k, v)
		}
		a, err := nc.RequestMsg(m, 5*time.Second)
		if err != nil {
			tr.Add("%s: %v", strings.TrimSpace(line), err)
			continue
		}
		tr.Add("%s: %s", strings.TrimSpace(line), a.Data) // byte for byte
	}
}

func TestStreamAPI(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `
			STREAM.INFO.NONE
			STREAM.NAMES
			STREAM.LIST
			STREAM.CREATE.A {"name":"A","subjects":["a.>"],"storage":"file"}
			STREAM.CREATE.A {"name":"A","subjects":["a.>"],"storage":"file"}
			STREAM.CREATE.A {"name":"A","subjects":["a.*"],"storage":"file"}
			STREAM.CREATE.B {"name":"A","subjects":["b"]}
			STREAM.CREATE.B {"name":"B","subjects":["a.b"]}
			STREAM.CREATE.B {"name":"B","subjects":["b..c"]}
			STREAM.CREATE.B {"name":"B","subjects":["b","b"]}
			STREAM.CREATE.B {"name":"B","nonsense":1}
			STREAM.CREATE.B {"name":
			STREAM.CREATE.B
			STREAM.CREATE.B {"name":"B","num_replicas":3}
			STREAM.CREATE.B {"name":"B","retention":"interest","max_age":1}
			STREAM.CREATE.B {"name":"B","storage":"memory","max_msgs":10,"discard":"new","description":"d","metadata":{"k":"v"}}
			STREAM.CREATE.D_E {"name":"D E"}
			STREAM.NAMES {"subject":"a.b.c"}
			STREAM.NAMES
			STREAM.NAMES {"offset":1}
			STREAM.LIST
			STREAM.INFO.A
			STREAM.INFO.B {}
			STREAM.UPDATE.A {"name":"A","subjects":["a.>","x"],"storage":"file","max_msgs":5}
			STREAM.UPDATE.A {"name":"A","subjects":["a.>"],"storage":"memory"}
			STREAM.UPDATE.A {"name":"A","subjects":["a.>","b.>","B"]}
			STREAM.UPDATE.C {"name":"C"}
			STREAM.PURGE.A
			STREAM.PURGE.A {"seq":1,"keep":2}
			STREAM.PURGE.NONE
			STREAM.MSG.GET.A {"seq":1}
			STREAM.MSG.GET.A {"last_by_subj":"a.b"}
			STREAM.MSG.GET.A {}
			STREAM.MSG.GET.A
			STREAM.MSG.DELETE.A {"seq":7}
			STREAM.MSG.DELETE.NONE {"seq":7}
			STREAM.DELETE.B
			STREAM.DELETE.B
			STREAM.DELETE.A {"x":1}
			STREAM.INFO.A
			STREAM.DELETE.A
			INFO
		`)
	})
}

func TestPublish(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `STREAM.CREATE.P {"name":"P","subjects":["p.>"],"allow_rollup_hdrs":true,"max_msg_size":100,"duplicate_window":60000000000}`)
		publish(t, nc, tr, `
			p.a one
			p.a two Nats-Msg-Id=x
			p.a again Nats-Msg-Id=x
			p.b three Nats-Expected-Stream=P
			p.b three Nats-Expected-Stream=Q
			p.b four Nats-Expected-Last-Sequence=3
			p.b four Nats-Expected-Last-Sequence=3
			p.b five Nats-Expected-Last-Subject-Sequence=4
			p.b five Nats-Expected-Last-Subject-Sequence=4
			p.c new Nats-Expected-Last-Subject-Sequence=0
			p.c new Nats-Expected-Last-Subject-Sequence=0
			p.d x Nats-Expected-Last-Subject-Sequence=6 Nats-Expected-Last-Subject-Sequence-Subject=p.c
			p.d x Nats-Expected-Last-Subject-Sequence-Subject=p.c
			p.e x Nats-Expected-Last-Msg-Id=x
			p.e x Nats-Msg-Id=y
			p.e x Nats-Expected-Last-Msg-Id=y
			p.b roll Nats-Rollup=sub
			p.b roll Nats-Rollup=nonsense
			p.e ttl Nats-TTL=1s
			p.e `+strings.Repeat("x", 101)+`
			nobody.home x
		`)
		api(t, nc, tr, `
			STREAM.INFO.P {"deleted_details":true,"subjects_filter":">"}
			STREAM.MSG.GET.P {"seq":2}
			STREAM.MSG.GET.P {"last_by_subj":"p.b"}
			STREAM.MSG.GET.P {"next_by_subj":"p.*","seq":3}
			STREAM.MSG.DELETE.P {"seq":2}
			STREAM.MSG.DELETE.P {"seq":2}
			STREAM.MSG.GET.P {"seq":2}
			STREAM.MSG.GET.P {"seq":200}
			STREAM.PURGE.P {"filter":"p.b"}
			STREAM.PURGE.P {"keep":1}
			STREAM.INFO.P {"deleted_details":true,"subjects_filter":">"}
			STREAM.PURGE.P {"seq":100}
			STREAM.INFO.P
		`)
		publish(t, nc, tr, "p.z all Nats-Rollup=all\np.z more")
		api(t, nc, tr, "STREAM.INFO.P")
	})
}

func TestStreamLimits(t *testing.T) {
	for _, cfg := range []string{
		`"max_msgs":3`, `"max_msgs":3,"discard":"new"`, `"max_bytes":200`, `"max_bytes":200,"discard":"new"`,
		`"max_msgs_per_subject":2`, `"max_msgs_per_subject":2,"discard":"new","discard_new_per_subject":true`,
		`"max_msgs":3,"storage":"memory"`, `"max_bytes":200,"storage":"memory"`, `"retention":"workqueue","max_msgs":3`,
		`"retention":"interest"`, `"no_ack":true`, `"first_seq":100`,
	} {
		t.Run(cfg, func(t *testing.T) {
			compare(t, func(t *testing.T, e endpoint, tr *transcript) {
				nc := connect(t, e.URL, nats.Timeout(time.Second))
				api(t, nc, tr, `STREAM.CREATE.L {"name":"L","subjects":["l.*"],`+cfg+`}`)
				for i := range 8 {
					if strings.Contains(cfg, "no_ack") {
						noErr(t, nc.Publish("l.a", nil))
						continue
					}
					publish(t, nc, tr, fmt.Sprintf("l.%d message-%d", i%2, i))
				}
				noErr(t, nc.Flush())
				settle(tr)
				api(t, nc, tr, `STREAM.INFO.L {"deleted_details":true,"subjects_filter":">"}`)
			})
		})
	}
}

// TestDirectGetOfTooMany: a multi_last of more subjects than NATS answers for.
func TestDirectGetOfTooMany(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `STREAM.CREATE.G {"name":"G","subjects":["g.>"],"allow_direct":true}`)
		for i := range 1025 {
			noErr(t, nc.Publish(fmt.Sprint("g.", i), nil))
		}
		_, err := nc.Request("g.0", nil, 10*time.Second) // all are stored then
		noErr(t, err)
		for _, body := range []string{`{"multi_last":["g.>"]}`, `{"multi_last":["g.>"],"batch":5}`, `{"multi_last":["g.*"],"up_to_seq":1000}`} {
			m, err := nc.Request("$JS.API.DIRECT.GET.G", []byte(body), 2*time.Second)
			noErr(t, err)
			tr.Add("%s: %s %s", body, m.Header.Get("Status"), m.Header.Get("Description"))
		}
	})
}

func TestDirectGet(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `STREAM.CREATE.G {"name":"G","subjects":["g.>"],"allow_direct":true}`)
		publish(t, nc, tr, "g.a 1\ng.b 2 K=v\ng.a 3\ng.c 4")
		for _, c := range []string{
			`DIRECT.GET.G {"seq":2}`, `DIRECT.GET.G {"last_by_subj":"g.a"}`, `DIRECT.GET.G {"next_by_subj":"g.c","seq":1}`,
			`DIRECT.GET.G {"seq":99}`, `DIRECT.GET.G {}`, `DIRECT.GET.G`, `DIRECT.GET.G nonsense`, `DIRECT.GET.G.g.a `,
			`DIRECT.GET.G.g.none `, `DIRECT.GET.NONE {"seq":1}`, `DIRECT.GET.G {"next_by_subj":"g.a"}`,
		} {
			subject, body, _ := strings.Cut(c, " ")
			m, err := nc.Request("$JS.API."+subject, []byte(body), 2*time.Second)
			if err != nil {
				tr.Add("%s: %v", c, err)
				continue
			}
			tr.Msg(c, m)
		}
	})
}

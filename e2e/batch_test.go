package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// batchCase creates a stream called S, publishes and records the answers, and then what is stored.
type batchCase struct {
	name, config, publish string
}

var atomicCases = []batchCase{
	{"commit", `"allow_atomic":true`, `
		s.a one Nats-Batch-Id=x Nats-Batch-Sequence=1
		s.b two Nats-Batch-Id=x Nats-Batch-Sequence=2
		s.c three Nats-Batch-Id=x Nats-Batch-Sequence=3 Nats-Batch-Commit=1
		s.d after
		s.a one Nats-Batch-Id=x Nats-Batch-Sequence=1 Nats-Batch-Commit=1
	`},
	{"end of batch", `"allow_atomic":true`, `
		s.a one Nats-Batch-Id=x Nats-Batch-Sequence=1 H=v
		s.b two Nats-Batch-Id=x Nats-Batch-Sequence=2
		s.c gone Nats-Batch-Id=x Nats-Batch-Sequence=3 Nats-Batch-Commit=eob
		s.a one Nats-Batch-Id=y Nats-Batch-Sequence=1 Nats-Batch-Commit=eob
		s.a one Nats-Batch-Id=z Nats-Batch-Sequence=1
		s.b two Nats-Batch-Id=z Nats-Batch-Sequence=2 Nats-Batch-Commit=EOB
		s.b two Nats-Batch-Id=z Nats-Batch-Sequence=3 Nats-Batch-Commit=1
	`},
	{"refused", `"allow_atomic":true,"max_msg_size":300`, fmt.Sprintf(`
		s.a one Nats-Batch-Id=x
		s.a one Nats-Batch-Id=x Nats-Batch-Sequence=
		s.a one Nats-Batch-Id=x Nats-Batch-Sequence=one
		s.a one Nats-Batch-Id=x Nats-Batch-Sequence=0
		s.a one Nats-Batch-Id=x Nats-Batch-Sequence=2
		s.a one Nats-Batch-Id=x Nats-Batch-Sequence=1001
		s.a one Nats-Batch-Id=x Nats-Batch-Sequence=1001 Nats-Batch-Commit=eob
		s.a one Nats-Batch-Id=%s Nats-Batch-Sequence=1
		s.a one Nats-Batch-Id=%s Nats-Batch-Sequence=1
		s.a one Nats-Batch-Id=gap Nats-Batch-Sequence=1
		s.a one Nats-Batch-Id=gap Nats-Batch-Sequence=3
		s.a one Nats-Batch-Id=gap Nats-Batch-Sequence=2 Nats-Batch-Commit=1
		s.a one Nats-Batch-Id=twice Nats-Batch-Sequence=1
		s.a one Nats-Batch-Id=twice Nats-Batch-Sequence=1
		s.a one Nats-Batch-Id=commit Nats-Batch-Sequence=1 Nats-Batch-Commit=
		s.a one Nats-Batch-Id=commit Nats-Batch-Sequence=1 Nats-Batch-Commit=2
		s.a one Nats-Batch-Id=level Nats-Batch-Sequence=1 Nats-Required-Api-Level=3
		s.a one Nats-Batch-Id=level Nats-Batch-Sequence=2 Nats-Required-Api-Level=99
		s.a one Nats-Batch-Id=level Nats-Batch-Sequence=3
		s.a %s Nats-Batch-Id=big Nats-Batch-Sequence=1
		s.a one Nats-Batch-Id=last Nats-Batch-Sequence=1 Nats-Expected-Last-Msg-Id=x
		s.a one Nats-Batch-Id=last Nats-Batch-Sequence=2 Nats-Batch-Commit=1
	`, strings.Repeat("i", 64), strings.Repeat("i", 65), strings.Repeat("x", 301))},
	{"disabled", `"max_msgs":100`, `
		s.a one Nats-Batch-Id=x Nats-Batch-Sequence=1
		s.a one Nats-Batch-Id=x
		s.a one Nats-Batch-Id=
	`},
	{"expected", `"allow_atomic":true`, `
		s.a first
		s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=1 Nats-Expected-Last-Sequence=1 Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=b Nats-Batch-Sequence=1 Nats-Expected-Last-Sequence=1 Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=c Nats-Batch-Sequence=1 Nats-Expected-Last-Sequence=2
		s.a 2 Nats-Batch-Id=c Nats-Batch-Sequence=2 Nats-Expected-Last-Sequence=3 Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=c Nats-Batch-Sequence=1
		s.a 2 Nats-Batch-Id=c Nats-Batch-Sequence=2 Nats-Expected-Last-Sequence=2 Nats-Batch-Commit=1
		s.b 1 Nats-Batch-Id=d Nats-Batch-Sequence=1 Nats-Expected-Last-Subject-Sequence=0
		s.a 2 Nats-Batch-Id=d Nats-Batch-Sequence=2 Nats-Expected-Last-Subject-Sequence=2
		s.c 3 Nats-Batch-Id=d Nats-Batch-Sequence=3 Nats-Expected-Last-Subject-Sequence=0 Nats-Batch-Commit=1
		s.b 1 Nats-Batch-Id=e Nats-Batch-Sequence=1 Nats-Expected-Last-Subject-Sequence=3
		s.b 2 Nats-Batch-Id=e Nats-Batch-Sequence=2 Nats-Expected-Last-Subject-Sequence=3 Nats-Batch-Commit=1
		s.b 1 Nats-Batch-Id=f Nats-Batch-Sequence=1 Nats-Expected-Last-Subject-Sequence=9 Nats-Batch-Commit=1
		s.x 1 Nats-Batch-Id=g Nats-Batch-Sequence=1 Nats-Expected-Last-Subject-Sequence=3 Nats-Expected-Last-Subject-Sequence-Subject=s.b
		s.y 2 Nats-Batch-Id=g Nats-Batch-Sequence=2 Nats-Expected-Last-Subject-Sequence=3 Nats-Expected-Last-Subject-Sequence-Subject=s.b Nats-Batch-Commit=1
		s.x 1 Nats-Batch-Id=h Nats-Batch-Sequence=1 Nats-Expected-Last-Subject-Sequence-Subject=s.b Nats-Batch-Commit=1
		s.x 1 Nats-Batch-Id=i Nats-Batch-Sequence=1 Nats-Expected-Stream=T Nats-Batch-Commit=1
		s.x 1 Nats-Batch-Id=i Nats-Batch-Sequence=1 Nats-Expected-Stream=S Nats-Batch-Commit=1
	`},
	{"message ids", `"allow_atomic":true`, `
		s.a first Nats-Msg-Id=i1
		s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=1 Nats-Msg-Id=i2
		s.a 2 Nats-Batch-Id=a Nats-Batch-Sequence=2 Nats-Msg-Id=i3 Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=b Nats-Batch-Sequence=1 Nats-Msg-Id=i4
		s.a 2 Nats-Batch-Id=b Nats-Batch-Sequence=2 Nats-Msg-Id=i4 Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=c Nats-Batch-Sequence=1 Nats-Msg-Id=i5
		s.a 2 Nats-Batch-Id=c Nats-Batch-Sequence=2 Nats-Msg-Id=i1 Nats-Batch-Commit=1
		s.a again Nats-Msg-Id=i3
		s.a again Nats-Msg-Id=i5
		s.a next Nats-Expected-Last-Msg-Id=i5
	`},
	{"headers", `"allow_atomic":true,"allow_msg_ttl":true,"allow_rollup_hdrs":true`, `
		s.a 0
		s.b 0
		s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=1 Nats-TTL=1h
		s.a 2 Nats-Batch-Id=a Nats-Batch-Sequence=2 Nats-TTL=never Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=b Nats-Batch-Sequence=1 Nats-TTL=soon Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=c Nats-Batch-Sequence=1 Nats-Rollup=sub
		s.a 2 Nats-Batch-Id=c Nats-Batch-Sequence=2
		s.b 3 Nats-Batch-Id=c Nats-Batch-Sequence=3 Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=d Nats-Batch-Sequence=1
		s.a 2 Nats-Batch-Id=d Nats-Batch-Sequence=2 Nats-Rollup=sub Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=e Nats-Batch-Sequence=1
		s.b 2 Nats-Batch-Id=e Nats-Batch-Sequence=2 Nats-Rollup=all Nats-Batch-Commit=1
		s.b 1 Nats-Batch-Id=f Nats-Batch-Sequence=1 Nats-Rollup=none Nats-Batch-Commit=1
		s.b 1 Nats-Batch-Id=g Nats-Batch-Sequence=1 Nats-Incr=1 Nats-Batch-Commit=1
		s.b 1 Nats-Batch-Id=h Nats-Batch-Sequence=1 Nats-Schedule=@every_1s Nats-Batch-Commit=1
		s.b 1 Nats-Batch-Id=i Nats-Batch-Sequence=1 Nats-Stream-Source=x Nats-Batch-Commit=1
		s.c 1 Nats-Batch-Id=j Nats-Batch-Sequence=1 Nats-Rollup=all
		s.c 2 Nats-Batch-Id=j Nats-Batch-Sequence=2 Nats-Batch-Commit=1
	`},
	{"no rollup", `"allow_atomic":true`, `
		s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=1 Nats-Rollup=sub Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=b Nats-Batch-Sequence=1 Nats-TTL=1h Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=b Nats-Batch-Sequence=1 Nats-TTL=0 Nats-Batch-Commit=1
	`},
	{"counters", `"allow_atomic":true,"allow_msg_counter":true`, `
		s.a - Nats-Incr=1
		s.a - Nats-Batch-Id=a Nats-Batch-Sequence=1 Nats-Incr=2 Nats-Batch-Commit=1
	`},
	{"a limit for each subject", `"allow_atomic":true,"max_msgs_per_subject":2,"max_msgs":5`, `
		s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=1
		s.a 2 Nats-Batch-Id=a Nats-Batch-Sequence=2
		s.a 3 Nats-Batch-Id=a Nats-Batch-Sequence=3 Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=b Nats-Batch-Sequence=1
		s.b 2 Nats-Batch-Id=b Nats-Batch-Sequence=2
		s.c 3 Nats-Batch-Id=b Nats-Batch-Sequence=3
		s.d 4 Nats-Batch-Id=b Nats-Batch-Sequence=4
		s.e 5 Nats-Batch-Id=b Nats-Batch-Sequence=5 Nats-Batch-Commit=1
	`},
	{"discard new", `"allow_atomic":true,"max_msgs":3,"discard":"new"`, `
		s.a 1
		s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=1
		s.a 2 Nats-Batch-Id=a Nats-Batch-Sequence=2
		s.a 3 Nats-Batch-Id=a Nats-Batch-Sequence=3 Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=b Nats-Batch-Sequence=1
		s.a 2 Nats-Batch-Id=b Nats-Batch-Sequence=2 Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=c Nats-Batch-Sequence=1 Nats-Batch-Commit=1
	`},
	{"discard new bytes", `"allow_atomic":true,"max_bytes":300,"discard":"new","allow_rollup_hdrs":true`, `
		s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=1
		s.a 2 Nats-Batch-Id=a Nats-Batch-Sequence=2
		s.a 3 Nats-Batch-Id=a Nats-Batch-Sequence=3 Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=b Nats-Batch-Sequence=1 Nats-Batch-Commit=1
	`},
	{"discard new per subject", `"allow_atomic":true,"max_msgs_per_subject":2,"discard":"new","discard_new_per_subject":true,"allow_rollup_hdrs":true`, `
		s.a 1
		s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=1
		s.a 2 Nats-Batch-Id=a Nats-Batch-Sequence=2 Nats-Batch-Commit=1
		s.a 1 Nats-Batch-Id=b Nats-Batch-Sequence=1 Nats-Rollup=sub Nats-Batch-Commit=1
	`},
	{"no acks", `"allow_atomic":true,"no_ack":true`, `
		s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=1 Nats-Batch-Commit=1
	`},
	{"no interest", `"allow_atomic":true,"retention":"interest"`, `
		s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=1
		s.b 2 Nats-Batch-Id=a Nats-Batch-Sequence=2 Nats-Msg-Id=i Nats-Batch-Commit=1
		s.b 2 Nats-Msg-Id=i
	`},
	{"in memory, with a transform", `"allow_atomic":true,"storage":"memory","subject_transform":{"src":"s.*","dest":"t.{{wildcard(1)}}"}`, `
		s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=1
		s.b 2 Nats-Batch-Id=a Nats-Batch-Sequence=2 Nats-Expected-Last-Subject-Sequence=0 Nats-Batch-Commit=1
		s.b 2 Nats-Batch-Id=b Nats-Batch-Sequence=1 Nats-Expected-Last-Subject-Sequence=2 Nats-Batch-Commit=1
	`},
	{"sealed", `"allow_atomic":true,"sealed":true`, `
		s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=1
	`},
}

func TestAtomicBatch(t *testing.T) {
	for _, c := range atomicCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			compare(t, func(t *testing.T, e endpoint, tr *transcript) {
				nc := connect(t, e.URL)
				abandoned, err := nc.SubscribeSync("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>")
				noErr(t, err)
				api(t, nc, tr, `STREAM.CREATE.S {"name":"S","subjects":["s.>"],`+c.config+`}`)
				if c.name == "no acks" {
					publishUnanswered(t, nc, tr, c.publish)
				} else {
					publish(t, nc, tr, c.publish)
				}
				recordStored(t, nc, tr)
				recordAdvisories(t, tr, abandoned)
			})
		})
	}
}

func publishUnanswered(t *testing.T, nc *nats.Conn, tr *transcript, lines string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		if f := strings.Fields(line); len(f) > 0 {
			noErr(t, nc.PublishMsg(message(f)))
		}
	}
	noErr(t, nc.Flush())
	tr.pause(200 * time.Millisecond)
}

// message makes "SUBJECT DATA [HEADER=VALUE ...]".
func message(f []string) *nats.Msg {
	m := nats.NewMsg(f[0])
	m.Data = []byte(f[1])
	for _, h := range f[2:] {
		k, v, _ := strings.Cut(h, "=")
		m.Header.Add(k, v)
	}
	return m
}

// recordStored records the state of stream S and all its messages.
func recordStored(t *testing.T, nc *nats.Conn, tr *transcript) {
	t.Helper()
	api(t, nc, tr, "STREAM.INFO.S")
	js, err := nc.JetStream()
	noErr(t, err)
	for seq := uint64(1); seq <= 30; seq++ {
		if m, err := js.GetMsg("S", seq); err == nil { // the client writes headers in any order
			tr.Msg(fmt.Sprint(seq), &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data})
		}
	}
}

func recordAdvisories(t *testing.T, tr *transcript, sub *nats.Subscription) {
	t.Helper()
	for {
		m, err := sub.NextMsg(tr.patience(300 * time.Millisecond))
		if err != nil {
			return
		}
		tr.Raw(m.Subject, m.Data)
	}
}

func TestAtomicBatchConfig(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `
			STREAM.CREATE.A {"name":"A","subjects":["a"],"allow_atomic":true,"allow_batched":true}
			STREAM.CREATE.B {"name":"B","subjects":["b"],"allow_atomic":true,"persist_mode":"async"}
			STREAM.CREATE.C {"name":"C","mirror":{"name":"A"},"allow_atomic":true}
			STREAM.CREATE.C {"name":"C","mirror":{"name":"A"},"allow_batched":true}
			STREAM.INFO.A
			STREAM.UPDATE.A {"name":"A","subjects":["a"]}
			STREAM.UPDATE.A {"name":"A","subjects":["a"],"allow_batched":true}
		`)
		publish(t, nc, tr, `a 1 Nats-Batch-Id=x Nats-Batch-Sequence=1 Nats-Batch-Commit=1`)
	})
}

// batchLimits are small, so that a test reaches them.
const batchLimits = `
	jetstream { limits { batch { max_inflight_per_stream: 2, max_inflight_total: 3, max_msgs: 3, timeout: "1s" } } }
`

func TestAtomicBatchLimits(t *testing.T) {
	compareWith(t, batchLimits, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		abandoned, err := nc.SubscribeSync("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>")
		noErr(t, err)
		api(t, nc, tr, `
			STREAM.CREATE.S {"name":"S","subjects":["s.>"],"allow_atomic":true}
			STREAM.CREATE.T {"name":"T","subjects":["t.>"],"allow_atomic":true}
		`)
		publish(t, nc, tr, `
			s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=1
			s.a 2 Nats-Batch-Id=b Nats-Batch-Sequence=1
			s.a 3 Nats-Batch-Id=c Nats-Batch-Sequence=1
			t.a 4 Nats-Batch-Id=a Nats-Batch-Sequence=1
			t.a 5 Nats-Batch-Id=d Nats-Batch-Sequence=1
			s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=2
			s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=3
			s.a 1 Nats-Batch-Id=a Nats-Batch-Sequence=4 Nats-Batch-Commit=1
			t.a 6 Nats-Batch-Id=d Nats-Batch-Sequence=1
			t.a 6 Nats-Batch-Id=d Nats-Batch-Sequence=2
			t.a 6 Nats-Batch-Id=d Nats-Batch-Sequence=3
			t.a 6 Nats-Batch-Id=d Nats-Batch-Sequence=4 Nats-Batch-Commit=eob
		`)
		recordAdvisories(t, tr, abandoned)
		time.Sleep(1500 * time.Millisecond)
		recordSorted(t, tr, abandoned)
		publish(t, nc, tr, `
			s.a 2 Nats-Batch-Id=b Nats-Batch-Sequence=2 Nats-Batch-Commit=1
			s.a 1 Nats-Batch-Id=x Nats-Batch-Sequence=1
			s.a 2 Nats-Batch-Id=y Nats-Batch-Sequence=1
			s.a 2 Nats-Batch-Id=x Nats-Batch-Sequence=2 Nats-Batch-Commit=1
		`)
		recordStored(t, nc, tr)
	})
}

// recordSorted records advisories that come in no order.
func recordSorted(t *testing.T, tr *transcript, sub *nats.Subscription) {
	t.Helper()
	n := len(tr.lines)
	recordAdvisories(t, tr, sub)
	slices.Sort(tr.lines[n:])
}

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// fastCases publish "SUBJECT DATA ID.FLOW.GAP.SEQ.OP [HEADER=VALUE ...]" with the third word in the reply subject.
var fastCases = []batchCase{
	{"commit", `"allow_batched":true`, `
		s.a 1 b.2.fail.1.0
		s.a 2 b.2.fail.2.1
		s.a 3 b.2.fail.3.1
		s.a 4 b.2.fail.4.1
		s.a 5 b.2.fail.5.2
		s.a 6 b.2.fail.6.1
	`},
	{"at once", `"allow_batched":true`, `
		s.a 1 b.10.fail.1.2
		s.a 1 b.10.ok.1.2
	`},
	{"end of batch", `"allow_batched":true`, `
		s.a 1 b.10.fail.1.0
		s.a 2 b.10.fail.2.1
		s.a x b.10.fail.3.3
		s.a x b.10.fail.1.3
	`},
	{"a gap ends it", `"allow_batched":true`, `
		s.a 1 b.10.fail.1.0
		s.a 2 b.10.fail.2.1
		s.a 4 b.10.fail.4.1
		s.a 5 b.10.fail.5.1
	`},
	{"a gap is allowed", `"allow_batched":true`, `
		s.a 1 b.2.ok.1.0
		s.a 3 b.2.ok.3.1
		s.a 4 b.2.ok.4.1
		s.a 8 b.2.ok.8.1
		s.a 9 b.2.ok.10.2
	`},
	{"a gap before the end of batch", `"allow_batched":true`, `
		s.a 1 b.2.ok.1.0
		s.a 3 b.2.ok.4.3
		s.a 1 c.2.fail.1.0
		s.a 3 c.2.fail.4.3
	`},
	{"backwards", `"allow_batched":true`, `
		s.a 1 b.10.fail.1.0
		s.a 2 b.10.fail.2.1
		s.a 2 b.10.fail.2.1
		s.a 1 c.10.ok.1.0
		s.a 2 c.10.ok.2.1
		s.a 2 c.10.ok.2.1
		s.a 3 c.10.ok.3.1
	`},
	{"pings", `"allow_batched":true`, `
		s.a x b.5.fail.1.4
		s.a 1 b.5.fail.1.0
		s.a x b.5.fail.1.4
		s.a 2 b.5.fail.2.1
		s.a x b.5.fail.1.4
		s.a x b.5.fail.4.4
		s.a 3 b.5.fail.3.1
		s.a 1 c.2.ok.1.0
		s.a x c.2.ok.4.4
		s.a 5 c.2.ok.5.1
		s.a 6 c.2.ok.6.2
	`},
	{"malformed", `"allow_batched":true`, `
		s.a 1 b
		s.a 1 b.10.fail.1.5
		s.a 1 b.10.fail.1.x
		s.a 1 b.10.fail.0.0
		s.a 1 b.10.fail.-1.0
		s.a 1 b.10.fail.2.0
		s.a 1 b.10.fail.1.1
		s.a 1 b.10.maybe.1.0
		s.a 1 b.10.fail.18446744073709551615.1
		s.a 1 b.10.fail.7.1
		s.a 1 b.x.fail.1.0
		s.a 2 b.x.fail.2.2
		s.a 1 c.-1.fail.1.0
		s.a 2 c.99999999.fail.2.2
		s.a 1 ` + strings.Repeat("i", 65) + `.10.fail.1.0
	`},
	{"disabled", `"allow_atomic":true`, `
		s.a 1 b.10.fail.1.0
		s.a 1 b
	`},
	{"errors where nothing may be missing", `"allow_batched":true,"allow_msg_ttl":true`, `
		s.a 1 b.10.fail.1.0 Nats-Expected-Last-Sequence=7
		s.a 1 b.10.fail.1.0 Nats-Expected-Last-Sequence=0
		s.a 2 b.10.fail.2.1 Nats-Expected-Last-Sequence=1
		s.a 3 b.10.fail.3.1 Nats-Expected-Last-Sequence=1
		s.a 4 b.10.fail.4.1
		s.a 1 c.10.fail.1.0
		s.a 2 c.10.fail.2.2 Nats-Rollup=sub
		s.a 1 d.10.fail.1.0 Nats-TTL=1h
		s.a 2 d.10.fail.2.2 Nats-TTL=soon
		s.a 1 e.10.fail.1.0 Nats-Required-Api-Level=2
		s.a 1 e.10.fail.2.1 Nats-Required-Api-Level=99
		s.a 1 e.10.fail.3.1
	`},
	{"errors where something may be missing", `"allow_batched":true`, `
		s.a 1 b.10.ok.1.0 Nats-Expected-Last-Sequence=7
		s.a 2 b.10.ok.2.1
		s.a 3 b.10.ok.3.1 Nats-Expected-Last-Subject-Sequence=7
		s.a 4 b.10.ok.4.2 Nats-Expected-Stream=T
		s.a 1 c.10.ok.1.0
		s.a 2 c.10.ok.2.1 Nats-Expected-Stream=T
		s.a x c.10.ok.3.3
	`},
	{"message ids", `"allow_batched":true`, `
		s.a 1 b.2.fail.1.0 Nats-Msg-Id=i
		s.a 2 b.2.fail.2.1 Nats-Msg-Id=i
		s.a 3 b.2.fail.3.1 Nats-Msg-Id=j
		s.a 4 b.2.fail.4.2 Nats-Msg-Id=j
		s.a 1 c.2.fail.1.2 Nats-Msg-Id=j
		s.a 1 d.2.ok.1.2 Nats-Msg-Id=j
	`},
	{"several at once", `"allow_batched":true`, `
		s.a 1 b.4.fail.1.0
		s.a 1 c.4.fail.1.0
		s.a 2 c.4.fail.2.1
		s.a 3 c.4.fail.3.1
		s.a 4 c.4.fail.4.1
		s.a 5 c.4.fail.5.1
		s.a 6 c.4.fail.6.1
		s.a 7 c.4.fail.7.1
		s.a 8 c.4.fail.8.2
		s.a 2 b.4.fail.2.2
	`},
	{"counters", `"allow_batched":true,"allow_msg_counter":true`, `
		s.a - b.4.fail.1.0 Nats-Incr=2
		s.a - b.4.fail.2.1 Nats-Incr=3
		s.a - b.4.fail.3.1
	`},
	{"discard new", `"allow_batched":true,"discard":"new","max_msgs":2`, `
		s.a 1 b.4.fail.1.0
		s.a 2 b.4.fail.2.1
		s.a 3 b.4.fail.3.1
		s.a 1 c.4.fail.1.0
		s.a 1 d.4.ok.1.0
		s.a 2 d.4.ok.2.2
	`},
	{"no interest, no ack", `"allow_batched":true,"retention":"interest","no_ack":true`, `
		s.a 1 b.1.fail.1.0
		s.a 2 b.1.fail.2.1
		s.a 3 b.1.fail.3.2
		s.a 3 c.1.fail.3.2
	`},
	{"sealed", `"allow_batched":true,"sealed":true`, `
		s.a 1 b.1.fail.1.0
	`},
}

func TestFastBatch(t *testing.T) {
	for _, c := range fastCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			compare(t, func(t *testing.T, e endpoint, tr *transcript) {
				nc := connect(t, e.URL)
				api(t, nc, tr, `STREAM.CREATE.S {"name":"S","subjects":["s.>"],`+c.config+`}`)
				publishFast(t, nc, tr, c.publish)
				recordStored(t, nc, tr)
			})
		})
	}
}

// publishFast publishes the lines and records, behind each, what the server says to it.
func publishFast(t *testing.T, nc *nats.Conn, tr *transcript, lines string) {
	t.Helper()
	answers, err := nc.SubscribeSync("fast.>")
	noErr(t, err)
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		m := message(append([]string{f[0], f[1]}, f[3:]...))
		m.Reply = "fast." + f[2] + ".$FI"
		noErr(t, nc.PublishMsg(m))
		tr.Add("%s", strings.TrimSpace(line))
		for {
			a, err := answers.NextMsg(tr.patience(150 * time.Millisecond))
			if err != nil {
				break
			}
			tr.Add("\t%s: %s", a.Subject, a.Data)
		}
	}
}

func TestFastBatchLimits(t *testing.T) {
	compareWith(t, batchLimits, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `
			STREAM.CREATE.S {"name":"S","subjects":["s.>"],"allow_batched":true}
			STREAM.CREATE.T {"name":"T","subjects":["t.>"],"allow_batched":true}
		`)
		publishFast(t, nc, tr, `
			s.a 1 a.9.fail.1.0
			s.a 1 b.9.fail.1.0
			s.a 1 c.9.fail.1.0
			t.a 1 d.9.fail.1.0
			t.a 1 e.9.fail.1.0
			s.a 2 a.9.fail.2.2
		`)
		time.Sleep(1500 * time.Millisecond)
		publishFast(t, nc, tr, `
			s.a 2 b.9.fail.2.1
			t.a 2 d.9.fail.2.4
			t.a 1 f.9.fail.1.0
		`)
		recordStored(t, nc, tr)
	})
}

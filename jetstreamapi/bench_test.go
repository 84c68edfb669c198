package jetstreamapi

import (
	"fmt"
	"testing"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// BenchmarkDispatchNext measures the way of a pull request from Deliver into the consumer's mailbox.
func BenchmarkDispatch(b *testing.B) {
	router := bus.NewRouter()
	s := startService(b, testOptions(router, ""))
	p := newParty(b, router, "$G")
	p.must(b, nil, "$JS.API.STREAM.CREATE.S", `{"name":"S"}`)
	p.must(b, nil, "$JS.API.CONSUMER.CREATE.S.C", `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`)
	c := s.account("$G").streams["S"].consumers["C"]
	ack := []bus.Delivery{{
		Sub: &bus.Subscription{SID: []byte(sidAck + "0")},
		Msg: bus.Msg{Subject: []byte("$JS.ACK.S.C.1.1.1.1700000000000000000.0"), Data: []byte("+ACK")},
	}}
	b.ReportAllocs()
	for b.Loop() {
		if stall := c.Deliver(ack); stall != nil {
			<-stall
		}
	}
}

// BenchmarkDirectGet measures a direct get by subject, from the request to its answer.
func BenchmarkDirectGet(b *testing.B) {
	router := bus.NewRouter()
	startService(b, testOptions(router, ""))
	p := newParty(b, router, "$G")
	p.must(b, nil, "$JS.API.STREAM.CREATE.KV", `{"name":"KV","subjects":["kv.>"],"allow_direct":true}`)
	for i := range 1000 {
		p.must(b, nil, fmt.Sprint("kv.", i), "value")
	}
	got := p.listen("_INBOX.direct")
	m := bus.Msg{Subject: []byte("$JS.API.DIRECT.GET.KV.kv.7"), Reply: []byte("_INBOX.direct")}
	b.ReportAllocs()
	for b.Loop() {
		p.session.Publish(&m)
		p.session.Flush()
		<-got
	}
}

package jetstreamapi

import (
	"fmt"
	"testing"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/storage/vfs"
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

// BenchmarkStart measures a start with 2,000 streams of one consumer each, after a graceful stop.
func BenchmarkStart(b *testing.B) {
	const streams = 2000
	fs := vfs.NewMem()
	options := func(router bus.Bus) Options {
		o := testOptions(router, "data")
		o.Storage.FS, o.Storage.Seal = fs, true
		return o
	}
	router := bus.NewRouter()
	s := New(options(router))
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	p := newParty(b, router, "$G")
	for i := range streams {
		p.must(b, nil, fmt.Sprint("$JS.API.STREAM.CREATE.S", i), fmt.Sprintf(`{"name":"S%d","subjects":["s.%d.>"]}`, i, i))
		p.must(b, nil, fmt.Sprintf("$JS.API.CONSUMER.CREATE.S%d.C", i),
			fmt.Sprintf(`{"stream_name":"S%d","config":{"durable_name":"C","ack_policy":"explicit"}}`, i))
		p.must(b, nil, fmt.Sprintf("s.%d.x", i), "hello")
	}
	if err := s.Stop(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s := New(options(bus.NewRouter()))
		if err := s.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if n := len(s.account("$G").streams); n != streams {
			b.Fatalf("%d streams", n)
		}
		if err := s.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

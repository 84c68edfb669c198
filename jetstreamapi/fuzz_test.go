package jetstreamapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/archive"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/subjects"
)

// FuzzRequest sends any request to any API subject: whoever is heard is answered, in JSON with a type, and the service
// goes on.
func FuzzRequest(f *testing.F) {
	for _, steps := range [][]step{consumerSteps} {
		for _, s := range steps {
			f.Add(s.subject, s.body, "")
		}
	}
	f.Add("$JS.API.STREAM.MSG.GET.S", `{"next_by_subj":"a.>","seq":18446744073709551615}`, "")
	f.Add("$JS.API.STREAM.PURGE.S", `{"keep":18446744073709551615}`, "")
	f.Add("$JS.API.STREAM.LIST", `{"offset":9223372036854775807}`, "NATS/1.0\r\nNats-Required-Api-Level: x\r\n\r\n")
	b := bus.NewRouter()
	s := New(testOptions(b, ""))
	if err := s.Start(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := s.Stop(f.Context()); err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, subject, body, header string) {
		if !strings.HasPrefix(subject, "$JS.API.") || !subjects.ValidLiteral(subject) ||
			strings.Contains(subject, ".MSG.NEXT.") || strings.HasPrefix(subject, "$JS.API.DIRECT.") {
			t.Skip("not an API call that is answered in JSON")
		}
		p := newParty(t, b, "$G")
		a := p.request(t, subject, header, body)
		if a.nobody {
			return
		}
		var head server.ApiResponse
		if err := json.Unmarshal([]byte(a.data), &head); err != nil || head.Type == "" {
			t.Fatalf("%s %q got %q: %v", subject, body, a.data, err)
		}
	})
}

// FuzzDirectGet sends any direct get: it is answered, and what ends a batch comes last.
func FuzzDirectGet(f *testing.F) {
	for _, body := range []string{
		`{"seq":1}`, `{"batch":3,"seq":1}`, `{"multi_last":["S.*"],"up_to_seq":2}`, `{"last_by_subj":"S.a"}`, `{"batch":-1,"seq":1}`,
		`{"multi_last":["bad..subject"]}`, `{"start_time":"2000-01-01T00:00:00Z","batch":2,"max_bytes":1}`, `{}`, `x`, ``,
		`{"multi_last":["S.*"],"up_to_time":"0001-01-01T00:00:00Z"}`, `{"next_by_subj":">","seq":18446744073709551615}`,
	} {
		f.Add("$JS.API.DIRECT.GET.S", body)
		f.Add("$JS.API.DIRECT.GET.S.S.a", body)
	}
	b := bus.NewRouter()
	s := New(testOptions(b, ""))
	if err := s.Start(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := s.Stop(f.Context()); err != nil {
			f.Error(err)
		}
	})
	p := newParty(f, b, "$G")
	p.must(f, nil, "$JS.API.STREAM.CREATE.S", `{"name":"S","subjects":["S.>"],"allow_direct":true}`)
	for range 3 {
		p.must(f, nil, "S.a", "x")
		p.must(f, nil, "S.b", "x")
	}
	f.Fuzz(func(t *testing.T, subject, body string) {
		if !strings.HasPrefix(subject, "$JS.API.DIRECT.GET.S") || !subjects.ValidLiteral(subject) {
			t.Skip("not a direct get")
		}
		p := newParty(t, b, "$G")
		a := p.request(t, subject, "", body)
		if !a.nobody && a.header == "" && !strings.Contains(body, "no_hdr") {
			t.Fatalf("%s %q got %q without a header", subject, body, a.data)
		}
	})
}

// FuzzRestore reads any archive, and any state and consumer in it: an error or a stream; never a panic, and nothing is
// left of what failed.
func FuzzRestore(f *testing.F) {
	const state, consumer = `{"first_seq":1,"last_seq":9,"messages":2,"consumer_count":1}`, `{"config":{"ack_policy":"explicit"},
		"state":{"delivered":{"consumer_seq":3,"stream_seq":2},"pending":{"2":{"Sequence":2,"Timestamp":5}},"redelivered":{"2":1}}}`
	f.Add(state, consumer, "r", uint64(2), "NATS/1.0\r\nNats-TTL: 5s\r\n\r\n", int64(7))
	f.Add(`{"first_seq":1,"last_seq":9223372036854775807,"consumer_count":1}`, consumer, "r", uint64(1), "", int64(-1))
	f.Add(state, `{"config":{"deliver_policy":"by_start_sequence","opt_start_seq":18446744073709551615},"state":{}}`, "r",
		uint64(9), "", int64(1))
	b := bus.NewRouter()
	s := New(testOptions(b, ""))
	if err := s.Start(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := s.Stop(f.Context()); err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, state, consumer, subject string, seq uint64, header string, at int64) {
		a := s.account("$G")
		req := &jsapi.StreamCreateRequest{StreamConfig: server.StreamConfig{
			Name: "R", Storage: server.MemoryStorage, Subjects: []string{"r"},
		}}
		if apiErr := a.checkRestore(req); apiErr != nil {
			t.Fatal(apiErr)
		}
		var raw bytes.Buffer
		enc := s2.NewWriter(&raw)
		w := archive.NewWriter(enc)
		_ = w.Add([]byte(archive.StateName), 1, 0, nil, []byte(state))
		_ = w.Add([]byte(archive.ConsumerPrefix+"C"), 1, 0, nil, []byte(consumer))
		_ = w.Add([]byte(subject), at, seq, []byte(header), []byte("data"))
		_ = w.End()
		_ = enc.Close()
		l := &loader{ctx: t.Context(), acc: a, req: req}
		err := l.load(&raw)
		if err == nil {
			_, err = l.adopt()
		}
		l.abandon()
		p := newParty(t, b, "$G")
		if err == nil {
			p.must(t, nil, "$JS.API.STREAM.INFO.R", "")
			p.must(t, nil, "$JS.API.STREAM.DELETE.R", "")
		}
		if n := logsLeft(s.mem); n != 0 {
			t.Fatalf("%d logs are left after %v", n, err)
		}
	})
}

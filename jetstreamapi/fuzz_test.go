package jetstreamapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
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

package accounts

import (
	"strings"
	"testing"

	"github.com/noetl/ehdb-gateway/subjects"
)

// FuzzMapping: any mapping of a configuration is refused or renames whatever subjects clients publish.
func FuzzMapping(f *testing.F) {
	for _, s := range [][3]string{
		{"a", "b", "a"},
		{"a.*", "b.$1", "a.x"},
		{"a.*.*", "b.{{wildcard(2)}}.{{wildcard(1)}}", "a.x.y"},
		{"a.>", "b.>", "a.x.y"},
		{"a.*", "b.{{partition(3,1)}}", "a.x"},
		{"a.*", "{{split(1,-)}}", "a.x-y"},
		{"a.*", "b.{{splitFromLeft(1,2)}}", "a.xyz"},
		{"a.*", "b.{{sliceFromRight(1,3)}}", "a.abcdef"},
		{"a.*", "b.{{left(1,2)}}", "a.x"},
		{"a.*", "b.{{random(4)}}", "a.x"},
		{"a.*", "b.{{partition(0,1)}}", "a.x"},
		{"*", "{{right(1,0)}}", "x"},
		{"x", "", "x"},
		{"a.*", " ", "a.0"},
		{">", ">", "x"},
	} {
		f.Add(s[0], s[1], s[2], 100)
	}
	f.Fuzz(func(t *testing.T, from, to, subject string, weight int) {
		if !subjects.ValidFilter(from) || !subjects.ValidLiteral(subject) {
			return
		}
		rename, err := mapperOf([]Mapping{{Subject: from, Destinations: []Destination{{Subject: to, Weight: weight}}}}, "")
		if err != nil {
			return
		}
		got, changed := rename([]byte(subject))
		if !changed && got != nil && string(got) != subject {
			t.Errorf("%q became %q, unchanged", subject, got)
		}
		if changed && strings.ContainsAny(string(got), " \r\n\t") {
			t.Errorf("%q became %q, which is two words on the wire", subject, got)
		}
	})
}

// FuzzSampled: the headers of any request say whether it is measured, and the measurement shows headers of the trace alone.
func FuzzSampled(f *testing.F) {
	for _, h := range []string{
		"", "NATS/1.0\r\n\r\n", "NATS/1.0\r\nuber-trace-id: 1:2:3:1\r\nuberctx-a: b\r\n\r\n", "NATS/1.0\r\nX-B3-Sampled: 1\r\n\r\n",
		"NATS/1.0\r\nb3: 80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1\r\n\r\n",
		"NATS/1.0\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\ntracestate: a=b\r\nsecret: x\r\n\r\n",
	} {
		f.Add([]byte(h))
	}
	sample := sampler(0)
	f.Fuzz(func(t *testing.T, header []byte) {
		trace, sampled := sample(header)
		if sampled == (trace == nil) {
			t.Fatalf("sampled: %v, with %v", sampled, trace)
		}
		again, _ := sample(header)
		if (again == nil) != (trace == nil) {
			t.Error("the same headers are measured only sometimes")
		}
	})
}

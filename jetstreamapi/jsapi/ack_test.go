package jsapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func TestParseAckSubject(t *testing.T) {
	for subject, want := range map[string]AckSubject{
		"$JS.ACK.S.C.1.22.333.1700000000000000000.5": {
			Stream: []byte("S"), Consumer: []byte("C"), Delivered: 1, StreamSeq: 22, ConsumerSeq: 333,
			Time: 1700000000000000000, Pending: 5,
		},
		"$JS.ACK._.hash.S.C.1.2.3.4.5": {
			Domain: []byte("_"), AccountHash: []byte("hash"), Stream: []byte("S"), Consumer: []byte("C"),
			Delivered: 1, StreamSeq: 2, ConsumerSeq: 3, Time: 4, Pending: 5,
		},
		"$JS.ACK.d.hash.S.C.1.2.3.4.5.token.more": {
			Domain: []byte("d"), AccountHash: []byte("hash"), Stream: []byte("S"), Consumer: []byte("C"),
			Delivered: 1, StreamSeq: 2, ConsumerSeq: 3, Time: 4, Pending: 5,
		},
	} {
		got, ok := ParseAckSubject([]byte(subject))
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", subject, got, ok, want)
		}
	}
	for _, subject := range []string{
		"", "$JS.ACK", "$JS.ACK.S.C.1.2.3.4", "$JS.ACK.S.C.1.2.3.4.5.6", "$JS.FC.S.C.1.2.3.4.5", "$JS.ACK.S.C.1.2.x.4.5",
		"$JS.ACK.S.C.1.2..4.5", "$JS.ACK.S.C.1.-2.3.4.5", "$JS.ACK.S.C.1.99999999999999999999.3.4.5", "$JS.ACK.S..1.2.3.4.5",
	} {
		if a, ok := ParseAckSubject([]byte(subject)); ok {
			t.Errorf("%s: %+v", subject, a)
		}
	}
}

func TestAckSubjectsAreParsedBack(t *testing.T) {
	a := AckSubject{Delivered: 1, StreamSeq: 2, ConsumerSeq: 3, Time: 4, Pending: 5}
	for _, prefix := range []string{AckSubjectPrefix("S", "C"), AckSubjectPrefixV2("", "h", "S", "C")} {
		got, ok := ParseAckSubject(AppendAckSubject(nil, prefix, &a))
		if !ok || got.StreamSeq != 2 || got.Pending != 5 || string(got.Consumer) != "C" {
			t.Errorf("%s: %+v, %v", prefix, got, ok)
		}
	}
	buf := make([]byte, 0, 128)
	prefix := AckSubjectPrefix("S", "C")
	if n := testing.AllocsPerRun(100, func() { buf = AppendAckSubject(buf[:0], prefix, &a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestParseAckBody(t *testing.T) {
	for _, c := range []struct {
		body string
		kind AckKind
		arg  string
	}{
		{"", AckDone, ""},
		{"+ACK", AckDone, ""},
		{"+OK", AckDone, ""},
		{"+NXT", AckNext, ""},
		{"+NXT 5", AckNext, "5"},
		{`+NXT {"batch":5}`, AckNext, `{"batch":5}`},
		{"-NAK", AckNak, ""},
		{"-NAK 5s", AckNak, "5s"},
		{"+WPI", AckProgress, ""},
		{"+WPI x", AckUnknown, ""},
		{"+TERM", AckTerm, ""},
		{"+TERM  too bad ", AckTerm, "too bad"},
		{"+ACK ", AckUnknown, ""},
		{"hello", AckUnknown, ""},
	} {
		if kind, arg := ParseAckBody([]byte(c.body)); kind != c.kind || string(arg) != c.arg {
			t.Errorf("%q: %d %q, want %d %q", c.body, kind, arg, c.kind, c.arg)
		}
	}
}

func TestParseNakDelay(t *testing.T) {
	for arg, want := range map[string]time.Duration{
		"5s": 5 * time.Second, `{"delay":1000}`: 1000, "{}": 0, "-1s": -time.Second,
	} {
		if d, ok, err := ParseNakDelay([]byte(arg)); d != want || !ok || err != nil {
			t.Errorf("%q: %v %v %v", arg, d, ok, err)
		}
	}
	if d, ok, err := ParseNakDelay(nil); d != 0 || ok || err != nil {
		t.Errorf("nothing: %v %v %v", d, ok, err)
	}
	for _, arg := range []string{"5", "soon", `{"delay":"5s"}`, "{"} {
		if _, ok, err := ParseNakDelay([]byte(arg)); ok || err == nil {
			t.Errorf("%q: %v %v", arg, ok, err)
		}
	}
}

func TestParseFlowControlSubject(t *testing.T) {
	for _, s := range []string{"$JS.FC.S.C.abcd", "$JS.FC._.hash.S.C.abcd"} {
		stream, consumer, tok, ok := ParseFlowControlSubject([]byte(s))
		if !ok || string(stream) != "S" || string(consumer) != "C" || string(tok) != "abcd" {
			t.Errorf("%s: %q %q %q %v", s, stream, consumer, tok, ok)
		}
	}
	for _, s := range []string{"", "$JS.FC.S.C", "$JS.FC.S.C.a.b", "$JS.ACK.S.C.a", "$JS.FC...", "$JS.FC.a.b.c.d.e.f"} {
		if _, _, _, ok := ParseFlowControlSubject([]byte(s)); ok {
			t.Errorf("%s is one", s)
		}
	}
}

func TestStatuses(t *testing.T) {
	for want, got := range map[string][]byte{
		"NATS/1.0 404 No Messages\r\n\r\n": AppendStatus(nil, 404, StatusNoMessages),
		"NATS/1.0 503\r\n\r\n":             AppendStatus(nil, 503, ""),
		"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\nNats-Pending-Bytes: 0\r\n\r\n": AppendPullStatus(
			nil, 408, StatusRequestTimeout, 3, 0),
		"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 2\r\n\r\n": AppendIdleHeartbeat(nil, 1, 2, ""),
		"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 2\r\nNats-Consumer-Stalled: x\r\n\r\n": AppendIdleHeartbeat(
			nil, 1, 2, "x"),
		"NATS/1.0\r\nA: b\r\n\r\n":         AppendHeader(nil, nil, "A", "b"),
		"NATS/1.0\r\nX: y\r\nA: 7\r\n\r\n": AppendHeaderInt(nil, []byte("NATS/1.0\r\nX: y\r\n\r\n"), "A", 7),
	} {
		if string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if v := HeaderValue([]byte("NATS/1.0\r\nAb: 1\r\nA:  two \r\n\r\n"), "A"); string(v) != "two" {
		t.Errorf("value %q", v)
	}
	for hdr, want := range map[string]bool{
		"": false, "NATS/1.0\r\nA: b\r\n\r\n": false, "NATS/1.0\r\nNats-Required-Api-Level: 1\r\n\r\n": false,
		"NATS/1.0\r\nNats-Required-Api-Level: 99\r\n\r\n": true, "NATS/1.0\r\nNats-Required-Api-Level: x\r\n\r\n": true,
	} {
		if got := APILevelTooHigh([]byte(hdr)); got != want {
			t.Errorf("%q: %v", hdr, got)
		}
	}
}

// FuzzParsePullRequest holds the quick way of parsing to what a JSON decoder makes of the same body.
func FuzzParsePullRequest(f *testing.F) {
	for _, s := range []string{
		"", "5", "-1", " 7 ", "x", "{}", `{"batch":1}`, `{"batch":1,"expires":5000,"no_wait":true,"max_bytes":7}`,
		`{"batch":01}`, `{"batch":1,}`, `{"batch":1e3}`, `{"expires":10,"idle_heartbeat":6}`, `{"group":"g","id":"x"}`,
		`{ "batch" : 3 }`, `{"BATCH":3}`, `{"batch":-3}`, `{"no_wait":tru}`, `{"batch":9223372036854775808}`, `{"a":{}}`,
		`{"expires":5,"idle_heartbeat":9223372036854775807}`, `{"batch":1}x`, "\f{}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := ParsePullRequest(body)
		if !got.HasGroup && err == nil {
			return // nothing or a number
		}
		var want server.JSApiConsumerGetNextRequest
		// White space around it is cut off, of any kind, as by nats-server.
		if jsonErr := json.Unmarshal(bytes.TrimSpace(body), &want); (jsonErr != nil) != (err != nil) && !errors.Is(err, errHeartbeatTooLarge) {
			t.Fatalf("%q: %v, the decoder says %v", body, err, jsonErr)
		}
		if err == nil && (got.Batch != want.Batch || got.MaxBytes != want.MaxBytes || got.Expires != want.Expires ||
			got.NoWait != want.NoWait || got.Heartbeat != want.Heartbeat || got.Group != want.Group || got.ID != want.Id ||
			got.MinPending != want.MinPending || got.Priority != want.Priority) {
			t.Fatalf("%q: %+v, the decoder makes it %+v", body, got, want)
		}
	})
}

func FuzzParseAckSubject(f *testing.F) {
	f.Add([]byte("$JS.ACK.S.C.1.22.333.1700000000000000000.5"))
	f.Add([]byte("$JS.ACK._.hash.S.C.1.2.3.4.5.token"))
	f.Fuzz(func(t *testing.T, subject []byte) {
		a, ok := ParseAckSubject(subject)
		if !ok || len(a.Domain) > 0 || len(a.AccountHash) > 0 {
			return
		}
		again, ok := ParseAckSubject(AppendAckSubject(nil, AckSubjectPrefix(string(a.Stream), string(a.Consumer)), &a))
		if !ok || !reflect.DeepEqual(again, a) {
			t.Fatalf("%q: %+v, and again %+v", subject, a, again)
		}
	})
}

func FuzzAckBody(f *testing.F) {
	for _, s := range []string{"", "+ACK", "-NAK 5s", `-NAK {"delay":5}`, "+TERM x", "+NXT 1", "+WPI"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		kind, arg := ParseAckBody(body)
		if _, ok, err := ParseNakDelay(arg); kind == AckNak && ok && err != nil {
			t.Fatalf("%q: a delay and an error", body)
		}
	})
}

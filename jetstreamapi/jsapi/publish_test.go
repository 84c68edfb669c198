package jsapi_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

func TestPublishHeadersParse(t *testing.T) {
	block := []byte("NATS/1.0 503 x\r\nNats-Msg-Id:  a b \r\nnats-rollup: sub\r\nNats-Rollup: all\r\nNats-Rollup: sub\r\n" +
		"Nats-TTL:\r\nX-Nats-Incr: 1\r\n\r\n")
	var h jsapi.PublishHeaders
	h.Parse(block)
	if got := string(h.MsgID); got != "a b " {
		t.Errorf("MsgID = %q", got)
	}
	if got := string(h.Rollup); got != "all" {
		t.Errorf("Rollup = %q, want the first of the exact name", got)
	}
	if len(h.TTL) != 0 || h.Incr != nil {
		t.Errorf("TTL = %q, Incr = %q, want none", h.TTL, h.Incr)
	}
	if n := testing.AllocsPerRun(100, func() { h.Parse(block) }); n != 0 {
		t.Errorf("Parse allocates %v times", n)
	}
}

func TestStoredHeader(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"NATS/1.0\r\n\r\n", "NATS/1.0\r\n\r\n"},
		{"NATS/1.0\r\nA: b\r\n\r\n", "NATS/1.0\r\nA: b\r\n\r\n"},
		{"NATS/1.0 503\r\n\r\n", ""},
		{"NATS/1.0 100 Idle\r\nA: b\r\n\r\n", "NATS/1.0\r\nA: b\r\n\r\n"},
		{"NATS/1.0\r\nNats-Request-Info: {}\r\nA: b\r\n\r\n", "NATS/1.0\r\nA: b\r\n\r\n"},
		{"NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n", ""},
		{"NATS/1.0\r\nX-Nats-Request-Info: {}\r\n\r\n", "NATS/1.0\r\nX-Nats-Request-Info: {}\r\n\r\n"},
	} {
		if got := string(jsapi.StoredHeader(nil, []byte(c.in))); got != c.want {
			t.Errorf("StoredHeader(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestSetHeader(t *testing.T) {
	got := jsapi.SetHeader([]byte("NATS/1.0\r\nNats-TTL: 1\r\nA: b\r\n\r\n"), "Nats-TTL", "5")
	if want := "NATS/1.0\r\nA: b\r\nNats-TTL: 5\r\n\r\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := string(jsapi.SetHeader(nil, "A", "b")); got != "NATS/1.0\r\nA: b\r\n\r\n" {
		t.Errorf("got %q", got)
	}
}

func TestPubAcksAreJSON(t *testing.T) {
	prefix := jsapi.PubAckPrefix("Ord\"ers", "hub")
	var ack server.JSPubAckResponse
	if err := json.Unmarshal(jsapi.AppendDuplicateAck(nil, prefix, 7), &ack); err != nil {
		t.Fatal(err)
	}
	if want := (server.PubAck{Stream: "Ord\"ers", Domain: "hub", Sequence: 7, Duplicate: true}); *ack.PubAck != want {
		t.Errorf("got %+v, want %+v", *ack.PubAck, want)
	}
	e := server.NewJSStreamWrongLastSequenceError(12)
	want, err := json.Marshal(&server.JSPubAckResponse{Error: e, PubAck: &server.PubAck{Stream: "S"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := jsapi.AppendPubError(nil, "S", e); !bytes.Equal(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func FuzzPublishHeaders(f *testing.F) {
	f.Add([]byte("NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n"))
	f.Add([]byte("NATS/1.0 100 x\r\nNats-Request-Info: {}\r\n\r\n"))
	f.Add([]byte("\r\n:\r\n"))
	f.Fuzz(func(t *testing.T, block []byte) {
		before := bytes.Clone(block)
		var h jsapi.PublishHeaders
		h.Parse(block)
		out := jsapi.StoredHeader(nil, block)
		if !bytes.Equal(before, block) {
			t.Fatal("the block was changed")
		}
		if jsapi.HasHeader(out, jsapi.HeaderRequestInfo) && !bytes.Equal(out, block) {
			t.Fatalf("request info left in %q", out)
		}
	})
}

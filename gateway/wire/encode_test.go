package wire

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestAppendMsg(t *testing.T) {
	for want, got := range map[string][]byte{
		"MSG foo 1 3\r\nabc\r\n":                        AppendMsg(nil, []byte("foo"), []byte("1"), nil, nil, []byte("abc")),
		"MSG foo 1 bar 0\r\n\r\n":                       AppendMsg(nil, []byte("foo"), []byte("1"), []byte("bar"), nil, nil),
		"HMSG foo 1 bar 12 13\r\nNATS/1.0\r\n\r\nx\r\n": AppendMsg(nil, []byte("foo"), []byte("1"), []byte("bar"), []byte("NATS/1.0\r\n\r\n"), []byte("x")),
		"-ERR 'x'\r\n":                                  AppendErr(nil, "x"),
		"INFO {}\r\n":                                   AppendInfo(nil, []byte("{}")),
		"HMSG in 7 33 33\r\nNATS/1.0 503\r\nNats-Subject: a\r\n\r\n\r\n": AppendNoResponders(nil, []byte("a"), []byte("7"), []byte("in")),
	} {
		if string(got) != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// The sizes that the no-responders answer announces are those it has.
func TestNoRespondersSizes(t *testing.T) {
	for n := range 300 {
		subject := bytes.Repeat([]byte("s"), n)
		b := AppendNoResponders(nil, subject, []byte("1"), []byte("r"))
		line, rest, _ := bytes.Cut(b, []byte("\r\n"))
		var hdr, total int
		if _, err := fmt.Sscanf(string(line), "HMSG r 1 %d %d", &hdr, &total); err != nil {
			t.Fatal(err)
		}
		if hdr != total || len(rest) != total+2 {
			t.Fatalf("%q announces %d bytes and has %d", line, total, len(rest)-2)
		}
		if code, _ := Status(rest[:hdr]); code != StatusNoResponders {
			t.Fatalf("status %d", code)
		}
		if got := HeaderValue(rest[:hdr], HeaderSubject); !bytes.Equal(got, subject) {
			t.Fatalf("subject %q", got)
		}
	}
}

func TestMsgLineFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := func(name string) []byte { return []byte(rapid.StringMatching(`[a-z]{0,40}`).Draw(t, name)) }
		s, sid, r := b("subject"), b("sid"), b("reply")
		n := rapid.IntRange(0, 999_999_999)
		line := AppendMsgLine(nil, s, sid, r, n.Draw(t, "hdr"), n.Draw(t, "total"))
		if len(line) > MsgLineMax(s, sid, r) {
			t.Fatalf("%q has %d bytes, bound %d", line, len(line), MsgLineMax(s, sid, r))
		}
	})
}

func TestStatusAndHeader(t *testing.T) {
	for _, tc := range []struct {
		in   string
		code int
		text string
	}{
		{"NATS/1.0\r\n\r\n", 0, ""},
		{"NATS/1.0 503\r\n\r\n", 503, ""},
		{"NATS/1.0 100 Idle Heartbeat\r\n\r\n", 100, "Idle Heartbeat"},
		{"NATS/1.0 abc\r\n\r\n", 0, ""},
		{"HTTP/1.1 200\r\n\r\n", 0, ""},
		{"", 0, ""},
	} {
		if code, text := Status([]byte(tc.in)); code != tc.code || text != tc.text {
			t.Errorf("%q: got %d %q", tc.in, code, text)
		}
	}
	h := []byte("NATS/1.0\r\nA:1\r\nKey:  a b \r\nKey: second\r\nkey: other\r\n\r\n")
	for key, want := range map[string]string{"A": "1", "Key": "a b", "key": "other", "Ke": "", "b": "", "Missing": ""} {
		if got := string(HeaderValue(h, key)); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte("NATS/1.0 503\r\nA: b\r\n\r\n"), "A")
	f.Fuzz(func(t *testing.T, in []byte, key string) {
		Status(in)
		if v := HeaderValue(in, key); v != nil && !bytes.Contains(in, v) {
			t.Fatal("the value is not in the block")
		}
	})
}

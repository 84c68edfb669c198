package wire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// cut feeds text to a Frames in pieces of the given sizes and returns what it said, and the bytes it handed out.
func cut(from Sender, text string, sizes func() int) (said []string, out []byte, s *Frames) {
	s = NewFrames(from, 64, new(Pool))
	var f Frame
	for len(text) > 0 {
		n := copy(s.Space(), text[:min(sizes(), len(text))])
		s.Filled(n)
		text = text[n:]
		for s.Next(&f) {
			out = append(out, f.Raw...)
			if f.Op != OpNone {
				said = append(said, fmt.Sprintf("%v %s|%s|%s|%s|%d|%d", f.Op, f.Subject, f.Reply, f.Queue, f.SID, f.Max, f.Size))
			}
		}
	}
	return said, out, s
}

func TestFrames(t *testing.T) {
	for name, tc := range map[string]struct {
		from   Sender
		text   string
		want   string
		opaque bool
	}{
		"client": {FromClient, "CONNECT {\"a\":1}\r\nPUB a 2\r\nhi\r\nhpub a.b r 12 15\r\nNATS/1.0\r\n\r\nabc\r\nSUB x q 1\r\nSUB y 2\r\n" +
			"UNSUB 1 5\r\nUNSUB 2\r\nPING\r\nPONG\n+OK\r\nPUB e 0\r\n\r\n", `
			CONNECT ||||0|0; PUB a||||0|2; HPUB a.b|r|||0|15; SUB x||q|1|0|0; SUB y|||2|0|0; UNSUB |||1|5|0; UNSUB |||2|-1|0;
			PING ||||0|0; PONG ||||0|0; +OK ||||0|0; PUB e||||0|0`, false},
		"server": {FromServer, "INFO {}\r\nMSG a 1 2\r\nhi\r\nHMSG a 1 r 12 12\r\nNATS/1.0\r\n\r\n\r\nMSG b 2 r 0\r\n\r\n+OK\r\n-ERR 'x y'\r\nPING\r\nPONG\r\n", `
			INFO ||||0|0; MSG a|||1|0|2; HMSG a|r||1|0|12; MSG b|r||2|0|0; +OK ||||0|0; -ERR ||||0|0; PING ||||0|0; PONG ||||0|0`, false},
		"a payload that looks like frames": {FromClient, "PUB a 12\r\nPING\r\nPING\r\n\r\nPING\r\n", "PUB a||||0|12; PING ||||0|0", false},
		"unknown verb":                     {FromClient, "PING\r\nGET / HTTP/1.1\r\nPING\r\n", "PING ||||0|0", true},
		"bad size":                         {FromClient, "PUB a x\r\nPING\r\n", "", true},
		"no arguments":                     {FromClient, "PUB\r\nPING\r\n", "", true},
		"too many arguments":               {FromClient, "PUB a b c 1\r\nPING\r\n", "", true},
		"endless line":                     {FromClient, "SUB " + strings.Repeat("x", 70), "", true},
		"empty line":                       {FromClient, "\r\nPING\r\n", "", true},
		"CR inside":                        {FromClient, "SUB a\r 1\r\nPING\r\n", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			for piece := 1; piece < len(tc.text)+1; piece++ {
				said, out, s := cut(tc.from, tc.text, func() int { return piece })
				got, want := strings.Join(said, "; "), strings.Join(strings.Fields(tc.want), " ")
				if got != want || string(out) != tc.text || s.Opaque() != tc.opaque || s.Between() == tc.opaque {
					t.Fatalf("pieces of %d:\ngot  %s (opaque %v)\nwant %s\nout  %q", piece, got, s.Opaque(), want, out)
				}
			}
		})
	}
}

// Whoever reads what cannot be a verb gets it at once: the other side answers before the line ends.
func TestFramesDoNotHoldWhatCannotBe(t *testing.T) {
	for _, text := range []string{"X", "PX", "PUX", "CONX", "PUBx", "\r", "PINx"} {
		if _, out, _ := cut(FromClient, text, func() int { return 1 }); text != "PUBx" && string(out) != text {
			t.Errorf("%q: handed out %q", text, out)
		}
	}
}

// What the parser takes, Frames sees in the same way; whatever comes, the bytes are handed out as they are.
func FuzzFrames(f *testing.F) {
	for _, s := range []string{
		"CONNECT {}\r\nPUB a 2\r\nhi\r\nPING\r\n", "HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n", "SUB a 1\r\nUNSUB 1 2\r\n", "MSG a 1 0\r\n\r\n",
	} {
		f.Add(s, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
		for _, from := range []Sender{FromClient, FromServer} {
			_, out, s := cut(from, text, func() int { return 1 + random.IntN(9) })
			if rest := s.Buffered(); text != string(out)+string(rest) {
				t.Fatalf("%q became %q and %q", text, out, rest)
			}
		}
		p := NewParser(Limits{MaxControlLine: 1 << 20, MaxPayload: 1 << 20, Headers: true}, new(Pool))
		s := NewFrames(FromClient, 1<<20, new(Pool))
		p.Filled(copy(p.Space(), text))
		s.Filled(copy(s.Space(), text))
		var c Command
		var fr Frame
		for {
			ok, err := p.Next(&c)
			if err != nil || !ok {
				return
			}
			for fr.Op = OpOK; fr.Op == OpOK && s.Next(&fr); { // the parser skips +OK
			}
			if s.Opaque() {
				return // oddities that the parser knows and Frames need not
			}
			op := fr.Op
			if op == OpHPub {
				op = OpPub
			}
			if op != c.Op || !bytes.Equal(fr.Subject, c.Subject) || !bytes.Equal(fr.SID, c.SID) || fr.Size != len(c.Payload) {
				t.Fatalf("%q: parser %v %q, frames %v %q", text, c.Op, c.Subject, fr.Op, fr.Subject)
			}
		}
	})
}

func BenchmarkFrames(b *testing.B) {
	batch := strings.Repeat("PUB orders.new.eu _INBOX.abcdefgh.1 128\r\n"+strings.Repeat("x", 128)+"\r\n", 64)
	pool := new(Pool)
	b.Run("frames", func(b *testing.B) {
		s := NewFrames(FromClient, 4096, pool)
		var f Frame
		b.SetBytes(int64(len(batch)))
		for b.Loop() {
			for in := batch; len(in) > 0; {
				n := copy(s.Space(), in)
				s.Filled(n)
				in = in[n:]
				for s.Next(&f) {
				}
			}
		}
	})
	b.Run("parser", func(b *testing.B) {
		p := NewParser(Limits{MaxControlLine: 4096, MaxPayload: 1 << 20, Headers: true}, pool)
		var c Command
		b.SetBytes(int64(len(batch)))
		for b.Loop() {
			for in := batch; len(in) > 0; {
				n := copy(p.Space(), in)
				p.Filled(n)
				in = in[n:]
				for ok := true; ok; {
					ok, _ = p.Next(&c)
				}
			}
		}
	})
}

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var testLimits = Limits{MaxControlLine: 256, MaxPayload: 1 << 20, Headers: true}

// parse feeds input in pieces of the given sizes (the last one repeats) and renders what comes out, the error at the end.
func parse(limits Limits, input []byte, sizes ...int) []string {
	p := NewParser(limits, &Pool{})
	defer p.Close()
	var out []string
	var c Command
	for i := 0; len(input) > 0; i++ {
		space := p.Space()
		n := min(len(space), len(input), sizes[min(i, len(sizes)-1)])
		copy(space, input[:n])
		input = input[n:]
		p.Filled(n)
		for {
			ok, err := p.Next(&c)
			if err != nil {
				return append(out, "error: "+err.Error())
			}
			if !ok {
				break
			}
			out = append(out, render(&c))
		}
	}
	return out
}

func render(c *Command) string {
	if c.Op == OpPub {
		return fmt.Sprintf("PUB %q reply=%q header=%q data=%q", c.Subject, c.Reply, c.Header(), c.Data())
	}
	if c.Op == OpSub {
		return fmt.Sprintf("SUB %q queue=%q sid=%q", c.Subject, c.Queue, c.SID)
	}
	if c.Op == OpUnsub {
		return fmt.Sprintf("UNSUB %q max=%d", c.SID, c.Max)
	}
	return fmt.Sprintf("%v %q", c.Op, c.Arg)
}

func TestParser(t *testing.T) {
	small := Limits{MaxControlLine: 10, MaxPayload: 5}
	for _, tc := range []struct {
		name   string
		limits Limits
		in     string
		want   []string
	}{
		{"pub", testLimits, "PUB foo 3\r\nabc\r\n", []string{`PUB "foo" reply="" header="" data="abc"`}},
		{"pub reply", testLimits, "pub foo\t bar  0\r\n\r\n", []string{`PUB "foo" reply="bar" header="" data=""`}},
		{"hpub", testLimits, "HPUB foo bar 12 15\r\nNATS/1.0\r\n\r\nabc\r\n", []string{`PUB "foo" reply="bar" header="NATS/1.0\r\n\r\n" data="abc"`}},
		{"sub", testLimits, "SUB foo 1\r\nsub foo q 2\n", []string{`SUB "foo" queue="" sid="1"`, `SUB "foo" queue="q" sid="2"`}},
		{"unsub", testLimits, "UNSUB 1\r\nUNSUB 2 5\r\nUNSUB 3 x\r\n", []string{`UNSUB "1" max=-1`, `UNSUB "2" max=5`, `UNSUB "3" max=-1`}},
		{"ping pong ok", testLimits, "PING\r\npong anything\r\n+OK\r\nPING\n", []string{`PING ""`, `PONG ""`, `PING ""`}},
		{"connect", testLimits, "CONNECT{}\r\nconnect \t {\"a\":1}\r\n", []string{`CONNECT "{}"`, `CONNECT "{\"a\":1}"`}},
		{"info err", testLimits, "INFO {}\r\n-ERR 'x'\r\n", []string{`INFO "{}"`, `-ERR "'x'"`}},
		{"unknown", testLimits, "PING\r\nNOPE", []string{`PING ""`, "error: " + ErrUnknownOp.Error()}},
		{"bad third byte", testLimits, "PUX", []string{"error: " + ErrUnknownOp.Error()}},
		{"no blank", testLimits, "SUBfoo 1\r\n", []string{"error: " + ErrUnknownOp.Error()}},
		{"high bit", testLimits, "\xd0UB foo 1\r\n", []string{"error: " + ErrUnknownOp.Error()}},
		{"vertical tab is no plus", testLimits, "\x0bOK\r\n", []string{"error: " + ErrUnknownOp.Error()}},
		{"no CR after payload", testLimits, "PUB foo 3\r\nabcd", []string{"error: " + ErrUnknownOp.Error()}},
		{"no LF after payload", testLimits, "PUB foo 3\r\nabc\rd", []string{"error: " + ErrUnknownOp.Error()}},
		{"first byte is an argument", testLimits, "SUB \nfoo 1\r\n", []string{`SUB "foo" queue="" sid="1"`}},
		{"CR in a line with a bare LF costs a byte", testLimits, "SUB foo\r12\n", []string{`SUB "foo" queue="" sid="1"`}},
		{"control line", small, "SUB aaaaaaaa 1\r\n", []string{`SUB "aaaaaaaa" queue="" sid="1"`}},
		{"control line too long", small, "SUB aaaaaaaaa 1\r\n", []string{"error: " + ErrMaxControlLine.Error()}},
		{"control line too long, unfinished", small, "SUB aaaaaaaaaaaa", []string{"error: " + ErrMaxControlLine.Error()}},
		{"payload", small, "PUB foo 6\r\n", []string{"error: maximum payload exceeded: 6 vs 5"}},
		{"no headers", small, "HPUB f 1 2\r\n", []string{"error: " + ErrHeaders.Error()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for size := range 20 {
				got := parse(tc.limits, []byte(tc.in), size+1)
				if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
					t.Fatalf("in pieces of %d bytes:\ngot  %q\nwant %q", size+1, got, tc.want)
				}
			}
		})
	}
}

func TestArgErrors(t *testing.T) {
	for _, line := range []string{
		"PUB foo\r\n", "PUB a b c 1\r\n", "PUB foo -1\r\n", "PUB foo 1x\r\n", "PUB foo 1234567890\r\n", "PUB \r\n",
		"HPUB foo 1\r\n", "HPUB foo a 1 1 1\r\n", "HPUB foo 2 1\r\n", "HPUB foo x 1\r\n", "HPUB foo 1 x\r\n",
		"SUB foo\r\n", "SUB a b c d\r\n", "UNSUB  \r\n", "UNSUB 1 2 3\r\n",
	} {
		p := NewParser(testLimits, &Pool{})
		p.Filled(copy(p.Space(), line))
		var c Command
		ok, err := p.Next(&c)
		var arg *ArgError
		if ok || !errors.As(err, &arg) {
			t.Errorf("%q: got %v, %v", line, ok, err)
		}
		p.Close()
	}
}

// A size on the wire must not cost memory before the bytes are there.
func TestGiantSizesAllocateNothing(t *testing.T) {
	p := NewParser(Limits{MaxControlLine: 4096, MaxPayload: -1, Headers: true}, &Pool{})
	defer p.Close()
	p.Filled(copy(p.Space(), "PUB foo 999999999\r\nabc"))
	var c Command
	if ok, err := p.Next(&c); ok || err != nil {
		t.Fatal(ok, err)
	}
	if n := len(p.Space()); n > MaxBuffer {
		t.Fatalf("3 bytes of a payload made a buffer of %d bytes", n)
	}
	for range 50 { // what has come may be held a few times over, no more
		space := p.Space()
		p.Filled(min(len(space), 10_000))
		if ok, err := p.Next(&c); ok || err != nil {
			t.Fatal(ok, err)
		}
		if have := len(p.Buffered()); len(p.buf) > max(2*MaxBuffer, 2*growFactor*have) {
			t.Fatalf("%d bytes are held in a buffer of %d", have, len(p.buf))
		}
	}
}

func TestPending(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "",
		"PUB foo":                       "",
		"PUB foo 3":                     "",
		"PUB foo 3\r\n":                 "foo",
		"PUB foo bar 3\r\nab":           "foo",
		"HPUB\tfoo.* 12 12\nNATS":       "foo.*",
		"PUB foo 3\r\nabcx":             "foo", // refused
		"PUB foo 3\r\nabc\r\n":          "",
		"PUB foo 3\r\nabc\r\nPUB b ":    "",
		"PUB \nfoo 3\r\nab":             "\nfoo",
		"SUB foo 3\r\n":                 "",
		"PUB foo 3\r\nabc\r\nPUB b 1\n": "b",
	} {
		p := NewParser(testLimits, &Pool{})
		p.Filled(copy(p.Space(), in))
		var c Command
		for {
			if ok, err := p.Next(&c); !ok || err != nil {
				break
			}
		}
		if got := string(p.Pending()); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
		p.Close()
	}
}

// A large message is whole, and its buffer is given back once it is handled.
func TestLargeMessages(t *testing.T) {
	p := NewParser(Limits{MaxControlLine: 4096, MaxPayload: 8 << 20}, &Pool{})
	defer p.Close()
	body := make([]byte, 5<<20)
	for i := range body {
		body[i] = byte(i * 31)
	}
	in := append(fmt.Appendf(nil, "PUB foo %d\r\n", len(body)), body...)
	in = append(in, "\r\nPUB bar 1\r\nx\r\n"...)
	var got []string
	for len(in) > 0 {
		n := copy(p.Space(), in)
		p.Filled(n)
		in = in[n:]
		var c Command
		for {
			ok, err := p.Next(&c)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			got = append(got, string(c.Subject))
			if string(c.Subject) == "foo" && !bytes.Equal(c.Payload, body) {
				t.Fatal("payload differs")
			}
		}
	}
	if len(got) != 2 {
		t.Fatalf("got %q", got)
	}
	if p.Space(); len(p.buf) > MaxBuffer {
		t.Fatalf("an idle parser holds %d bytes", len(p.buf))
	}
}

func TestParserDoesNotAllocate(t *testing.T) {
	p := NewParser(testLimits, &Pool{})
	defer p.Close()
	msg := []byte("PUB some.subject _INBOX.abc 16\r\n0123456789abcdef\r\nPING\r\n")
	var c Command
	if n := testing.AllocsPerRun(1000, func() {
		p.Filled(copy(p.Space(), msg))
		for {
			ok, err := p.Next(&c)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return
			}
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// command draws a well-formed command.
func command() *rapid.Generator[string] {
	token := rapid.StringMatching(`[a-zA-Z0-9.*>$_-]{1,12}`)
	gap := rapid.SampledFrom([]string{" ", "\t", "  ", " \t "})
	eol := rapid.SampledFrom([]string{"\r\n", "\r\n", "\r\n", "\n"})
	body := rapid.SliceOfN(rapid.Byte(), 0, 2000)
	return rapid.Custom(func(t *rapid.T) string {
		b := body.Draw(t, "body")
		s, g, e := token.Draw(t, "subject"), gap.Draw(t, "gap"), eol.Draw(t, "eol")
		switch rapid.IntRange(0, 8).Draw(t, "kind") {
		case 0:
			return fmt.Sprintf("PUB%s%s%s%d%s%s\r\n", g, s, g, len(b), e, b)
		case 1:
			return fmt.Sprintf("pub%s%s%s%s %d%s%s\r\n", g, s, g, token.Draw(t, "reply"), len(b), e, b)
		case 2:
			h := rapid.IntRange(0, len(b)).Draw(t, "header")
			return fmt.Sprintf("HPUB%s%s %d%s%d%s%s\r\n", g, s, h, g, len(b), e, b)
		case 3:
			return fmt.Sprintf("SUB %s%s%s%s", s, g, token.Draw(t, "sid"), e)
		case 4:
			return fmt.Sprintf("sUb %s%sq%s%s%s", s, g, g, token.Draw(t, "sid"), e)
		case 5:
			return fmt.Sprintf("UNSUB %s %d%s", s, rapid.IntRange(-2, 1000).Draw(t, "max"), e)
		case 6:
			return "PING" + e
		case 7:
			return "+OK\r\nPONG" + e
		default:
			return `CONNECT {"verbose":false}` + e
		}
	})
}

// However the bytes are cut, the commands are the same.
func TestSplitsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := []byte(strings.Join(rapid.SliceOfN(command(), 1, 12).Draw(t, "commands"), ""))
		if rapid.Bool().Draw(t, "damage") {
			in[rapid.IntRange(0, len(in)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "with")
		}
		whole := parse(testLimits, in, 1<<20)
		sizes := rapid.SliceOfN(rapid.IntRange(1, 700), 1, 40).Draw(t, "sizes")
		if got := parse(testLimits, in, sizes...); strings.Join(got, "\n") != strings.Join(whole, "\n") {
			t.Fatalf("sizes %v\ngot  %q\nwant %q", sizes, got, whole)
		}
	})
}

func FuzzParser(f *testing.F) {
	for _, s := range []string{
		"PUB foo 3\r\nabc\r\nPING\r\n", "HPUB foo 12 15\r\nNATS/1.0\r\n\r\nabc\r\n", "SUB foo q 1\r\nUNSUB 1 2\r\n",
		"CONNECT {}\r\n", "+OK\r\n-ERR 'x'\r\nINFO {}\r\n", "PUB foo 99999999\r\n", "PUB \r\n", "sub \n\r\r 1\n",
	} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		limits := Limits{MaxControlLine: 64, MaxPayload: 1 << 16, Headers: true}
		whole := parse(limits, in, 1<<20)
		r := rand.New(rand.NewPCG(seed, 1))
		sizes := make([]int, 20)
		for i := range sizes {
			sizes[i] = 1 + r.IntN(40)
		}
		if got := parse(limits, in, sizes...); strings.Join(got, "\n") != strings.Join(whole, "\n") {
			t.Fatalf("sizes %v\ngot  %q\nwant %q", sizes, got, whole)
		}
	})
}

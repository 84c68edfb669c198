package cutover

import (
	"testing"
)

func TestHashIsOfContent(t *testing.T) {
	h := func(s string) []byte { return []byte("NATS/1.0\r\n" + s + "\r\n") }
	base := Hash([]byte("a"), h("B: 1\r\nA: 2\r\nA: 3\r\n"), []byte("x"))
	for name, same := range map[string][]byte{
		"order of names": h("A: 2\r\nB: 1\r\nA: 3\r\n"),
		"blanks":         h("A:2\r\nB:  1 \r\nA: 3\r\n"),
		"expectations":   h("A: 2\r\nNats-Expected-Last-Sequence: 7\r\nB: 1\r\nA: 3\r\n"),
		"origin":         h("A: 2\r\nEhdb-Origin: x\r\nB: 1\r\nA: 3\r\n"),
	} {
		if Hash([]byte("a"), same, []byte("x")) != base {
			t.Errorf("%s must not matter", name)
		}
	}
	for name, other := range map[string]uint64{
		"case of a name":      Hash([]byte("a"), h("b: 1\r\nA: 2\r\nA: 3\r\n"), []byte("x")),
		"order of one name":   Hash([]byte("a"), h("B: 1\r\nA: 3\r\nA: 2\r\n"), []byte("x")),
		"value":               Hash([]byte("a"), h("B: 1\r\nA: 2\r\nA: 4\r\n"), []byte("x")),
		"a field less":        Hash([]byte("a"), h("B: 1\r\nA: 2\r\n"), []byte("x")),
		"status":              Hash([]byte("a"), []byte("NATS/1.0 503\r\nB: 1\r\nA: 2\r\nA: 3\r\n\r\n"), []byte("x")),
		"data":                Hash([]byte("a"), h("B: 1\r\nA: 2\r\nA: 3\r\n"), []byte("y")),
		"subject":             Hash([]byte("ab"), h("B: 1\r\nA: 2\r\nA: 3\r\n"), []byte("x")),
		"no header":           Hash([]byte("a"), nil, []byte("x")),
		"header that is not":  Hash([]byte("a"), []byte("HTTP/1.0\r\nB: 1\r\nA: 2\r\nA: 3\r\n\r\n"), []byte("x")),
		"a line without name": Hash([]byte("a"), h("B: 1\r\nA: 2\r\nA: 3\r\nC\r\n"), []byte("x")),
	} {
		if other == base {
			t.Errorf("%s must matter", name)
		}
	}
	if Hash([]byte("ab"), nil, []byte("c")) == Hash([]byte("a"), nil, []byte("bc")) {
		t.Error("the parts run into each other")
	}
}

func TestHashDoesNotAllocate(t *testing.T) {
	subject, header, data := []byte("a.b"), []byte("NATS/1.0\r\nNats-Msg-Id: 1\r\nA: 2\r\n\r\n"), []byte("data")
	if n := testing.AllocsPerRun(100, func() { Hash(subject, header, data) }); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}

package system

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzHeader: the headers of any request are read, and what is found was there.
func FuzzHeader(f *testing.F) {
	f.Add([]byte("NATS/1.0\r\nAccept-Encoding: gzip\r\n\r\n"), "Accept-Encoding")
	f.Add([]byte("NATS/1.0\r\n:\r\n: x\r\nA:"), "A")
	f.Add([]byte(nil), "")
	f.Fuzz(func(t *testing.T, block []byte, name string) {
		value := headerOf(block, name)
		if !bytes.Contains(block, []byte(value)) || strings.Contains(value, "\r\n") {
			t.Errorf("%q of %q is %q", name, block, value)
		}
		encoding, out := compressed(strings.ToLower(value), []byte("answer"))
		if encoding == "identity" && string(out) != "answer" {
			t.Errorf("%q: %q", value, out)
		}
	})
}

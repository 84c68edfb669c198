package accounts

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// The headers of tracing systems that ask for a measurement, as fields writes them.
const (
	uberTrace  = "Uber-Trace-Id"
	b3Trace    = "B3"
	b3ID       = "X-B3-Traceid"
	b3Parent   = "X-B3-Parentspanid"
	b3Span     = "X-B3-Spanid"
	b3Sampled  = "X-B3-Sampled"
	w3cTrace   = "Traceparent"
	w3cState   = "Tracestate"
	uberPrefix = "Uberctx-"
)

// sampler returns what decides whether a request is measured: so many per cent of all, or, where they have headers of a
// tracing system, those that it samples. The trace are the headers that the measurement shows.
func sampler(percent int) func(header []byte) (trace any, sampled bool) {
	return func(header []byte) (any, bool) {
		if percent >= allOfIt || percent > 0 && rand.IntN(allOfIt) < percent { //nolint:gosec // a sample
			return nil, true
		}
		if len(header) == 0 {
			return nil, false
		}
		trace, sampled := traced(fields(header))
		if !sampled {
			return nil, false
		}
		return trace, true
	}
}

// fields reads a header block.
func fields(block []byte) http.Header {
	out := http.Header{}
	_, rest, _ := bytes.Cut(block, []byte("\r\n"))
	for line := range strings.SplitSeq(string(rest), "\r\n") {
		name, value, ok := strings.Cut(line, ":")
		if ok {
			name = textproto.CanonicalMIMEHeaderKey(name)
			out[name] = append(out[name], strings.TrimSpace(value))
		}
	}
	return out
}

// traced reports whether h is of a trace that is sampled, and returns its headers.
func traced(h http.Header) (http.Header, bool) {
	switch {
	case h.Get(uberTrace) != "":
		context := func(name string) bool { return strings.HasPrefix(name, uberPrefix) }
		return kept(h, uberTrace, context), uberSampled(h.Get(uberTrace))
	case h.Get(b3Sampled) != "":
		return b3(h), h.Get(b3Sampled) == "1"
	case h.Get(b3ID) != "":
		return b3(h), true
	case h.Get(b3Trace) != "":
		return kept(h, b3Trace, nil), b3FieldSampled(h.Get(b3Trace))
	case h.Get(w3cTrace) != "":
		return kept(h, w3cTrace, func(name string) bool { return name == w3cState }), w3cSampled(h.Get(w3cTrace))
	}
	return nil, false
}

// kept are the header of that name and those that also takes.
func kept(h http.Header, name string, also func(string) bool) http.Header {
	out := http.Header{name: h[name]}
	for n, v := range h {
		if also != nil && also(n) {
			out[n] = v
		}
	}
	return out
}

func b3(h http.Header) http.Header {
	out := http.Header{}
	for _, name := range []string{b3ID, b3Parent, b3Span, b3Sampled} {
		if v := h.Values(name); len(v) > 0 {
			out[name] = v
		}
	}
	return out
}

// uberSampled reads the flags of a trace id {trace}:{span}:{parent}:{flags}, in hexadecimal.
func uberSampled(id string) bool {
	parts := strings.Split(id, ":")
	if len(parts) != 4 || len(parts[3]) > 2 {
		return false
	}
	flags, err := strconv.ParseUint(parts[3], 16, 8)
	return err == nil && flags&1 == 1
}

// b3FieldSampled reads the single header {trace}-{span}-{sampled}-{parent}, or just {sampled}.
func b3FieldSampled(value string) bool {
	parts := strings.Split(value, "-")
	return (len(parts) <= 2 || parts[2] != "0") && (len(parts) != 1 || parts[0] != "0")
}

// w3cSampled reads the flags of {version}-{trace}-{parent}-{flags}.
func w3cSampled(value string) bool {
	parts := strings.Split(value, "-")
	if len(parts) != 4 || len(parts[3]) != 2 {
		return false
	}
	flags, err := strconv.ParseUint(parts[3], 16, 8)
	return err == nil && flags&1 == 1
}

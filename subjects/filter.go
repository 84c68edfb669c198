package subjects

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// ErrInvalidFilter is wrapped by the errors about a filter that is none.
var ErrInvalidFilter = errors.New("invalid subject filter")

// Filter is a filter prepared for many matches. It is immutable and safe for concurrent use.
type Filter struct {
	text   string
	prefix []byte // text up to its first wildcard token, with the dot before it
	rest   string // text after prefix; empty: no wildcard
}

// Compile prepares text. The error wraps ErrInvalidFilter.
func Compile(text string) (*Filter, error) {
	if !ValidFilter(text) {
		return nil, fmt.Errorf("%w: %q", ErrInvalidFilter, text)
	}
	n := literalPrefix(text)
	return &Filter{text: text, prefix: []byte(text[:n]), rest: text[n:]}, nil
}

// literalPrefix returns how many bytes of the filter come before its first wildcard token.
func literalPrefix(filter string) int {
	n := 0
	for {
		token, _, more := strings.Cut(filter[n:], separator)
		if token == anyToken || (!more && token == anyTail) {
			return n
		}
		if !more {
			return len(filter)
		}
		n += len(token) + len(separator)
	}
}

// Match reports whether the filter selects subject.
func (f *Filter) Match(subject []byte) bool {
	if f.rest == "" {
		return bytes.Equal(subject, f.prefix)
	}
	if !bytes.HasPrefix(subject, f.prefix) {
		return false
	}
	rest := view(subject[len(f.prefix):])
	return wellFormed(rest) && (f.rest == anyTail || match(f.rest, rest))
}

// Prefix returns the bytes every selected subject starts with; the caller must not change them.
func (f *Filter) Prefix() []byte { return f.prefix }

// Literal reports whether the filter has no wildcard: Prefix is then the one subject it selects.
func (f *Filter) Literal() bool { return f.rest == "" }

// String returns the filter's text.
func (f *Filter) String() string { return f.text }

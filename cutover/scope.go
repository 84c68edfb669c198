package cutover

import (
	"fmt"
	"strings"
)

// ParseScope takes account/stream, or a stream of the global account. Stream names have no slash.
func ParseScope(s string) (Scope, error) {
	i := strings.LastIndexByte(s, '/')
	scope := Scope{Account: "$G", Stream: s[i+1:]}
	if i >= 0 {
		scope.Account = s[:i]
	}
	if scope.Account == "" || scope.Stream == "" || strings.ContainsAny(scope.Stream, " \t.*>") {
		return Scope{}, fmt.Errorf("%q is no stream: give STREAM, or ACCOUNT/STREAM", s)
	}
	return scope, nil
}

// Flag is the stream as a flag of ehdbctl, for a shell: it would take the $ of $G for its own.
func (s Scope) Flag() string { return "--scope '" + s.String() + "'" }

// MarshalText implements encoding.TextMarshaler, as String.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, as ParseScope; nothing is no scope.
func (s *Scope) UnmarshalText(b []byte) (err error) {
	if len(b) == 0 || string(b) == "/" {
		*s = Scope{}
		return nil
	}
	*s, err = ParseScope(string(b))
	return err
}

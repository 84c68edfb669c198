package subjects

import (
	"strings"
	"unsafe"
)

const (
	separator = "."
	anyToken  = "*"
	anyTail   = ">"
	blanks    = " \t\n\r\f"
)

// Text is a subject or filter as a caller has it.
type Text interface{ ~string | ~[]byte }

// view returns s as a string without a copy. It is for the time of a call: nobody may change the bytes meanwhile, and
// the result is not kept. A string's header is the first two words of a slice's.
func view[S Text](s S) string { return *(*string)(unsafe.Pointer(&s)) }

// ValidFilter reports whether s can be subscribed to: at least one token, none empty, no white space, ">" only as the
// last token.
func ValidFilter[S Text](s S) bool {
	v := view(s)
	if !ValidPublish(v) {
		return false
	}
	tail := strings.IndexByte(v, '>')
	return tail < 0 || tail == len(v)-1 || validTail(v)
}

// validTail reports whether v has no token ">" but as its last.
func validTail(v string) bool {
	for {
		token, rest, more := strings.Cut(v, separator)
		if !more {
			return true
		}
		if token == anyTail {
			return false
		}
		v = rest
	}
}

// ValidLiteral reports whether s names exactly one subject: a valid filter without wildcards.
func ValidLiteral[S Text](s S) bool { return ValidFilter(s) && !HasWildcard(s) }

// ValidPublish reports whether a message published to s could reach anyone: at least one token, none empty, no white
// space. Wildcards are let through; they are ordinary tokens there.
func ValidPublish[S Text](s S) bool {
	v := view(s)
	return wellFormed(v) && !hasBlank(v)
}

// hasBlank is strings.ContainsAny(v, blanks), five times as fast for being five searches.
func hasBlank(v string) bool {
	for i := range len(blanks) {
		if strings.IndexByte(v, blanks[i]) >= 0 {
			return true
		}
	}
	return false
}

// ValidToken reports whether s can stand as one literal token: not empty, no dot, no white space, no wildcard.
func ValidToken[S Text](s S) bool {
	v := view(s)
	return v != "" && v != anyToken && v != anyTail && !strings.ContainsAny(v, separator+blanks)
}

// HasWildcard reports whether s has a token "*", or ">" as its last.
func HasWildcard[S Text](s S) bool {
	v := view(s)
	if strings.IndexByte(v, '*') < 0 && !strings.HasSuffix(v, anyTail) {
		return false
	}
	for {
		token, rest, more := strings.Cut(v, separator)
		if token == anyToken || (!more && token == anyTail) {
			return true
		}
		if !more {
			return false
		}
		v = rest
	}
}

// NumTokens returns the number of tokens of s; 0 if s is empty.
func NumTokens[S Text](s S) int {
	v := view(s)
	if v == "" {
		return 0
	}
	return strings.Count(v, separator) + 1
}

// Token returns token i of s, counted from 0, as a part of s; empty if there are not as many.
func Token[S Text](s S, i int) S {
	v := view(s)
	start := 0
	for ; i > 0; i-- {
		n := strings.IndexByte(v[start:], '.')
		if n < 0 {
			return s[:0]
		}
		start += n + 1
	}
	if i < 0 {
		return s[:0]
	}
	if n := strings.IndexByte(v[start:], '.'); n >= 0 {
		return s[start : start+n]
	}
	return s[start:]
}

// wellFormed reports whether v has tokens and none of them is empty.
func wellFormed(v string) bool {
	return v != "" && v[0] != '.' && v[len(v)-1] != '.' && !strings.Contains(v, "..")
}

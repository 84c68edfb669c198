package subjects

import "strings"

// Match reports whether filter selects subject.
func Match[F, S Text](filter F, subject S) bool {
	s := view(subject)
	return wellFormed(s) && match(view(filter), s)
}

// match is Match for a well-formed subject. It goes byte by byte, as tokens are short.
func match(filter, subject string) bool {
	for filter != anyTail {
		var f, s int // the ends of the next tokens
		if strings.HasPrefix(filter, anyToken) && (len(filter) == 1 || filter[1] == '.') {
			f, s = 1, tokenEnd(subject)
		} else {
			f = sameToken(filter, subject)
			s = f
		}
		if f == len(filter) || s == len(subject) {
			return f == len(filter) && s == len(subject)
		}
		if filter[f] != '.' || subject[s] != '.' {
			return false
		}
		filter, subject = filter[f+1:], subject[s+1:]
	}
	return true
}

// sameToken returns where the first token of a ends, or where b differs from it.
func sameToken(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] && a[n] != '.' {
		n++
	}
	return n
}

// tokenEnd returns where the first token of v ends.
func tokenEnd(v string) int {
	for i := range len(v) {
		if v[i] == '.' {
			return i
		}
	}
	return len(v)
}

// Overlap reports whether there is a subject that both filters select.
func Overlap[A, B Text](a A, b B) bool {
	x, y := view(a), view(b)
	for {
		s, xRest, xMore := strings.Cut(x, separator)
		t, yRest, yMore := strings.Cut(y, separator)
		if (s == anyTail && !xMore) || (t == anyTail && !yMore) {
			return true
		}
		if (s != t && s != anyToken && t != anyToken) || xMore != yMore {
			return false
		}
		if !xMore {
			return true
		}
		x, y = xRest, yRest
	}
}

// SubsetOf reports whether every subject that filter a selects is selected by filter b too.
func SubsetOf[A, B Text](a A, b B) bool {
	x, y := view(a), view(b)
	for {
		s, xRest, xMore := strings.Cut(x, separator)
		t, yRest, yMore := strings.Cut(y, separator)
		if t == anyTail && !yMore {
			return true
		}
		if s == anyTail && !xMore {
			return false
		}
		if (t != anyToken && s != t) || xMore != yMore {
			return false
		}
		if !xMore {
			return true
		}
		x, y = xRest, yRest
	}
}

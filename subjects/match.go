package subjects

import "strings"

// Match reports whether filter selects subject.
func Match[F, S Text](filter F, subject S) bool {
	s := view(subject)
	return wellFormed(s) && match(view(filter), s)
}

// match is Match for a well-formed subject.
func match(filter, subject string) bool {
	for {
		f, filterRest, filterMore := strings.Cut(filter, separator)
		if f == anyTail && !filterMore {
			return true
		}
		s, subjectRest, subjectMore := strings.Cut(subject, separator)
		if (f != anyToken && f != s) || filterMore != subjectMore {
			return false
		}
		if !filterMore {
			return true
		}
		filter, subject = filterRest, subjectRest
	}
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

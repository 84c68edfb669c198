package jetstreamapi

import (
	"maps"

	"github.com/noetl/ehdb-gateway/subjects"
)

// subjectIndex finds the streams of an account that may take a subject by its first token, so that making one of many
// streams does not compare it with all the others. It maps the token ("": a wildcard) to names.
type subjectIndex map[string]map[string]struct{}

// firstToken returns the first token of a subject, "" for a wildcard.
func firstToken(subject string) string {
	t := subjects.Token(subject, 0)
	if t == "*" || t == ">" {
		return ""
	}
	return t
}

func (x subjectIndex) add(name string, subjects []string) {
	for _, s := range subjects {
		t := firstToken(s)
		if x[t] == nil {
			x[t] = map[string]struct{}{}
		}
		x[t][name] = struct{}{}
	}
}

func (x subjectIndex) remove(name string, subjects []string) {
	for _, s := range subjects {
		t := firstToken(s)
		if delete(x[t], name); len(x[t]) == 0 {
			delete(x, t)
		}
	}
}

// candidates returns the names of the streams that may take subjects which filter takes.
func (x subjectIndex) candidates(filter string) map[string]struct{} {
	t := firstToken(filter)
	if t != "" && len(x[""]) == 0 {
		return x[t]
	}
	out := map[string]struct{}{}
	if t != "" {
		maps.Copy(out, x[t])
		maps.Copy(out, x[""])
		return out
	}
	for _, names := range x {
		maps.Copy(out, names)
	}
	return out
}

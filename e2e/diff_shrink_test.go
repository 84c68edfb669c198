package e2e

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// shrink looks for a shorter script that still fails: lines are left out in ever smaller pieces, then fields of what
// JSON remains. fails plays a script; it gets no call after the deadline.
func shrink(script []string, deadline time.Time, fails func([]string) bool) []string {
	try := func(s []string) bool { return time.Now().Before(deadline) && fails(s) }
	for n := (len(script) + 1) / 2; n > 0; {
		shorter := false
		for i := 0; i < len(script); {
			candidate := slices.Delete(slices.Clone(script), i, min(i+n, len(script)))
			if try(candidate) {
				script, shorter = candidate, true
				continue
			}
			i += n
		}
		if n == 1 && !shorter {
			break
		}
		if n > 1 {
			n = (n + 1) / 2
		}
	}
	for i := range script {
		for simpler := true; simpler; {
			simpler = false
			for _, line := range simplerLines(script[i]) {
				candidate := slices.Clone(script)
				candidate[i] = line
				if try(candidate) {
					script, simpler = candidate, true
					break
				}
			}
		}
	}
	return script
}

// simplerLines returns the line with each field of its JSON left out, one at a time.
func simplerLines(line string) (out []string) {
	at := strings.IndexByte(line, '{')
	if at < 0 {
		return nil
	}
	var v map[string]any
	if json.Unmarshal([]byte(line[at:]), &v) != nil {
		return nil
	}
	for _, without := range withoutEach(v) {
		b, err := json.Marshal(without)
		if err != nil {
			panic(err) // it was just unmarshalled
		}
		out = append(out, line[:at]+string(b))
	}
	return out
}

func withoutEach(v map[string]any) (out []map[string]any) {
	for k, x := range v {
		switch k {
		case "durable_name", "name": // a name the server makes up is another on each side
			continue
		case "filter_subject", "filter_subjects": // see keepFilter
			continue
		case "dest", "ack_policy": // see streamFields, diffAvoided
			continue
		}
		rest := map[string]any{}
		for l, y := range v {
			if l != k {
				rest[l] = y
			}
		}
		out = append(out, rest)
		if inner, ok := x.(map[string]any); ok {
			for _, w := range withoutEach(inner) {
				c := map[string]any{k: w}
				maps.Copy(c, rest)
				out = append(out, c)
			}
		}
	}
	return out
}

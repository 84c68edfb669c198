package parity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// IgnoreVersion names the list of what is not compared in answers of the API. It changes when the list does, so that
// figures taken under different lists are not put together.
const IgnoreVersion = "2026-11-1"

// ignored are the fields of answers that may be there on one side only, or have another shape: * stands for one name or
// index, a trailing ** for all below.
var ignored = []string{
	"cluster.**", "*.cluster.**", "streams.*.cluster.**", "consumers.*.cluster.**", // who leads a replica
	"config.metadata.**", "streams.*.config.metadata.**", "consumers.*.config.metadata.**", // the server's own labels
	"limits.**", "tiers.**", // of the account
	"ts", "*.ts", "paused", "pause_remaining",
}

// compared are the fields whose values have to be equal. Of all others it is the shape: which there are, of what type.
var compared = []string{"type", "error.code", "error.err_code", "success", "did_create", "stream", "duplicate"}

// APIDifference is a field in which two answers differ.
type APIDifference struct {
	Path string `json:"path"`
	NATS string `json:"nats"`
	EHDB string `json:"ehdb"`
}

// APIVerdict is the outcome of comparing two answers.
type APIVerdict struct {
	Subject     string          `json:"subject"`
	Equal       bool            `json:"equal"`
	Ignored     int             `json:"ignored"` // differences that the list lets pass
	Differences []APIDifference `json:"differences,omitempty"`
}

// CompareAPI compares the answers of both sides to one request.
func CompareAPI(subject string, nats, ehdb []byte) APIVerdict {
	v := APIVerdict{Subject: subject}
	a, errA := decode(nats)
	b, errB := decode(ehdb)
	if errA != nil || errB != nil {
		if !bytes.Equal(nats, ehdb) {
			v.differ("", string(nats[:min(len(nats), 100)]), string(ehdb[:min(len(ehdb), 100)]))
		}
	} else {
		v.walk(nil, a, b)
	}
	v.Equal = len(v.Differences) == 0
	return v
}

func decode(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return v, d.Decode(&v)
}

func (v *APIVerdict) differ(path, a, b string) {
	if slices.ContainsFunc(ignored, func(p string) bool { return covers(p, path) }) {
		v.Ignored++
		return
	}
	v.Differences = append(v.Differences, APIDifference{path, a, b})
}

// covers tells whether a pattern of ignored is about a path.
func covers(pattern, path string) bool {
	ps, qs := strings.Split(pattern, "."), strings.Split(path, ".")
	for i, p := range ps {
		if p == "**" {
			return true
		}
		if i >= len(qs) || p != "*" && p != qs[i] {
			return false
		}
	}
	return len(ps) == len(qs)
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "nothing"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case json.Number:
		return "a number"
	case string:
		return "a text"
	default:
		return fmt.Sprintf("%T", v)
	}
}

// walk compares two values at a path.
func (v *APIVerdict) walk(path []string, a, b any) {
	at := strings.Join(path, ".")
	if kindOf(a) != kindOf(b) {
		v.differ(at, kindOf(a), kindOf(b))
		return
	}
	switch a := a.(type) {
	case map[string]any:
		b, _ := b.(map[string]any) // of the same kind
		keys := slices.Collect(maps.Keys(a))
		for k := range b {
			if _, ok := a[k]; !ok {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		for _, k := range keys {
			v.walk(append(slices.Clip(path), k), a[k], b[k])
		}
	case []any:
		b, _ := b.([]any) // of the same kind
		if (len(a) == 0) != (len(b) == 0) {
			v.differ(at, fmt.Sprintf("%d entries", len(a)), fmt.Sprintf("%d entries", len(b)))
		}
		for i := range min(len(a), len(b)) {
			v.walk(append(slices.Clip(path), strconv.Itoa(i)), a[i], b[i])
		}
	default:
		if a != b && slices.Contains(compared, at) {
			v.differ(at, fmt.Sprint(a), fmt.Sprint(b))
		}
	}
}

// APIStats counts comparisons of answers, by what was asked.
type APIStats struct {
	Version string               `json:"ignore_version"`
	Equal   uint64               `json:"equal"`
	Differ  uint64               `json:"differ"`
	Ignored uint64               `json:"ignored"`
	ByVerb  map[string][2]uint64 `json:"by_verb"` // equal, differ
	Latest  []APIVerdict         `json:"latest,omitempty"`
}

// maxVerdicts is how many verdicts that differ are kept.
const maxVerdicts = 100

// API compares answers of the JetStream API and counts. Its zero value is ready. Safe for concurrent use.
type API struct {
	mu    sync.Mutex
	stats APIStats
}

// Compare compares the answers of both sides to a request on a subject of the API.
func (a *API) Compare(subject string, nats, ehdb []byte) APIVerdict {
	v := CompareAPI(subject, nats, ehdb)
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.stats
	if s.ByVerb == nil {
		s.ByVerb = map[string][2]uint64{}
	}
	n := s.ByVerb[verb(subject)]
	s.Ignored += uint64(v.Ignored) //nolint:gosec // a handful
	if v.Equal {
		s.Equal++
		n[0]++
	} else {
		s.Differ++
		n[1]++
		if len(s.Latest) == maxVerdicts {
			s.Latest = s.Latest[1:]
		}
		s.Latest = append(s.Latest, v)
	}
	s.ByVerb[verb(subject)] = n
	return v
}

// verb is the part of a subject of the API that says what is asked, without names.
func verb(subject string) string {
	tokens := strings.Split(strings.TrimPrefix(subject, "$JS.API."), ".")
	n := min(len(tokens), 2) //nolint:mnd // STREAM.INFO
	if n > 1 && slices.Contains([]string{"MSG", "DURABLE", "LEADER", "PEER"}, tokens[1]) {
		n = min(len(tokens), 3) //nolint:mnd // STREAM.MSG.GET
	}
	return strings.Join(tokens[:n], ".")
}

// Stats returns what was counted.
func (a *API) Stats() APIStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stats
	s.Version, s.ByVerb, s.Latest = IgnoreVersion, maps.Clone(s.ByVerb), slices.Clone(s.Latest)
	return s
}

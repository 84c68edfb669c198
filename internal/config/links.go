package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/accounts"
)

// accountLinks reads what the accounts of a file export, import and rename. nats-server's parser has found all of it to
// be well formed, allowed and free of circles.
func accountLinks(file *parsedFile) []*accounts.Account {
	var out []*accounts.Account
	_, raw := unwrap(file.root["accounts"])
	list, _ := raw.(map[string]any) // the other form, a list of names, links nothing
	for name, v := range list {
		t := table(v)
		a := &accounts.Account{
			Name: name, Exports: exports(t["exports"]), Imports: imports(t["imports"]),
			Mappings: mappings(first(t, "mappings", "maps")),
		}
		a.TraceTo, a.TraceShare = traced(first(t, "msg_trace", "trace_dest"))
		out = append(out, a)
	}
	if global := mappings(first(file.root, "mappings", "maps")); len(global) > 0 {
		at := slices.IndexFunc(out, func(a *accounts.Account) bool { return a.Name == server.DEFAULT_GLOBAL_ACCOUNT })
		if at < 0 {
			at, out = len(out), append(out, &accounts.Account{Name: server.DEFAULT_GLOBAL_ACCOUNT})
		}
		out[at].Mappings = append(out[at].Mappings, global...)
	}
	return out
}

// mapped is an error for mappings to nothing: nats-server takes them, and a message to one ends its process.
func mapped(list []*accounts.Account) error {
	var errs []error
	for _, a := range list {
		for _, m := range a.Mappings {
			if slices.ContainsFunc(m.Destinations, func(d accounts.Destination) bool { return d.Subject == "" }) {
				errs = append(errs, fmt.Errorf("mappings of account %s: %q has an empty destination: name a subject, "+
					"or leave the mapping out", a.Name, m.Subject))
			}
		}
	}
	return joined(errs)
}

// first returns the value of the first of the keys that is there.
func first(t map[string]any, keys ...string) any {
	for _, k := range keys {
		if v, ok := t[k]; ok {
			return v
		}
	}
	return nil
}

// text, flag and number read values that are known to be of their kind.
func text(v any) string {
	_, v = unwrap(v)
	s, _ := v.(string)
	return s
}

func flagged(v any) bool {
	_, v = unwrap(v)
	b, _ := v.(bool)
	return b
}

func number(v any) int {
	_, v = unwrap(v)
	n, _ := v.(int64)
	return int(n)
}

func elements(v any) []any {
	_, v = unwrap(v)
	list, _ := v.([]any)
	return list
}

func exports(v any) []accounts.Export {
	var out []accounts.Export
	for _, e := range elements(v) {
		t := table(e)
		x := accounts.Export{
			Subject: text(t["stream"]), TokenPosition: number(t["account_token_position"]),
			Latency: latency(t["latency"]), Trace: flagged(t["allow_trace"]),
		}
		if s, ok := t["service"]; ok {
			x.Subject, x.Service = text(s), true
		}
		for _, a := range elements(t["accounts"]) {
			x.Approved = append(x.Approved, text(a))
		}
		switch strings.ToLower(text(first(t, "response", "response_type"))) {
		case "stream":
			x.Response = accounts.Streamed
		case "chunk", "chunked":
			x.Response = accounts.Chunked
		}
		threshold := first(t, "threshold", "response_threshold", "response_max_time", "response_time")
		x.Threshold, _ = time.ParseDuration(text(threshold))
		out = append(out, x)
	}
	return out
}

// allTraces is the share of an account that says nothing of it, in per cent.
const allTraces = 100

// traced reads where an account's traces go, and how many of them, in per cent.
func traced(v any) (dest string, share int) {
	if dest = text(v); dest != "" {
		return dest, allTraces
	}
	t := table(v)
	if t == nil {
		return "", 0
	}
	share = number(t["sampling"])
	if s := text(t["sampling"]); s != "" {
		share, _ = strconv.Atoi(strings.TrimSuffix(s, "%"))
	}
	return text(first(t, "dest", "trace_dest")), cmp.Or(share, allTraces)
}

func latency(v any) *accounts.Latency {
	if v == nil {
		return nil
	}
	if subject := text(v); subject != "" {
		return &accounts.Latency{Results: subject, Sampling: server.DEFAULT_SERVICE_LATENCY_SAMPLING}
	}
	t := table(v)
	l := &accounts.Latency{Results: text(t["subject"]), Sampling: server.DEFAULT_SERVICE_LATENCY_SAMPLING}
	switch sampling := t["sampling"]; {
	case sampling == nil:
	case text(sampling) == "":
		l.Sampling = number(sampling)
	default:
		l.Sampling, _ = strconv.Atoi(strings.TrimSuffix(text(sampling), "%")) // 0: by headers
	}
	return l
}

func imports(v any) []accounts.Import {
	var out []accounts.Import
	for _, e := range elements(v) {
		t := table(e)
		x := accounts.Import{Local: text(t["to"]), Share: flagged(t["share"]), Trace: flagged(t["allow_trace"])}
		of := table(t["stream"])
		if s, ok := t["service"]; ok {
			of, x.Service = table(s), true
		}
		x.Account, x.Subject = text(of["account"]), text(of["subject"])
		if x.Local == "" {
			x.Local = accounts.Prefixed(text(t["prefix"]), x.Subject)
		}
		out = append(out, x)
	}
	return out
}

func mappings(v any) []accounts.Mapping {
	_, raw := unwrap(v)
	list, _ := raw.(map[string]any)
	var out []accounts.Mapping
	for _, subject := range slices.Sorted(maps.Keys(list)) { // not table: subjects keep their case
		e, m := list[subject], accounts.Mapping{Subject: subject}
		switch to := text(e); {
		case to != "":
			m.Destinations = []accounts.Destination{{Subject: to, Weight: 100}}
		case elements(e) != nil:
			for _, d := range elements(e) {
				m.Destinations = append(m.Destinations, destination(d))
			}
		default:
			m.Destinations = []accounts.Destination{destination(e)}
		}
		out = append(out, m)
	}
	return out
}

func destination(v any) accounts.Destination {
	t := table(v)
	d := accounts.Destination{Subject: text(first(t, "dest", "destination")), Cluster: text(t["cluster"])}
	d.Weight = number(t["weight"])
	if w := text(t["weight"]); w != "" {
		d.Weight, _ = strconv.Atoi(strings.TrimSuffix(w, "%"))
	}
	return d
}

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// In a script of copies the stream B is a mirror of A, or has A as its source. A is there to the end: nats-server looks
// for an origin that went away only after a while, and not at the same time as the gateway does.

// copyFields are fields of A and B in such a script. What B cannot store is not among them (both try it again, each at
// its times), nor are other retentions of A (nats-server's has a consumer then), direct gets that B answers for A, and a
// mirror's duplicate window, which nats-server drops when it starts again.
var copyFields = func() map[string]values {
	f := maps.Clone(streamFields)
	for _, k := range []string{
		"retention", "mirror_direct", "sealed", "discard", "discard_new_per_subject", "max_msg_size", "max_bytes",
		"allow_msg_counter", "allow_msg_schedules", "no_ack", "first_seq", "duplicate_window",
	} {
		delete(f, k)
	}
	return f
}()

var (
	mirrors = values{[]string{
		`{"name":"A"}`, `{"name":"A"}`, `{"name":"A"}`, `{"name":"A","opt_start_seq":2}`, `{"name":"A","filter_subject":"a.1"}`,
		`{"name":"A","filter_subject":"a.1.>","opt_start_seq":3}`, `{"name":"A","opt_start_time":"2020-01-01T00:00:00Z"}`,
		`{"name":"A","subject_transforms":[{"src":"a.1","dest":"x.1"},{"src":"a.2","dest":""}]}`,
		`{"name":"A","subject_transforms":[{"src":">","dest":"x.>"}]}`,
	}, []string{
		`{}`, `{"name":"B"}`, `{"name":"A","filter_subject":"a..1"}`, `{"name":"A","opt_start_seq":-1}`,
		`{"name":"A","filter_subject":"a.1","subject_transforms":[{"src":"a.2","dest":"x"}]}`, `{"name":"A","x":1}`,
	}}
	sources = values{[]string{
		`[{"name":"A"}]`, `[{"name":"A"}]`, `[{"name":"A","filter_subject":"a.1"}]`, `[{"name":"A","opt_start_seq":2}]`,
		`[{"name":"A","filter_subject":"a.1.>","opt_start_seq":3}]`,
		`[{"name":"A","subject_transforms":[{"src":"a.*","dest":"x.{{wildcard(1)}}"}]}]`,
		`[{"name":"A","subject_transforms":[{"src":"a.1","dest":""},{"src":"a.2","dest":"y"}]}]`,
	}, []string{`[]`, `[{"name":"A"},{"name":"A"}]`, `[{"name":"B"}]`, `[{"name":"A","filter_subject":"a..1"}]`, `[{}]`, `[{"name":"A","x":1}]`}}
)

// startCopies makes the origin.
func (g *generator) startCopies() string {
	g.copies = true
	g.streams["A"] = map[string]string{"name": `"A"`, "subjects": `["a.>"]`}
	for _, k := range []string{"allow_direct", "allow_rollup_hdrs", "allow_msg_ttl", "allow_atomic"} {
		if g.one(2) {
			g.streams["A"][k] = "true"
		}
	}
	if g.one(4) {
		g.streams["A"]["max_msgs"] = "5"
	}
	return "api STREAM.CREATE.A " + fieldJSON(g.streams["A"])
}

// createCopy is a create of B.
func (g *generator) createCopy() string {
	f := g.fields(copyFields, 3)
	f["name"] = `"B"`
	if g.one(2) {
		f["mirror"] = g.value(mirrors)
	} else {
		f["sources"] = g.value(sources)
		if g.one(3) {
			f["subjects"] = `["b.>"]`
		}
	}
	if g.one(2) {
		f["allow_direct"] = "true"
	}
	g.streams["B"] = f
	return "api STREAM.CREATE.B " + fieldJSON(f)
}

// originLost matches what would take the origin away, and a header that B takes for a source's.
var originLost = regexp.MustCompile(`STREAM\.DELETE\.A|Nats-Stream-Source`)

// diffIdentity matches the end of a Nats-Stream-Source: a hash of when the origin was made.
var diffIdentity = regexp.MustCompile(`(A \d+ [^ ]+ [^ ]+ [^ ]+) [0-9A-Za-z]{8}\b`)

// diffCopyConsumer matches advisories about the consumers that nats-server makes for copies.
var diffCopyConsumer = regexp.MustCompile(`\.ADVISORY\.CONSUMER\..*\.JS_(MIRROR|SRC)_`)

// diffAccountConsumers matches the number of an account's consumers: nats-server counts those, too.
var diffAccountConsumers = regexp.MustCompile(`"consumers":\d+,`)

// diffCopied matches what an answer to a change of B says of its progress.
var diffCopied = regexp.MustCompile(`"(mirror|sources)":\[?\{"active".*"state":\{[^}]*\}`)

// diffCopies reports whether a line makes a copy.
func diffCopies(line string) bool {
	return strings.Contains(line, "STREAM.CREATE.B") && (strings.Contains(line, `"mirror"`) || strings.Contains(line, `"sources"`))
}

// diffOriginLate reports whether a script makes a copy of what is not there yet: see above.
func diffOriginLate(script []string) bool {
	origin := slices.IndexFunc(script, func(l string) bool { return strings.HasPrefix(l, "api STREAM.CREATE.A ") })
	copied := slices.IndexFunc(script, diffCopies)
	return copied >= 0 && (origin < 0 || origin > copied)
}

// settleCopies waits until B has what A had on both sides: both say the same, with no lag, twice. What is not equal by the
// deadline, the next comparison shows.
func (p *diffPlayer) settleCopies(deadline time.Time) {
	for equal := 0; equal < 2 && time.Now().Before(deadline); time.Sleep(max(p.settle, 10*time.Millisecond)) {
		out := p.both("api STREAM.INFO.B")
		if equal++; out[0] != out[1] || copyLags(out[0]) {
			equal = 0
		}
	}
}

func copyLags(info string) bool {
	type link struct{ Lag uint64 }
	var v struct {
		Mirror  link
		Sources []link
	}
	if json.Unmarshal([]byte(info), &v) != nil {
		return false
	}
	return slices.ContainsFunc(append(v.Sources, v.Mirror), func(l link) bool { return l.Lag > 0 })
}

// batched makes a publish part of an atomic batch: mostly the next of one that was begun, sometimes its last.
func (g *generator) batched(s string, h map[string]string) {
	id := g.pick("x", "x", "y")
	key := s + "." + id
	g.batches[key]++
	h["Nats-Batch-Id"] = g.mostly([]string{id}, []string{"", strings.Repeat("i", 65)})
	h["Nats-Batch-Sequence"] = g.mostly([]string{fmt.Sprint(g.batches[key])}, []string{"1", "0", "x", "1001", ""})
	if g.one(3) {
		h["Nats-Batch-Commit"] = g.mostly([]string{"1", "1", "eob"}, []string{"0", "", "2"})
		g.batches[key] = 0
	}
}

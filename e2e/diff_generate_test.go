package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// diffStreams are the streams a script uses, with their usual subjects; few, so that lines meet.
var diffStreams = map[string]string{"A": "a", "B": "b"}

var diffConsumers = []string{"C", "D", "E"}

// generator makes the lines of a script from a seed. It remembers what it asked for, so that later lines are about
// something; whether that was granted it does not know.
type generator struct {
	r         *rand.Rand
	theme     *diffTheme
	published int
	copies    bool                         // B is a copy of A
	batches   map[string]int               // by "S.ID": the last sequence of a batch
	streams   map[string]map[string]string // by name: the newest configuration's fields
	consumers map[string]map[string]string // by "S.C"
}

func newGenerator(seed uint64) *generator {
	g := &generator{
		r:       rand.New(rand.NewPCG(seed, 4)), //nolint:gosec // reproducible
		streams: map[string]map[string]string{}, consumers: map[string]map[string]string{}, batches: map[string]int{},
	}
	g.theme = &diffThemes[g.r.IntN(len(diffThemes))]
	return g
}

// script returns n lines. The first ones make a stream, else nothing would happen for long.
func (g *generator) script(n int) []string {
	var out []string
	add := func(line string) {
		if !g.theme.avoids(line) && !diffAvoids(append(slices.Clone(out), line)) {
			out = append(out, line)
		}
	}
	if g.theme.copies {
		add(g.startCopies())
		add(g.createCopy())
	}
	for len(out) == 0 {
		add(g.createStream("A"))
	}
	for len(out) < n {
		add(g.line())
	}
	return out
}

// one is true once in n.
func (g *generator) one(n int) bool { return g.r.IntN(n) == 0 }

func (g *generator) pick(from ...string) string { return from[g.r.IntN(len(from))] }

// mostly returns one of the first, and now and then one of the second.
func (g *generator) mostly(good, odd []string) string {
	if len(odd) > 0 && g.one(12) {
		return g.pick(odd...)
	}
	return g.pick(good...)
}

func (g *generator) stream() string {
	if g.one(4) {
		return "B"
	}
	return "A"
}

func (g *generator) consumer() string { return diffConsumers[min(g.r.IntN(5), 2)] }

// prefix is the first token of a stream's subjects.
func (g *generator) prefix(stream string) string {
	if g.copies && !g.one(4) { // most of B comes from A
		return diffStreams["A"]
	}
	return diffStreams[stream]
}

func (g *generator) subject(stream string) string {
	p := g.prefix(stream)
	return g.pick(p+".1", p+".1", p+".2", p+".3", p+".1.x")
}

func (g *generator) filter(stream string) string {
	p := g.prefix(stream)
	return g.mostly([]string{p + ".1", p + ".2", p + ".*", p + ".>", p + ".1.>"},
		[]string{">", "none", p + "..x", "*.1", "*", ""})
}

// seq is a small number, near what the sequences of the script are.
func (g *generator) seq() string { return fmt.Sprint(g.r.IntN(g.published/2 + 4)) }

// line is one operation, of the sorts the theme is about.
func (g *generator) line() string {
	s := g.stream()
	c := g.consumer()
	key := s + "." + c
	switch g.sort() {
	case sortPublish:
		return g.publish(s)
	case sortFast:
		return g.fast(s)
	case sortCreateStream:
		return g.createStream(s)
	case sortUpdateStream:
		return g.updateStream(s)
	case sortCreateConsumer:
		return g.createConsumer(s, c)
	case sortPull:
		return fmt.Sprintf("pull %s %s %d %s", s, c, g.r.IntN(diffInboxes), g.pullBody())
	case sortAck:
		if g.one(60) {
			return "ack " + key + " 0 nonsense" // with acksync it "differs": answered 400, nats-server confirms it
		}
		return fmt.Sprintf("%s %s %d %s", g.pick("ack", "acksync"), key, g.r.IntN(4), g.mostly(
			[]string{"+ACK", "+ACK", "", "+OK", "-NAK", "-NAK", "+TERM", "+WPI", "+TERM why", `-NAK {"delay":100000000000}`},
			[]string{"+NXT", "+NXT 2", `+NXT {"batch":1,"no_wait":true}`, "-NAK 100s", "-NAK {", "+NXT x"}))
	case sortListen:
		return g.pick("sub", "unsub") + " push." + key
	case sortMessage:
		return g.messageLine(s)
	case sortDirect:
		return g.directGet(s)
	case sortConsumer:
		return g.consumerLine(s, c)
	case sortStream:
		return g.streamLine(s)
	case sortKeyValue:
		return g.keyValue()
	case sortRestart:
		return "restart"
	case sortCheck:
	}
	return "check"
}

func (g *generator) streamLine(s string) string {
	switch g.r.IntN(12) {
	case 0:
		return "api STREAM.DELETE." + s
	case 1:
		return "api STREAM.NAMES " + g.pick("", `{"subject":"a.1"}`, `{"subject":"b.>"}`, `{"offset":1}`, `{"offset":-1}`, `{"subject":">"}`)
	case 2:
		return "api STREAM.LIST " + g.pick("", `{"subject":"a.1"}`, `{"offset":1}`, `{"offset":9}`)
	case 3, 4:
		return fmt.Sprintf("api STREAM.INFO.%s %s", s, g.mostly(
			[]string{"", `{"deleted_details":true}`, `{"subjects_filter":"` + g.filter(s) + `"}`, `{"subjects_filter":">","offset":1}`},
			[]string{`{"subjects_filter":">","offset":9}`, `{"x":1}`, `nonsense`, `{`, `[]`}))
	case 5:
		return "api INFO"
	case 6:
		return "check"
	}
	return fmt.Sprintf("api STREAM.PURGE.%s %s", s, g.mostly(
		[]string{
			"", `{"filter":"` + g.filter(s) + `"}`, `{"seq":` + g.seq() + `}`, `{"keep":` + g.pick("0", "1", "2") + `}`,
			`{"filter":"` + g.filter(s) + `","keep":` + g.pick("0", "1", "2") + `}`,
			`{"filter":"` + g.filter(s) + `","seq":` + g.seq() + `}`,
		},
		[]string{`{"seq":3,"keep":1}`, `{"filter":"a..b"}`, `{`, `{"x":1}`, `{"seq":-1}`, `{"seq":100000}`}))
}

func (g *generator) messageLine(s string) string {
	if g.one(2) {
		return fmt.Sprintf("api STREAM.MSG.DELETE.%s %s", s, g.mostly(
			[]string{`{"seq":` + g.seq() + `}`, `{"seq":` + g.seq() + `,"no_erase":true}`}, []string{"", "{}", "{", `{"seq":"x"}`}))
	}
	return fmt.Sprintf("api STREAM.MSG.GET.%s %s", s, g.getBody(s))
}

func (g *generator) getBody(s string) string {
	return g.mostly([]string{
		`{"seq":` + g.seq() + `}`, `{"last_by_subj":"` + g.filter(s) + `"}`, `{"next_by_subj":"` + g.filter(s) + `"}`,
		`{"seq":` + g.seq() + `,"next_by_subj":"` + g.filter(s) + `"}`, `{"seq":` + g.seq() + `,"no_hdr":true}`,
		`{"start_time":"2020-01-01T00:00:00Z"}`, `{"start_time":"` + diffFuture + `"}`,
	}, []string{
		"", "{}", "{", `{"seq":1,"last_by_subj":"a.1"}`, `{"last_by_subj":"a.1","next_by_subj":"a.1"}`, `{"seq":-1}`,
		`{"start_time":"2020-01-01T00:00:00Z","seq":1}`, `{"start_time":"2020-01-01T00:00:00Z","next_by_subj":"a.1"}`,
		`{"batch":2,"seq":1}`, `{"x":2}`,
	})
}

func (g *generator) directGet(s string) string {
	if g.one(4) {
		return "get " + s + "." + g.mostly([]string{g.subject(s)}, []string{g.filter(s)}) + " " + g.mostly([]string{""}, []string{"{}", `{"seq":1}`})
	}
	if g.one(3) {
		return "get " + s + " " + g.getBody(s)
	}
	return "get " + s + " " + g.mostly([]string{
		`{"batch":3,"seq":` + g.seq() + `}`, `{"batch":3,"seq":` + g.seq() + `,"next_by_subj":"` + g.filter(s) + `"}`,
		`{"batch":10,"next_by_subj":"` + g.filter(s) + `"}`,
		`{"batch":10,"max_bytes":` + g.pick("1", "60", "200") + `,"seq":1}`, `{"multi_last":["` + g.filter(s) + `"]}`,
		`{"multi_last":["` + g.filter(s) + `","` + g.filter(s) + `"],"batch":` + g.pick("1", "2", "10") + `}`,
		`{"multi_last":[">"],"up_to_seq":` + g.seq() + `}`, `{"multi_last":[">"],"seq":` + g.seq() + `,"batch":2}`,
		`{"batch":3,"start_time":"2020-01-01T00:00:00Z","next_by_subj":"` + g.filter(s) + `"}`,
		// A batch with no_hdr "differs": nats-server's last answer counts the messages of the batch as pending.
		`{"multi_last":["` + g.filter(s) + `"],"up_to_time":"` + diffFuture + `"}`,
	}, []string{
		`{"batch":-1,"seq":1}`, `{"batch":2}`, `{"batch":2,"last_by_subj":"a.1"}`, `{"multi_last":[]}`, `{"multi_last":["a..b"]}`,
		`{"multi_last":[">"],"up_to_seq":2,"up_to_time":"` + diffFuture + `"}`, `{"multi_last":[">"],"seq":1}`,
		`{"multi_last":["a.1"],"last_by_subj":"a.1"}`, `{"multi_last":["a.1"],"batch":-3}`, `{"max_bytes":10,"seq":1}`,
	})
}

// publish is one publish with a PubAck.
func (g *generator) publish(s string) string {
	g.published++
	h := map[string]string{}
	for g.one(3) && len(h) < 3 {
		k := g.pick(slices.Sorted(maps.Keys(publishHeaders))...)
		v := publishHeaders[k]
		h[k] = g.mostly(v.good, v.odd)
		if h[k] == "SEQ" {
			h[k] = g.seq()
		}
	}
	subject := g.mostly([]string{g.subject(s)}, []string{"c.9", s, "x.1"})
	data := g.mostly([]string{fmt.Sprint("m", g.published), fmt.Sprint("message-", g.published), "-"}, []string{strings.Repeat("x", 150), "{}"})
	if g.streams[s]["allow_msg_counter"] == "true" && g.r.IntN(4) > 0 {
		h["Nats-Incr"], data = g.mostly([]string{"1", "+2", "-3"}, []string{"x", "", "0", "1.5", "99999999999999999999"}), "-"
	}
	if g.streams[s]["allow_msg_schedules"] == "true" && g.one(3) {
		h["Nats-Schedule"] = g.mostly([]string{"@at 2099-01-01T00:00:00Z", "@every 5h", "0 0 0 1 1 *", "@yearly"}, []string{"@at x", "@every 1ms", "x"})
		h["Nats-Schedule-Target"] = g.mostly([]string{g.subject(s)}, []string{subject, "z.z", "a.*", ""})
		if g.one(4) {
			k := g.pick("Nats-Schedule-TTL", "Nats-Schedule-Source", "Nats-Schedule-Rollup", "Nats-Schedule-Time-Zone")
			h[k] = g.pick("1h", "5", "a.1", "a.2", "sub", "Europe/Paris", "x", "never")
		}
	}
	if g.theme.atomic && g.r.IntN(3) > 0 || g.one(100) {
		g.batched(s, h)
	}
	if len(h) == 0 {
		return fmt.Sprintf("pub %s %s", subject, data)
	}
	return fmt.Sprintf("pub %s %s %s", subject, data, headerJSON(h))
}

type values struct{ good, odd []string }

// publishHeaders are what a publish may say. SEQ is a number near the sequences of the script.
var publishHeaders = map[string]values{
	"Nats-Msg-Id":                                 {[]string{"i1", "i2", "i3"}, []string{"", "a long one with spaces"}},
	"Nats-Expected-Stream":                        {[]string{"A"}, []string{"B", "", "none"}},
	"Nats-Expected-Last-Sequence":                 {[]string{"SEQ"}, []string{"x", "-1", ""}},
	"Nats-Expected-Last-Msg-Id":                   {[]string{"i1", "i2"}, []string{""}},
	"Nats-Expected-Last-Subject-Sequence":         {[]string{"SEQ", "0"}, []string{"x", "-1", ""}},
	"Nats-Expected-Last-Subject-Sequence-Subject": {[]string{"a.1", "a.*", "a.>"}, []string{"b.1", "a..1", ""}},
	"Nats-Rollup":                                 {[]string{"sub", "all"}, []string{"x", "", "SUB"}},
	"Nats-TTL":                                    {[]string{"1h", "3600", "never", "2h30m"}, []string{"x", "0", "-1", "1ms", "", "1"}},
	"Nats-Marker-Reason":                          {[]string{"MaxAge"}, []string{"x"}},
	"Nats-Incr":                                   {[]string{"1"}, []string{"x"}},
	"Nats-Schedule":                               {[]string{"@at 2099-01-01T00:00:00Z"}, []string{"x"}},
	"Nats-Schedule-Next":                          {[]string{"purge"}, []string{"x"}},
	"Nats-Stream-Source":                          {[]string{"A 1 > > a.1"}, nil},
	"Nats-Required-Api-Level":                     {[]string{"1", "5"}, []string{"99", "x"}},
	"K":                                           {[]string{"v", "w"}, []string{"a  b", ""}},
}

func headerJSON(h map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(h)) {
		parts = append(parts, fmt.Sprintf("%q:%q", k, h[k]))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (g *generator) keyValue() string {
	key := g.pick("k1", "k2", "k.3")
	value := fmt.Sprint("v", g.r.IntN(100))
	switch op := g.pick("make", "put", "put", "create", "createttl", "update", "update", "delete", "deleterev", "purge",
		"purgettl", "purgedeletes", "get", "get", "getrev", "keys", "history", "status"); op {
	case "make":
		return "kv make K " + g.pick("1", "3", "5")
	case "keys", "status", "purgedeletes":
		return "kv " + op + " K"
	case "getrev", "update", "deleterev":
		return fmt.Sprintf("kv %s K %s %s %d", op, key, value, g.r.IntN(14))
	default:
		return fmt.Sprintf("kv %s K %s %s", op, key, value)
	}
}

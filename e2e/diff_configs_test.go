package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// streamFields are the values a stream's configuration may have, as JSON. What waits for the clock is hours away. A
// republish without destination "differs": nats-server's update makes it ">", which is the stream's own subjects.
var streamFields = map[string]values{
	"retention":                 {[]string{`"limits"`, `"interest"`, `"workqueue"`}, []string{`"x"`, `1`}},
	"discard":                   {[]string{`"old"`, `"new"`}, []string{`"x"`}},
	"discard_new_per_subject":   {[]string{`true`}, []string{`false`}},
	"storage":                   {[]string{`"file"`, `"memory"`}, []string{`"x"`}},
	"compression":               {[]string{`"none"`, `"s2"`}, []string{`"x"`}},
	"max_msgs":                  {[]string{`2`, `3`, `5`}, []string{`-1`, `0`, `-5`}},
	"max_msgs_per_subject":      {[]string{`1`, `2`, `3`}, []string{`-1`, `0`, `-2`}},
	"max_bytes":                 {[]string{`100`, `200`, `300`}, []string{`-1`, `0`, `-2`, `1`}},
	"max_msg_size":              {[]string{`20`, `60`, `100`}, []string{`-1`, `0`, `-2`, `1`}},
	"max_consumers":             {[]string{`1`, `2`}, []string{`-1`, `0`, `-2`}},
	"max_age":                   {[]string{`3600000000000`, `7200000000000`}, []string{`1`, `-1`, `0`}},
	"duplicate_window":          {[]string{`3600000000000`, `120000000000`}, []string{`1`, `-1`, `0`, `9900000000000`}},
	"no_ack":                    {[]string{`true`}, nil},
	"deny_delete":               {[]string{`true`}, []string{`false`}},
	"deny_purge":                {[]string{`true`}, []string{`false`}},
	"allow_rollup_hdrs":         {[]string{`true`}, []string{`false`}},
	"allow_direct":              {[]string{`true`}, []string{`false`}},
	"mirror_direct":             {[]string{`true`}, nil},
	"sealed":                    {[]string{`false`}, []string{`true`}},
	"first_seq":                 {[]string{`3`, `10`}, []string{`0`}},
	"allow_msg_ttl":             {[]string{`true`}, []string{`false`}},
	"subject_delete_marker_ttl": {[]string{`3600000000000`}, []string{`1`, `-1`, `0`}},
	"allow_atomic":              {[]string{`true`}, []string{`false`}},
	"allow_batched":             {[]string{`true`}, []string{`false`}},
	"allow_msg_counter":         {[]string{`true`}, nil},
	"allow_msg_schedules":       {[]string{`true`}, nil},
	"persist_mode":              {[]string{`"default"`, `"async"`}, []string{`"x"`}},
	"description":               {[]string{`"d"`, `"other"`}, []string{`""`}},
	"metadata":                  {[]string{`{"k":"v"}`, `{"k":"w","l":""}`}, []string{`{"_nats.level":"9"}`, `null`}},
	"num_replicas":              {[]string{`1`}, []string{`0`, `3`, `-1`, `6`}},
	"placement":                 {[]string{`{}`}, []string{`{"cluster":"c"}`, `{"preferred":"x"}`, `{"tags":["t"]}`}},
	"consumer_limits":           {[]string{`{"max_ack_pending":2}`, `{"inactive_threshold":3600000000000}`}, []string{`{"max_ack_pending":-1}`}},
	"subject_transform":         {[]string{`{"src":"a.*","dest":"a.x.{{wildcard(1)}}"}`, `{"src":">","dest":"t.>"}`, `{"src":"a.1","dest":"a.2"}`}, []string{`{"src":"a.*","dest":"a.{{nope(1)}}"}`, `{"src":"a..*","dest":"x"}`, `{"src":"","dest":""}`, `{"src":"a.*","dest":"b"}`}},
	"republish":                 {[]string{`{"src":"a.*","dest":"rp.{{wildcard(1)}}"}`, `{"src":">","dest":"rp.>"}`, `{"src":"","dest":"rp.x","headers_only":true}`}, []string{`{"src":">","dest":"a.>"}`, `{"src":"a..b","dest":"rp.x"}`, `{"dest":">"}`}},
	"pedantic":                  {[]string{`true`}, nil},
	"nonsense":                  {nil, []string{`1`}},
}

// consumerFields are the values a consumer's configuration may have. SUBJECT and FILTER are of the stream.
var consumerFields = map[string]values{
	"deliver_policy":     {[]string{`"all"`, `"last"`, `"new"`, `"last_per_subject"`, `"by_start_sequence"`}, []string{`"x"`, `"by_start_time"`}},
	"opt_start_seq":      {[]string{`2`, `5`}, []string{`0`, `1000`}},
	"opt_start_time":     {[]string{`"2020-01-01T00:00:00Z"`, `"2099-01-01T00:00:00Z"`}, []string{`"x"`}},
	"ack_wait":           {[]string{`60000000000`, `100000000000`}, []string{`0`, `-1`}},
	"max_deliver":        {[]string{`1`, `2`, `3`}, []string{`-1`, `0`, `-5`}},
	"backoff":            {[]string{`[60000000000]`, `[60000000000,90000000000]`}, []string{`[]`, `[-1]`, `[60000000000,70000000000,80000000000,90000000000]`}},
	"filter_subject":     {[]string{`"FILTER"`}, []string{`""`, `"x..y"`}},
	"filter_subjects":    {[]string{`["FILTER"]`, `["FILTER","FILTER"]`}, []string{`[]`, `[""]`, `["a.1","a.*"]`}},
	"replay_policy":      {[]string{`"instant"`}, []string{`"x"`, `"original"`}},
	"rate_limit_bps":     {[]string{`100000000`}, []string{`-1`}},
	"sample_freq":        {[]string{`"100%"`, `"0"`}, []string{`"x"`, `"200%"`, `"-1"`, `""`}},
	"max_waiting":        {[]string{`1`, `2`}, []string{`0`, `-1`}},
	"max_ack_pending":    {[]string{`1`, `2`, `3`}, []string{`0`, `-1`, `-2`, `5000`}},
	"headers_only":       {[]string{`true`}, []string{`false`}},
	"max_batch":          {[]string{`1`, `2`}, []string{`0`, `-1`}},
	"max_expires":        {[]string{`300000000000`}, []string{`1`, `-1`, `0`}},
	"max_bytes":          {[]string{`100`, `1000`}, []string{`-1`, `0`}},
	"idle_heartbeat":     {[]string{`60000000000`}, []string{`1`, `-1`}},
	"flow_control":       {[]string{`true`}, nil},
	"deliver_group":      {[]string{`"q"`}, []string{`""`, `"q q"`}},
	"inactive_threshold": {[]string{`3600000000000`}, []string{`-1`}},
	"num_replicas":       {[]string{`0`, `1`}, []string{`3`, `-1`}},
	"mem_storage":        {[]string{`true`}, nil},
	"metadata":           {[]string{`{"k":"v"}`}, []string{`{"_nats.x":"y"}`}},
	"description":        {[]string{`"d"`}, []string{`""`}},
	"pause_until":        {[]string{`"2099-01-01T00:00:00Z"`}, []string{`"2001-01-01T00:00:00Z"`, `"x"`}},
	"priority_groups":    {[]string{`["g"]`}, []string{`[]`, `[""]`, `["g","h"]`, `["a b"]`}},
	"priority_policy":    {[]string{`"overflow"`, `"pinned_client"`, `"prioritized"`}, []string{`"none"`, `"x"`}},
	"priority_timeout":   {[]string{`3600000000000`}, []string{`-1`, `0`}},
	"direct":             {nil, []string{`true`}},
	"nonsense":           {nil, []string{`1`}},
}

// fields draws up to n fields.
func (g *generator) fields(from map[string]values, n int) map[string]string {
	names := slices.Sorted(maps.Keys(from))
	out := map[string]string{}
	for range g.r.IntN(n + 1) {
		name := g.pick(names...)
		if v := from[name]; len(v.good) > 0 || g.one(8) {
			out[name] = g.value(v)
		}
	}
	return out
}

func (g *generator) value(v values) string {
	if len(v.good) == 0 {
		return g.pick(v.odd...)
	}
	return g.mostly(v.good, v.odd)
}

// ofTheme gives a configuration what most of the theme's have.
func (g *generator) ofTheme(f map[string]string, usual map[string][]string) {
	for _, k := range slices.Sorted(maps.Keys(usual)) {
		if !g.one(8) {
			f[k] = g.pick(usual[k]...)
		}
	}
}

func fieldJSON(f map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(f)) {
		parts = append(parts, fmt.Sprintf("%q:%s", k, f[k]))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (g *generator) createStream(s string) string {
	if g.copies && s == "B" {
		return g.createCopy()
	}
	from := streamFields
	if g.copies {
		from = copyFields
	}
	f := g.fields(from, 5)
	f["name"] = `"` + s + `"`
	p := diffStreams[s]
	f["subjects"] = g.mostly([]string{`["` + p + `.>"]`}, []string{`["` + p + `.*"]`, `["` + p + `.1","` + p + `.2"]`, `[]`, `["a.1"]`, `["a..1"]`, `[">"]`, `["a.*","a.>"]`, `["$JS.x"]`})
	if g.one(2) {
		f["allow_direct"] = "true"
	}
	g.ofTheme(f, g.theme.stream)
	if old, ok := g.streams[s]; ok && g.copies { // what the mirror inherited stays, see updateStream
		if delete(f, "allow_direct"); old["allow_direct"] != "" {
			f["allow_direct"] = old["allow_direct"]
		}
	}
	recoverable(f)
	g.streams[s] = f
	return "api STREAM.CREATE." + s + " " + fieldJSON(f)
}

// recoverable leaves out pairs of fields that nats-server accepts and cannot start with again: the stream of counters is
// gone then, and so is the sealed one of schedules or counters; another sealed one no longer denies purges. A stream of
// all subjects, which must acknowledge nothing, is left out, too: it stores the advisories about itself, at any moment.
func recoverable(f map[string]string) {
	if f["allow_msg_counter"] != "" || f["sealed"] == "true" {
		delete(f, "subject_delete_marker_ttl")
	}
	if f["sealed"] == "true" {
		delete(f, "allow_msg_schedules")
		delete(f, "allow_msg_counter")
	}
	if f["subjects"] == `[">"]` {
		delete(f, "no_ack")
	}
}

// updateStream changes a few fields of the newest configuration.
func (g *generator) updateStream(s string) string {
	f := maps.Clone(g.streams[s])
	if f == nil {
		f = map[string]string{"name": `"` + s + `"`}
	}
	from := streamFields
	if g.copies {
		from = copyFields
	}
	for range 1 + g.r.IntN(2) {
		name := g.pick(slices.Sorted(maps.Keys(from))...)
		if name == "first_seq" { // has effect on nats-server when it starts again
			continue
		}
		if name == "allow_direct" && g.copies && s == "A" { // and so has this, on the mirror
			continue
		}
		if _, ok := f[name]; ok && g.one(3) {
			delete(f, name)
			continue
		}
		f[name] = g.value(streamFields[name])
	}
	if g.one(8) && !g.copies {
		f["sealed"] = "true"
	}
	if f["mirror"] != "" && g.one(4) { // from now on it takes messages of its own
		delete(f, "mirror")
		f["subjects"] = `["b.>"]`
	}
	recoverable(f)
	if !g.one(3) { // most updates are wrong in some way: the next one is of the same base
		g.streams[s] = f
	}
	return "api STREAM.UPDATE." + s + " " + fieldJSON(f)
}

func (g *generator) createConsumer(s, c string) string {
	key := s + "." + c
	old := g.consumers[key]
	var f map[string]string
	if old != nil && g.one(3) { // an update
		f = maps.Clone(old)
		name := g.pick(slices.Sorted(maps.Keys(consumerFields))...)
		if _, ok := f[name]; ok && g.one(3) {
			delete(f, name)
		} else {
			f[name] = g.value(consumerFields[name])
		}
	} else {
		f = g.newConsumer(s, c)
	}
	g.keepFilter(f, old)
	for k, v := range f {
		for strings.Contains(v, "FILTER") {
			v = strings.Replace(v, "FILTER", g.filter(s), 1)
		}
		f[k] = v
	}
	g.consumers[key] = f
	extra := g.mostly([]string{"", "", `,"action":"create"`, `,"action":"update"`}, []string{`,"action":"x"`, `,"pedantic":true`, `,"x":1`})
	subject := "CONSUMER.CREATE." + s + "." + c
	switch filter, ok := f["filter_subject"]; {
	case ok && g.one(3) && len(filter) > 2:
		subject += "." + strings.Trim(filter, `"`)
	case g.one(6):
		subject = "CONSUMER.DURABLE.CREATE." + s + "." + c
	}
	return fmt.Sprintf(`api %s {"stream_name":"%s","config":%s%s}`, subject, s, fieldJSON(f), extra)
}

// keepFilter gives a consumer that had a filter one again: nats-server does not count or deliver what comes after an
// update that takes the last filter away.
func (g *generator) keepFilter(f, old map[string]string) {
	had := len(old["filter_subject"]) > 2 || len(old["filter_subjects"]) > 4
	if had && len(f["filter_subject"]) <= 2 && len(f["filter_subjects"]) <= 4 {
		f["filter_subject"] = `"FILTER"`
	}
}

func (g *generator) newConsumer(s, c string) map[string]string {
	f := g.fields(consumerFields, 5)
	if g.one(5) {
		f["name"] = `"` + c + `"`
		f["inactive_threshold"] = `3600000000000` // a script is not to wait for the default
	} else {
		f["durable_name"] = `"` + c + `"`
	}
	f["ack_policy"] = g.mostly([]string{`"explicit"`, `"explicit"`, `"explicit"`, `"none"`}, []string{`"x"`})
	g.ofTheme(f, g.theme.consumer)
	if g.one(4) && !g.theme.groups {
		f["deliver_subject"] = g.mostly([]string{`"push.` + s + `.` + c + `"`}, []string{`"push.*"`, `"a.1"`, `""`, `"push..x"`})
		for _, pull := range []string{"max_waiting", "max_batch", "max_expires", "max_bytes", "priority_groups", "priority_policy", "priority_timeout"} {
			if !g.one(8) {
				delete(f, pull)
			}
		}
		if f["flow_control"] != "" {
			f["idle_heartbeat"] = `60000000000`
		}
	} else {
		for _, push := range []string{"flow_control", "idle_heartbeat", "deliver_group", "rate_limit_bps"} {
			if !g.one(8) {
				delete(f, push)
			}
		}
	}
	if f["priority_policy"] != "" && !g.one(8) {
		f["priority_groups"] = `["g"]`
	}
	if f["deliver_policy"] == `"by_start_sequence"` && !g.one(8) {
		f["opt_start_seq"] = g.pick("2", "4")
	} else if !g.one(8) {
		delete(f, "opt_start_seq")
		delete(f, "opt_start_time")
	}
	if f["deliver_policy"] == `"last_per_subject"` && f["filter_subjects"] == "" && !g.one(8) {
		f["filter_subject"] = `"FILTER"`
	}
	return f
}

// pullBody is a pull request. Those that wait, wait longer than a script takes.
func (g *generator) pullBody() string {
	if g.one(10) {
		return g.pick("", "1", "2", "x", "{", `{"batch":0}`, `{"batch":-1}`, `{"expires":-1}`, `{"x":1}`)
	}
	f := map[string]string{"batch": g.pick("1", "1", "2", "5")}
	if g.one(2) {
		f["no_wait"] = "true"
	} else {
		f["expires"] = "100000000000"
	}
	for g.one(5) || g.theme.groups && len(f) < 4 {
		k := g.pick("group", "group", "min_pending", "min_ack_pending", "id", "priority", "max_bytes", "max_bytes", "idle_heartbeat")
		f[k] = map[string]string{
			"group": g.pick(`"g"`, `"g"`, `"h"`), "min_pending": g.pick("1", "3"), "min_ack_pending": g.pick("1", "2"),
			"id": g.pick(`"PIN"`, `"x"`), "priority": g.pick("0", "1", "9", "10", "-1"), "max_bytes": g.pick("1", "60", "100", "500", "-1"),
			"idle_heartbeat": g.pick("20000000000", "90000000000", "-1"),
		}[k]
		if k != "group" && k != "max_bytes" && g.one(2) {
			f["group"] = `"g"`
		}
		if g.one(2) {
			break
		}
	}
	return fieldJSON(f)
}

func (g *generator) consumerLine(s, c string) string {
	switch g.r.IntN(10) {
	case 0:
		return "api CONSUMER.DELETE." + s + "." + c
	case 1:
		return "api CONSUMER.NAMES." + s + " " + g.pick("", `{"offset":1}`)
	case 2:
		return "api CONSUMER.LIST." + s + " " + g.pick("", `{"offset":1}`)
	case 3, 4:
		return fmt.Sprintf("api CONSUMER.PAUSE.%s.%s %s", s, c, g.mostly(
			[]string{`{"pause_until":"` + diffFuture + `"}`, `{}`, ""}, []string{`{`, `{"pause_until":"2001-01-01T00:00:00Z"}`, `{"x":1}`}))
	case 5:
		return fmt.Sprintf("api CONSUMER.UNPIN.%s.%s %s", s, c, g.mostly([]string{`{"group":"g"}`}, []string{`{"group":"h"}`, "", "{", `{"group":""}`}))
	case 6:
		return fmt.Sprintf("api CONSUMER.RESET.%s.%s %s", s, c, g.mostly([]string{"", `{"seq":` + g.seq() + `}`}, []string{"{", `{"seq":-1}`, `{"x":1}`, `{}`}))
	}
	return "api CONSUMER.INFO." + s + "." + c
}

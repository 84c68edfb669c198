package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// lineSort is a sort of lines of a script.
type lineSort int

const (
	sortCheck lineSort = iota
	sortPublish
	sortFast
	sortCreateStream
	sortUpdateStream
	sortCreateConsumer
	sortPull
	sortAck
	sortListen
	sortMessage
	sortDirect
	sortConsumer
	sortStream
	sortKeyValue
	sortRestart
)

// diffTheme is what a script is about: how often each sort of line comes, and what configurations mostly have.
type diffTheme struct {
	name     string
	weights  [sortRestart + 1]int
	stream   map[string][]string // of these values one, for most streams
	consumer map[string][]string // and for most consumers
	never    *regexp.Regexp      // lines that it has not
	copies   bool                // B is a copy of A
	atomic   bool                // many publishes belong to atomic batches
	groups   bool                // pulls are of priority groups
}

// avoids reports whether the theme leaves out a line.
func (t *diffTheme) avoids(line string) bool { return t.never != nil && t.never.MatchString(line) }

// usually are the weights of a script that is about nothing in particular.
var usually = [sortRestart + 1]int{
	sortPublish: 30, sortFast: 1, sortCreateStream: 6, sortUpdateStream: 4, sortCreateConsumer: 11, sortPull: 15, sortAck: 12,
	sortListen: 2, sortMessage: 4, sortDirect: 4, sortConsumer: 6, sortStream: 5, sortRestart: 1, sortCheck: 1,
}

// more returns the usual weights with some changed.
func more(of map[lineSort]int) [sortRestart + 1]int {
	w := usually
	for s, n := range of {
		w[s] = n
	}
	return w
}

var diffThemes = []diffTheme{
	{name: "mixed", weights: usually},
	{name: "mixed", weights: usually},
	{name: "copies", weights: usually, copies: true, never: originLost},
	{
		name: "atomic batches", weights: more(map[lineSort]int{sortPublish: 45}), atomic: true,
		stream: map[string][]string{"allow_atomic": {"true"}},
	},
	{
		name: "fast batches", weights: more(map[lineSort]int{sortPublish: 10, sortFast: 40}),
		stream: map[string][]string{"allow_batched": {"true"}},
	},
	{
		name: "ack all", weights: usually, never: removes,
		consumer: map[string][]string{"ack_policy": {`"all"`, `"all"`, `"flow_control"`}},
	},
	{
		name: "retention", weights: more(map[lineSort]int{sortPull: 25, sortAck: 25, sortCreateStream: 1, sortUpdateStream: 2, sortMessage: 2}),
		stream:   map[string][]string{"retention": {`"interest"`, `"workqueue"`}},
		consumer: map[string][]string{"ack_policy": {`"explicit"`}, "filter_subject": {`"a.1"`, `"a.2"`, `"a.*"`, `"a.>"`}},
	},
	{
		name: "priority groups", weights: more(map[lineSort]int{sortPull: 30, sortConsumer: 12, sortCreateStream: 1}), groups: true,
		consumer: map[string][]string{
			"ack_policy": {`"explicit"`}, "priority_groups": {`["g"]`},
			"priority_policy": {`"overflow"`, `"pinned_client"`, `"prioritized"`},
		},
	},
	{
		name: "reads", weights: more(map[lineSort]int{sortDirect: 30, sortMessage: 20, sortStream: 15, sortCreateStream: 1}),
		stream: map[string][]string{"allow_direct": {"true"}},
	},
	{name: "updates", weights: more(map[lineSort]int{sortCreateConsumer: 30, sortUpdateStream: 20, sortCreateStream: 2, sortConsumer: 12})},
	{name: "key-value", weights: more(map[lineSort]int{sortKeyValue: 80, sortRestart: 3})},
	{name: "restarts", weights: more(map[lineSort]int{sortRestart: 8})},
}

// sort draws the sort of a line.
func (g *generator) sort() lineSort {
	total := 0
	for _, w := range g.theme.weights {
		total += w
	}
	n := g.r.IntN(total)
	for s, w := range g.theme.weights {
		if n -= w; n < 0 {
			return lineSort(s)
		}
	}
	return sortCheck
}

// removes matches lines that take messages out of a stream. With ack policy all nats-server acknowledges what was
// delivered before an outstanding message that limits remove, and so loses its redelivery; the gateway does not.
var removes = regexp.MustCompile(`"max_(msgs|bytes|msgs_per_subject)":[1-9]|PURGE|MSG.DELETE|Rollup|\+TERM|workqueue|interest`)

// avoided is a pair of lines that a script does not have both of, because the servers differ then for a reason that
// docs/parity.md has.
type avoided struct {
	why           string
	first, second *regexp.Regexp
	anyOrder      bool                       // else only second after first
	when          func(script []string) bool // nil: always
}

var diffAvoided = []avoided{
	{
		why:   "nats-server loses the first update of a consumer after a restart",
		first: regexp.MustCompile(`^restart`), second: regexp.MustCompile(`^api CONSUMER\.(DURABLE\.)?CREATE`),
	},
	{
		why:   "it never delivers a message that a rate limit's burst, the stream's max_msg_size, has no room for",
		first: regexp.MustCompile(`"rate_limit_bps`), second: regexp.MustCompile(`"max_msg_size`), anyOrder: true,
	},
	{
		why:   "it goes on after a resume only with the next event",
		first: regexp.MustCompile(`pause_until`), second: regexp.MustCompile(`CONSUMER\.PAUSE\S+( *$| \{\}| .*"2001| \{"x)`),
	},
	{
		why:   "it tells of a TERM even of what was not delivered since a reset",
		first: regexp.MustCompile(`\.RESET\.`), second: regexp.MustCompile(`\+TERM`),
	},
	{
		why:   "it applies limits for consumers that came later when it starts again, and loses some consumers by that",
		first: regexp.MustCompile(`STREAM\.UPDATE.*"consumer_limits"`), second: regexp.MustCompile(`^restart`),
	},
	{
		why:   "after an update to interest it keeps what consumers got that acknowledge nothing",
		first: regexp.MustCompile(`STREAM\.UPDATE.*"retention":"interest"`), second: regexp.MustCompile(`"ack_policy":"none"`), anyOrder: true,
	},
	{
		why:   "a consumer that starts ahead of the last message begins right after that one when it starts again",
		first: regexp.MustCompile(`"opt_start_seq"`), second: regexp.MustCompile(`^restart`),
	},
	{
		why:   "an update of first_seq has effect when it starts again",
		first: regexp.MustCompile(`STREAM\.UPDATE.*"first_seq"`), second: regexp.MustCompile(`^restart`),
	},
	{
		why:   "a purge, and so a rollup, and a restart make it forget what waits to be delivered again until the ack wait is over",
		first: regexp.MustCompile(`-NAK|\+NXT`), second: regexp.MustCompile(`PURGE|Nats-Rollup|Nats-Schedule|^restart`),
	},
	{
		why:   "after a reset of last_per_subject, and a restart, it counts one message for each subject, and delivers all",
		first: regexp.MustCompile(`last_per_subject`), second: regexp.MustCompile(`\.RESET\.|^restart`),
	},
	{
		why:   "a no_wait request that waits at max_ack_pending is told of a pause with the next event",
		first: regexp.MustCompile(`"no_wait"`), second: regexp.MustCompile(`CONSUMER\.PAUSE.*"2099`),
		when: func(script []string) bool {
			return slices.ContainsFunc(script, regexp.MustCompile(`"max_ack_pending":[1-9]\b`).MatchString)
		},
	},
	{
		why:   "an outstanding message that leaves the stream is noticed at once only by consumers whose filters it matches still",
		first: regexp.MustCompile(`CONSUMER\.(DURABLE\.)?CREATE`), second: regexp.MustCompile(`"max_(msgs|bytes|msgs_per_subject)":[1-9]|MSG\.DELETE|workqueue|interest`),
		anyOrder: true, when: func(script []string) bool { return diffRemade(script, diffFiltered) },
	},
	{
		why:   "it makes room while a batch is committed, so a subject's last message may be gone when it republishes the next",
		first: regexp.MustCompile(`"republish"`), second: regexp.MustCompile(`Nats-Batch-Id`), anyOrder: true,
		when: func(script []string) bool {
			return slices.ContainsFunc(script, regexp.MustCompile(`"max_(msgs|bytes|msgs_per_subject)":[1-9]`).MatchString)
		},
	},
	{
		why:   "it notices that nobody listens in a new deliver group only when that changes",
		first: regexp.MustCompile(`"deliver_subject"`), second: diffMade,
		when: func(script []string) bool { return diffRemade(script, regexp.MustCompile(`"deliver_group":"[^"]*"`)) },
	},
	{
		why:   "it tells of a NAK of the last delivery with the next request",
		first: regexp.MustCompile(`"max_deliver":[1-9]`), second: regexp.MustCompile(`-NAK`), anyOrder: true,
	},
	{
		why:   "no backoff and an empty one are not the same to a create",
		first: regexp.MustCompile(`"backoff":\[\]`), second: regexp.MustCompile(`"action":"create"`), anyOrder: true,
	},
	{
		why:   "a pin keeps others from being served when the policy is no longer pinned_client, too",
		first: regexp.MustCompile(`"pinned_client"`), second: diffMade,
		when: func(script []string) bool { return diffRemade(script, diffPolicy) },
	},
	{
		why:   "where max_ack_pending is reached, a purge of what is outstanding lets it go on only with the next event",
		first: regexp.MustCompile(`"max_ack_pending":[1-9]\b`), second: regexp.MustCompile(`PURGE|Nats-Rollup|Nats-Schedule`),
	},
	{
		why:   "after a refusal in a batch that allows gaps, one that ends by a message out of order may have no PubAck",
		first: regexp.MustCompile(`"allow_msg_counter":true`), second: regexp.MustCompile(`^fast \S+ \S+ y\.`), anyOrder: true,
	},
}

// diffMade matches a line that makes or updates a consumer, up to its name; the others its filters and priority policy.
var (
	diffMade     = regexp.MustCompile(`^api CONSUMER\.(?:DURABLE\.)?CREATE\.([A-Z]\.[A-Z])`)
	diffFiltered = regexp.MustCompile(`"filter_subjects?":("[^"]*"|\[[^\]]*\])`)
	diffPolicy   = regexp.MustCompile(`"priority_policy":"[^"]*"`)
)

// diffRemade reports whether a script makes a consumer more than once, and with another match of field.
func diffRemade(script []string, field *regexp.Regexp) bool {
	fields := map[string]string{}
	for _, line := range script {
		made := diffMade.FindStringSubmatch(line)
		if made == nil {
			continue
		}
		f := field.FindString(line)
		if before, ok := fields[made[1]]; ok && before != f {
			return true
		}
		fields[made[1]] = f
	}
	return false
}

// diffAvoids reports whether the last line of a script makes it one in which the servers differ for a known reason.
func diffAvoids(script []string) bool {
	last := len(script) - 1
	for _, a := range diffAvoided {
		if a.when != nil && !a.when(script) {
			continue
		}
		if a.second.MatchString(script[last]) && slices.ContainsFunc(script[:last], a.first.MatchString) {
			return true
		}
		if a.anyOrder && a.first.MatchString(script[last]) && slices.ContainsFunc(script[:last], a.second.MatchString) {
			return true
		}
	}
	return false
}

// diffComparable reports whether nothing in a script is avoided, as every script that was generated is.
func diffComparable(script []string) bool {
	for i := range script {
		if diffAvoids(script[:i+1]) {
			return false
		}
	}
	return !diffOriginLate(script)
}

// fast is a message of a fast-ingest batch: mostly the next of one that was begun, sometimes its last, or a ping.
func (g *generator) fast(s string) string {
	g.published++
	id := g.pick("x", "x", "y")
	key := "fast." + s + "." + id
	next := g.batches[key] + 1
	op := "1"
	if next == 1 {
		op = "0"
	}
	if g.one(4) {
		op = g.mostly([]string{"2", "2", "3", "4", "4"}, []string{"5", "x"})
	}
	seq := g.mostly([]string{fmt.Sprint(next)}, []string{"0", "1", fmt.Sprint(next + 2), fmt.Sprint(next - 1), "x"})
	switch op {
	case "0", "1":
		g.batches[key] = next
	case "2", "3":
		g.batches[key] = 0
	}
	gap := map[string]string{"x": "fail", "y": "ok"}[id]
	flow := g.mostly([]string{"1", "2", "3", "10"}, []string{"0", "x", "70000"})
	h := map[string]string{}
	if gap == "fail" && g.one(4) { // after a refusal in a batch that allows gaps nats-server may never send the PubAck
		k := g.pick("Nats-Msg-Id", "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Subject-Sequence", "Nats-TTL", "Nats-Rollup", "Nats-Expected-Stream", "K")
		v := publishHeaders[k]
		h[k] = strings.ReplaceAll(g.mostly(v.good, v.odd), "SEQ", g.seq())
	}
	return fmt.Sprintf("fast %s m%d %s.%s.%s.%s.%s %s", g.mostly([]string{g.subject(s)}, []string{"c.9"}), g.published, id, flow, gap, seq, op, headerJSON(h))
}

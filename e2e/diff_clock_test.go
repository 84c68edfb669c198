package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Scripts about time are played in windows: a few lines, then "tick", which waits for the next window. What a line sets
// going comes due between windows, so that both servers are asked either before or after it.
const (
	diffWindow = 450 * time.Millisecond  // in which the lines of a window are played
	diffTick   = 1500 * time.Millisecond // from one window to the next
	diffSoon   = 700 * time.Millisecond  // how long most things take
	diffWheel  = 3 * time.Second         // from one window to the next, of what nats-server looks for once a second
)

// clockTheme is what a script about time is about.
type clockTheme struct {
	name   string
	tick   time.Duration // 0: diffTick
	stream string        // fields of A
	lines  []string      // one is drawn for each line; N, BATCH, SUBJECT and mSEQ are filled in
	begin  []string      // after A is made
}

const (
	soon     = "700000000"
	longPull = `pull A C N {"batch":BATCH,"expires":100000000000}`
	anyPull  = `pull A C N {"batch":BATCH,"no_wait":true}`
	infoLine = "api CONSUMER.INFO.A.C"
	pubLine  = "pub SUBJECT mSEQ"
)

func makeConsumer(name, fields string) string {
	kind := "durable_name"
	if strings.Contains(fields, "inactive") {
		kind = "name"
	}
	return fmt.Sprintf(`api CONSUMER.CREATE.A.%[1]s {"stream_name":"A","config":{"ack_policy":"explicit","%[2]s":"%[1]s",%[3]s}}`, name, kind, fields)
}

var acks = []string{"ack A.C 0 +ACK", "acksync A.C 0 +ACK", "ack A.C 1 -NAK", "ack A.C 0 +TERM", "ack A.C 0 +WPI", "ack A.C 1 +ACK"}

var clockThemes = []clockTheme{
	{
		name:  "backoff",
		begin: []string{makeConsumer("C", `"backoff":[`+soon+`,100000000000],"max_deliver":-1`)},
		lines: append([]string{pubLine, pubLine, longPull, anyPull, anyPull, infoLine}, acks...),
	},
	{
		name:  "the last delivery",
		begin: []string{makeConsumer("C", `"ack_wait":`+soon+`,"max_deliver":1`)},
		lines: []string{pubLine, pubLine, longPull, anyPull, anyPull, infoLine, acks[0], acks[1], acks[3], acks[4], acks[5]}, // a NAK "differs"
	},
	{
		name:  "nak with a delay",
		begin: []string{makeConsumer("C", `"max_ack_pending":3`)},
		lines: append([]string{
			pubLine, pubLine, longPull, anyPull, infoLine, `ack A.C 0 -NAK {"delay":` + soon + `}`, `ack A.C 1 -NAK {"delay":` + soon + `}`,
			"ack A.C 0 -NAK 700ms",
		}, acks...),
	},
	{
		name:  "pulls that end",
		begin: []string{makeConsumer("C", `"max_waiting":3`)},
		lines: []string{
			pubLine, `pull A C N {"batch":BATCH,"expires":` + soon + `}`, `pull A C N {"batch":BATCH,"expires":` + soon + `}`,
			`pull A C N {"batch":BATCH,"expires":` + soon + `,"max_bytes":100}`, `pull A C N {"batch":BATCH,"expires":` + soon + `,"no_wait":true}`,
			longPull, infoLine,
		},
	},
	{
		name: "age", stream: `"max_age":` + soon,
		begin: []string{makeConsumer("C", `"ack_wait":100000000000`), makeConsumer("D", `"filter_subject":"a.2"`)},
		lines: append([]string{
			pubLine, pubLine, pubLine, pubLine, anyPull, anyPull, infoLine, "api CONSUMER.INFO.A.D", "api STREAM.INFO.A",
			`api STREAM.MSG.GET.A {"last_by_subj":"SUBJECT"}`,
		}, acks...),
	},
	{
		name: "duplicates", stream: `"duplicate_window":` + soon,
		lines: []string{
			`pub SUBJECT mSEQ {"Nats-Msg-Id":"i1"}`, `pub SUBJECT mSEQ {"Nats-Msg-Id":"i2"}`, `pub SUBJECT mSEQ {"Nats-Expected-Last-Msg-Id":"i1"}`,
			pubLine, "api STREAM.PURGE.A",
		},
	},
	{
		name:  "pauses",
		begin: []string{makeConsumer("C", `"ack_wait":100000000000`), makeConsumer("D", `"deliver_subject":"push.A.D"`), "sub push.A.D"},
		lines: []string{
			pubLine, pubLine, anyPull, longPull, infoLine, "ack A.C 0 +ACK", `api CONSUMER.PAUSE.A.C {"pause_until":"@+700ms@"}`,
			`api CONSUMER.PAUSE.A.D {"pause_until":"@+700ms@"}`, "api CONSUMER.INFO.A.D",
			makeConsumer("E", `"pause_until":"@+700ms@"`), "api CONSUMER.INFO.A.E", // deleted, its end is told of all the same
		},
	},
	{
		name:  "unused consumers",
		begin: []string{makeConsumer("E", `"inactive_threshold":`+soon), makeConsumer("D", `"inactive_threshold":`+soon+`,"deliver_subject":"push.A.D"`)},
		lines: []string{
			pubLine, makeConsumer("C", `"inactive_threshold":`+soon), makeConsumer("C", `"inactive_threshold":`+soon), anyPull, longPull,
			makeConsumer("D", `"inactive_threshold":`+soon+`,"deliver_subject":"push.A.D"`), "sub push.A.D", "unsub push.A.D",
			infoLine, "api CONSUMER.INFO.A.D", "api CONSUMER.NAMES.A", "ack A.C 0 +ACK",
		},
	},
	{
		name:  "pins",
		begin: []string{makeConsumer("C", `"priority_groups":["g"],"priority_policy":"pinned_client","priority_timeout":`+soon)},
		lines: []string{
			pubLine, pubLine, `pull A C N {"batch":BATCH,"expires":100000000000,"group":"g"}`,
			`pull A C N {"batch":BATCH,"expires":100000000000,"group":"g","id":"PIN"}`, `pull A C N {"batch":1,"no_wait":true,"group":"g"}`,
			"ack A.C 0 +ACK", infoLine, `api CONSUMER.UNPIN.A.C {"group":"g"}`,
		},
	},
	{
		name: "time to live", tick: diffWheel, stream: `"allow_msg_ttl":true`,
		begin: []string{makeConsumer("C", `"ack_wait":100000000000`)},
		lines: []string{
			`pub SUBJECT mSEQ {"Nats-TTL":"1"}`, `pub SUBJECT mSEQ {"Nats-TTL":"1s"}`, pubLine, `pub SUBJECT mSEQ {"Nats-TTL":"never"}`,
			anyPull, infoLine, "ack A.C 0 +ACK", "api STREAM.INFO.A",
		},
	},
	{
		name: "delete markers", tick: diffWheel, stream: `"allow_msg_ttl":true,"subject_delete_marker_ttl":100000000000`,
		begin: []string{makeConsumer("C", `"ack_wait":100000000000`)},
		lines: []string{
			`pub SUBJECT mSEQ {"Nats-TTL":"1"}`, pubLine, `pub SUBJECT mSEQ {"Nats-TTL":"never"}`, anyPull, infoLine,
			`api STREAM.MSG.GET.A {"last_by_subj":"SUBJECT"}`,
		},
	},
	{
		name: "schedules", tick: diffWheel, stream: `"allow_msg_schedules":true,"allow_msg_ttl":true`,
		lines: []string{
			`pub a.s mSEQ {"Nats-Schedule":"@at @+1s@","Nats-Schedule-Target":"SUBJECT"}`,
			`pub a.t mSEQ {"Nats-Schedule":"@at @+1s@","Nats-Schedule-Target":"SUBJECT","Nats-Schedule-Source":"a.src"}`, "pub a.src mSEQ",
			`pub a.u mSEQ {"Nats-Schedule":"@at @+1s@","Nats-Schedule-Target":"SUBJECT","Nats-Schedule-TTL":"1h"}`,
			pubLine, "api STREAM.INFO.A", `api STREAM.PURGE.A {"filter":"a.s"}`, `pub a.t - {"Nats-Schedule-Next":"purge","Nats-Scheduler":"a.t"}`,
		},
	},
}

// clockScript makes a script about time.
func (g *generator) clockScript() []string {
	theme := &clockThemes[g.r.IntN(len(clockThemes))]
	g.theme = &diffTheme{name: theme.name}
	stream := `api STREAM.CREATE.A {"name":"A","subjects":["a.>"]`
	if theme.stream != "" {
		stream += "," + theme.stream
	}
	out := append([]string{stream + "}"}, theme.begin...)
	out = append(out, "tick "+max(theme.tick, diffTick).String())
	rounds := 6
	if theme.tick > diffTick {
		rounds = 3
	}
	for range rounds {
		for range 1 + g.r.IntN(5) {
			out = append(out, g.clockLine(theme))
		}
		out = append(out, "tick "+max(theme.tick, diffTick).String())
	}
	return out
}

func (g *generator) clockLine(theme *clockTheme) string {
	g.published++
	return strings.NewReplacer(
		"SUBJECT", g.pick("a.1", "a.1", "a.2", "a.3"), "BATCH", g.pick("1", "1", "2", "3"), " N ", " "+g.pick("0", "1", "2")+" ",
		"mSEQ", fmt.Sprint("m", g.published),
	).Replace(g.pick(theme.lines...))
}

// diffMoment matches a time from now in a line.
var diffMoment = regexp.MustCompile(`@\+([^@]+)@`)

// diffMoments fills in the times of a line.
func diffMoments(line string, now time.Time) string {
	return diffMoment.ReplaceAllStringFunc(line, func(m string) string {
		d, err := time.ParseDuration(diffMoment.FindStringSubmatch(m)[1])
		if err != nil {
			panic(err) // the theme's
		}
		return now.Add(d).UTC().Format(time.RFC3339Nano)
	})
}

// diffClock is where a script is in its windows.
type diffClock struct {
	window time.Time // when the last began; zero: the script is not about time
	late   bool      // a line was played when its window was over: what is seen is by the machine's luck
}

func newDiffClock(script []string) (c diffClock) {
	for _, line := range script {
		if strings.HasPrefix(line, "tick ") {
			c.window = time.Now()
		}
	}
	return c
}

// wait waits for the line's turn and reports whether it is a tick, which no server is told of.
func (c *diffClock) wait(line string) bool {
	if c.window.IsZero() {
		return false
	}
	arg, ok := strings.CutPrefix(line, "tick ")
	if !ok {
		c.late = c.late || time.Since(c.window) > diffWindow
		return false
	}
	d, err := time.ParseDuration(arg)
	if err != nil {
		panic(err) // clockScript's
	}
	c.window = c.window.Add(d)
	c.late = c.late || time.Now().After(c.window)
	time.Sleep(time.Until(c.window))
	return true
}

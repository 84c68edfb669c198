package stream_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// messages notes what is stored up to seq, without the times that fired messages carry.
func (s *script) messages(to uint64) {
	s.t.Helper()
	for seq := uint64(1); seq <= to; seq++ {
		s.line("message %d: %s", seq, sortedHeader(withoutTimes(s.w.message(s.t, seq))))
	}
}

// withoutTimes replaces the time of a Nats-Schedule-Next, checking its form.
func withoutTimes(text string) string {
	before, rest, ok := strings.Cut(text, "Nats-Schedule-Next: 2")
	if !ok {
		return text
	}
	at, after, _ := strings.Cut(rest, `\r\n`)
	if _, err := time.Parse(time.RFC3339Nano, "2"+at); err != nil {
		return text
	}
	return before + "Nats-Schedule-Next: (a time)" + `\r\n` + after
}

// still notes whether the stream gets anything more.
func (s *script) still() {
	s.t.Helper()
	before := s.w.state(s.t).LastSeq
	time.Sleep(1200 * time.Millisecond)
	s.line("more came: %v", s.w.state(s.t).LastSeq != before)
}

// sortedHeader sorts the lines of the header, which the client of nats-server's world sends in any order.
func sortedHeader(text string) string {
	start, rest, ok := strings.Cut(text, `"NATS/1.0\r\n`)
	if !ok {
		return text
	}
	header, data, _ := strings.Cut(rest, `\r\n\r\n"`)
	lines := strings.Split(header, `\r\n`)
	slices.Sort(lines)
	return fmt.Sprint(start, lines, data)
}

func in(d time.Duration) string {
	return "@at " + time.Now().Add(d).UTC().Format("2006-01-02T15:04:05.000000000Z")
}

func (s *script) schedules(cfg server.StreamConfig) {
	s.t.Helper()
	cfg.AllowMsgSchedules = true
	s.create(cfg)
}

// quiet publishes a schedule and notes the answer without the headers, which have times.
func (s *script) quiet(subject, data string, pairs ...string) {
	s.t.Helper()
	s.line("schedule %s: %s", subject, canonical(s.w.publish(s.t, subject, block(pairs...), data)))
}

// scheduleScripts are run on a nats-server and on ours.
var scheduleScripts = map[string]func(*script){
	"disabled": func(s *script) {
		s.create(server.StreamConfig{})
		for _, pairs := range [][]string{
			{"Nats-Schedule", "@every 1s", "Nats-Schedule-Target", "s.t"},
			{"Nats-Schedule", "nonsense"},
			{"Nats-Schedule", "@at 0001-01-01T00:00:00Z"},
			{"Nats-Schedule-Target", "s.t"},
			{"Nats-Schedule-Time-Zone", "Nowhere/Land"},
			{"Nats-Schedule-Time-Zone", "Europe/Amsterdam"},
			{"Nats-Schedule-Time-Zone", ""},
			{"Nats-Schedule-Next", "purge", "Nats-Scheduler", "s.b"},
			{"Nats-Schedule-Next", "purge"},
			{"Nats-Schedule-Next", "2030-01-01T00:00:00Z", "Nats-Scheduler", "s.b"},
			{"Nats-Scheduler", "s.b"},
		} {
			s.pub("s.a", "x", pairs...)
		}
		s.state()
	},
	"checks": func(s *script) {
		s.schedules(server.StreamConfig{Subjects: []string{"s.>", "exact"}})
		s.line("config %+v", s.w.config(s.t))
		target := []string{"Nats-Schedule", "@every 1h", "Nats-Schedule-Target", "s.t"}
		for _, pairs := range [][]string{
			{"Nats-Schedule", "@every 1h"},
			{"Nats-Schedule", "@every 1h", "Nats-Schedule-Target", "s.a"},
			{"Nats-Schedule", "@every 1h", "Nats-Schedule-Target", "s.*"},
			{"Nats-Schedule", "@every 1h", "Nats-Schedule-Target", "s..a"},
			{"Nats-Schedule", "@every 1h", "Nats-Schedule-Target", "other"},
			{"Nats-Schedule", "@every 1h", "Nats-Schedule-Target", "exact"},
			{"Nats-Schedule", "@at 0001-01-01T00:00:00Z", "Nats-Schedule-Target", "s.t"},
			append([]string{"Nats-Schedule-Source", "s.a"}, target...),
			append([]string{"Nats-Schedule-Source", "s.t"}, target...),
			append([]string{"Nats-Schedule-Source", "s.>"}, target...),
			append([]string{"Nats-Schedule-Source", "other"}, target...),
			append([]string{"Nats-Schedule-TTL", "5m"}, target...),
			append([]string{"Nats-Schedule-TTL", "5x"}, target...),
			append([]string{"Nats-Schedule-Rollup", "sub"}, target...),
			append([]string{"Nats-Schedule-Rollup", "SUB"}, target...),
			append([]string{"Nats-Schedule-Rollup", "all"}, target...),
			append([]string{"Nats-Schedule-Time-Zone", "Europe/Amsterdam"}, target...),
			append([]string{"Nats-Rollup", "all"}, target...),
			append([]string{"Nats-Rollup", "SUB"}, target...),
			append([]string{"Nats-Rollup", "sub"}, target...),
			append([]string{"Nats-TTL", "5m"}, target...),
			append([]string{"Nats-Scheduler", "s.b"}, target...),
			append([]string{"Nats-Expected-Last-Subject-Sequence", "77"}, target...),
			{"Nats-Schedule-Time-Zone", "Nowhere/Land"},
			{"Nats-Schedule-Time-Zone", ""},
			{"Nats-Schedule-Time-Zone", "UTC"},
			{"Nats-Schedule", "0 0 12 * * *", "Nats-Schedule-Time-Zone", "Nowhere/Land", "Nats-Schedule-Target", "s.t"},
			{"Nats-Schedule", "0 0 12 * * *", "Nats-Schedule-Time-Zone", "", "Nats-Schedule-Target", "s.t"},
			{"Nats-Schedule", "0 0 12 * * *", "Nats-Schedule-Time-Zone", "Asia/Tokyo", "Nats-Schedule-Target", "s.t"},
			{"Nats-Schedule-Next", "purge", "Nats-Scheduler", "s.nothing"},
			{"Nats-Schedule-Next", "purge", "Nats-Scheduler", "s.a"},
			{"Nats-Schedule-Next", "purge", "Nats-Scheduler", "s.*"},
			{"Nats-Schedule-Next", "purge"},
			{"Nats-Schedule-Next", "later", "Nats-Scheduler", "s.b"},
			{"Nats-Scheduler", "s.b"},
		} {
			s.pub("s.a", "x", pairs...)
		}
		s.state()
		s.messages(s.w.state(s.t).LastSeq)
	},
	"sizes": func(s *script) {
		s.schedules(server.StreamConfig{MaxMsgSize: 100})
		// With the rollup it gets, it is too large.
		for n := range 8 {
			s.pub("s.a", strings.Repeat("x", 4*n), "Nats-Schedule", "@every 1h", "Nats-Schedule-Target", "s.t")
		}
		s.state()
	},
	"cancel": func(s *script) {
		s.schedules(server.StreamConfig{})
		every := []string{"Nats-Schedule", "@every 1h", "Nats-Schedule-Target", "s.t"}
		s.pub("s.a", "x", every...)
		s.pub("s.b", "no schedule")
		s.pub("s.c", "x", "Nats-Schedule-Next", "purge", "Nats-Scheduler", "s.b")
		s.pub("s.c", "x", "Nats-Schedule-Next", "purge", "Nats-Scheduler", "s.a")
		s.state()
		s.pub("s.a", "again", every...)
		s.pub("s.a", "and again", every...)
		s.state()
		s.pub("s.a", "an ordinary message ends it")
		s.pub("s.c", "x", "Nats-Schedule-Next", "purge", "Nats-Scheduler", "s.a")
		s.state()
		s.messages(9)
	},
	"once": func(s *script) {
		s.schedules(server.StreamConfig{AllowMsgTTL: true})
		s.quiet("s.a", "hello", "Nats-Schedule", in(400*time.Millisecond), "Nats-Schedule-Target", "s.t", "My", "own",
			"Nats-Schedule-TTL", "1h", "Nats-Msg-Id", "id", "Nats-Expected-Last-Subject-Sequence", "0", "Nats-TTL", "2h")
		s.state()
		waitFor(s.t, "the message", func() bool { return s.w.state(s.t).LastSeq == 2 })
		s.settle(1)
		s.messages(2)
		s.pub("s.b", "x", "Nats-Expected-Last-Msg-Id", "id")
	},
	"past": func(s *script) {
		s.schedules(server.StreamConfig{Storage: server.MemoryStorage})
		s.quiet("s.a", "late", "Nats-Schedule", in(-time.Hour), "Nats-Schedule-Target", "s.t")
		waitFor(s.t, "the message", func() bool { return s.w.state(s.t).LastSeq == 2 })
		s.settle(1)
		s.messages(2)
	},
	"rollup": func(s *script) {
		s.schedules(server.StreamConfig{})
		for i := range 3 {
			s.pub("s.t", fmt.Sprint(i))
		}
		s.quiet("s.a", "all in one", "Nats-Schedule", in(300*time.Millisecond), "Nats-Schedule-Target", "s.t",
			"Nats-Schedule-Rollup", "sub")
		s.settle(1)
		s.messages(5)
	},
	"source": func(s *script) {
		s.schedules(server.StreamConfig{})
		s.pub("s.from", "old")
		s.pub("s.from", "sampled", "A", "b", "Nats-Msg-Id", "m")
		s.quiet("s.a", "own", "Nats-Schedule", in(300*time.Millisecond), "Nats-Schedule-Target", "s.t",
			"Nats-Schedule-Source", "s.from", "C", "d")
		s.quiet("s.b", "own", "Nats-Schedule", in(900*time.Millisecond), "Nats-Schedule-Target", "s.t",
			"Nats-Schedule-Source", "s.nothing", "C", "d")
		waitFor(s.t, "both messages", func() bool { return s.w.state(s.t).LastSeq == 6 })
		s.settle(4)
		s.messages(6)
	},
	"every second": func(s *script) {
		s.schedules(server.StreamConfig{})
		s.quiet("s.a", "tick", "Nats-Schedule", "@every 1s", "Nats-Schedule-Target", "s.t")
		waitFor(s.t, "two messages", func() bool { return s.w.state(s.t).LastSeq >= 3 })
		s.messages(3)
		s.w.publish(s.t, "s.a", nil, "an ordinary message ends it")
		s.still()
	},
	"cron": func(s *script) {
		s.schedules(server.StreamConfig{})
		s.quiet("s.a", "tick", "Nats-Schedule", "* * * * * *", "Nats-Schedule-Target", "s.t", "Nats-Schedule-Time-Zone", "Asia/Tokyo")
		waitFor(s.t, "a message", func() bool { return s.w.state(s.t).LastSeq >= 2 })
		s.messages(2)
		n, err := s.w.purge(s.t, server.JSApiStreamPurgeRequest{Subject: "s.a"})
		s.line("purge: %d %s", n, errorLine(err))
		s.still()
	},
	"interest": func(s *script) {
		s.schedules(server.StreamConfig{Retention: server.InterestPolicy})
		s.quiet("s.a", "nobody wants it", "Nats-Schedule", in(200*time.Millisecond), "Nats-Schedule-Target", "s.t")
		time.Sleep(600 * time.Millisecond)
		s.state()
	},
	"deleted": func(s *script) {
		s.schedules(server.StreamConfig{})
		s.quiet("s.a", "x", "Nats-Schedule", in(500*time.Millisecond), "Nats-Schedule-Target", "s.t")
		s.quiet("s.b", "x", "Nats-Schedule", in(500*time.Millisecond), "Nats-Schedule-Target", "s.t")
		s.del(1, true)
		s.purge(server.JSApiStreamPurgeRequest{Subject: "s.b"})
		time.Sleep(1200 * time.Millisecond)
		s.state()
	},
	"a schedule of schedules": func(s *script) {
		s.schedules(server.StreamConfig{})
		s.quiet("s.b", "second", "Nats-Schedule", in(700*time.Millisecond), "Nats-Schedule-Target", "s.t")
		s.quiet("s.a", "first", "Nats-Schedule", in(300*time.Millisecond), "Nats-Schedule-Target", "s.b")
		waitFor(s.t, "both messages", func() bool { return s.w.state(s.t).LastSeq == 4 })
		s.settle(1)
		s.messages(4)
	},
	"turned on": func(s *script) {
		s.create(server.StreamConfig{})
		s.pub("s.a", "x", "Nats-Schedule", "@every 1s", "Nats-Schedule-Target", "s.t")
		s.update(func(c *server.StreamConfig) { c.AllowMsgSchedules = true })
		s.quiet("s.a", "x", "Nats-Schedule", in(300*time.Millisecond), "Nats-Schedule-Target", "s.t")
		waitFor(s.t, "the message", func() bool { return s.w.state(s.t).LastSeq == 2 })
		s.settle(1)
		s.messages(2)
		s.update(func(c *server.StreamConfig) { c.AllowMsgSchedules = false })
	},
	"republished and mapped": func(s *script) {
		s.schedules(server.StreamConfig{
			RePublish:        &server.RePublish{Source: ">", Destination: "out.>"},
			SubjectTransform: &server.SubjectTransformConfig{Source: "s.in.>", Destination: "s.>"},
		})
		out := s.w.listen(s.t, "out.s.t")
		s.quiet("s.in.a", "x", "Nats-Schedule", in(300*time.Millisecond), "Nats-Schedule-Target", "s.t")
		s.quiet("s.in.t", "x", "Nats-Schedule", in(300*time.Millisecond), "Nats-Schedule-Target", "s.t")
		s.heard(out)
		s.messages(2)
	},
}

func TestSchedulesAsNATS(t *testing.T) { runScripts(t, scheduleScripts) }

// counterScripts are run on a nats-server and on ours.
var counterScripts = map[string]func(*script){
	"counters disabled": func(s *script) {
		s.create(server.StreamConfig{})
		s.pub("s.a", "", "Nats-Incr", "1")
		s.pub("s.a", "", "Nats-Incr", "one")
		s.pub("s.a", "", "Nats-Incr", "")
		s.update(func(c *server.StreamConfig) { c.AllowMsgCounter = true })
	},
	"counters": func(s *script) {
		s.create(server.StreamConfig{AllowMsgCounter: true, MaxMsgsPer: 3})
		for _, by := range []string{"1", "+2", "-7", "0", "-0", "1_0", "", "1.5", "0x10", "007", "--1", "99999999999999999999999999"} {
			s.pub("s.a", "", "Nats-Incr", by)
		}
		s.pub("s.b", "", "Nats-Incr", "-5", "A", "b")
		s.pub("s.b", "")
		s.pub("s.b", "x")
		s.pub("s.b", "x", "A", "b")
		s.pub("s.b", "x", "Nats-Incr", "1")
		s.state()
		s.messages(12)
		s.del(s.w.state(s.t).LastSeq, true)
		s.pub("s.b", "", "Nats-Incr", "1")
		s.purge(server.JSApiStreamPurgeRequest{Subject: "s.a"})
		s.pub("s.a", "", "Nats-Incr", "4")
	},
	"counter headers": func(s *script) {
		s.create(server.StreamConfig{AllowMsgCounter: true, AllowRollup: true})
		for _, pairs := range [][]string{
			{"Nats-Msg-Id", "a"},
			{"Nats-Msg-Id", "a"},
			{"Nats-Rollup", "sub"},
			{"Nats-Expected-Stream", "S"},
			{"Nats-Expected-Last-Msg-Id", "a"},
			{"Nats-Expected-Last-Sequence", "1"},
			{"Nats-Expected-Last-Subject-Sequence", "1"},
			{"Nats-Expected-Last-Subject-Sequence-Subject", "s.b"},
			{"Nats-TTL", "5"},
			{"Nats-Schedule", "@every 1h"},
			{"Nats-Stream-Source", "T 1"},
			{"Own", "header"},
		} {
			s.pub("s.a", "", append([]string{"Nats-Incr", "2"}, pairs...)...)
		}
		s.messages(4)
		s.state()
	},
	"counter sources": func(s *script) {
		s.create(server.StreamConfig{AllowMsgCounter: true})
		sources := "Nats-Counter-Sources"
		s.pub("s.a", "", "Nats-Incr", "2", sources, `{"T":{"x":"1","a":"2"}}`)
		s.pub("s.a", "", "Nats-Incr", "2")
		s.pub("s.b", "", "Nats-Incr", "2", sources, `{}`)
		s.pub("s.b", "", "Nats-Incr", "2")
		s.pub("s.c", "", "Nats-Incr", "2", sources, `broken`)
		s.pub("s.c", "", "Nats-Incr", "2")
		s.messages(5)
	},
	"counter sizes": func(s *script) {
		s.create(server.StreamConfig{AllowMsgCounter: true, MaxMsgSize: 60})
		for n := range 12 {
			s.pub("s.a", "", "Nats-Incr", strings.Repeat("1", 3*n+1))
		}
		s.state()
	},
	"counter republished": func(s *script) {
		s.create(server.StreamConfig{
			AllowMsgCounter: true, RePublish: &server.RePublish{Source: ">", Destination: "out.>"},
			SubjectTransform: &server.SubjectTransformConfig{Source: "s.in.>", Destination: "s.>"},
		})
		out := s.w.listen(s.t, "out.>")
		for range 3 {
			s.pub("s.in.a", "", "Nats-Incr", "2")
			s.pub("s.a", "", "Nats-Incr", "3")
			s.heard(out)
			s.heard(out)
		}
	},
}

func TestCountersAsNATS(t *testing.T) { runScripts(t, counterScripts) }
